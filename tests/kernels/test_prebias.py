"""Pre-biased keys in the kernels: what the writer takes off, attention adds, at every position."""

from dataclasses import replace

import pytest
import torch

triton = pytest.importorskip("triton", reason="the kernels need triton")

from kassay.errors import KassayError
from kassay.kernels.gather import Gathered
from kassay.kernels.launch import Decode, shape_of
from kassay.kernels.split import Cut, Tile
from kassay.kernels.store import store
from kassay.kernels.workload import Calls, Heads, Pool
from kassay.kv.paged import PAGE_TOKENS, PagedLayer
from kassay.kv.plane import DTYPES
from kassay.kv.prebias import RotatedBias, drawn
from kassay.kv.recipe import RECIPES, recipe_named
from tests.kernels.cases import CPU, INTERPRETER, LSE, NORM, PAIRS, SCALES, SMALL, Case, case_of

PREBIASED = [recipe.name for recipe in RECIPES if recipe.prebias and recipe.policy != "tensor"]
RAGGED = [33, 0, 70, 1]


def within(case: Case, splits: int = 2) -> bool:
    norm, lse = case.errors(case.run(splits))
    return norm < NORM[case.layer.recipe.sixteen] and lse < LSE


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("recipe", PREBIASED)
def test_every_recipe_over_ragged_sequences(recipe: str, head_dim: int, splits: int) -> None:
    assert within(case_of(recipe, (6, 2), head_dim, 16, RAGGED), splits)


@pytest.mark.parametrize("page_tokens", PAGE_TOKENS)
def test_every_page_size(page_tokens: int) -> None:
    assert within(case_of("prebias-k8v8-d", (4, 2), 64, page_tokens, RAGGED))


@pytest.mark.parametrize("heads", [(3, 3), (14, 2), (17, 1)])
def test_any_group_and_bf16(heads: tuple[int, int]) -> None:
    assert within(case_of("prebias-k8v8-d", heads, 64, 16, [40, 17]))
    assert within(case_of("prebias-k8v16-f", heads, 64, 16, [40, 17], "bf16"))


def test_lengths_around_the_steps_of_splits_and_pages() -> None:
    for length in (15, 16, 17, 31, 32, 33, 63, 64, 65):
        assert within(case_of("prebias-k8v8-d", (2, 1), 64, 16, [length, 65]), 3)


@pytest.mark.parametrize("tile", [SMALL, PAIRS], ids=["single", "pairs"])
@pytest.mark.parametrize("fault", ["forgotten", "late", "of another head", "turned the other way"])
def test_another_bias_is_beyond_the_tolerance(fault: str, tile: Tile) -> None:
    case = case_of("prebias-k8v8-d", (4, 2), 64, 16, [40, 70])
    out, lse = case.run(1, tile)
    offset = case.layer.keys.rule.offset
    assert isinstance(offset, RotatedBias)
    if fault == "forgotten":
        broken = replace(offset, bias_HD=0 * offset.bias_HD, held={})
    elif fault == "late":
        broken = replace(offset, of=replace(offset.of, made=shifted(offset)))
    elif fault == "of another head":
        broken = replace(offset, bias_HD=offset.bias_HD.flip(0), held={})
    else:
        broken = replace(offset, of=replace(offset.of, frequencies=-offset.of.frequencies, made={}))
    norm, lse_error = case.errors((out, lse))
    assert norm < NORM["fp16"] and lse_error < LSE
    case.layer.keys.rule = replace(case.layer.keys.rule, offset=broken)
    found = case.run(1, tile)
    case.layer.keys.rule = replace(case.layer.keys.rule, offset=offset)
    norm, lse_error = case.errors(found)
    assert norm > 100 * NORM["fp16"], (fault, norm)


def shifted(offset: RotatedBias) -> dict[tuple[int, torch.device], torch.Tensor]:
    """Waves one position late, under the keys of those that were made."""
    return {key: offset.of.waves_at(torch.arange(key[0]) + 1) for key in offset.of.made}


@pytest.mark.parametrize("sixteen", ["fp16", "bf16"])
@pytest.mark.parametrize("recipe", PREBIASED)
def test_bits_are_the_reference_writer_s(recipe: str, sixteen: str) -> None:
    case = case_of(recipe, (4, 2), 64, 16, [1], sixteen)
    offset = drawn(2, 64)
    pool = replace(case.layer.shape, pages=6)
    wanted, got = (PagedLayer(recipe_named(recipe, sixteen), pool, scales=SCALES, key_offset=offset) for _ in range(2))
    generator = torch.Generator().manual_seed(5)
    k_NHD, v_NHD = ((30 * torch.randn((41, 2, 64), generator=generator)).to(DTYPES[sixteen]) for _ in range(2))
    slots, positions = torch.randperm(96, generator=generator)[:41], torch.randperm(5000, generator=generator)[:41]
    slots[7] = -1
    wanted.write(k_NHD, v_NHD, slots, positions)
    store(got, INTERPRETER, k_NHD, v_NHD, slots, checked=True, positions_N=positions)
    for one, other in zip(wanted.storages(0), got.storages(0), strict=True):
        assert torch.equal(one.tensor.flatten().view(torch.uint8), other.tensor.flatten().view(torch.uint8)), one.part
    with pytest.raises(KassayError, match="needs the position of each token"):
        store(got, INTERPRETER, k_NHD, v_NHD, slots, checked=False)


def test_the_workload_of_trials_has_them_on_the_codes_of_its_twin() -> None:
    heads, names = Heads(query_heads=4, kv_heads=2, head_dim=64, page_tokens=16), ("native", "prebias-k8v8-d", "k8v8-d")
    pool = Pool(heads, names, 256, INTERPRETER, CPU)
    calls, outs = Calls(pool, [70, 33]), []
    for name in names[1:]:
        calls.poison()
        calls.ours(name, Decode(heads.shape(name), INTERPRETER, CPU, 2, 70, Cut(tile=SMALL, splits=1)))(0)
        assert calls.error(name, 1)[0] < NORM["fp16"]
        outs.append(calls.out.clone())
    assert pool.layers[names[1]].keys.data_PSHW is pool.layers[names[2]].keys.data_PSHW
    assert not torch.allclose(*outs, atol=0.1)


def test_waves_in_fp16_are_exact_in_the_product_and_factors_keep_22_bits() -> None:
    """A bias 1,000 times the keys: one FP16 number a factor, or waves rounded otherwise, would be off by more."""
    case = case_of("prebias-k8v8-d", (4, 2), 64, 16, [40, 70])
    offset = case.layer.keys.rule.offset
    assert isinstance(offset, RotatedBias)
    large = replace(offset, bias_HD=100 * offset.bias_HD, held={})
    case.layer.keys.rule = replace(case.layer.keys.rule, offset=large)
    norm, lse = case.errors(case.run(1))
    assert norm < NORM["fp16"]
    assert lse < 100 * LSE, "of logits of thousands"
    assert offset.of.waves_at(torch.arange(9)).dtype == torch.float16


def test_layers_and_calls_of_one_length_share_their_waves() -> None:
    offset = drawn(2, 64)
    assert offset.of.waves(64, CPU) is offset.of.offset(0).of.waves(64, CPU)
    assert torch.equal(offset.of.waves(64, CPU)[:32], offset.of.waves(32, CPU))
    assert offset.bias_on(CPU) is offset.bias_on(CPU), "a captured graph reads the same memory at each replay"


def test_what_cannot_add_a_bias_refuses_it_by_name() -> None:
    case = case_of("prebias-k8v8-d", (4, 2), 64, 16, [40, 70])
    shape = shape_of(case.layer, 4)
    with pytest.raises(KassayError, match=r"`prebias-k8v8-d`: pre-biased keys need their bias at every position"):
        Decode(shape, INTERPRETER, CPU, 2, 96, Cut(tile=SMALL, splits=1), beside=1)
    with pytest.raises(KassayError, match="pre-biased keys need their bias at every position"):
        Gathered(shape, INTERPRETER, CPU, 96)
    case.layer.keys.rule = replace(case.layer.keys.rule, offset=lambda start, stop, device: torch.zeros(1, 2, stop, 64))
    with pytest.raises(KassayError, match="kernels add a rotated bias"):
        case.run(1)
