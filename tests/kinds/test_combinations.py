"""Every combination of every kind: what goes together is made and read, what contradicts itself is neither."""

import json
from pathlib import Path

import pytest

from kassay import schemas
from kassay.audit import files
from kassay.errors import RecordError
from kassay.kinds import backend, device, matrix, memory, quality, source, speculation, timing, vllm, words
from kassay.kinds.probe import ProbeArm, ProbeFinding
from kassay.kv import audit
from kassay.record import Record, read_kind
from kassay.stats import blocks, certificate, gates
from tests.kinds.case import Values, line_of, values_of
from tests.kinds.derived import DERIVED
from tests.kinds.judged import JUDGED
from tests.kinds.measured import MEASURED

CASES = JUDGED | DERIVED | MEASURED
# Kinds whose values cannot contradict each other: facts of one thing, or a cell, which may lack any part of its
# evidence and is then invalid (kassay.validity).
FREE = {
    backend.BackendRecord, backend.StepParts, device.DeviceRecord, memory.MemoryPart, quality.ArmStorage,
    quality.DocumentLoss, quality.ItemLength, source.PackageRecord, speculation.SpeculationCell, timing.SweepCell,
    timing.TimingCell, vllm.VllmCohort, vllm.VllmOutput, vllm.VllmRest,
}  # fmt: skip
LEGAL = [(kind, changes) for kind, case in CASES.items() for changes in ({}, *case.legal)]
BROKEN = [(kind, changes, words) for kind, case in CASES.items() for changes, words in case.broken]


def named(given: object) -> str:
    """A short id of a test."""
    return given.__name__ if isinstance(given, type) else ""


@pytest.mark.parametrize(("kind", "changes"), LEGAL, ids=named)
def test_what_goes_together_is_made_and_read(tmp_path: Path, kind: type[Record], changes: Values) -> None:
    made = kind(**values_of(kind, CASES[kind].base, changes))
    path = tmp_path / "r.jsonl"
    path.write_text(made.to_json() + "\n", encoding="utf-8")
    again, body = read_kind(path, kind), json.loads(made.to_json())
    assert [json.loads(one.to_json()) for one in again] == [{k: v for k, v in body.items() if k != "nonfinite"}]
    assert schemas.validate(body) == []


@pytest.mark.parametrize(("kind", "changes", "said"), BROKEN, ids=named)
def test_what_contradicts_itself_is_neither_made_nor_read(
    tmp_path: Path, kind: type[Record], changes: Values, said: str
) -> None:
    values = values_of(kind, CASES[kind].base, changes)
    with pytest.raises(RecordError) as refused:
        kind(**values)
    messages = refused.value.messages
    assert all(message.startswith(f"record of `{kind.schema}`: ") and "; got `" in message for message in messages)
    assert any(said in message for message in messages), messages
    path, line = tmp_path / "r.jsonl", line_of(kind, values)
    path.write_text("".join(json.dumps(one) + "\n" for one in ({"schema": "kassay.other/1"}, line)), encoding="utf-8")
    with pytest.raises(RecordError) as unread:
        read_kind(path, kind)
    assert list(unread.value.messages) == [f"{path}:2: {message}" for message in messages]
    broken = [one for one in kind.combinations if any(f": {one.says}; got " in message for message in messages)]
    assert len(broken) == len(messages)
    assert schemas.validate(line) or not any(one.schema for one in broken)


@pytest.mark.parametrize("kind", CASES, ids=named)
def test_every_combination_has_a_case_that_breaks_it(kind: type[Record]) -> None:
    said: list[str] = []
    for changes, _ in CASES[kind].broken:
        with pytest.raises(RecordError) as refused:
            kind(**values_of(kind, CASES[kind].base, changes))
        said += refused.value.messages
    assert [one.says for one in kind.combinations if not any(f": {one.says}; got " in text for text in said)] == []


def test_every_kind_has_cases_or_is_free() -> None:
    assert set(CASES) | FREE == set(schemas.kinds()) and not set(CASES) & FREE
    assert {kind for kind in schemas.kinds() if not kind.combinations} == FREE


def test_all_that_is_broken_is_told_at_once() -> None:
    with pytest.raises(RecordError) as refused:
        ProbeArm(model="m", probe="p", arm="a", recipe="r", layer=3, layer_recipe=None, eligible=True, reason="no GPU")
    assert str(refused.value) == (
        "record of `kassay.probe_arm/1`: `layer` and `layer_recipe` are there together or not at all; got `layer` 3, "
        "`layer_recipe` None\n"
        "record of `kassay.probe_arm/1`: `reason` is there exactly where `eligible` is false; got `reason` 'no GPU', "
        "`eligible` True"
    )


def test_a_number_that_was_not_finite_was_there(tmp_path: Path) -> None:
    made = ProbeFinding(model="m", probe="p", arm="a", quantity="q", value=float("inf"), reason="", label="")
    path = tmp_path / "r.jsonl"
    path.write_text(made.to_json() + "\n", encoding="utf-8")
    assert [one.value for one in read_kind(path, ProbeFinding)] == [None]
    path.write_text(
        made.to_json().replace("inf", "inf", 1).replace('"nonfinite": ["value: inf"]', '"nonfinite": []') + "\n"
    )
    with pytest.raises(RecordError, match=r"r\.jsonl:1: .*`value` is there exactly where `reason` is empty"):
        read_kind(path, ProbeFinding)


def test_a_value_of_another_type_is_an_error_of_its_line(tmp_path: Path) -> None:
    values = values_of(matrix.CaseGateRecord, CASES[matrix.CaseGateRecord].base, {"passed": "two"})
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(line_of(matrix.CaseGateRecord, values)) + "\n", encoding="utf-8")
    with pytest.raises(RecordError, match=r"r\.jsonl:1: .*a value is of another type than its field"):
        read_kind(path, matrix.CaseGateRecord)


def test_words_are_those_that_the_statistics_conclude_with() -> None:
    assert words.VERDICTS == certificate.VERDICTS == blocks.CERTIFICATES
    assert (words.OF_ANSWERS, words.OF_LOSSES) == (gates.OF_ANSWERS, gates.OF_LOSSES)
    assert {*words.TESTED, "descriptive", "ineligible", "invalidated", "not run"} == {
        *blocks.VERDICTS_MEASURED, *blocks.VERDICTS_UNMEASURED,
    }  # fmt: skip
    assert {audit.EQUAL_SLOTS, audit.EQUAL_BLOCKS, audit.EQUAL_BYTES} == {"equal slots", "equal blocks", "equal bytes"}
    pairs = [[one, other] for one in words.VERDICTS for other in words.VERDICTS]
    assert [words.worst(pair) for pair in pairs] == [certificate.worst(pair) for pair in pairs]


def test_a_cell_that_lacks_its_evidence_is_recorded() -> None:
    values = values_of(timing.TimingCell, {}, {"started_ns": [1, 2], "ended_ns": [2], "request_tokens": []})
    assert timing.TimingCell(**values).completed_tokens == []


def test_an_audit_names_every_line_that_contradicts_itself(tmp_path: Path) -> None:
    case = CASES[ProbeArm]
    told: list[Values] = [{}, {"layer": 3}, {"reason": "x"}]
    lines = [line_of(ProbeArm, values_of(ProbeArm, case.base, changes)) for changes in told]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines) + "nonsense\n", encoding="utf-8")
    found = files.bad_lines(path)
    assert [said.partition(": ")[0] for said in found] == [f"records.jsonl:{number}" for number in (2, 3, 4)]
    assert "`layer` and `layer_recipe`" in found[0] and "`reason` is there" in found[1] and "not a JSON" in found[2]
