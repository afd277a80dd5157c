"""Greedy decoding with drafts: the target model reads a draft in one pass and keeps what it would have said itself.

Axes: B requests that are not done yet, W width of a pass (1 + the longest draft), V vocabulary.

A pass reads of each request its last token and its draft. Draft tokens are accepted as long as each is the greedy token
after what stands before it; the greedy token after the last accepted one is the request's too, so a pass gives
1 + accepted tokens. Rejected tokens leave the cache (kassay.kv.ragged).

Requests share a batch at their own pace: each has its own positions and mask, none waits for the least accepted. A
shorter draft is padded, and padding is computed and never stored. A request leaves the batch with its last token. A
draft is never longer than what is left but one, so nothing beyond the asked length is computed, let alone counted:

    tokens of a request = its passes + its accepted draft tokens

In exact arithmetic the output is that of `reference.forced` under the same recipe. A wider product may round otherwise,
move an operand across a step of its format, and turn two tokens that are all but tied: how near that comes is measured
by stages/acceptance.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from kassay.backend.ngram import Drafting, Ngrams
from kassay.kv.cache import RecipeCache
from kassay.kv.ragged import RaggedCache

PADDING = 0  # token id of padding, computed and never stored

Watch = Callable[[int, torch.Tensor], None]  # request, logits_TV of the tokens that a pass gave it


@dataclass(kw_only=True)
class Request:
    """One request on its way."""

    index: int
    ngrams: Ngrams
    last: int  # token that the cache does not hold yet
    output: list[int] = field(default_factory=list)
    passes: int = 0
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, kw_only=True)
class Speculated:
    """The outputs of a batch, and what they took, request by request."""

    output_BT: torch.Tensor
    passes: list[int]
    drafted: list[int]
    accepted: list[int]


def speculate(
    model: Any,
    cache: RecipeCache,
    prompt_BT: torch.Tensor,
    steps: int,
    drafting: Drafting,
    watch: Watch | None = None,
) -> Speculated:
    """`steps` greedy tokens of each request, none of which ends it. The cache holds all of each prompt but its last.

    Raises KassayError for a cache that cannot give tokens back.
    """
    rows: list[list[int]] = prompt_BT.tolist()
    requests = [Request(index=i, ngrams=Ngrams(drafting, row), last=row[-1]) for i, row in enumerate(rows)]
    ragged, going = RaggedCache(cache), requests
    while going:
        drafts = [one.ngrams.draft(steps - len(one.output) - 1) for one in going]
        logits_BWV = verified(model, ragged, going, drafts, prompt_BT.device)
        greedy: list[list[int]] = logits_BWV.argmax(-1).tolist()
        kept = []
        for place, (one, draft) in enumerate(zip(going, drafts, strict=True)):
            accepted = agreeing(draft, greedy[place])
            if watch is not None:
                watch(one.index, logits_BWV[place, : accepted + 1])
            take(one, len(draft), greedy[place][: accepted + 1])
            kept.append(accepted + 1)
        ragged.settle(kept)
        alive = [place for place, one in enumerate(going) if len(one.output) < steps]
        if alive and len(alive) < len(going):
            ragged.keep(alive)
        going = [going[place] for place in alive]
    return Speculated(
        output_BT=torch.tensor([one.output for one in requests]),
        passes=[one.passes for one in requests],
        drafted=[one.drafted for one in requests],
        accepted=[one.accepted for one in requests],
    )


def verified(
    model: Any, cache: RaggedCache, going: list[Request], drafts: list[list[int]], device: torch.device
) -> torch.Tensor:
    """logits_BWV of one pass over the last token and the draft of each request."""
    width = 1 + max(map(len, drafts))
    padded = [
        [one.last, *draft, *[PADDING] * (width - 1 - len(draft))] for one, draft in zip(going, drafts, strict=True)
    ]
    positions_BW, mask_B1WT = cache.expect([1 + len(draft) for draft in drafts], width, device)
    logits_BWV: torch.Tensor = model(
        torch.tensor(padded, device=device),
        past_key_values=cache,
        use_cache=True,
        position_ids=positions_BW,
        attention_mask=mask_B1WT,
    ).logits
    return logits_BWV


def agreeing(draft: list[int], greedy: list[int]) -> int:
    """How many of the first draft tokens are the model's own."""
    return next((at for at, token in enumerate(draft) if token != greedy[at]), len(draft))


def take(one: Request, drafted: int, given: list[int]) -> None:
    """Give a request the tokens of a pass."""
    one.output += given
    one.ngrams.extend(given)
    one.last = given[-1]
    one.passes += 1
    one.drafted += drafted
    one.accepted += len(given) - 1
