"""Batches of decodes and prefills over byte pages, against float64 on what is stored."""

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from kassay_vllm.attend import Cache, Plans, attend, refuse_continued
from kassay_vllm.routes import split

from kassay.errors import KassayError
from tests.vllm.pools import D, G, H, cache_of, drawn, exact, plans_of, slots_of_new, step_of, varlen

TABLE = torch.tensor([[5, 9, 2], [1, 7, 11], [8, 3, 4], [6, 10, 12]]).int()
WITHIN = 5e-4  # relative, of FP16 weights and outputs (kassay.kernels)


def filled(recipe: str, lengths: list[int], **kept: bool) -> tuple[Cache, Plans]:
    """A pool in which sequences of these lengths are stored."""
    cache = cache_of(recipe, pages=13, **kept)
    for index, length in enumerate(lengths):
        if length:
            slots = slots_of_new([length], [length], TABLE[index : index + 1])
            cache.write(drawn(length, G, D, seed=20 + index), drawn(length, G, D, seed=40 + index), slots)
    return cache, plans_of(cache, 48)


def run(cache: Cache, plans: Plans, new: list[int], lengths: list[int]) -> tuple[torch.Tensor, ...]:
    """Store a batch's new tokens and attend: q, k, v, out."""
    count = sum(new)
    q, k, v = drawn(count, H, D, seed=3), drawn(count, G, D, seed=4), drawn(count, G, D, seed=5)
    out = torch.full_like(q, float("nan"))
    table = TABLE[: len(new)]
    cache.write(k, v, slots_of_new(new, lengths, table))
    attend(cache, q, k, v, out, step_of(new, lengths, table), plans, varlen)
    return q, k, v, out


def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative norm; NaN where anything is NaN."""
    return float((got.double() - wanted).norm() / wanted.norm())


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("recipe", ["native", "k16v8-f", "k16v8-d", "k8v8-d"])
def test_mixed_batch_decodes_over_its_pages_and_prefills_over_its_own_operands(recipe: str) -> None:
    cache, plans = filled(recipe, [30, 17])
    new, lengths = [1, 1, 20, 9], [31, 18, 20, 9]
    q, k, v, out = run(cache, plans, new, lengths)
    for index in (0, 1):
        stored = cache.gathered(TABLE[index], lengths[index])
        assert error(out[index : index + 1], exact(q[index : index + 1], *stored)) < WITHIN
    for own in (slice(2, 22), slice(22, 31)):
        assert error(out[own], exact(q[own], k[own], v[own])) < WITHIN


@pytest.mark.usefixtures("interpreted")
def test_prefill_behind_stored_tokens_reads_them_as_a_decode_would() -> None:
    cache, plans = filled("k16v8-d", [30, 17, 16])
    q, k, v, out = run(cache, plans, [1, 5, 8], [31, 22, 24])
    before, own = cache.gathered(TABLE[1], 17), slice(1, 6)
    wanted = exact(q[own], torch.cat([before[0], k[own]]), torch.cat([before[1], v[own]]))
    assert error(out[own], wanted) < WITHIN
    assert split([1, 5, 8], [31, 22, 24]).name == "continued"
    with pytest.raises(KassayError, match="a prefill of 8 tokens continues 17 stored ones"):
        refuse_continued(split([1, 5, 8], [31, 22, 24]), allowed=False)


@pytest.mark.usefixtures("interpreted")
def test_rows_that_pad_a_graph_are_zero_and_store_nothing() -> None:
    cache, plans = filled("k16v8-f", [30])
    q, k, v = drawn(4, H, D), drawn(4, G, D), drawn(4, G, D)
    slots = torch.tensor([slots_of_new([1], [31], TABLE[:1])[0], -1, -1, -1])
    before, out = cache.pages.clone(), torch.full_like(q, float("nan"))
    cache.write(k, v, slots)
    changed = (before != cache.pages).any(1).nonzero().flatten().tolist()
    attend(cache, q, k, v, out, step_of([1, 0, 0, 0], [31, 0, 0, 0], TABLE), plans, varlen)
    assert changed == [9]  # the second page of the first sequence
    assert not out[1:].any() and bool(out[0].isfinite().all())


@pytest.mark.parametrize(
    ("new", "lengths", "name"),
    [
        ([1, 1], [5, 9], "decode"),
        ([1, 0], [5, 0], "decode"),
        ([7, 9], [7, 9], "fresh"),
        ([1, 7], [4, 7], "mixed"),
        ([1, 7], [4, 8], "continued"),
        ([7], [9], "continued"),
    ],
)
def test_route_of_a_batch(new: list[int], lengths: list[int], name: str) -> None:
    assert split(new, lengths).name == name


def test_batches_in_another_order_are_refused() -> None:
    with pytest.raises(KassayError, match="request 1 of a batch decodes and stands behind prefills from 0 on"):
        split([5, 1], [5, 9])
    with pytest.raises(KassayError, match="more new tokens than tokens"):
        split([5], [4])
