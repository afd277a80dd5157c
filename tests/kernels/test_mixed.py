"""Mixed batches: every request by its route, and the bits that it would have alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from kassay.errors import KassayError
from kassay.kernels.launch import shape_of
from kassay.kernels.mixed import Mixed
from kassay.kernels.route import Limits, Request
from kassay.kernels.split import Cut
from kassay.kv import oracle
from tests.kernels.cases import CPU, INTERPRETER, SMALL, Case, case_of, packed
from tests.kernels.test_gather import worst

LENGTHS, QUERIES = [33, 70, 40, 21, 60, 5], [1, 70, 12, 2, 1, 5]
REQUESTS = [
    Request(queries=1, context=33, prompt=30, reused=0),  # decode
    Request(queries=70, context=70, prompt=70, reused=0),  # fresh
    Request(queries=12, context=40, prompt=50, reused=0),  # a chunk
    Request(queries=2, context=21, prompt=21, reused=19),  # few queries after a prefix
    Request(queries=1, context=60, prompt=60, reused=0),  # a last chunk of one token
    Request(queries=5, context=5, prompt=5, reused=0),  # fresh, after requests of other routes
]
LIMITS = Limits(fresh_tokens=128, gather_pages=64, workspace_tokens=48)
ROUTES = ["decode", "fresh", "gather", "by token", "decode", "fresh"]


def mixed_of(case: Case, batch: int, limits: Limits = LIMITS) -> Mixed:
    """The code under test, its decode kernel with two splits."""
    longest = case.table_BX.shape[1] * case.layer.shape.page_tokens
    shape = shape_of(case.layer, case.q_BHD.shape[1])
    return Mixed(shape, INTERPRETER, CPU, batch, longest, limits, Cut(tile=SMALL, splits=2))


def attended(case: Case, mixed: Mixed, order: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Output and log-normalizer of each request of a batch in that order, into poisoned memory."""
    firsts = np.cumsum([0, *QUERIES]).tolist()
    operands = [torch.cat([x[firsts[at] : firsts[at + 1]] for at in order]) for x in packed(case, QUERIES)]
    out, lse = torch.full_like(operands[0], float("nan")), torch.full(operands[0].shape[:2], float("nan"))
    step = mixed.step([REQUESTS[at] for at in order], case.table_BX[order])
    assert [decision.route for decision in step.decisions] == [ROUTES[at] for at in order]
    mixed(step, *operands, case.layer, out, lse)
    counts = [QUERIES[at] for at in order]
    return list(zip(out.split(counts), lse.split(counts), strict=True))


def fresh_is_native(case: Case, got: torch.Tensor, request: int) -> bool:
    """Whether a prompt attended the model's own operands, in float64 within one native rounding."""
    first = sum(QUERIES[:request])
    q, k, v = (x[first : first + QUERIES[request]].transpose(0, 1)[None].double().numpy()
               for x in packed(case, QUERIES))  # fmt: skip
    wanted = oracle.reference_of_read(q, k, v, case.layer.recipe.sixteen)
    return oracle.compare(
        got.transpose(0, 1)[None].double().numpy(), wanted.out_BHTD,
        tolerance=wanted.output_tolerance, peak_tolerance=wanted.output_peak_tolerance,
    ).within  # fmt: skip


@pytest.mark.parametrize("recipe", ["native", "k16v8-f", "k8v8-d"])
def test_a_mixed_batch_gives_what_its_parts_give_bit_for_bit(recipe: str) -> None:
    case = case_of(recipe, (4, 2), 64, 16, LENGTHS)
    together = attended(case, mixed_of(case, 8), list(range(6)))
    turned = attended(case, mixed_of(case, 2), [5, 3, 1, 0, 4, 2])  # the decode kernel in two calls
    for at, (out, lse) in enumerate(together):
        alone = attended(case, mixed_of(case, 8), [at])[0]
        other = turned[[5, 3, 1, 0, 4, 2].index(at)]
        for got in (alone, other):
            assert torch.equal(out, got[0]) and torch.equal(lse, got[1]), at
    assert fresh_is_native(case, together[1][0], 1) and fresh_is_native(case, together[5][0], 5)
    paged = replace(case, lengths_B=case.lengths_B[[0, 2, 3, 4]], table_BX=case.table_BX[[0, 2, 3, 4]])
    firsts, counts = np.cumsum([0, *QUERIES]).tolist(), [QUERIES[at] for at in (0, 2, 3, 4)]
    whole = packed(case, QUERIES)[0]
    ours = torch.cat([whole[firsts[at] : firsts[at + 1]] for at in (0, 2, 3, 4)])
    got = tuple(torch.cat([together[at][part] for at in (0, 2, 3, 4)]) for part in (0, 1))
    assert worst(paged, counts, (got[0], got[1]), queries_THD=ours) < 1


def test_a_fresh_prompt_reads_nothing_back_from_pages() -> None:
    case = case_of("k16v8-d", (4, 2), 64, 16, LENGTHS)
    before = attended(case, mixed_of(case, 8), [1, 5])
    for plane in (case.layer.keys, case.layer.values):
        plane.data_PSHW.fill_(0x7F if plane.data_PSHW.dtype == torch.uint8 else float("nan"))
    after = attended(case, mixed_of(case, 8), [1, 5])
    assert all(torch.equal(one, other) for one, other in zip(sum(before, ()), sum(after, ()), strict=True))


def test_what_does_not_fit_is_refused_by_name() -> None:
    case = case_of("k16v8-d", (4, 2), 64, 16, LENGTHS)
    mixed = mixed_of(case, 8)
    with pytest.raises(KassayError, match="2 requests with a block table of 6 rows"):
        mixed.step(REQUESTS[:2], case.table_BX)
    with pytest.raises(KassayError, match="a context of 999 tokens, planned were 80"):
        mixed.step([replace(REQUESTS[0], context=999)], case.table_BX[:1])
    step = mixed.step(REQUESTS[:1], case.table_BX[:1])
    q, k, v = packed(case, QUERIES)
    with pytest.raises(KassayError, match="91 queries with 91 keys and 91 values, the step has 1"):
        mixed(step, q, k, v, case.layer)
