"""What a person sees while a run goes on: plain lines in a pipe, a table that fits the screen on a terminal."""

import io
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kassay import paths, progress
from kassay.events import Event
from kassay.progress import Lines, LiveTable
from kassay.watch import screen
from kassay.watch.told import TAIL_LINES
from tests.conftest import Project
from tests.driven import BAD, HERE, argv, counting, drive, environment
from tests.test_menu import Terminal

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def event(kind: str, stage: str | None = None, why: str = "") -> Event:
    """An event of now."""
    return Event(at="2026-01-01T00:00:00.000Z", event=kind, stage=stage, why=why)


def test_elsewhere_a_line_an_event_and_of_a_crash_its_log(project: Project) -> None:
    project.program("bad", BAD)
    process = drive(project, {"bad": {"program": "bad"}, "below": {"program": "ok", "inputs": {"x": "bad.out"}}})
    out, talk = process.communicate(timeout=120)
    log = paths.stage_dir((project.results / "latest").resolve(), "bad") / paths.STDERR
    tail = [f"  {line}" for line in log.read_text().splitlines()[-TAIL_LINES:]]
    assert tail[-1] == "  ValueError: broken" and len(tail) == TAIL_LINES == 20
    said = re.sub(r"plan [0-9a-f]{8}", "plan <hash>", re.sub(r"\[ *\d+\.\d s\]", "[<t> s]", talk)).splitlines()
    assert said == [
        "[<t> s] run started (plan <hash>)",
        "[<t> s] stage started bad (never ran)",
        "[<t> s] stage ended bad (crashed: ValueError: broken)",
        f"{log}:",
        *tail,
        "[<t> s] stage ended below (blocked: `bad` was crashed)",
        "[<t> s] run ended (exit code 1)",
    ]
    assert (process.returncode, out) == (1, "plain\n"), "rich is for terminals only"


def test_a_reader_that_went_away_does_not_end_the_run(project: Project) -> None:
    process = drive(project, {"a": {"program": "ok"}, "b": {"program": "ok", "inputs": {"x": "a.out"}}})
    assert process.stderr is not None and process.stdout is not None
    process.stderr.close()
    assert process.stdout.read() == "plain\n"
    process.stdout.close()
    assert process.wait(120) in (0, 120), "120: Python itself could not flush standard error"
    assert len(list((project.results / "latest" / "stages").glob("*/outcome.json"))) == 2


def test_control_characters_of_a_stage_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = paths.stage_dir(tmp_path, "bad")
    directory.mkdir(parents=True)
    (directory / paths.STDERR).write_bytes(b"\x1b[31mred\x1b[0m \x1b]0;title\x07 \xff\n")
    Lines(tmp_path).event(event("stage_ended", "bad", "crashed: \x1b[2J"))
    said = capsys.readouterr().err.splitlines()
    assert said[0].endswith("stage ended bad (crashed: \\x1b[2J)") and said[2] == "  red \\x1b]0;title\\x07 �"


class Untouchable(dict[str, str]):
    """States that nobody may look at."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("looked at")

    items = values = keys = __iter__  # type: ignore[assignment]


class Tty(io.StringIO):
    """A stream that says to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def tty(monkeypatch: pytest.MonkeyPatch) -> Tty:
    """A terminal of 80x24 without a process behind it."""
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    return Tty()


def not_asked(name: str) -> str:
    """What no stage waits for, as nobody may ask."""
    raise AssertionError(f"asked for {name}")


def test_a_tick_that_does_not_draw_looks_at_nothing(tmp_path: Path, tty: Tty) -> None:
    table = LiveTable(tmp_path, tty)
    table.tick({"a": "waiting"}, lambda name: "b")
    drawn = tty.getvalue()
    table.due = time.monotonic() + 3600
    for watcher in (Lines(tmp_path), table):
        started = time.process_time()
        for _ in range(100_000):
            watcher.tick(Untouchable(), not_asked)
        assert time.process_time() - started < 1.0
    assert tty.getvalue() == drawn
    table.close()


@pytest.mark.parametrize("term", ["", "dumb", "unknown"])
def test_a_terminal_that_cannot_be_drawn_over_gets_lines(
    tmp_path: Path, tty: Tty, monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    monkeypatch.setattr(sys, "stderr", tty)
    monkeypatch.setenv("TERM", term)
    assert isinstance(progress.shown_on_stderr(tmp_path), Lines)


def test_colour_carries_no_meaning(tmp_path: Path, tty: Tty, monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"a": "running", "b": "crashed"}
    shown = {}
    for colour in ("", "1"):
        monkeypatch.setenv("NO_COLOR", colour)
        table = LiveTable(tmp_path, tty)
        table.tick(states, lambda name: "")
        table.close()
        shown[colour] = tty.getvalue()
        tty.truncate(0)
        tty.seek(0)
    assert "\x1b[31m" in shown[""] and "\x1b[31m" not in shown["1"]
    assert re.search(r"b +crashed", shown["1"])


def test_a_closed_terminal_does_not_end_the_run(tmp_path: Path, tty: Tty, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.stderr
    table = LiveTable(tmp_path, tty)

    def hung_up(text: str) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(tty, "write", hung_up)
    table.tick({"a": "running"}, lambda name: "")
    table.event(event("stage_ended", "a", "crashed: x"))
    table.close()
    assert sys.stderr is before


def test_the_table_tells_gpus_progress_what_is_waited_for_and_what_was_reused(tmp_path: Path, tty: Tty) -> None:
    directory = paths.stage_dir(tmp_path, "a")
    directory.mkdir(parents=True)
    grant = {"gpus": 1, "gpu_ids": ["GPU-8f3c1a2b-0000-0000"]}
    (directory / paths.REQUEST).write_text(json.dumps({"grant": grant}))
    (directory / paths.PROGRESS).write_text(json.dumps({"done": 3, "total": 9, "what": "blocks"}))
    table = LiveTable(tmp_path, tty)
    for made in (
        event("stage_started", "a", "never ran"),
        event("stage_reused", "c", "from run x"),
        event("stage_kept", "d", "stale, code changed"),
    ):
        table.event(made)
    table.tick({"a": "running", "b": "waiting", "c": "passed", "d": "passed"}, lambda name: "1 of 2 cores are free")
    table.close()
    said = tty.getvalue()
    assert re.search(r"running\S* +\d\.\d s +GPU-8f3c1a2b  3 of 9 blocks", said)
    assert re.search(r"waiting\S* +- +1 of 2 cores are free", said)
    assert re.search(r"reused\S* +- +from run x", said) and re.search(r"kept\S* +- +stale, code changed", said)
    assert "4 stages: 1 running, 1 waiting, 1 reused, 1 kept" in said


def states_of(**counts: int) -> dict[str, str]:
    """So many stages of each state, in turns."""
    return {f"{word}{n}": word for n in range(max(counts.values())) for word, count in counts.items() if n < count}


def test_of_many_stages_those_that_matter_are_shown() -> None:
    states = states_of(passed=1000, waiting=500, running=3, crashed=2, blocked=90)
    shown = screen.chosen(states, 19)
    assert {name for name in shown if states[name] == "running"} == {"running0", "running1", "running2"}
    assert {name for name in shown if states[name] == "crashed"} == {"crashed0", "crashed1"}
    assert [name for name in shown if states[name] == "waiting"] == ["waiting0", "waiting1", "waiting2"]
    assert len(shown) == 8 and shown == [name for name in states if name in shown]
    assert screen.counts(states) == "1,595 stages: 3 running, 500 waiting, 1,000 passed, 2 crashed, 90 blocked"
    assert len(screen.chosen(states_of(running=40, crashed=40), 19)) == 19
    assert screen.chosen(states_of(passed=19), 19) == list(states_of(passed=19))


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A terminal of 80x24."""
    made = Terminal(tmp_path)
    yield made
    made.tmux("kill-server")


def command(project: Project, stages: dict[str, Any]) -> str:
    """A file with the driver's command line, as tmux types only short words."""
    path = project.root / "drive.sh"
    body = f"os.chdir({str(HERE)!r}); os.environ.update({environment(TERM='xterm')!r}); "
    path.write_text(f"import os; {body}os.execv({sys.executable!r}, {argv(project, stages)!r})")
    return f"clear; {sys.executable} {path}; echo ended with $?"


def fits(drawn: str) -> None:
    """The screen holds what was drawn."""
    lines = drawn.rstrip("\n").split("\n")
    assert len(lines) <= 24 and max(map(len, lines)) <= 80


@needs_tmux
def test_forty_stages_on_a_terminal_of_80x24(project: Project, terminal: Terminal) -> None:
    project.program("bad", BAD)
    stages: dict[str, Any] = {f"many.{n}": counting(project, 40, inputs={"x": "first.out"}) for n in range(36)}
    stages = {"first": {"program": "ok"}, "bad": {"program": "bad"}} | stages
    stages |= {"below": {"program": "ok", "inputs": {"x": "bad.out"}}, "last": {"program": "ok", "after": "all"}}
    terminal.type(command(project, {name.replace(".", "-"): body for name, body in stages.items()}), "Enter")
    counted = "2 running, 35 waiting, 1 passed, 1 crashed, 1 blocked\n"  # the last row: all above it is drawn
    drawn = until_shown(terminal, lambda text: text.count("1 of 40 items") == 2 and counted in text)
    fits(drawn)
    rows = drawn.rstrip("\n").split("\n")
    assert rows[-1].endswith(counted.rstrip())
    assert [row.split()[:2] for row in rows if row.startswith("many-")] == [
        ["many-0", "running"],
        ["many-1", "running"],
        ["many-2", "waiting"],
        ["many-3", "waiting"],
        ["many-4", "waiting"],
    ]
    assert re.search(r"^many-2 +waiting +- +0 of 2 cores are free$", drawn, re.MULTILINE)
    assert re.search(r"^bad +crashed +\d+\.\d s +ValueError: broken$", drawn, re.MULTILINE)
    assert "  ValueError: broken\n" in drawn and "stage ended bad (crashed" in history(terminal)
    assert drawn.count("stage  ") + drawn.count("state ") <= 3, "one table, drawn in place"
    (project.root / "gate").touch()
    drawn = until_shown(terminal, lambda text: "ended with 1" in text)
    fits(drawn)
    assert "40 stages: 38 passed, 1 crashed, 1 blocked" in drawn and "rich" in drawn


def until_shown(terminal: Terminal, told: Callable[[str], bool]) -> str:
    """The screen as soon as it shows that."""
    deadline = time.monotonic() + 180
    while not told(drawn := terminal.tmux("capture-pane", "-p")):
        assert time.monotonic() < deadline, drawn
        time.sleep(0.05)
    return drawn


def history(terminal: Terminal) -> str:
    """The screen and what has left it at the top."""
    return terminal.tmux("capture-pane", "-p", "-S", "-200")


@needs_tmux
def test_ctrl_c_leaves_the_table_and_the_cursor(project: Project, terminal: Terminal) -> None:
    stages = {"slow": counting(project), "below": {"program": "ok", "inputs": {"x": "slow.out"}}}
    terminal.type(command(project, stages), "Enter")
    drawn = until_shown(terminal, lambda text: "1 of 9 items" in text and "1 running, 1 waiting\n" in text)
    assert re.search(r"^below +waiting +- +.*slow$", drawn, re.MULTILINE)
    terminal.type("C-c")
    drawn = until_shown(terminal, lambda text: "ended with 130" in text)
    assert "Traceback" not in drawn and re.search(r"^slow +waiting +- +ended with the run", drawn, re.MULTILINE)
    assert terminal.tmux("display-message", "-p", "#{cursor_flag}").strip() == "1"


@needs_tmux
def test_watch_draws_the_same_until_the_run_ends(project: Project, terminal: Terminal) -> None:
    process = drive(project, {"slow": counting(project), "below": {"program": "ok", "inputs": {"x": "slow.out"}}})
    path = project.root / "watch.py"
    latest = project.results / "latest"
    path.write_text(
        f"import os, sys; os.chdir({str(HERE)!r}); sys.path.insert(0, {str(HERE)!r}); from pathlib import Path; "
        f"from kassay import watch; sys.exit(watch.watch(Path({str(latest)!r})))"
    )
    until_there(latest / paths.EVENTS)
    terminal.type(f"clear; {sys.executable} {path}; echo ended with $?", "Enter")
    drawn = until_shown(terminal, lambda text: "1 of 9 items" in text and "1 running, 1 waiting\n" in text)
    fits(drawn)
    assert f"pid {process.pid} on" in drawn and re.search(r"^below +waiting +- +waits for slow$", drawn, re.MULTILINE)
    (project.root / "gate").touch()
    drawn = until_shown(terminal, lambda text: "ended with 0" in text)
    assert "2 stages: 2 passed" in drawn and "ended, exit code 0: every stage passed" in drawn
    assert process.wait(120) == 0
    process.communicate()


def until_there(path: Path) -> None:
    """Until the file is there."""
    deadline = time.monotonic() + 120
    while not os.path.exists(path):
        assert time.monotonic() < deadline
        time.sleep(0.02)
