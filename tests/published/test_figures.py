"""The shipped facts, each answered; faults of a facts file; and what happens when a fact is changed."""

import itertools
import json
import math
import random
import time
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.errors import RecordError
from kassay.kinds.published import FigureAnswer, PublishedFigure
from kassay.published import CONSISTENT, CONTRADICTED, EQUAL, NOT_DERIVABLE
from kassay.published.consistency import Told, corner_values, members, placed, rounding_interval, texts
from kassay.published.derivations import DERIVATIONS
from kassay.published.figures import answered, exact_value, load
from kassay.stats import InvalidData

FACTS = paths.ROOT / "data" / "published" / "figures.jsonl"
SHARED = paths.ROOT.parent / "shared" / "published.json"
FIGURES = {figure.figure: figure for figure in load(FACTS)}
ONLY_CONSISTENT = {  # printed from unrounded data: what the printed inputs give, and what their rounding allows
    "cart.mmlu.k8v8": ("0.099", "0.098", "0.097", "0.099"),
    "cart.loss.run1": ("0.873", "0.877", "0.870", "0.883"),
    "cart.loss.half-lr": ("1.303", "1.304", "1.298", "1.310"),
    "cart.loss.run2": ("1.177", "1.175", "1.169", "1.181"),
    "cart.bf16.b1.ttft": ("-1.17", "-1.16", "-1.192", "-1.131"),
    "cart.global.b1.toks": ("-0.63", "-0.64", "-0.655", "-0.623"),
    "cart.global.b1.ttft": ("-3.53", "-3.52", "-3.545", "-3.487"),
    "72b.ppl": ("0.41", "0.42", "0.392", "0.438"),
}


def changed(name: str, **changes: Any) -> PublishedFigure:
    """A shipped figure with other fields."""
    return PublishedFigure(**{**vars(FIGURES[name]), **changes})


@pytest.fixture(scope="module")
def answers() -> dict[str, FigureAnswer]:
    return {name: answered(figure) for name, figure in FIGURES.items()}


def test_every_figure_has_its_answer(answers: dict[str, FigureAnswer]) -> None:
    counts = Counter(answer.answer for answer in answers.values())
    assert counts == {EQUAL: 207, CONSISTENT: 8, NOT_DERIVABLE: 50}


def test_the_printed_eight_agree_only_within_input_rounding(answers: dict[str, FigureAnswer]) -> None:
    assert {name for name, answer in answers.items() if answer.answer == CONSISTENT} == set(ONLY_CONSISTENT)
    for name, (printed, derived, lowest, highest) in ONLY_CONSISTENT.items():
        found = answers[name]
        assert found.printed == printed
        for told, value in ((derived, found.derived), (lowest, found.lowest), (highest, found.highest)):
            assert value is not None and f"{float(value):.{-int(Decimal(told).as_tuple().exponent)}f}" == told


def test_the_two_bounds_without_counts_are_recovered(answers: dict[str, FigureAnswer]) -> None:
    first, second = answers["worker.math_lower.k16v8"], answers["worker.math_lower.k8v8"]
    assert first.answer == second.answer == EQUAL
    assert first.remark.startswith("recovered: 7 losses and 3 gains of 1,319, the only counts that give it")
    assert second.remark.startswith("recovered: 17 losses and 19 gains of 1,319; also possible are")


def test_another_reading_of_the_recovered_bound_is_contradicted() -> None:
    """At the two-sided level no counts of a plausible size give the first bound; at 2.5 % none at all do."""
    figure = FIGURES["worker.math_lower.k16v8"]
    other = answered(changed(figure.figure, exact=figure.exact | {"alpha": "0.025"}))
    assert (other.answer, other.derived) == (CONTRADICTED, "no counts")


def test_it_takes_less_than_five_seconds() -> None:
    start = time.process_time()
    for figure in FIGURES.values():
        answered(figure)
    assert time.process_time() - start < 5


def test_every_derivation_is_used_and_facts_are_short() -> None:
    assert {figure.derivation for figure in FIGURES.values()} - {None} == set(DERIVATIONS)
    for figure in FIGURES.values():
        assert figure.line is None or figure.line >= 1
        assert len(figure.quantity) < 90 and len(figure.remark) < 120, "a fact, no prose"


@pytest.mark.parametrize("name", [name for name, figure in FIGURES.items() if figure.derivation is not None])
def test_another_printed_value_is_contradicted(name: str) -> None:
    """No derivation merely repeats what is printed: change the figure and the answer changes with it."""
    figure = FIGURES[name]
    if figure.derivation == "recovered_lower_percent":  # the bound is its input; an impossible one is tested above
        return
    wrong = [other(one) for one in figure.printed] if isinstance(figure.printed, list) else other(figure.printed)
    assert answered(changed(name, printed=wrong)).answer == CONTRADICTED


def other(printed: Any) -> Any:
    """A value of the same kind, far from a printed one."""
    if isinstance(printed, bool):
        return not printed
    if isinstance(printed, int):
        return printed + 1
    try:
        low, high = rounding_interval(printed)
    except InvalidData:
        return f"not {printed}"
    return f"{printed.replace('/', '3/')}" if low == high else str(float(high) * 3 + 7)


def rounded_figures() -> list[str]:
    """The figures with few enough rounded inputs that their corners are quickly enumerated."""
    return [name for name, figure in FIGURES.items() if 0 < len(texts(figure.rounded)) <= 6]


@pytest.mark.parametrize("name", rounded_figures())
def test_the_range_over_the_box_is_that_of_its_corners(name: str) -> None:
    """What the four answers rest on: no point inside the box leaves the range that the corners span."""
    figure = FIGURES[name]
    derivation = DERIVATIONS[str(figure.derivation)]
    exact = {key: exact_value(value) for key, value in figure.exact.items()}
    columns = list(zip(*(members(value) for value in corner_values(derivation, exact, figure.rounded)), strict=True))
    intervals = [rounding_interval(text) for text in texts(figure.rounded)]
    draw = random.Random(name)
    for _ in range(50):
        point = [low + (high - low) * Fraction(draw.randrange(10**6), 10**6) for low, high in intervals]
        value = derivation(**exact, **placed(figure.rounded, point))
        inside = members(value.value if isinstance(value, Told) else value)
        for one, column in zip(inside, columns, strict=True):
            assert one in column if isinstance(one, bool | str) else min(column) <= one <= max(column)


@pytest.mark.parametrize(
    "name", [name for name, figure in FIGURES.items() if figure.derivation in ("median", "median_end")]
)
def test_medians_rise_with_every_ratio(name: str) -> None:
    """Ten ratios have 1,024 corners; of what rises with each of them two corners are the ends of the range."""
    figure = FIGURES[name]
    exact = {key: exact_value(value) for key, value in figure.exact.items()}
    derivation: Any = DERIVATIONS[str(figure.derivation)]
    intervals = [rounding_interval(text) for text in texts(figure.rounded)]
    low, high = (derivation(**exact, **placed(figure.rounded, ends)) for ends in zip(*intervals, strict=True))
    draw = random.Random(name)
    for _ in range(50):
        point = [draw.choice(interval) for interval in intervals]
        assert low <= derivation(**exact, **placed(figure.rounded, point)) <= high


def test_the_margin_of_the_losses_is_the_printed_logarithm() -> None:
    """repr(math.log(1.01)), not log1p(0.01), whose last digit differs."""
    assert math.log(exact_value(FIGURES["b32q.phi-4.nll_gate"].exact["ratio_margin"])) == 0.009950330853168092


def line(**changes: Any) -> str:
    """A well-made fact with changes, as a line."""
    body = {"schema": "kassay.figure/1", **vars(FIGURES["cart.mmlu.k8v8"]), **changes}
    return json.dumps(body) + "\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"derivation": "no_such"}, "no derivation is called `no_such`"),
        ({"rounded": {"minuend": "1.0"}}, "missing a required argument"),
        ({"rounded": {"minuend": "1.0", "subtrahend": "1.0", "more": "1.0"}}, "unexpected keyword argument"),
        ({"rounded": {"minuend": 77.458, "subtrahend": "77.360"}}, "is no text"),
        ({"rounded": {"minuend": "nan", "subtrahend": "77.360"}}, "`nan` is no decimal"),
        ({"exact": {"minuend": 0.1}, "rounded": {"subtrahend": "0.5"}}, "write a fraction as text"),
        ({"exact": {"minuend": "0.1"}}, "`minuend` is exact and rounded"),
        ({"inferred": ["gone"]}, "`gone` is inferred and no input"),
    ],
)
def test_a_faulty_fact_is_an_error(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    path.write_text(line(**changes))
    with pytest.raises(RecordError) as caught:
        load(path)
    assert said in str(caught.value) and "cart.mmlu.k8v8" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"derivation": None, "remark": "why"}, "`exact` and `rounded` are not there where `derivation` is null"),
        ({"derivation": None, "rounded": {}, "remark": ""}, "`remark` is there where `derivation` is null"),
    ],
)
def test_a_fact_without_derivation_has_a_remark_and_no_inputs(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "figures.jsonl"
    path.write_text(line(**changes))
    with pytest.raises(RecordError) as caught:
        load(path)
    assert said in str(caught.value) and f"{path}:1: " in str(caught.value)


def test_repeated_and_missing_facts_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    path.write_text(line() + line())
    with pytest.raises(RecordError, match="is there 2 times"):
        load(path)
    path.write_text("")
    with pytest.raises(RecordError, match="it holds no figure"):
        load(path)
    path.write_text(line()[:-20])
    with pytest.raises(RecordError, match="torn"):
        load(path)


def test_inputs_that_allow_no_derivation_name_their_figure() -> None:
    figure = FIGURES["d64.upper"]
    with pytest.raises(InvalidData, match=r"figure `d64\.upper`"):
        answered(changed(figure.figure, exact=figure.exact | {"losses": 101}))


@pytest.mark.skipif(not SHARED.exists(), reason="the list that the facts were taken from is not beside this tree")
def test_the_facts_are_the_given_list(answers: dict[str, FigureAnswer]) -> None:
    """Every given entry is there with its place, and what others computed from it is what we derive."""
    given = {entry["id"]: entry for entry in json.loads(SHARED.read_text())}
    assert list(given.keys() ^ FIGURES.keys()) == []
    for name, entry in given.items():
        figure, found = FIGURES[name], answers[name]
        assert (figure.source, figure.line) == (entry["source_file"], entry["line"])
        if entry["reproduces"] is not None:
            assert found.answer == (EQUAL if entry["reproduces"] else CONSISTENT), name
        if entry["status"] in ("reproduces", "recovered", "consistent"):
            scale = 1000 if name == "probe.ratio" else 1  # given in thousands
            assert found.derived is not None
            assert float(found.derived) == pytest.approx(entry["computed"] * scale, rel=1e-8), name


def test_figures_stand_in_groups_of_their_study() -> None:
    studies = [study for study, _ in itertools.groupby(figure.study for figure in FIGURES.values())]
    assert len(studies) == len(set(studies)) == 30
