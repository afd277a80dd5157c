"""Two runs beside each other: what is told, and what must not be compared, with its reason."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kassay import digest, paths, schemas
from kassay.compare import compare
from kassay.compare.lines import as_json, lines
from kassay.compare.metrics import CONCLUDED, RATIOS, metrics_of
from kassay.compare.refusals import baseline_refusals, refusals
from kassay.compare.subject import Subject, subject_of
from kassay.errors import RecordError, RunError
from kassay.query.views import GATHERED
from tests.invented import HOST, STUDY, Invented, gate, run

DESCRIPTIVE = ("guard", "vllm_ratio")  # their verdict is always that word
A, B = "a-20261130T000000Z-0", "b-20261130T000001Z-0"


def stages(rate: float = 100.0, **of_gate: Any) -> dict[str, Invented]:
    """One stage that judges answers, and one that measures its host."""
    return {
        "certify": Invented(records=[gate(**of_gate)], metrics={"certificates": 1}),
        "timing": Invented(
            program="timing", measures=True, metrics={"rate_per_s": rate},
            inputs={"model": "tree:data/models/robust"}, input_sha256={"model": "1" * 64},
        ),
        "contrast": Invented(program="contrast", inputs={"timing": "timing.records"}, metrics={"gain": rate / 100}),
    }  # fmt: skip


def two(results: Path, second: dict[str, Invented] | None = None, **of_second: Any) -> tuple[Path, Path]:
    """Two runs of which the second may differ."""
    return run(results, A, stages()), run(results, B, second or stages(), **of_second)


def told(a: Path, b: Path) -> dict[str, str]:
    """What of the values that may be compared differs."""
    made = compare(a, b)
    return {
        change.name: f"{change.a} | {change.b} | {change.said}"
        for change in (*made.gates, *made.metrics)
        if change.said
    }


def test_equal_runs_have_no_difference(tmp_path: Path) -> None:
    made = compare(*two(tmp_path))
    assert (made.exit_code, made.refused, made.settings, made.pins, made.metrics, made.alone) == (0, (), (), (), (), ())
    assert made.equal >= 5 and made.withheld == 0 and all(not change.said for change in made.gates)


def test_differences_are_told_with_their_size(tmp_path: Path) -> None:
    settings = {
        "BLOCKS": {"value": 8, "origin": "user", "where": ""},
        "RESULTS": {"value": "x", "origin": "user", "where": ""},
    }
    a, b = two(tmp_path, stages(rate=110.0, upper=0.03, verdict="unestablished"), settings=settings)
    assert told(a, b) == {
        "gate robust k16v8-f native keys: upper": "0.0074 | 0.03 | +0.0226 (+305 %)",
        "gate robust k16v8-f native keys: verdict": "pass | unestablished | another",
        "timing: rate_per_s": "100 | 110 | +10 (+10 %)",
        "contrast: gain": "1 | 1.1 | +0.1 (+10 %)",
    }
    made = compare(a, b)
    assert [(change.name, change.a, change.b) for change in made.settings] == [("BLOCKS", "unset", "8")]
    shown = list(lines(made))
    assert "settings: 1 differs" in shown and "  BLOCKS  unset  8" in shown
    assert '"exit_code": 0' in "".join(as_json(made))


def test_a_value_that_is_absent_is_no_difference_and_no_equality(tmp_path: Path) -> None:
    a, b = two(tmp_path, {**stages(estimate=math.nan), "more": Invented(metrics={"x": math.inf, "y": 2})})
    assert told(a, b) == {
        "gate robust k16v8-f native keys: estimate": "0 | absent (nonfinite: nan) | no difference: one is absent"
    }
    found = metrics_of(b)
    assert (found["more: x"].value, found["more: x"].absent) == (None, "nonfinite: inf")
    assert f"more: y: only in {B}" in compare(a, b).alone
    assert not any(name.startswith("timing:") and name.endswith("rate_per_s") for name in compare(a, b).alone)


def test_a_stage_that_left_no_result_has_its_word_only(tmp_path: Path) -> None:
    crashed = {**stages(), "timing": replace(stages()["timing"], word="crashed")}
    a, b = two(tmp_path, crashed)
    assert told(a, b)["timing: outcome"] == "passed | crashed | another"
    assert f"timing: rate_per_s: only in {A}" in compare(a, b).alone


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "protocol": ({"study": {**STUDY, "alpha": 0.01}}, "everything", "another protocol: tiny/tiny "),
    "pilot": ({"study": {**STUDY, "split": "development"}}, "everything", "split `confirmation` is not `development`"),
    "host": ({"host": {**HOST, "cpus": 8}}, "host-bound", "another host: cpus 2 and 8"),
    "GPU": ({"host": {**HOST, "gpus": ["H200"]}}, "host-bound", "another host: gpus None and ['H200']"),
    "items": ({"second": stages(items_sha256="other")}, "judgements", "other items: robust retrieval"),
    "weights": (
        {"second": {**stages(), "timing": replace(stages()["timing"], input_sha256={"model": "2" * 64})}},
        "judgements",
        "other weights or data: timing.model",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_must_not_be_compared_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    changed, part, reason = REFUSED[name]
    made = compare(*two(tmp_path, **changed))
    assert [(one.part, reason in one.reason) for one in made.refused] == [(part, True)] and made.exit_code == 4
    values = {change.name for change in (*made.gates, *made.metrics)}
    assert made.withheld > 0 and not any("rate_per_s" in name for name in values)
    assert ("gate robust k16v8-f native keys: verdict" in values) == (part == "host-bound")
    assert ("timing: outcome" in values) == (part != "everything")


def test_one_host_is_told_by_stages_with_a_gpu_and_without(tmp_path: Path) -> None:
    """Only a stage that had a GPU says which; the rest of what two stages say must agree."""
    made = run(tmp_path, A, {name: Invented(measures=True) for name in ("a", "b", "c")})
    receipts = [made / "stages" / name / paths.RECEIPT for name in ("a", "b", "c")]
    assert subject_of(made).host == HOST
    digest.write_json(receipts[1], {"host": {**HOST, "gpus": ["H200"]}, "code": {}})
    assert subject_of(made).host == {**HOST, "gpus": ["H200"]}
    digest.write_json(receipts[2], {"host": {**HOST, "gpus": ["A100"]}, "code": {}})
    with pytest.raises(RunError, match=r"measured on two hosts: .*H200.*A100"):
        subject_of(made)


def test_a_run_is_not_compared_with_itself_under_whatever_name(tmp_path: Path) -> None:
    a = run(tmp_path, A, stages())
    copy = run(tmp_path, B, stages(), run=A)  # its manifest says so: a folder that was copied and renamed
    for other in (a, copy):
        with pytest.raises(RunError, match="compared with itself"):
            compare(a, other)


def test_runs_without_anything_in_common_are_not_alike(tmp_path: Path) -> None:
    a = run(tmp_path, A, {"one": Invented()}, study=None)
    b = run(tmp_path, B, {"two": Invented()}, study=None)
    made = compare(a, b)
    assert made.exit_code == 4 and not made.gates and made.equal == 0


def test_one_result_under_one_name(tmp_path: Path) -> None:
    twice = run(tmp_path, A, {"certify": Invented(records=[gate(), gate(estimate=0.5)])})
    with pytest.raises(RecordError, match="two records say `gate robust k16v8-f native keys: estimate`"):
        metrics_of(twice)


def test_no_kind_that_concludes_or_has_ratios_is_forgotten() -> None:
    for kind in schemas.kinds():
        name, names = name_of_kind(kind.schema), {field.name for field in dataclasses.fields(kind)}
        assert "verdict" not in names or "verdict" in CONCLUDED.get(name, ((), ()))[1] or name in DESCRIPTIVE, name
        assert "ratios" not in names or (name in RATIOS and f"FROM {name}" in GATHERED["ratios"]), name


def name_of_kind(schema: str) -> str:
    """`gate` of `kassay.gate/2`."""
    return schema.removeprefix("kassay.").rpartition("/")[0]


def changed(subject: Subject, **fields: Any) -> list[str]:
    """Why a run is not judged by a baseline that differs in these fields."""
    return [one.reason for one in baseline_refusals(subject, replace(subject, run="other", **fields))]


def test_o26_a_baseline_is_for_the_same_plan_pins_host_and_a_run_that_ended(tmp_path: Path) -> None:
    """O26: a comparison that cannot be made is refused; only kassay's own commit may be another."""
    first = subject_of(run(tmp_path, A, stages()))
    assert changed(first) == [] and changed(first, own_commit="f" * 40) == []
    wanted: Mapping[str, tuple[dict[str, Any], str]] = {
        "plan": ({"plan_hash": "f" * 64, "settings": {"BLOCKS": 8}}, "is not ffffffff: BLOCKS unset -> 8"),
        "profile": ({"profile": "other"}, "profile `tiny` is not `other`"),
        "pins": ({"packages": {"torch": "2.14"}}, "other pins: torch absent -> 2.14"),
        "host": ({"host": {**HOST, "processor": "B"}}, "another host: processor A and B"),
        "no host": ({"host": None}, "does not say on which host it measured"),
        "GPU": ({"devices": ["H200"]}, "other GPUs: none and H200"),
        "cancelled": ({"exit_code": None}, "the run `other` has not ended"),
    }
    for fields, said in wanted.values():
        assert any(said in reason for reason in changed(first, **fields)), said
    assert [one.reason for one in refusals(first, first)] == [f"`{A}` is compared with itself"]
    assert Subject(**asdict(first)) == first
