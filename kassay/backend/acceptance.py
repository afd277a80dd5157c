"""Acceptance of drafts on one model: every recipe, context, batch and draft length, beside plain decoding.

Axes: B requests of a batch, S output tokens, T prompt tokens, V vocabulary.

The same requests are cut into batches of each size, so that nothing but the batch differs. Logits of verify passes are
held against those of plain decoding behind the same tokens: up to a request's first other token, if it has one. Nothing
is timed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from kassay.backend import reference, speculation
from kassay.backend.ngram import Drafting
from kassay.backend.speculation import Speculated
from kassay.kinds.speculation import AcceptanceRecord
from kassay.kv.cache import Prefilled, RecipeCache, Scales
from kassay.kv.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What is asked of one model."""

    recipes: tuple[Recipe, ...]
    draftings: tuple[Drafting, ...]
    batches: tuple[int, ...]
    output_tokens: int
    rounding_tolerance: float


@dataclass(kw_only=True)
class Found:
    """What a recipe, batch and draft length came to, over batches so far."""

    passes: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    others: int = 0
    rounding: float = 0.0
    margin: float = float("inf")


def measured(
    model: Any, scales: Scales, prompt_BT: torch.Tensor, grid: Grid, named: dict[str, Any]
) -> Iterator[AcceptanceRecord]:
    """The records of one context, batch by batch; `named` are the fields that say of what."""
    for batch in grid.batches:
        found = {(recipe, drafting): Found() for recipe in grid.recipes for drafting in grid.draftings}
        for own_BT in torch.split(prompt_BT, batch):
            context = reference.prefill(model, own_BT[:, :-1], grid.recipes[0].sixteen)
            for recipe in grid.recipes:
                fill = (model, recipe, scales, context, grid.output_tokens)
                plain_BS, logits_BSV = plain(model, reference.filled(*fill), own_BT[:, -1:], grid.output_tokens)
                for drafting in grid.draftings:
                    add(found[recipe, drafting], *drafted(fill, own_BT, drafting), plain_BS, logits_BSV)
        for (recipe, drafting), one in found.items():
            yield record_of(one, recipe, drafting, batch, prompt_BT, grid, named)


def plain(model: Any, cache: RecipeCache, last_B1: torch.Tensor, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """ids_BS and logits_BSV of plain greedy decoding, as `reference.forced` does it."""
    logits_BSV = []
    ids_B1 = last_B1
    for _ in range(steps):
        logits_BSV.append(model(ids_B1, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1:])
        ids_B1 = logits_BSV[-1].argmax(-1)
    together_BSV = torch.cat(logits_BSV, dim=1)
    return together_BSV.argmax(-1), together_BSV


def drafted(
    fill: tuple[Any, Recipe, Scales, Prefilled, int], prompt_BT: torch.Tensor, drafting: Drafting
) -> tuple[Speculated, list[torch.Tensor]]:
    """Decoding with drafts, and logits_SV of each request's tokens."""
    logits: list[list[torch.Tensor]] = [[] for _ in prompt_BT]
    made = speculation.speculate(
        fill[0], reference.filled(*fill), prompt_BT, fill[-1], drafting,
        lambda request, logits_TV: logits[request].append(logits_TV),
    )  # fmt: skip
    return made, [torch.cat(own) for own in logits]


def add(
    found: Found, made: Speculated, logits: list[torch.Tensor], plain_BS: torch.Tensor, logits_BSV: torch.Tensor
) -> None:
    """One batch more."""
    found.passes += made.passes
    found.drafted += made.drafted
    found.accepted += made.accepted
    for request, own_SV in enumerate(logits):
        same_S = made.output_BT[request] == plain_BS[request].cpu()
        same = int(same_S.long().cumprod(0).sum())
        found.others += same < len(same_S)
        behind = slice(0, same + 1)  # the first other token stands behind the same tokens, too
        largest = float(logits_BSV[request].abs().max())
        apart = float((own_SV[behind] - logits_BSV[request, behind]).abs().max())
        found.rounding = max(found.rounding, apart / largest)
        two_S2 = logits_BSV[request].topk(2).values
        found.margin = min(found.margin, float((two_S2[:, 0] - two_S2[:, 1]).min()) / largest)


def record_of(
    found: Found,
    recipe: Recipe,
    drafting: Drafting,
    batch: int,
    prompt_BT: torch.Tensor,
    grid: Grid,
    named: dict[str, Any],
) -> AcceptanceRecord:
    """What was found as a record."""
    total = sum(found.drafted)
    return AcceptanceRecord(
        **named,
        recipe=recipe.name,
        batch=batch,
        context_tokens=prompt_BT.shape[1],
        output_tokens=grid.output_tokens,
        draft_tokens=drafting.draft_tokens,
        longest_ngram=drafting.longest,
        shortest_ngram=drafting.shortest,
        requests=prompt_BT.shape[0],
        passes=found.passes,
        drafted=found.drafted,
        accepted=found.accepted,
        acceptance=sum(found.accepted) / total if total else None,
        tokens_per_pass=len(found.passes) * grid.output_tokens / sum(found.passes),
        other_requests=found.others,
        largest_rounding=found.rounding,
        smallest_margin=found.margin,
        rounding_tolerance=grid.rounding_tolerance,
    )
