"""Arms of a study on the fused backend: a recipe, or a recipe behind a prefix that is shared or copied.

    prefix:
      page_tokens: 8
      positions: 632                  # of complete requests, memory and the oracle
      positions_at: [[888, 632]]      # of a sweep: a context, and how many of its tokens are the prefix
      arms: {once-k16v8: {own: native, prefix: k16v8-f, copied: false}, ...}

Without such a section an arm is the recipe of its name. With it every arm is a pair: `own` stores a request's tokens,
`prefix` a frozen prefix of all requests, once; `copied` puts the prefix into each request's own pages instead, which
only a study of decode steps may (a prompt behind a copy is chunked prefill, which the backend does not have).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kassay.backend import fused
from kassay.backend.fused_cache import Scales
from kassay.backend.fused_prefix import Operands, Prefix, frozen
from kassay.backend.fused_stage import prompts_of
from kassay.backend.fused_weights import Weights
from kassay.errors import KassayError
from kassay.kv.recipe import NATIVE, Recipe, recipe_named

PAGE_TOKENS = 16  # where no prefix asks for others


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One arm."""

    name: str
    own: Recipe  # of a request's own tokens, and of a copied prefix
    prefix: Recipe | None  # of a prefix; None: there is none
    copied: bool

    @property
    def once(self) -> Recipe | None:
        """The recipe of a prefix that is stored once."""
        return None if self.copied else self.prefix

    def recipes(self) -> tuple[Recipe, ...]:
        """What it stores with."""
        return (self.own, *([self.prefix] if self.prefix is not None else []))


def arms_of(names: Sequence[str], section: Mapping[str, Any] | None, sixteen: str) -> list[Arm]:
    """The arms of these names. Raises KassayError for unknown ones, and for a copy in another recipe than its pages."""
    if section is None:
        return [Arm(name=name, own=recipe_named(name, sixteen), prefix=None, copied=False) for name in names]
    if unknown := [name for name in names if name not in section["arms"]]:
        raise KassayError(f"unknown arm `{unknown[0]}`, this study has {', '.join(section['arms'])}")
    found = []
    for name in names:
        own, prefix = (recipe_named(section["arms"][name][part], sixteen) for part in ("own", "prefix"))
        copied = bool(section["arms"][name]["copied"])
        if copied and own != prefix:
            raise KassayError(f"arm `{name}`: a copy in pages of `{own.name}` is stored so, and not as `{prefix.name}`")
        found.append(Arm(name=name, own=own, prefix=prefix, copied=copied))
    return found


def page_tokens_of(section: Mapping[str, Any] | None) -> int:
    """Tokens of a page."""
    return PAGE_TOKENS if section is None else int(section["page_tokens"])


def operands_of(weights: Weights, ids_P: torch.Tensor, sixteen: str) -> Operands:
    """A text's keys and values in 16 bits, keys after norm and RoPE: a prefill of the decoder itself."""
    native = NATIVE.on(sixteen)
    plan = fused.Plan(batch=1, row_tokens=len(ids_P) + 1, steps=1)
    decoder = fused.Decoder(weights, native, plan)
    decoder.step.seen = []
    decoder.admit(torch.cat([ids_P, ids_P[-1:]])[None], 1)  # the last token of a prompt is not prefilled
    return [(kv_N2GD[:, 0].contiguous(), kv_N2GD[:, 1].contiguous()) for _, kv_N2GD in decoder.step.seen]


def positions_at(section: Mapping[str, Any] | None, context_tokens: int) -> int:
    """Tokens of a context of a sweep that are the prefix. Raises KassayError where the study does not say."""
    if section is None:
        return 0
    known = {int(context): int(positions) for context, positions in section["positions_at"]}
    if not 0 < known.get(context_tokens, 0) < context_tokens:
        raise KassayError(f"no prefix within a context of {context_tokens} tokens; `positions_at` has {known}")
    return known[context_tokens]


def prefix_ids(weights: Weights, positions: int, seed: int) -> torch.Tensor:
    """ids_P of the text of a prefix, which no prompt of the same seed begins with; none for 0 positions."""
    if positions == 0:
        return torch.empty(0, dtype=torch.int64)
    return prompts_of(weights, 1, positions, seed + 1)[0]


def prefix_of(arm: Arm, weights: Weights, operands: Operands, page_tokens: int, scales: Scales | None) -> Prefix | None:
    """The prefix of an arm, stored once; None for an arm without one."""
    if arm.once is None:
        return None
    own = scales if arm.once.policy == "fixed" else None
    return frozen(
        arm.once, operands, query_heads=weights.geometry.query_heads, page_tokens=page_tokens, scales=own
    )  # fmt: skip
