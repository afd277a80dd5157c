"""Files that were cut: those of a result at every length, JSONL files at every byte of their last two lines."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kassay import identity, paths, rundir
from kassay.errors import RecordError
from kassay.identity import Wanted
from kassay.record import read_lines
from tests.conftest import Project, Went
from tests.test_loop import FakeEngine, run_of

RECORDS = """\
    from dataclasses import dataclass
    from typing import ClassVar
    from kassay.record import Record, doc
    @dataclass(frozen=True, kw_only=True)
    class Line(Record):
        schema: ClassVar[str] = "toy.line/1"
        number: int = doc("Place.")
        text: str = doc("Any text.")
    for number in range(5): stage.append(Line(number=number, text="grün λ"))
    return {}"""
ONE: dict[str, Any] = {"one": {"program": "lines"}}


@pytest.fixture
def went(project: Project) -> Went:
    """A run of one stage with five records."""
    project.program("lines", RECORDS)
    return project.go(ONE)


def why(went: Went) -> str | None:
    """Why the stage would run again."""
    directory = paths.stage_dir(went.run.directory, "one")
    return identity.explain(directory, Wanted(stage=went.run.plan.stage("one"), inputs={}))


def last_two(data: bytes) -> range:
    """Every place within the last two lines, their first byte and the last newline included."""
    return range(data[:-1].rfind(b"\n", 0, data[:-1].rfind(b"\n")) + 1, len(data))


@pytest.mark.parametrize("name", [paths.OUTCOME, paths.RECEIPT, paths.REQUEST])
def test_a_result_with_a_file_cut_at_any_length_is_no_result(went: Went, name: str) -> None:
    path = paths.stage_dir(went.run.directory, "one") / name
    whole = path.read_bytes()
    assert why(went) is None and whole.endswith(b"}\n")
    for cut in range(len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert (why(went) or "").startswith("its files cannot be read"), cut
    path.write_bytes(whole[:-1])
    assert why(went) is None, "it lacks its newline only"


def test_an_outcome_that_a_stage_left_cut_at_any_length_is_a_crash(project: Project) -> None:
    class Cutting(FakeEngine):
        """Cuts what the stage wrote."""

        def poll(self) -> list[Any]:
            directories = [paths.stage_dir(run.directory, name) for name in run.running]
            ended = super().poll()
            for directory in directories:
                path = directory / paths.OUTCOME
                whole.append(path.read_bytes())
                path.write_bytes(whole[-1][:cut])
            return ended

    whole: list[bytes] = []
    cut = 0
    while not whole or cut < len(whole[-1]) - 1:
        run = run_of(project, {"a": {"program": "ok", "params": {"cut": cut}}}, Cutting(2, {}))
        project_code = run.go(Quiet())
        outcome = run.outcomes["a"]
        assert (project_code, outcome.word) == (1, "crashed") and "not a readable outcome" in outcome.reason, cut
        broken = paths.stage_dir(run.directory, "a") / f"{paths.OUTCOME}.broken"
        assert broken.read_bytes() == whole[-1][:cut]
        cut += 1
    assert cut > 200


class Quiet:
    """A watcher that looks away."""

    def event(self, event: Any) -> None:
        pass

    def tick(self, states: dict[str, str], waits_for: Callable[[str], str]) -> None:
        pass


def test_records_cut_at_any_byte_of_their_last_two_lines_are_made_again(project: Project, went: Went) -> None:
    path = paths.stage_dir(went.run.directory, "one") / paths.RECORDS
    whole = path.read_bytes()
    for cut in last_two(whole):
        path.write_bytes(whole[:cut])
        assert why(went) == "artifact records.jsonl is gone or was changed"
        try:
            assert len(list(read_lines(path))) == whole[:cut].count(b"\n") and whole[:cut].endswith(b"\n")
        except RecordError as error:
            line = whole[:cut].count(b"\n") + 1
            assert f"{path}:{line}: the last line is torn" in str(error) and not whole[:cut].endswith(b"\n")
    again = project.go(ONE)
    assert again.started == {"one": "artifact records.jsonl is gone or was changed"} and path.read_bytes() == whole


def test_events_cut_at_any_byte_of_their_last_two_lines_are_gone_on_with(project: Project, went: Went) -> None:
    """O14: no event is lost but the torn one, none is fused with the next, and that there was one is told."""
    path = went.run.directory / paths.EVENTS
    torn = path.with_name(f"{paths.EVENTS}.torn")
    whole = path.read_bytes()
    for cut in last_two(whole):
        path.write_bytes(whole[:cut])
        torn.unlink(missing_ok=True)
        assert project.go(ONE).code == 0
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        kept = whole[:cut].rpartition(b"\n")[0].splitlines()
        complete = whole[cut : cut + 1] == b"\n"  # it lacks its newline only
        assert path.read_bytes().startswith(whole[: cut if complete else cut - len(whole[:cut].rpartition(b"\n")[2])])
        told = [line for line in lines if line["event"] == "torn_line_set_aside"]
        if complete or whole[:cut].endswith(b"\n"):
            assert not torn.exists() and told == []
        else:
            assert torn.read_bytes() == whole[:cut].rpartition(b"\n")[2] + b"\n"
            (event,) = told
            assert event["why"] == f"events.jsonl:{len(kept) + 1}, from a session that died"


def test_a_run_whose_plan_was_damaged_in_the_second_of_its_making_is_followed_by_another(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rundir, "utc_now", lambda: "2026-01-01T00:00:00.000Z")
    first = project.open({"one": {"program": "ok"}}).directory
    (first / paths.PLAN).write_bytes(b"")
    second = project.open({"one": {"program": "ok"}}).directory
    assert second != first and (second / paths.PLAN).stat().st_size > 0
    assert not [path for path in project.results.iterdir() if path.name.startswith(".toy")]
