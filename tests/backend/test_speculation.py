"""Drafts of n-grams, and that decoding with them gives the tokens of plain greedy decoding."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from kassay import paths
from kassay.backend import reference, workload
from kassay.backend.ngram import Drafting, Ngrams
from kassay.backend.speculation import speculate
from kassay.errors import KassayError
from kassay.kv.cache import Prefilled, Scales
from kassay.kv.calibrate import AmaxFold, by_component
from kassay.kv.recipe import RECIPES, Recipe, recipe_named
from tests import tiny
from tests.tiny import torch_as_it_was  # noqa: F401  an autouse fixture

DRAFTING = Drafting(draft_tokens=4, longest=4, shortest=2)
CUT_FREELY = [recipe for recipe in RECIPES if recipe.policy != "tensor"]


def slow_draft(tokens: list[int], drafting: Drafting, most: int) -> list[int]:
    """The draft by its definition."""
    for size in range(drafting.longest, drafting.shortest - 1, -1):
        for start in range(len(tokens) - size - 1, -1, -1):
            if tokens[start : start + size] == tokens[-size:]:
                return tokens[start + size : start + size + min(most, drafting.draft_tokens)]
    return []


@pytest.mark.parametrize("seed", range(20))
def test_drafts_are_those_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shortest = int(rng.integers(1, 4))
    drafting = Drafting(
        draft_tokens=int(rng.integers(1, 6)), longest=shortest + int(rng.integers(0, 3)), shortest=shortest
    )
    tokens = rng.integers(0, 4, size=60).tolist()
    ngrams = Ngrams(drafting, tokens[:5])
    for end in range(5, 60):
        most = int(rng.integers(0, 7))
        wanted = slow_draft(tokens[:end], drafting, most) if most else []
        assert ngrams.draft(most) == wanted
        ngrams.extend(tokens[end : end + 1])


def test_drafts_in_words() -> None:
    ngrams = Ngrams(Drafting(draft_tokens=3, longest=3, shortest=2), b"the ram saw the ram. th")
    assert bytes(ngrams.draft(9)) == b"e r"  # after the latest ` th`
    assert bytes(ngrams.draft(1)) == b"e" and ngrams.draft(0) == []
    assert Ngrams(Drafting(draft_tokens=3, longest=3, shortest=2), b"abcdef").draft(3) == []
    assert Ngrams(Drafting(draft_tokens=3, longest=3, shortest=2), b"a").draft(3) == []


@pytest.fixture(scope="module", params=["robust", "fragile"])
def shipped(request: pytest.FixtureRequest) -> Any:
    """A shipped model: it repeats itself and its prompt, so drafts are accepted and rejected."""
    return reference.load(paths.ROOT / "data" / "models" / request.param, 1)


def calibrated(context: Prefilled) -> Scales:
    """Scales of the very operands, with room for those that follow."""
    fold = AmaxFold()
    for layer, (k, v) in enumerate(context.operands):
        fold.add("k", layer, 1.5 * k.float().numpy())
        fold.add("v", layer, 1.5 * v.float().numpy())
        fold.add("k_residual", layer, 1.5 * k.float().numpy())
    return by_component(fold.scales(len(context.operands), ("k", "v", "k_residual")))


def both(model: Any, recipe: Recipe, prompt_BT: torch.Tensor, steps: int, drafting: Drafting = DRAFTING) -> Any:
    """Plain tokens and what speculation gives for the same prompts."""
    context = reference.prefill(model, prompt_BT[:, :-1])
    scales = calibrated(context)
    plain_BT = reference.forced(
        model, reference.filled(model, recipe, scales, context, steps), prompt_BT[:, -1:], steps
    )
    found = speculate(model, reference.filled(model, recipe, scales, context, steps), prompt_BT, steps, drafting, None)
    return plain_BT, found


@pytest.mark.parametrize("recipe", CUT_FREELY, ids=lambda recipe: recipe.name)
def test_the_tokens_are_those_of_plain_decoding(shipped: Any, recipe: Recipe) -> None:
    """Every recipe, requests that go on at their own pace. No two tokens of these prompts are near enough to a tie."""
    if recipe.prebias and shipped.config.model_type != "qwen2":
        pytest.skip("the model has no key bias")
    plain_BT, found = both(shipped, recipe, workload.speed_prompts(3, 128, 11), 24)
    assert torch.equal(found.output_BT, plain_BT)
    assert [passes + accepted for passes, accepted in zip(found.passes, found.accepted, strict=True)] == [24] * 3
    assert 0 < sum(found.accepted) < sum(found.drafted)
    assert max(found.drafted) <= 4 * max(found.passes)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("batch", "context", "draft_tokens"), [(1, 64, 8), (2, 200, 1), (7, 96, 3)])
def test_whatever_prompts_batch_and_draft_length(
    shipped: Any, seed: int, batch: int, context: int, draft_tokens: int
) -> None:
    drafting = Drafting(draft_tokens=draft_tokens, longest=3, shortest=1)
    plain_BT, found = both(shipped, recipe_named("k16v8-d"), workload.speed_prompts(batch, context, seed), 17, drafting)
    assert torch.equal(found.output_BT, plain_BT)


def test_a_request_is_served_the_same_in_any_batch(shipped: Any) -> None:
    """Passes, drafts and acceptance of a request are its own: others in the batch change none of them."""
    prompt_BT = workload.speed_prompts(4, 160, 5)
    _, together = both(shipped, recipe_named("native"), prompt_BT, 32)
    for row in range(4):
        _, alone = both(shipped, recipe_named("native"), prompt_BT[row : row + 1], 32)
        assert torch.equal(alone.output_BT[0], together.output_BT[row])
        for name in ("passes", "drafted", "accepted"):
            assert getattr(alone, name) == [getattr(together, name)[row]]
    assert len(set(together.passes)) > 1  # they did end at different passes


def test_nothing_beyond_the_asked_length_is_computed(shipped: Any) -> None:
    """The tokens that were read, by the positions that each pass was given: none at or after the last output token."""
    seen: list[int] = []
    hook = shipped.register_forward_pre_hook(
        lambda model, args, kwargs: (
            seen.append(kwargs["past_key_values"].held[0].coming.longest)
            if hasattr(kwargs["past_key_values"], "held")
            else None
        ),
        with_kwargs=True,
    )
    try:
        both(shipped, recipe_named("native"), workload.speed_prompts(2, 96, 5), 9)
    finally:
        hook.remove()
    assert seen and max(seen) <= 95 + 9


def test_without_drafts_it_is_plain_decoding(tmp_path: Path) -> None:
    """A random model on random tokens: no n-gram is found, so every request takes as many passes as tokens."""
    model = reference.load(tiny.save(tmp_path, "qwen2", Qwen2Config, Qwen2ForCausalLM), 1)
    prompt_BT = torch.stack([torch.randperm(128, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)])
    drafting = Drafting(draft_tokens=4, longest=60, shortest=50)
    plain_BT, found = both(model, recipe_named("native"), prompt_BT, 6, drafting)
    assert torch.equal(found.output_BT, plain_BT)
    assert (found.passes, found.drafted, found.accepted) == ([6, 6], [0, 0], [0, 0])


def test_a_recipe_that_cannot_give_back_is_refused(shipped: Any) -> None:
    with pytest.raises(KassayError, match="scales what one write brings"):
        both(shipped, recipe_named("k16v8-t"), workload.speed_prompts(1, 64, 5), 4)
