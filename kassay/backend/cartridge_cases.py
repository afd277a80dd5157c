"""A shared prefix under the oracle: one softmax over it and each sequence's own pages, prompts behind it, and faults.

Axes: R sequences, H query heads, G KV heads, N tokens, S stored tokens, D head dim.

Decode attention, in one part and in several, is held against float64 over the tokens of the prefix and of the sequence
together, as they lie in the pages (kassay.backend.cartridge_pools); run twice, and from other pages, it returns the
same bits, and the prefix is afterwards what it was. A fresh prompt behind it is held against float64 over what a gather
rounds to 16 bits and the prompt's own operands.

Faults: of sharing (a part left out or counted twice, parts merged by each other's normalizers, a page of elsewhere), of
what is stored (kassay.kv.mutation, in the prefix's pages), and what must be refused by name: a prefix that ends inside
a page, its pages handed to a request, pages of another size beside it.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from kassay.backend import kernel_cases
from kassay.backend.cartridge_pools import SHARING_FAULTS, Beside
from kassay.backend.fused_prefix import Prefix, Prompts
from kassay.backend.judging import Found, Verdict
from kassay.backend.kernel_cases import CUTS, NOT_OF_DECODE, against, differing, joined, planted, wide
from kassay.backend.kernel_operands import Given
from kassay.errors import KassayError
from kassay.kernels.cartridge import Cartridge, PrefixCut, Shared
from kassay.kernels.launch import host_of, shape_of
from kassay.kernels.shape import PAGES
from kassay.kernels.split import Tile
from kassay.kv import oracle
from kassay.kv.mutation import MUTATIONS, inert
from kassay.kv.oracle import Stored
from kassay.kv.recipe import Recipe

PROMPT = 33  # tokens of a fresh prompt: two pages of 16 and one
PARTED = PrefixCut(rows=16, tile=Tile(tokens=64, warps=4, stages=2), parts=3)
CASES = (("1", CUTS[0], None), ("4", CUTS[1], PARTED))  # the rule's cut of the prefix, and one of several parts


def judge_cartridge(
    verdict: Verdict, arm: Recipe, prefix: Recipe, index: int, given: Given, page_tokens: int, positions: int, case: str
) -> None:
    """All cases of one layer of an arm, whose name `arm`, the recipe of the own pages, has in the records."""
    host = host_of(given.k_BGSD.device)
    beside, other = (Beside((arm, prefix), given, host, page_tokens, positions, seed) for seed in (0, 1))
    verdict.clean(arm, index, f"{case}-stored", kernel_cases.stored_bits(beside.frozen, beside.before))
    before = beside.cartridge.digest()
    wanted = [beside.expected(row) for row in range(len(beside.own.lengths))]
    for name, cut, prefix_cut in CASES:
        once, again, moved = (one.attended(cut, prefix_cut) for one in (beside, beside, other))
        found = against(wanted, once)
        same = [oracle.compare_bits(a, b) for a, b in (*zip(once, again, strict=True), *zip(once, moved, strict=True))]
        found["storage"] = max(same, key=lambda one: one.max_abs_error)
        verdict.clean(arm, index, f"{case}-{name}", found)
    verdict.clean(arm, index, f"{case}-prompt", prompts(beside))
    digests = [np.frombuffer(bytes.fromhex(one), np.uint8) for one in (before, beside.cartridge.digest())]
    frozen = oracle.compare_bits(digests[1], digests[0])
    verdict.clean(arm, index, f"{case}-frozen", {"codes": frozen})
    for fault in SHARING_FAULTS:
        verdict.fault(arm, index, f"{case}-sharing", fault.name, against(wanted, fault.attended(beside)), True)
    for name, found in refused(beside).items():
        verdict.fault(arm, index, f"{case}-refused", name, found, True)
    judge_stored(verdict, arm, index, beside, wanted, case)


def prompts(beside: Beside) -> Found:
    """Fresh prompts of two requests behind the prefix, all their tokens asking: output against float64.

    Each of the two parts is rounded to 16 bits before they are merged, and the whole once more. A part's own rounding,
    weighed, is at most one rounding of the weights' sum, so the tolerance is twice that of one attention.
    """
    given, count = beside.given, min(PROMPT, beside.given.whole)
    prefix = Prefix(cartridges=(beside.cartridge,), shape=shape_of(beside.frozen.layer, given.q_BHSD.shape[1]))
    behind = Prompts(prefix, beside.host, given.k_BGSD.device)
    q_NHD, k_NGD, v_NGD = (
        x_BHSD[:2, :, :count].transpose(1, 2).flatten(0, 1).contiguous()
        for x_BHSD in (given.q_BHSD, given.k_BGSD, given.v_BGSD)
    )
    requests = len(q_NHD) // count
    out_NHD = behind.attend(0, q_NHD, torch.stack([k_NGD, v_NGD], dim=1), requests).float().cpu().numpy()
    sixteen = torch.empty(0, dtype=given.k_BGSD.dtype)
    worst: Found = {}
    for request in range(requests):
        k, v = (
            np.concatenate([rounded(oracle.decoded(held), sixteen), wide(x_BGSD[request : request + 1, :, :count])], 2)
            for held, x_BGSD in zip(beside.frozen.held(0), (given.k_BGSD, given.v_BGSD), strict=True)
        )
        q_1HTD = wide(given.q_BHSD[request : request + 1, :, :count])
        one = oracle.reference_of_read(q_1HTD, k, v, beside.own.layer.recipe.sixteen)
        got = out_NHD[request * count : (request + 1) * count].transpose(1, 0, 2)[None]
        result = oracle.compare(
            got, one.out_BHTD, peak_tolerance=2 * one.output_peak_tolerance, tolerance=2 * one.output_tolerance
        )
        if not worst or result.worst_ratio > worst["output"].worst_ratio:
            worst["output"] = result
    return worst


def rounded(x: oracle.Doubles, like: torch.Tensor) -> np.ndarray:
    """What 16 bits make of numbers."""
    return torch.from_numpy(x).to(like.dtype).double().numpy()


def refused(beside: Beside) -> dict[str, Found]:
    """What must be refused by name; `refusal` is within where it was not."""
    page, layer, pages = beside.page_tokens, beside.frozen.layer, beside.pages(0)
    inside = next((count for count in range(beside.positions - 1, 0, -1) if count % page), 0)
    heads = beside.given.q_BHSD.shape[1]
    shapes = shape_of(beside.own.layer, heads), shape_of(layer, heads)
    elsewhere = next(other for other in PAGES if other != page)
    whole = torch.tensor(beside.frozen.lengths)
    asked: dict[str, tuple[str, Callable[[], object]]] = {
        "prefix_inside_a_page": (
            f"a shared prefix of {inside} positions does not end at a boundary of pages of {page}",
            lambda: Cartridge(layer, pages, inside),
        ),
        "prefix_pages_of_a_request": (
            "belong to the shared prefix and to a request",
            lambda: beside.cartridge.check_apart(layer, beside.frozen.table_RX, whole),
        ),
        "prefix_of_other_pages": (
            f"a shared prefix does not fit: tokens of a page {elsewhere}, the own pages have {page}",
            lambda: Shared(
                shapes[0], replace(shapes[1], page_tokens=elsewhere), beside.host, beside.own.device, 1, page,
                beside.positions,
            ),
        ),
        "prefix_page_twice": (
            f"a prefix of {beside.positions} positions is {len(pages)} pages of {page}, each once",
            lambda: Cartridge(layer, [pages[0], *pages[:-1]], beside.positions),
        ),
    }  # fmt: skip
    return {name: {"refusal": refusal(words, call)} for name, (words, call) in asked.items()}


def refusal(words: str, call: Callable[[], object]) -> oracle.Comparison:
    """Whether these words refused a call: a difference, as a fault that is caught makes one."""
    said = ""
    try:
        call()
    except KassayError as error:
        said = str(error)
    return oracle.compare_bits(np.array([words in said], np.uint8), np.zeros(1, np.uint8))


def judge_stored(
    verdict: Verdict, arm: Recipe, index: int, beside: Beside, wanted: list[oracle.Reference], case: str
) -> None:
    """Faults of what is stored, in the pages of both prefixes."""
    pool = beside.frozen
    keys, values = (joined([pool.held(row)[at] for row in (0, 1)]) for at in (0, 1))
    keys = replace(keys, operand_BGSD=wide(beside.before.k_BGSD), other_scale=values.scale)
    values = replace(values, operand_BGSD=wide(beside.before.v_BGSD), other_scale=keys.scale)
    q = pool.queries().float().cpu().numpy()[:, :, None]
    stored = Stored(keys=keys, values=values, q_BHTD=q, first_query=beside.positions - 1, causal=True)
    for mutation in MUTATIONS:
        applies = mutation.applies(pool.layer.recipe) and mutation.name not in NOT_OF_DECODE
        if not applies or not mutation.reaches(stored):
            continue
        faulty = mutation.inject(stored)
        tokens = faulty.keys.data_BGSD.shape[2]
        layer = planted(pool, faulty)
        if layer is None or tokens == 0 or tokens % beside.page_tokens:
            continue  # what its planes cannot hold, and a length that is refused anyhow
        pages = beside.pages(0)[: tokens // beside.page_tokens]
        got = beside.attended(cartridge=Cartridge(layer, pages, tokens))
        found = against(wanted, got) | differing(stored, faulty)
        verdict.fault(arm, index, f"{case}-fault", mutation.name, found, not inert(stored, faulty))
