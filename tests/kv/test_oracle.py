"""The float64 reference against a triple loop, and the comparison: clean passes, every fault and NaN fails."""

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch

from kassay.backend import capture
from kassay.kv import oracle
from kassay.kv.expected import quantized
from kassay.kv.mutation import MUTATIONS
from kassay.kv.oracle import Component, Stored
from kassay.kv.recipe import RECIPES

B, H, G, T, S, D = 2, 4, 2, 5, 52, 32
SCALES = {"k": 0.0072, "v": 0.0101}


def stored_of(recipe, seed=11, peak=1.0):
    """Random operands as the recipe stores them."""
    rng = np.random.default_rng(seed)
    k, v = rng.normal(size=(2, B, G, S, D)).astype(np.float16)
    k_scale, v_scale = (np.asarray(SCALES[name], np.float32) for name in "kv")
    offset = 3 * rng.normal(size=(G, S, D)).astype(np.float32) if recipe.prebias else None
    keys = quantized(recipe, recipe.key_format, (peak * k).astype(np.float16), (S - T, T), k_scale, offset)
    return Stored(
        keys=replace(keys, other_scale=v_scale),
        values=replace(quantized(recipe, recipe.value_format, v, (S - T, T), v_scale), other_scale=k_scale),
        q_BHTD=rng.normal(size=(B, H, T, D)).astype(np.float32),
        first_query=S - T,
        causal=True,
    )


def naive(q, k, v):
    """The same attention with loops and math.exp alone."""
    out = np.zeros(q.shape)
    lse = np.zeros(q.shape[:3])
    for b, h, t in np.ndindex(*q.shape[:3]):
        g, seen = h // (q.shape[1] // k.shape[1]), k.shape[2] - q.shape[2] + t + 1
        logits = [math.fsum(q[b, h, t] * k[b, g, s]) / math.sqrt(q.shape[3]) for s in range(seen)]
        total = math.fsum(math.exp(a) for a in logits)
        lse[b, h, t] = math.log(total)
        for d in range(q.shape[3]):
            out[b, h, t, d] = math.fsum(math.exp(a) * v[b, g, s, d] for s, a in enumerate(logits)) / total
    return out, lse


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1), (6, 2)], ids=["mha", "gqa", "mqa", "gqa3"])
@pytest.mark.parametrize("tokens", [(1, 7), (7, 7), (3, 9)], ids=["decode", "prefill", "chunk"])
def test_reference_equals_a_triple_loop(heads, tokens):
    rng = np.random.default_rng(7)
    q = rng.normal(size=(2, heads[0], tokens[0], 6))
    k, v = rng.normal(size=(2, 2, heads[1], tokens[1], 6))
    for got, wanted in zip(oracle.reference_attention(q, k, v), naive(q, k, v), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)


def test_reference_survives_large_logits():
    q = np.full((1, 1, 1, 4), 1e3)
    k = np.array([1.0, 2.0, 3.0])[None, None, :, None] * np.ones((1, 1, 1, 4))
    out, lse = oracle.reference_attention(q, k, k)
    assert out[0, 0, 0, 0] == pytest.approx(3.0)
    assert lse[0, 0, 0] == pytest.approx(6000.0)


def test_decoding_is_exact():
    codes = np.arange(0x7F, dtype=np.uint8).reshape(1, 1, 1, -1)
    scale = np.asarray(0.1, np.float32)
    one = Component(data_BGSD=codes, scale=scale, other_scale=None, decoded_as="e4m3fn")
    exact = [float(code) * float(scale) for code in codes.view(ml_dtypes.float8_e4m3fn).ravel()]
    assert oracle.decoded(one).ravel().tolist() == exact


@pytest.mark.parametrize("peak", [1.0, 30.0], ids=["small", "large-logits"])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_clean_passes(recipe, peak):
    stored = stored_of(recipe, peak=peak)
    wanted = oracle.reference_of(stored)
    for got, reference in zip(capture.replay(stored), (wanted.out_BHTD, wanted.lse_BHT), strict=True):
        result = oracle.compare(got, reference, peak_tolerance=wanted.peak_tolerance)
        assert result.within
        assert 0 < result.worst_ratio < 0.5


def caught(stored, faulty):
    wanted = oracle.reference_of(stored)
    out, lse = capture.replay(faulty)
    return not (
        oracle.compare(out, wanted.out_BHTD, peak_tolerance=wanted.peak_tolerance).within
        and oracle.compare(lse, wanted.lse_BHT, peak_tolerance=wanted.peak_tolerance).within
    )


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_fault_is_caught_by_attention_alone(mutation):
    recipes = [recipe for recipe in RECIPES if mutation.applies(recipe)]
    assert recipes
    if mutation.name == "double_rounding":
        return  # an error within a code: the codes' bits catch it
    for recipe in recipes:
        stored = stored_of(recipe)
        assert caught(stored, mutation.inject(stored)), recipe.name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_narrow_arithmetic_is_caught(dtype):
    stored = stored_of(RECIPES[0])
    wanted = oracle.reference_of(stored)
    q, k, v = (
        torch.from_numpy(np.ascontiguousarray(x)).to(dtype)
        for x in (stored.q_BHTD, stored.keys.data_BGSD, stored.values.data_BGSD)
    )
    seen_TS = capture.seen(T, S, S - T, True)
    k, v = (x.repeat_interleave(H // G, dim=1) for x in (k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen_TS).float().numpy()
    assert not oracle.compare(out, wanted.out_BHTD, peak_tolerance=wanted.peak_tolerance).within


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_fails(bad):
    wanted = np.random.default_rng(2).normal(size=(3, 50))
    got = wanted.copy()
    got[1, 7] = bad
    result = oracle.compare(got, wanted)
    assert not result.within
    assert result.worst_ratio == float("inf")


def test_one_wrong_element_of_many_fails():
    wanted = np.random.default_rng(2).normal(size=100_000)
    got = wanted.copy()
    got[500] += 3e-4
    result = oracle.compare(got, wanted)
    assert result.relative_error < oracle.TOLERANCE < result.peak_error
    assert not result.within


def test_a_small_error_everywhere_fails():
    wanted = np.random.default_rng(2).normal(size=1000)
    got = wanted * (1 + 3e-5)
    assert not oracle.compare(got, wanted, peak_tolerance=1.0).within
    assert oracle.compare(wanted * (1 + 1e-5), wanted).within


def test_another_shape_fails():
    assert not oracle.compare(np.zeros((2, 3)), np.zeros((2, 1))).within
    assert not oracle.compare_bits(np.zeros(3, np.uint8), np.zeros(2, np.uint8)).within


def test_a_zero_reference_allows_no_error():
    assert oracle.compare(np.zeros(4), np.zeros(4)).within
    assert not oracle.compare(np.array([0.0, 1e-30]), np.zeros(2)).within


def test_bits_are_not_values():
    zeros = np.zeros(4, np.float32)
    assert oracle.compare_bits(zeros, zeros).within
    result = oracle.compare_bits(np.array([0.0, -0.0, 0.0, 0.0], np.float32), zeros)
    assert (result.within, result.max_abs_error, result.relative_error) == (False, 1.0, 0.25)
    assert not oracle.compare_bits(zeros.astype(np.float64), zeros).within


def test_the_tolerance_grows_with_the_operands_only():
    small, large = (oracle.reference_of(stored_of(RECIPES[0], peak=peak)) for peak in (0.01, 100.0))
    assert small.peak_tolerance == oracle.TOLERANCE
    assert oracle.TOLERANCE < large.peak_tolerance < 1e-3
