"""Orders against the frozen designs, verdicts against the published studies, mutations of the cells."""

import dataclasses
from typing import Any

import pytest

from kassay.stats import InvalidData
from kassay.stats.blocks import BlockCell, PlannedContrast, block_ratios, block_summary, contrast_verdicts
from kassay.stats.orders import Order, balance_report, counterbalanced_orders, williams_orders

# within-block ratios of the eight-model matrix, as printed
QWEN3: tuple[float, ...] = (
    0.9935141,
    1.0046516,
    1.0002696,
    1.0014335,
    1.0058214,
    1.0016846,
    1.0039351,
    1.0036023,
    1.0068204,
    1.0015314,
)
PHI4: tuple[float, ...] = (
    0.9736099,
    0.9712515,
    0.9746203,
    0.9733828,
    0.9734810,
    0.9757707,
    0.9715308,
    0.9759696,
    0.9730844,
    0.9755253,
)
RULE = {"planned_blocks": 10, "alpha": 0.05, "interval_alpha": 0.05, "screen_ratio": 1.01}


def contrast(name: str, ratios: tuple[float, ...] | None, certificate: str, reason: str) -> PlannedContrast:
    """A planned contrast of candidate `name` against the native arm."""
    return PlannedContrast(
        contrast=name,
        candidate=name,
        control="native",
        certificate=certificate,
        ratios=ratios,
        reason=reason,
    )


@pytest.mark.parametrize(
    ("k", "rows"),
    [
        (2, ["01", "10"]),
        (3, ["012", "120", "201", "210", "021", "102"]),
        (4, ["0132", "1203", "2310", "3021"]),
        (5, ["01423", "12034", "23140", "34201", "40312", "32410", "43021", "04132", "10243", "21304"]),
    ],
)
def test_williams_designs_are_the_frozen_ones(k: int, rows: list[str]) -> None:
    assert ["".join(row) for row in williams_orders([str(arm) for arm in range(k)])] == rows


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6, 7])
def test_williams_designs_are_balanced(k: int) -> None:
    report = balance_report(williams_orders([f"arm-{arm}" for arm in range(k)]))
    assert report.position_balanced
    assert report.carry_over_balanced
    assert report.blocks == (k if k % 2 == 0 else 2 * k)


def test_ten_pairs_balance_and_ten_triples_cannot() -> None:
    pairs = balance_report(counterbalanced_orders(["a", "b"], 10))
    assert pairs.position_counts == ((5, 5), (5, 5))
    assert pairs.carry_over_counts == ((0, 5), (5, 0))
    triples = balance_report(counterbalanced_orders(["a", "b", "c"], 10))
    assert not triples.position_balanced
    assert not triples.carry_over_balanced
    assert balance_report(counterbalanced_orders(["a", "b", "c", "d"], 12)).carry_over_balanced


@pytest.mark.parametrize(
    "orders",
    [[], [("a", "a")], [("a", "b"), ("a",)], [("a", "b"), ("a", "c")], [("a", "b"), ("a", "b", "b")]],
)
def test_orders_that_are_no_block_design_are_invalid(orders: list[Order]) -> None:
    with pytest.raises(InvalidData):
        balance_report(orders)


def test_the_published_matrix_rows() -> None:
    """Qwen3-8B and Phi-4 of the eight-model matrix: medians, Holm over 24 planned, no confirmed gain."""
    family = [contrast("qwen3", QWEN3, "pass", ""), contrast("phi4", PHI4, "pass", "")]
    family += [contrast(f"model-{index}", None, "fails", "quality failed") for index in range(22)]
    verdicts = contrast_verdicts(family, **RULE)  # type: ignore[arg-type]
    qwen3, phi4 = verdicts[:2]
    assert qwen3.summary is not None
    assert phi4.summary is not None
    assert f"{qwen3.summary.median:.5f}" == "1.00264"
    assert f"{qwen3.holm_p:.6f}" == "0.257812"
    assert (phi4.holm_p, f"{phi4.summary.median:.5f}") == (1.0, "0.97355")
    assert [qwen3.verdict, phi4.verdict] == ["no confirmed gain"] * 2
    assert {(v.verdict, v.holm_p) for v in verdicts[2:]} == {("not run", 1.0)}
    assert {v.family_size for v in verdicts} == {24}


def test_a_gain_needs_the_sign_test_and_the_screen() -> None:
    clear = tuple(1.03 + 0.001 * index for index in range(10))
    small = tuple(1.005 + 0.0001 * index for index in range(10))
    mixed = (1.5,) * 8 + (0.99,) * 2
    verdicts = contrast_verdicts(
        [
            contrast("clear", clear, "pass", ""),
            contrast("small", small, "pass", ""),
            contrast("mixed", mixed, "pass", ""),
        ],
        **RULE,  # type: ignore[arg-type]
    )
    assert [v.verdict for v in verdicts] == ["gain confirmed", "no confirmed gain", "no confirmed gain"]
    assert "screen" in verdicts[1].reason
    assert "sign test" in verdicts[2].reason


def test_rounding_creates_no_pass_and_the_screen_is_not_strict() -> None:
    rows = [contrast("below", (1.0099,) * 10, "pass", ""), contrast("at", (1.01,) * 10, "pass", "")]
    verdicts = contrast_verdicts(rows, **RULE)  # type: ignore[arg-type]
    assert [v.verdict for v in verdicts] == ["no confirmed gain", "gain confirmed"]


@pytest.mark.parametrize("certificate", ["fails", "unestablished", "ineligible"])
def test_an_unqualified_candidate_never_gains_however_fast(certificate: str) -> None:
    fast = (2.0,) * 10
    rows = [contrast("fast", fast, certificate, "quality"), contrast("other", fast, "pass", "")]
    verdicts = contrast_verdicts(rows, **RULE)  # type: ignore[arg-type]
    assert verdicts[0].verdict == ("ineligible" if certificate == "ineligible" else "descriptive")
    assert verdicts[0].holm_p == 1
    assert verdicts[1].holm_p == 2 / 1024


def test_ties_are_non_wins_and_stay_in_n() -> None:
    summary = block_summary((1.0,) * 2 + (1.1,) * 8, interval_alpha=0.05)
    assert (summary.ties, summary.sign.wins, summary.sign.n) == (2, 8, 10)


@pytest.mark.parametrize("ratios", [(1.1,) * 9, (1.1,) * 11, (1.1,) * 9 + (float("nan"),), (1.1,) * 9 + (0.0,)])
def test_added_dropped_and_broken_blocks_are_invalid(ratios: tuple[float, ...]) -> None:
    with pytest.raises(InvalidData):
        contrast_verdicts([contrast("a", ratios, "pass", "")], **RULE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratios", "certificate", "reason"),
    [(None, "pass", ""), ((1.1,) * 10, "fails", ""), ((1.1,) * 10, "passed", "why"), (None, "", "why")],
)
def test_a_contrast_without_a_reason_or_a_known_certificate_cannot_be_planned(
    ratios: tuple[float, ...] | None, certificate: str, reason: str
) -> None:
    with pytest.raises(InvalidData):
        contrast("a", ratios, certificate, reason)


def test_a_contrast_named_twice_is_invalid() -> None:
    with pytest.raises(InvalidData, match="twice"):
        contrast_verdicts([contrast("a", None, "fails", "x")] * 2, **RULE)  # type: ignore[arg-type]


def test_a_verdict_cannot_be_edited_against_its_numbers() -> None:
    verdict = contrast_verdicts([contrast("a", QWEN3, "pass", "")], **RULE)[0]  # type: ignore[arg-type]
    with pytest.raises(InvalidData, match="bug"):
        dataclasses.replace(verdict, verdict="gain confirmed")
    with pytest.raises(InvalidData, match="bug"):
        dataclasses.replace(verdict, summary=None)


ORDERS: tuple[Order, ...] = (("a", "b"), ("b", "a"))


def cells(**changes: Any) -> list[BlockCell]:
    """Four cells in which b runs at 95 and a drifts; `changes` replaces fields of the third."""
    rates = {(0, "a"): 100.0, (0, "b"): 110.0, (1, "b"): 120.0, (1, "a"): 100.0}
    made = [
        BlockCell(block=block, position=ORDERS[block].index(arm), arm=arm, rate_per_s=rate)
        for (block, arm), rate in rates.items()
    ]
    made[2] = dataclasses.replace(made[2], **changes)
    return made


def test_ratios_are_taken_within_blocks_in_block_order() -> None:
    assert block_ratios(cells()[::-1], orders=ORDERS, candidate="b", control="a") == (1.1, 1.2)
    assert block_ratios(cells(), orders=ORDERS, candidate="a", control="b") == (100 / 110, 100 / 120)


def test_the_median_of_ratios_is_not_the_ratio_of_medians() -> None:
    rates = [(100.0, 101.0), (200.0, 240.0), (300.0, 303.0)]
    orders = (("a", "b"),) * 3
    drifted = [
        BlockCell(block=block, position=place, arm=arm, rate_per_s=pair[place])
        for block, pair in enumerate(rates)
        for place, arm in enumerate("ab")
    ]
    ratios = block_ratios(drifted, orders=orders, candidate="b", control="a")
    assert block_summary(ratios, interval_alpha=0.05).median == 1.01  # the medians' ratio is 1.2


@pytest.mark.parametrize(
    "changes",
    [
        {"rate_per_s": 0.0},
        {"rate_per_s": float("nan")},
        {"block": 2},
        {"position": 1},
        {"arm": "a"},
        {"arm": "c"},
    ],
)
def test_corrupted_cells_are_invalid(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidData):
        block_ratios(cells(**changes), orders=ORDERS, candidate="b", control="a")


def test_missing_repeated_and_unknown_cells_are_invalid() -> None:
    for broken in (cells()[:-1], cells() + cells()[:1], []):
        with pytest.raises(InvalidData):
            block_ratios(broken, orders=ORDERS, candidate="b", control="a")
    with pytest.raises(InvalidData, match="no planned block"):
        block_ratios(cells(), orders=ORDERS, candidate="c", control="a")
