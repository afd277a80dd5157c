"""The oracle's tolerances for models of 16 bits: derived from a format's rounding, held by arithmetic, and tight."""

import ml_dtypes
import numpy as np
import pytest
import torch

from kassay.backend.capture import check_plain
from kassay.backend.structure import ModelError
from kassay.kv import oracle
from kassay.kv.expected import quantized
from kassay.kv.mutation import MUTATIONS, inert
from kassay.kv.oracle import Component
from kassay.kv.recipe import recipe_named

TYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
TORCH = {"fp16": torch.float16, "bf16": torch.bfloat16}


def test_the_constants_are_those_of_the_formats() -> None:
    for compute, (roundoff, underflow) in oracle.ROUNDING.items():
        told = ml_dtypes.finfo(TYPES[compute])
        assert float(told.eps) == 2 * roundoff, "one unit in the last place of 1 is two roundoffs"
        assert float(told.smallest_subnormal) == 2 * underflow


def operands(compute: str, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q_BHTD, k_BGSD, v_BGSD of 4 query and 2 KV heads in a 16-bit type, as FP32 arrays of its values."""
    rng = np.random.default_rng(8)
    shapes = ((2, 4, 5, 64), (2, 2, 200, 64), (2, 2, 200, 64))
    return tuple((spread * rng.standard_normal(shape)).astype(TYPES[compute]).astype(np.float32) for shape in shapes)


def of_torch(compute: str, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal attention of torch in the type, the queries at the end."""
    q_BHTD, k_BGSD, v_BGSD = (torch.from_numpy(x).to(TORCH[compute]) for x in (q, k, v))
    seen_TS = torch.arange(200)[None] <= torch.arange(195, 200)[:, None]
    k_BHSD, v_BHSD = (x.repeat_interleave(2, dim=1) for x in (k_BGSD, v_BGSD))
    out = torch.nn.functional.scaled_dot_product_attention(q_BHTD, k_BHSD, v_BHSD, attn_mask=seen_TS)
    return out.float().numpy()


def compared(compute: str, got: np.ndarray, wanted: oracle.Reference) -> oracle.Comparison:
    return oracle.compare(
        got, wanted.out_BHTD, peak_tolerance=wanted.output_peak_tolerance, tolerance=wanted.output_tolerance
    )


@pytest.mark.parametrize("spread", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("compute", TYPES)
def test_attention_in_the_type_is_within_and_one_of_a_coarser_type_is_not(compute: str, spread: float) -> None:
    read = operands(compute, spread)
    wanted = oracle.reference_of_read(*read, compute)
    got = compared(compute, of_torch(compute, *read), wanted)
    assert got.within and got.worst_ratio > 0.02, "a tolerance that nothing comes near would hold anything"
    assert not compared(compute, 1.1 * of_torch(compute, *read), wanted).within
    if compute == "fp16":
        assert not compared(compute, of_torch("bf16", *read), wanted).within


@pytest.mark.parametrize("compute", TYPES)
def test_a_stale_value_is_caught_in_what_was_read(compute: str) -> None:
    q, k, v = operands(compute)
    wanted = oracle.reference_of_read(q, k, v, compute)
    stale = v.copy()
    stale[:, :, 100:116] = v[:, :, 84:100]
    assert not compared(compute, of_torch(compute, q, k, stale), wanted).within


def stored(scale: float = 0.0371) -> Component:
    codes = np.random.default_rng(2).integers(0, 256, (1, 2, 50, 32)).astype(np.uint8)
    codes[codes & 0x7F == 0x7F] = 0  # NaN
    return Component(
        data_BGSD=codes, scale=np.asarray(scale, np.float32), other_scale=None, decoded_as="e4m3fn", offset_GSD=None
    )


@pytest.mark.parametrize("scale", [0.0371, 3.1e-7])
@pytest.mark.parametrize("compute", TYPES)
def test_a_reconstruction_may_be_rounded_once_and_no_further(compute: str, scale: float) -> None:
    held = stored(scale)
    true = oracle.decoded(held)
    read = true.astype(np.float32).astype(TYPES[compute]).astype(np.float32)
    assert oracle.compare_read(read, held, compute).within
    if compute == "fp16" and scale > 1e-3:
        twice = true.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
        assert not oracle.compare_read(twice, held, compute).within
    one = read.copy()
    place = np.unravel_index(np.argmax(np.abs(true)), true.shape)
    one[place] = -one[place]
    assert not oracle.compare_read(one, held, compute).within, "a single wrong element"
    one[place] = np.nan
    assert not oracle.compare_read(one, held, compute).within
    assert not oracle.compare_read(read[:, :, 1:], held, compute).within


def test_fp32_keeps_its_tolerances() -> None:
    q, k, v = operands("fp16")
    parts = [
        Component(data_BGSD=x.astype(np.float16), scale=None, other_scale=None, decoded_as="fp16", offset_GSD=None)
        for x in (k, v)
    ]
    wanted = oracle.reference_of(oracle.Stored(keys=parts[0], values=parts[1], q_BHTD=q, first_query=195, causal=True))
    assert wanted.output_tolerance == oracle.TOLERANCE and wanted.output_peak_tolerance == wanted.peak_tolerance
    assert wanted.output_tolerance < oracle.reference_of_read(q, k, v, "fp16").output_tolerance / 10


@pytest.mark.parametrize(
    ("operand", "scale", "reaches"),
    [(ml_dtypes.bfloat16, 2.0**-6, False), (ml_dtypes.bfloat16, 0.0157, True), (np.float16, 2.0**-6, True)],
    ids=["bf16-over-a-power", "bf16", "fp16"],
)
def test_double_rounding_is_asked_for_where_it_can_change_a_code(operand: type, scale: float, reaches: bool) -> None:
    """Of BF16 operands over a power of two every quotient is BF16: a model whose amax is 1.75 * 2^n is not at fault."""
    double_rounding = next(mutation for mutation in MUTATIONS if mutation.name == "double_rounding")
    keys_BGSD = np.random.default_rng(4).standard_normal((1, 2, 400, 64)).astype(operand)
    fixed = np.asarray(scale, np.float32)
    keys = quantized(recipe_named("k8v16-f"), "e4m3fn", keys_BGSD, (400,), fixed)
    values = Component(data_BGSD=keys_BGSD, scale=None, other_scale=None, decoded_as="fp16")
    held = oracle.Stored(
        keys=keys, values=values, q_BHTD=np.zeros((1, 2, 1, 64), np.float32), first_query=399, causal=True
    )
    assert double_rounding.reaches(held) == reaches
    assert inert(held, double_rounding.inject(held)) != reaches


def test_attention_of_another_form_is_refused_by_name() -> None:
    check_plain(64, {"scaling": 0.125})
    check_plain(64, {})
    with pytest.raises(ModelError, match=r"scaled by 0\.0625, not by 1/sqrt\(64\)"):
        check_plain(64, {"scaling": 0.0625})
    with pytest.raises(ModelError, match="`s_aux` has another softmax"):
        check_plain(64, {"scaling": 0.125, "s_aux": object()})
