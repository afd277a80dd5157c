"""Prefill of quantized pages: what the workspace holds, what is attended from it, and how a batch is cut."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from kassay.errors import KassayError
from kassay.kernels.fill import Asked, fills
from kassay.kernels.gather import Gathered
from kassay.kernels.launch import shape_of
from kassay.kernels.native import Spans, attend
from kassay.kv import oracle
from kassay.kv.mutation import MUTATIONS, inert
from kassay.kv.oracle import Stored
from kassay.kv.paged import PAGE_TOKENS, slots_of
from kassay.kv.recipe import recipe_named
from tests.kernels.cases import CPU, INTERPRETER, Case, case_of, component_of, packed, plant, stored_of
from tests.kernels.test_attention import SUPPORTED

RAGGED, QUERIES = [33, 70, 1, 48], [9, 70, 1, 16]
UNPLANTED = {"e4m3fnuz_decoding"}  # a fault of the decoder, whose every code tests/kernels/test_unpack.py reads


def asked_of(case: Case, queries: list[int]) -> list[Asked]:
    """Every sequence asks its last tokens."""
    firsts = np.cumsum([0, *queries]).tolist()
    lengths = case.lengths_B.tolist()
    return [Asked(row=b, first=firsts[b], queries=queries[b], context=lengths[b]) for b in range(len(lengths))]


def gathered_of(case: Case, workspace: int) -> Gathered:
    """The code under test; its workspace is NaN wherever nothing was put."""
    made = Gathered(shape_of(case.layer, case.q_BHD.shape[1]), INTERPRETER, CPU, workspace)
    made.k_SGD.fill_(float("nan"))
    made.v_SGD.fill_(float("nan"))
    return made


def attended(case: Case, queries: list[int], workspace: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-normalizer of all queries, into poisoned memory."""
    q_THD, _, _ = packed(case, queries)
    out, lse = torch.full_like(q_THD, float("nan")), torch.full(q_THD.shape[:2], float("nan"))
    made = gathered_of(case, workspace)
    made(made.plan(asked_of(case, queries)), q_THD, case.layer, case.table_BX, out, lse)
    return out, lse


def worst(
    case: Case, queries: list[int], got: tuple[torch.Tensor, torch.Tensor], passes: int = 1,
    queries_THD: torch.Tensor | None = None,
) -> float:  # fmt: skip
    """Largest error over its tolerance of any sequence, against float64 on what its pages hold.

    The workspace rounds each element once, native attention its weights and output once a part.
    """
    q_THD = packed(case, queries)[0] if queries_THD is None else queries_THD
    ratios, first = [0.0], 0
    kind = case.layer.recipe.sixteen
    for b, (length, count) in enumerate(zip(case.lengths_B.tolist(), queries, strict=True)):
        one = slice(b, b + 1)
        k, v = case.layer.gather(case.table_BX[one], case.lengths_B[one], torch.float64)
        q = q_THD[first : first + count].transpose(0, 1)[None].double().numpy()
        wanted = oracle.reference_of_read(q, k[:, :, :length].numpy(), v[:, :, :length].numpy(), kind)
        out, lse = (x[first : first + count].transpose(0, 1)[None].double().numpy() for x in got)
        read = wanted.output_tolerance * (1 + 2 * passes)
        ratios.append(oracle.compare(
            out, wanted.out_BHTD, tolerance=read, peak_tolerance=(1 + 2 * passes) * wanted.output_peak_tolerance
        ).worst_ratio)  # fmt: skip
        roundoff = oracle.ROUNDING[kind][0]
        ratios.append(float(np.abs(lse - wanted.lse_BHT).max()) / (20 * roundoff))  # of logits of up to 20
        first += count
    return float(np.max(ratios))


@pytest.mark.parametrize("recipe", SUPPORTED)
def test_the_workspace_holds_what_is_stored_rounded_once(recipe: str) -> None:
    for page_tokens, sixteen in ((16, "fp16"), (1, "bf16")):
        case = case_of(recipe, (4, 2), 64, page_tokens, RAGGED, sixteen)
        made = gathered_of(case, 200)
        (filling,) = made.plan(asked_of(case, QUERIES))
        planes = made.gather(filling, case.layer, case.table_BX)
        for plane, got_SGD in zip((case.layer.keys, case.layer.values), planes, strict=True):
            first = 0
            for b, length in enumerate(RAGGED):
                one = slice(b, b + 1)
                component = component_of(plane, slots_of(case.table_BX[one], case.lengths_B[one], case.layer.shape))
                got = got_SGD[first : first + length].transpose(0, 1)[None].float().numpy()
                cut = 2 if sixteen == "bf16" else 1  # Triton's interpreter cuts bits of BF16 off, a GPU rounds
                assert oracle.compare_read(got, component, sixteen).worst_ratio <= cut
                first += length


@pytest.mark.parametrize("recipe", ["k16v8-d", "k8v4-d"])
@pytest.mark.parametrize("page_tokens", PAGE_TOKENS)
def test_every_page_size_whole_and_cut(page_tokens: int, recipe: str) -> None:
    case = case_of(recipe, (6, 2), 64, page_tokens, RAGGED)
    assert worst(case, QUERIES, attended(case, QUERIES, 152)) < 1
    assert worst(case, QUERIES, attended(case, QUERIES, 21), passes=2) < 1  # five parts of the longest


def test_bf16() -> None:
    case = case_of("k16v8-d", (4, 2), 128, 16, RAGGED, "bf16")
    assert worst(case, QUERIES, attended(case, QUERIES, 64)) < 1


def test_no_fill_holds_more_than_the_workspace_and_every_query_sees_every_key_once() -> None:
    for workspace in (1, 7, 33, 100, 1000):
        requests = [Asked(row=0, first=0, queries=9, context=33), Asked(row=1, first=9, queries=70, context=70),
                    Asked(row=2, first=79, queries=1, context=150)]  # fmt: skip
        seen = np.zeros((80, 150), int)
        for fill in fills(requests, workspace):
            assert 0 < sum(piece.keys for piece in fill) <= workspace
            assert len({piece.causal for piece in fill}) == 1
            for piece in fill:
                for query in range(piece.queries):
                    stop = piece.keys - (piece.queries - 1 - query if piece.causal else 0)
                    seen[piece.first + query, piece.first_key : piece.first_key + stop] += 1
        for asked in requests:
            for query in range(asked.queries):
                sees = asked.context - asked.queries + query + 1
                assert (seen[asked.first + query, :sees] == 1).all()
                assert not seen[asked.first + query, sees:].any()
    with pytest.raises(KassayError, match="a workspace of 0 tokens"):
        fills([Asked(row=0, first=0, queries=1, context=1)], 0)


@pytest.mark.parametrize("recipe", ["k16v8-f", "k8v8-d", "k4v4-d"])
def test_every_fault_of_the_oracle_is_caught(recipe: str) -> None:
    """Each is put into the pages that the kernel reads; the reference keeps what was stored."""
    queries = [20, 20]
    for mutation in MUTATIONS:
        one = recipe_named(recipe)
        unlike = one.key_format != one.value_format and mutation.name == "keys_and_values_swapped"
        if not mutation.applies(one) or mutation.name in UNPLANTED or unlike:  # planes of other widths do not swap
            continue
        clean, broken = (case_of(recipe, (4, 2), 64, 16, [75, 75]) for _ in range(2))
        stored = with_operands(clean, stored_of(clean, packed(clean, queries)[0].view(2, 20, 4, 64).transpose(1, 2)))
        faulty = mutation.inject(stored)
        assert not inert(stored, faulty), mutation.name
        if mutation.name == "causal_mask_missing":
            got = unmasked(broken, queries)
        else:
            plant(broken, faulty)
            got = attended(broken, queries, 152)
        assert not worst(clean, queries, got) < 1, mutation.name


def with_operands(case: Case, stored: Stored) -> Stored:
    """With other scales of a fixed policy, and what was quantized: near what is stored, for faults of the writer."""
    generator = np.random.default_rng(3)
    parts = []
    for part, other in ((stored.keys, stored.values), (stored.values, stored.keys)):
        near = oracle.decoded(part) * (1 + 0.02 * generator.standard_normal(oracle.decoded(part).shape))
        parts.append(replace(part, operand_BGSD=near.astype(np.float32), other_scale=np.float32(0.05) if
                             other.scale is None else other.scale))  # fmt: skip
    return replace(stored, keys=parts[0], values=parts[1])


def unmasked(case: Case, queries: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The native kernel asked without its mask."""
    made = gathered_of(case, 152)
    (filling,) = made.plan(asked_of(case, queries))
    return attend(packed(case, queries)[0], *made.gather(filling, case.layer, case.table_BX), filling.spans,
                  causal=False)  # fmt: skip


def test_what_does_not_fit_is_refused_by_name() -> None:
    case = case_of("k16v8-d", (4, 2), 64, 16, [40, 17])
    made = gathered_of(case, 64)
    (filling,) = made.plan(asked_of(case, [5, 5]))
    with pytest.raises(KassayError, match="the layer is another"):
        made.gather(filling, case_of("native", (4, 2), 64, 16, [40]).layer, case.table_BX)
    with pytest.raises(KassayError, match=r"block table is .* of torch.int64"):
        made.gather(filling, case.layer, case.table_BX.long())
    with pytest.raises(KassayError, match="a block table of 2 rows and 16 tokens does not cover 40"):
        made.gather(filling, case.layer, case.table_BX[:, :1])
    q = torch.zeros(3, 4, 64, dtype=torch.float16)
    k = torch.zeros(2, 2, 64, dtype=torch.float16)
    with pytest.raises(KassayError, match="more queries than keys"):
        attend(q, k, k, Spans.of([3], [2], CPU), causal=True)
    with pytest.raises(KassayError, match="the spans cover 2, 2"):
        attend(q, k, k, Spans.of([2], [2], CPU), causal=True)
    with pytest.raises(KassayError, match="do not attend"):
        attend(q, k, k.float(), Spans.of([3], [2], CPU), causal=False)
    with pytest.raises(KassayError, match="one of each, at least 1"):
        Spans.of([1, 0], [1, 1], CPU)
