"""The printed paired ratios through the engine that judges a run: medians, intervals, Holm, verdicts and classes."""

from decimal import Decimal
from fractions import Fraction

import pytest

from kassay import paths
from kassay.kinds.published import PublishedFigure
from kassay.published.figures import load
from kassay.stats.blocks import ContrastVerdict, PlannedContrast, block_summary, contrast_verdicts

FIGURES = {figure.figure: figure for figure in load(paths.ROOT / "data" / "published" / "figures.jsonl")}
FAMILY = 24
MATRIX = ("b32.qwen3-8b", "b32.phi-4")
BRIDGES = ("bridge.dense-b8", "bridge.dense-b32", "bridge.awq-b8", "bridge.awq-b32")


def ratios(name: str) -> tuple[float, ...]:
    """The within-block ratios behind a figure."""
    given = FIGURES[name].rounded["ratios"]
    return tuple(float(text) for text in given)


def as_printed(value: float, figure: PublishedFigure) -> str:
    """A value at the figure's own precision, half to even as the source prints."""
    digits = -int(Decimal(figure.printed).as_tuple().exponent)
    return f"{value:.{digits}f}"


@pytest.mark.parametrize("row", [*MATRIX, *BRIDGES])
def test_medians_and_intervals_are_the_printed_ones(row: str) -> None:
    names = [f"{row}.{end}" for end in ("median", "ci_lo", "ci_hi") if f"{row}.{end}" in FIGURES]
    assert names, row
    for name in names:
        summary = block_summary(ratios(name), interval_alpha=0.05)
        value = {
            "median": summary.median, "ci_lo": summary.interval.lower, "ci_hi": summary.interval.upper
        }[name.rpartition(".")[2]]  # fmt: skip
        assert as_printed(value, FIGURES[name]) == FIGURES[name].printed, name


def family() -> list[PlannedContrast]:
    """The planned 24, of which two were measured."""
    made = []
    for index in range(FAMILY):
        measured = ratios(f"{MATRIX[index]}.median") if index < len(MATRIX) else None
        made.append(
            PlannedContrast(
                contrast=MATRIX[index] if measured else f"not measured {index}",
                candidate="compact",
                control="native",
                certificate="pass" if measured else "fails",
                ratios=measured,
                reason="" if measured else "quality",
            )
        )
    return made


def decided() -> dict[str, ContrastVerdict]:
    """The family's verdicts by name."""
    asked = {"planned_blocks": 10, "alpha": 0.05, "interval_alpha": 0.05, "screen_ratio": 1.01}
    return {made.contrast: made for made in contrast_verdicts(family(), **asked)}  # type: ignore[arg-type]


@pytest.mark.parametrize("row", MATRIX)
def test_holm_and_verdicts_of_the_matrix_are_the_printed_ones(row: str) -> None:
    """9 of 10 wins: 11/1024 times 24 is a tie at the sixth digit, printed half to even."""
    made, holm = decided()[row], FIGURES[f"{row}.holm"]
    assert made.family_size == FAMILY and made.verdict == FIGURES[f"{row}.verdict"].printed == "no confirmed gain"
    printed = f"{made.holm_p:.6f}" if isinstance(holm.printed, str) and "." in holm.printed else f"{made.holm_p:g}"
    assert printed == str(holm.printed)
    if row == MATRIX[0]:
        assert made.summary is not None and made.summary.sign.wins == 9
        assert Fraction(made.holm_p_exact) == Fraction(11 * FAMILY, 1024)


def test_what_was_not_measured_keeps_1_and_its_place() -> None:
    rest = [made for name, made in decided().items() if name not in MATRIX]
    assert len(rest) == FAMILY - 2 and {(made.verdict, made.holm_p) for made in rest} == {("not run", 1.0)}


def test_three_blocks_can_confirm_nothing_and_their_interval_is_their_range() -> None:
    for row in BRIDGES:
        name = next(f"{row}.{end}" for end in ("median", "ci_lo") if f"{row}.{end}" in FIGURES)
        summary = block_summary(ratios(name), interval_alpha=0.05)
        assert (summary.interval.lower, summary.interval.upper) == (min(summary.ratios), max(summary.ratios))
        assert summary.sign.p >= 0.125
