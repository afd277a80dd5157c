"""Sequences of their own lengths: what is given back was never there, bit for bit, under every recipe."""

import numpy as np
import pytest
import torch

from kassay.errors import KassayError
from kassay.kv.cache import Prefilled, RecipeCache, Scales
from kassay.kv.geometry import Geometry
from kassay.kv.ragged import RaggedCache
from kassay.kv.recipe import RECIPES, Recipe, recipe_named
from tests.kv.caches import bias_of, cache_of

GEOMETRY = Geometry(layers=2, kv_heads=2, head_dim=32)
SCALES: Scales = {"k": [0.013, 0.02], "v": [0.01, 0.03]}
CONTEXT, BATCH, CAPACITY = 5, 3, 40
CUT_FREELY = [recipe for recipe in RECIPES if recipe.policy != "tensor"]


def drawn(generator: np.random.Generator, batch: int, tokens: int) -> torch.Tensor:
    """Operands that a cache stores as they are."""
    shape = (batch, GEOMETRY.kv_heads, tokens, GEOMETRY.head_dim)
    return torch.from_numpy(generator.standard_normal(shape, dtype=np.float32)).half().float()


def filled(recipe: Recipe, context: Prefilled, sequence: int | None = None) -> RecipeCache:
    """A cache that holds the context of the batch, or of one sequence of it."""
    cache = cache_of(recipe, GEOMETRY, SCALES if recipe.policy == "fixed" else None, CAPACITY)
    rows = slice(None) if sequence is None else slice(sequence, sequence + 1)
    cache.fill(Prefilled(operands=[(k[rows], v[rows]) for k, v in context.operands]))
    return cache


def context_of(generator: np.random.Generator) -> Prefilled:
    """The context of the batch."""
    return Prefilled(
        operands=[
            (drawn(generator, BATCH, CONTEXT).half(), drawn(generator, BATCH, CONTEXT).half())
            for _ in range(GEOMETRY.layers)
        ]
    )


def passed(ragged: RaggedCache, operands: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """One pass of a model."""
    for layer, (k, v) in zip(ragged.held, operands, strict=True):
        layer.update(k, v)


@pytest.mark.parametrize("recipe", CUT_FREELY, ids=lambda recipe: recipe.name)
def test_a_rejected_token_was_never_there(recipe: Recipe) -> None:
    """Random passes against a cache for each sequence that is given, one by one, the tokens that were kept."""
    generator = np.random.default_rng(7)
    context = context_of(generator)
    ragged = RaggedCache(filled(recipe, context))
    alone = [filled(recipe, context, sequence) for sequence in range(BATCH)]
    for _ in range(6):
        width = int(generator.integers(1, 5))
        counts = [int(generator.integers(1, width + 1)) for _ in range(BATCH)]
        kept = [int(generator.integers(0, count + 1)) for count in counts]
        operands = [(drawn(generator, BATCH, width), drawn(generator, BATCH, width)) for _ in range(GEOMETRY.layers)]
        ragged.expect(counts, width)
        passed(ragged, operands)
        ragged.settle(kept)
        for sequence, stay in enumerate(kept):
            for at in range(stay):
                one = slice(sequence, sequence + 1)
                for layer, (k, v) in enumerate(operands):
                    alone[sequence].stored[layer].update(k[one, :, at : at + 1], v[one, :, at : at + 1])
    assert ragged.lengths == [cache.get_seq_length() for cache in alone] and len(set(ragged.lengths)) > 1
    for sequence, cache in enumerate(alone):
        for ours, theirs in zip(ragged.held, cache.stored, strict=True):
            for plane, wanted in ((ours.key_plane, theirs.key_plane), (ours.value_plane, theirs.value_plane)):
                assert torch.equal(plane.data_BHTD[sequence], wanted.data_BHTD[0])  # the whole capacity
                if plane.scaled_by_token:
                    assert torch.equal(plane.scale_BHTG[sequence], wanted.scale_BHTG[0])


@pytest.mark.parametrize("recipe", CUT_FREELY, ids=lambda recipe: recipe.name)
def test_a_pass_reads_what_its_own_sequence_holds(recipe: Recipe) -> None:
    generator = np.random.default_rng(8)
    context = context_of(generator)
    ragged, alone = RaggedCache(filled(recipe, context)), filled(recipe, context, 1)
    for counts, kept in (([3, 1, 2], [1, 1, 2]), ([1, 2, 2], [1, 2, 1])):
        width = max(counts)
        operands = [(drawn(generator, BATCH, width), drawn(generator, BATCH, width)) for _ in range(GEOMETRY.layers)]
        ragged.expect(counts, width)
        for layer, theirs, (k, v) in zip(ragged.held, alone.stored, operands, strict=True):
            got = layer.update(k, v)
            wanted = theirs.update(k[1:2, :, : counts[1]], v[1:2, :, : counts[1]])
            for ours, own in zip(got, wanted, strict=True):
                assert torch.equal(ours[1:2, :, : own.shape[2]], own)
        ragged.settle(kept)


def test_positions_and_mask_are_each_sequences_own() -> None:
    ragged = RaggedCache(filled(recipe_named("native"), context_of(np.random.default_rng(1))))
    operands = [(torch.zeros(BATCH, 2, 3, 32), torch.zeros(BATCH, 2, 3, 32))] * GEOMETRY.layers
    ragged.expect([3, 1, 2], 3)
    passed(ragged, operands)
    ragged.settle([3, 1, 0])
    positions_BW, mask_B1WT = ragged.expect([1, 2, 1], 2)
    assert ragged.lengths == [8, 6, 5] and ragged.get_seq_length() == 8
    assert positions_BW.tolist() == [[8, 9], [6, 7], [5, 6]]
    assert mask_B1WT.shape == (BATCH, 1, 2, 9)
    assert mask_B1WT.sum(-1)[:, 0].tolist() == [[9, 9], [7, 8], [6, 7]]  # up to itself; padding sees no further


def test_sequences_that_ended_leave_and_the_others_stay_as_they_are() -> None:
    recipe = recipe_named("k4v4-g32")
    context = context_of(np.random.default_rng(2))
    ragged, alone = RaggedCache(filled(recipe, context)), filled(recipe, context, 2)
    ragged.keep([2])
    assert ragged.lengths == [CONTEXT]
    for ours, theirs in zip(ragged.held, alone.stored, strict=True):
        assert ours.key_plane.data_BHTD.shape[0] == 1
        assert torch.equal(ours.key_plane.rebuilt(torch.float32), theirs.key_plane.rebuilt(torch.float32))


@pytest.mark.parametrize("recipe", [one for one in RECIPES if one.policy == "tensor"], ids=lambda recipe: recipe.name)
def test_a_scale_of_a_whole_write_is_refused(recipe: Recipe) -> None:
    with pytest.raises(KassayError, match=f"`{recipe.name}` scales what one write brings"):
        RaggedCache(filled(recipe, context_of(np.random.default_rng(1))))


def test_a_state_is_refused() -> None:
    kinds = ["full_attention", "conv", "full_attention"]
    cache = RecipeCache(recipe_named("native"), GEOMETRY, None, CAPACITY, kinds=kinds, key_bias=bias_of(GEOMETRY))
    with pytest.raises(KassayError, match="keeps a state and no tokens"):
        RaggedCache(cache)


def test_passes_that_do_not_fit_are_refused() -> None:
    ragged = RaggedCache(filled(recipe_named("native"), context_of(np.random.default_rng(1))))
    operands = [(torch.zeros(BATCH, 2, 2, 32), torch.zeros(BATCH, 2, 2, 32))] * GEOMETRY.layers
    with pytest.raises(KassayError, match="was not announced"):
        passed(ragged, operands)
    with pytest.raises(KassayError, match="allowed are 1 to 2"):
        ragged.expect([1, 0, 2], 2)
    with pytest.raises(KassayError, match="cannot take 41"):
        ragged.expect([36, 1, 1], 36)
    ragged.expect([1, 2, 2], 2)
    passed(ragged, operands)
    with pytest.raises(KassayError, match="to be kept of"):
        ragged.settle([2, 1, 1])
