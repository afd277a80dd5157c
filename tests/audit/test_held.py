"""Gates of memory concluded again from queries, caches and peaks: sound records agree, an edit is found."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import paths
from kassay.audit import compare, held
from kassay.kv.audit import EQUAL_BLOCKS, EQUAL_BYTES, EQUAL_SLOTS, ArmMemory
from kassay.memory_limits import Limits
from kassay.memory_records import answered, append_allocator, append_window, audits, ceilings, parts_finding
from kassay.memory_sources import Found
from kassay.record import Writer
from kassay.stage import Rejection
from kassay.telemetry import Sample, Window
from tests.vllm.standin import Kept

LIMITS = Limits(
    origin="study", period_ns=20, longest_gap_ns=60, device_ceiling_bytes=900, reserved_ceiling_bytes=500,
    budget_bytes=1000, equal_slots_blocks=4, page_tokens=16,
)  # fmt: skip


def arm(name: str, slots: int, token_bytes: int) -> ArmMemory:
    """A cache as it should be."""
    size = slots * token_bytes
    return ArmMemory(
        arm=name, slots=slots, planned_bytes=size, payload_bytes=size, backing_bytes=size, page_bytes=16 * token_bytes,
        tail_bytes=0,
    )  # fmt: skip


ARMS = {
    EQUAL_SLOTS: [arm("native", 64, 4), arm("k16v8-f", 64, 3)],
    EQUAL_BLOCKS: [arm("native", 64, 4), arm("k16v8-f", 64, 3)],
    EQUAL_BYTES: [arm("native", 240, 4), arm("k16v8-f", 320, 3)],
}


def window(device: str, *used: int | None) -> Window:
    """Queries every 20 ns, each of 5 ns."""
    samples = tuple(
        Sample(started_ns=20 * at, ended_ns=20 * at + 5, used_bytes=each, error="" if each is not None else "no answer")
        for at, each in enumerate(used)
    )
    return Window(
        source="device", device=device, opened_ns=0, closed_ns=20 * len(used) - 10, samples=samples, period_ns=20,
        longest_gap_ns=60, sampler_cpu_ns=1, sampler_wall_ns=9, startup_cpu_ns=1,
    )  # fmt: skip


WINDOWS = (window("a", 500, 800, None, 700), window("b", 100, 200))


def run_of(
    folder: Path, arms: Any = ARMS, windows: Any = WINDOWS, peaks: tuple[int, ...] = (400, 450), parts: int = 90
) -> Any:
    """A stage's directory and a run around it."""
    stage = Kept({"model": "robust"})
    stage.append(LIMITS.record("robust"))
    for index, one in enumerate(windows):
        append_window(stage, "native", f"phase {index}", one)
    names = ("allocated_bytes", "allocated_peak_bytes", "reserved_bytes", "reserved_peak_bytes", "pool_active_bytes",
             "pool_inactive_bytes", "graph_active_bytes", "graph_inactive_bytes")  # fmt: skip
    for peak in peaks:
        append_allocator(
            stage, "native", "fill", "cuda:0", "", {**dict.fromkeys(names, 1), "reserved_peak_bytes": peak}
        )
    findings = [*audits(LIMITS, arms), parts_finding("native", parts, 100), *ceilings(LIMITS, windows, peaks)]
    ended = answered(stage, findings, arms, windows, Found(sources=(), absent=()))
    writer = Writer(folder / paths.RECORDS)
    for record in stage.records:
        writer.append(record)
    writer.close()
    word = "rejected" if isinstance(ended, Rejection) else "passed"
    return SimpleNamespace(folder=lambda name: folder, outcomes={"memory": SimpleNamespace(word=word)})


def differences(run: Any) -> list[tuple[str, str]]:
    """What the recount finds: record and field."""
    told = compare.Compared(stage="memory")
    stage: Any = SimpleNamespace(name="memory", params={})
    held.recount(run, stage, told)
    return [(one.record, one.field) for one in told.differences]


def edit(folder: Path, kind: str, which: int, **change: Any) -> None:
    """Change one record of a kind."""
    path = folder / paths.RECORDS
    bodies = [json.loads(line) for line in path.read_text().splitlines()]
    [body for body in bodies if body["schema"].startswith(f"kassay.{kind}/")][which].update(change)
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))


def test_sound_records_give_their_gates(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert differences(run) == [] and run.outcomes["memory"].word == "passed"


@pytest.mark.parametrize(
    "given",
    [
        {"arms": {**ARMS, EQUAL_SLOTS: [ARMS[EQUAL_SLOTS][0], arm("k16v8-f", 80, 3)]}},
        {"arms": {**ARMS, EQUAL_BYTES: [ARMS[EQUAL_BYTES][0], arm("k16v8-f", 304, 3)]}},
        {"arms": {**ARMS, EQUAL_BYTES: [arm("native", 256, 4), ARMS[EQUAL_BYTES][1]]}},
        {"arms": {**ARMS, EQUAL_BLOCKS: [replace(ARMS[EQUAL_BLOCKS][0], backing_bytes=257), ARMS[EQUAL_BLOCKS][1]]}},
        {"arms": {**ARMS, EQUAL_SLOTS: [replace(ARMS[EQUAL_SLOTS][0], planned_bytes=255), ARMS[EQUAL_SLOTS][1]]}},
        {"windows": (window("a", 500, 901), WINDOWS[1])},
        {"windows": (window("a", 500, None, None, None, 800), WINDOWS[1])},
        {"windows": (window("a", 500, None, None, None, 901), WINDOWS[1])},
        {"windows": (window("a", None, None), WINDOWS[1])},
        {"peaks": (400, 501)},
        {"peaks": ()},
        {"parts": 101},
    ],
)
def test_gates_that_fail_follow_from_their_records_too(given: dict[str, Any], tmp_path: Path) -> None:
    run = run_of(tmp_path, **given)
    assert differences(run) == [] and run.outcomes["memory"].word == "rejected"


EDITS: list[tuple[str, int, dict[str, Any], tuple[str, str]]] = [
    ("memory_sample", 1, {"used_bytes": 890}, ("window of native, phase 0, device", "largest_bytes")),
    ("memory_sample", 1, {"used_bytes": None}, ("window of native, phase 0, device", "answered")),
    ("memory_sample", 3, {"ended_ns": 200}, ("window of native, phase 0, device", "gap_ns")),
    ("memory_sample", 0, {"phase": "another"}, ("window of native, phase 0, device", "queries")),
    ("memory_sample", 1, {"used_bytes": 901}, ("device ceiling", "observed and verdict")),
    ("memory_window", 0, {"closed_ns": 200}, ("window of native, phase 0, device", "valid")),
    ("memory_window", 0, {"valid": False}, ("window of native, phase 0, device", "valid")),
    ("memory_arm", 1, {"slots": 80}, ("equal slots of k16v8-f", "slots")),
    ("memory_arm", 0, {"backing_bytes": 300}, ("equal slots of native", "verdict")),
    ("memory_arm", 3, {"payload_bytes": 191}, ("equal blocks of k16v8-f", "verdict")),
    ("memory_arm", 4, {"backing_bytes": 961}, ("equal bytes of native", "observed")),
    ("memory_arm", 5, {"page_bytes": 16}, ("equal bytes of k16v8-f", "verdict")),
    ("memory_arm", 5, {"gate": "equal slots"}, ("gates", "caches")),
    ("memory_gate", 0, {"verdict": "fails"}, ("equal slots of native", "verdict")),
    ("memory_gate", 2, {"limit": 80}, ("equal blocks of native", "limit")),
    ("memory_gate", 6, {"observed": 101}, ("allocated parts of native", "verdict")),
    ("memory_gate", 7, {"observed": 801}, ("device ceiling", "observed and verdict")),
    ("memory_gate", 7, {"limit": 9000}, ("device ceiling", "limit")),
    ("memory_gate", 9, {"gate": "another"}, ("reserved ceiling", "observed and verdict")),
    ("allocator", 0, {"reserved_peak_bytes": 501}, ("reserved ceiling", "observed and verdict")),
    ("memory_limits", 0, {"budget_bytes": 900}, ("equal bytes of native", "limit")),
    ("memory_limits", 0, {"equal_slots_blocks": 5}, ("equal blocks of native", "limit")),
    ("memory_limits", 0, {"reserved_ceiling_bytes": None}, ("reserved ceiling", "observed and verdict")),
]


@pytest.mark.parametrize(("kind", "which", "change", "found"), EDITS)
def test_an_edit_is_found_where_it_stands(
    kind: str, which: int, change: dict[str, Any], found: tuple[str, str], tmp_path: Path
) -> None:
    run = run_of(tmp_path)
    edit(tmp_path, kind, which, **change)
    assert found in differences(run)


def test_an_outcome_that_its_gates_do_not_give(tmp_path: Path) -> None:
    run = run_of(tmp_path, peaks=(600,))
    run.outcomes["memory"].word = "passed"
    assert differences(run) == [("outcome.json", "word")]


def test_records_of_an_older_kassay_are_not_judged(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    for _ in range(6):
        edit(tmp_path, "memory_arm", 0, schema="kassay.other/1")
    with pytest.raises(ValueError, match="its records lack memory_arm"):
        differences(run)
