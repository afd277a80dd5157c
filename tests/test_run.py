"""The loop with real processes: the five outcomes, what goes on, what is reused and why, and how it survives."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from kassay import lock, outcome, paths
from kassay.engine import local
from kassay.errors import RunError
from kassay.preview import preview
from tests.conftest import Project, Silent

CHAIN: dict[str, Any] = {
    "a": {"program": "ok", "params": {"value": 1}},
    "b": {"program": "ok", "inputs": {"x": "a.out"}, "params": {"value": 2}},
    "c": {"program": "ok", "inputs": {"x": "b.out"}},
    "side": {"program": "ok"},
}


def changed(stages: dict[str, Any], name: str, **params: Any) -> dict[str, Any]:
    """The same stages with other parameters of one."""
    return {**stages, name: {**stages[name], "params": params}}


def test_all_passed_and_then_nothing_to_do(project: Project) -> None:
    first = project.go(CHAIN)
    assert (first.code, set(first.words.values())) == (0, {"passed"})
    again = project.go(CHAIN)
    assert again.code == 0 and not again.started and set(again.reused) == set(CHAIN)
    assert again.run.directory == first.run.directory


@pytest.mark.parametrize(
    ("body", "word", "code", "reason"),
    [
        ('    return stage.rejected("gate says no")', "rejected", 3, "gate says no"),
        ('    raise Unmet("no GPU")', "unmet", 4, "no GPU"),
        ('    raise ValueError("broken")', "crashed", 1, "ValueError: broken"),
        ("    sys.exit(0)", "crashed", 1, "without its outcome"),
        ("    sys.exit(2)", "crashed", 1, "without its outcome"),
        ("    os.kill(os.getpid(), 9)", "crashed", 1, "ended by SIGKILL"),
        ('    stage.finish("passed", "", {}); os._exit(1)', "crashed", 1, "exit status 1"),
        ('    stage.finish("passed", "", {}); os._exit(3)', "crashed", 1, "exit status 3"),
        ('    stage.finish("rejected", "no", {}); os._exit(0)', "crashed", 1, "exit status 0"),
        ('    open("outcome.json", "w").write("{}")\n    os._exit(0)', "crashed", 1, "not a readable outcome"),
        ('    stage.write_json("out", {"x": float("nan")})', "crashed", 1, "not JSON compliant"),
        ('    print("last words", file=sys.stderr); os.abort()', "crashed", 1, "ended by SIGABRT"),
    ],
)
def test_how_a_stage_ends(project: Project, body: str, word: str, code: int, reason: str) -> None:
    project.program("bad", body)
    went = project.go(
        {"bad": {"program": "bad"}, "below": {"program": "ok", "inputs": {"x": "bad.out"}}, "side": {"program": "ok"}}
    )
    assert went.words == {"bad": word, "below": "blocked", "side": "passed"}
    assert outcome.load(paths.stage_dir(went.run.directory, "below")) == went.run.outcomes["below"]
    assert reason in went.reasons["bad"] and went.reasons["below"] == f"`bad` was {word}"
    assert went.code == code
    saved = json.loads((paths.stage_dir(went.run.directory, "bad") / paths.OUTCOME).read_text())
    assert saved["word"] == word


def test_a_changed_parameter_runs_exactly_what_depends_on_it(project: Project) -> None:
    first = project.go(CHAIN)
    went = project.go(changed(CHAIN, "b", value=3))
    assert went.run.directory != first.run.directory, "another plan is another run"
    assert went.started == {"b": "parameter value: 2 -> 3", "c": "input x changed"}
    assert went.reused["a"] == f"from run {first.run.directory.name}"
    assert (went.run.directory / "stages" / "a").is_symlink()


def test_an_unchanged_output_stops_the_wave(project: Project) -> None:
    project.go(CHAIN)
    source = project.root / "stages" / "first.py"
    stages = {**CHAIN, "a": {"program": "first", "params": {"value": 1}}}
    source.write_text((project.root / "stages" / "ok.py").read_text())
    project.go(stages)
    source.write_text(source.read_text() + "# a comment\n")
    assert set(project.go(stages).started) == {"a"}


def test_changed_code_runs_again_and_says_which(project: Project) -> None:
    project.go(CHAIN)
    path = project.root / "stages" / "ok.py"
    path.write_text(path.read_text().replace('"value", 0', '"value", 9'))
    went = project.go(CHAIN)
    assert set(went.started) == set(CHAIN) and went.started["a"] == "code stages/ok.py changed"


def test_a_changed_artifact_is_noticed(project: Project) -> None:
    first = project.go(CHAIN)
    path = paths.stage_dir(first.run.directory, "a") / "out.json"
    path.write_text(path.read_text().replace("1", "7"))
    went = project.go(CHAIN)
    assert went.started == {"a": "artifact out.json is gone or was changed"}


def test_what_another_run_reused_stays_what_it_was(project: Project) -> None:
    project.go(CHAIN)
    other = project.go(changed(CHAIN, "b", value=3))
    reused = paths.stage_dir(other.run.directory, "a") / paths.OUTCOME
    before = reused.read_bytes()
    path = project.root / "stages" / "ok.py"
    path.write_text(path.read_text().replace('"value", 0', '"value", 9'))
    assert "a" in project.go(CHAIN).started
    assert reused.read_bytes() == before


def test_unmet_and_crashed_are_asked_again(project: Project, tmp_path: Path) -> None:
    project.program(
        "maybe", f'    if not os.path.exists({str(tmp_path / "gpu")!r}): raise Unmet("no GPU")\n{" " * 4}return {{}}'
    )
    stages = {"maybe": {"program": "maybe"}}
    assert project.go(stages).code == 4
    (tmp_path / "gpu").touch()
    went = project.go(stages)
    assert went.code == 0 and went.started == {"maybe": "was unmet"}


def test_what_is_blocked_shows_no_older_result_and_finds_it_again(project: Project, tmp_path: Path) -> None:
    gate = tmp_path / "gpu"
    gate.touch()
    project.program(
        "maybe",
        f'    if not os.path.exists({str(gate)!r}): raise Unmet("no GPU")\n'
        '    stage.write_json("out", {})\n    return {}',
    )
    stages = {"maybe": {"program": "maybe"}, "below": {"program": "ok", "inputs": {"x": "maybe.out"}}}
    first = project.go(stages)
    gate.unlink()
    source = project.root / "stages" / "maybe.py"
    source.write_text(source.read_text() + "# edited\n")
    second = project.go(stages)
    below = paths.stage_dir(second.run.directory, "below")
    assert (second.code, second.run.directory) == (4, first.run.directory)
    shown = outcome.load(below)
    assert shown is not None and (shown.word, shown.reason) == ("blocked", "`maybe` was unmet")
    project.go(stages)
    assert len(list(below.parent.glob(".below.stale-*"))) == 1, "being blocked again sets nothing aside"
    gate.touch()
    went = project.go(stages)
    assert (went.code, set(went.started), set(went.reused)) == (0, {"maybe"}, {"below"})


def test_a_program_that_does_not_leave_what_others_read_crashed(project: Project) -> None:
    first = project.go({"a": {"program": "ok"}})
    stages = {"a": {"program": "ok"}, "odd": {"program": "ok", "inputs": {"x": "a.nothing"}}, "side": {"program": "ok"}}
    went = project.go(stages)
    assert first.code == 0 and went.words == {"a": "crashed", "odd": "blocked", "side": "passed"}
    assert went.started["a"] == "left no `nothing`, which `odd` reads" and went.code == 1
    assert went.reasons["a"] == "left no `nothing`, which `odd` reads"
    project.program("ok", '    stage.write_json("nothing", {})\n    stage.write_json("out", {})\n    return {}')
    assert project.go(stages).code == 0


def test_an_interpreter_that_is_gone_is_one_stages_crash(project: Project) -> None:
    project.program("stack", '    stage.write_json("stack", {"python": "/nowhere/bin/python"})\n    return {}')
    stages = {"stack": {"program": "stack"}, "model": {"program": "ok", "inputs": {"stack": "stack.stack"}}, **CHAIN}
    went = project.go(stages)
    assert (went.code, went.words["model"], went.words["c"]) == (1, "crashed", "passed")
    assert went.reasons["model"].endswith("/nowhere/bin/python: No such file or directory")


def test_a_foundation_that_is_gone_runs_the_stage_again(project: Project, tmp_path: Path) -> None:
    base = tmp_path / "environment"
    base.write_text("made\n")
    project.program(
        "build", f"    from pathlib import Path\n    stage.add_foundation(Path({str(base)!r}))\n    return {{}}"
    )
    stages = {"build": {"program": "build"}}
    project.go(stages)
    assert project.go(stages).started == {}
    base.write_text("another\n")
    assert project.go(stages).started == {"build": f"{base} is gone or was changed"}


def test_the_receipt_names_the_packages_that_the_stage_loaded(project: Project) -> None:
    project.program("loads", "    import numpy, yaml\n    return {}")
    went = project.go({"loads": {"program": "loads"}, "none": {"program": "ok"}})
    told = {
        name: json.loads((paths.stage_dir(went.run.directory, name) / paths.RECEIPT).read_text())
        for name in ("loads", "none")
    }
    assert told["loads"]["packages"] == {"numpy": version("numpy"), "PyYAML": version("pyyaml")}
    assert told["none"]["packages"] == {} and "stages/ok.py" in told["none"]["code"]


def test_what_a_caller_redirects_does_not_reach_a_stage(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("LC_ALL", "C")
    body = (
        '    names = ("GIT_DIR", "PYTHONHOME", "PYTHONUTF8", "VIRTUAL_ENV")\n'
        '    stage.write_json("out", {name: os.environ.get(name) for name in names})\n'
        '    stage.write_json("path", os.environ["PATH"].split(":")[0])\n    return {}'
    )
    project.program("env", body)
    went = project.go({"env": {"program": "env"}})
    directory = paths.stage_dir(went.run.directory, "env")
    home = str(Path(sys.executable).parent.parent)
    venv = home if (Path(home) / "pyvenv.cfg").is_file() else os.environ.get("VIRTUAL_ENV")
    told = json.loads((directory / "out.json").read_text())
    assert told == {"GIT_DIR": None, "PYTHONHOME": None, "PYTHONUTF8": "1", "VIRTUAL_ENV": venv}
    assert json.loads((directory / "path.json").read_text()) == str(Path(sys.executable).parent)


def test_after_all_runs_whatever_happened(project: Project) -> None:
    project.program("bad", '    raise ValueError("x")')
    stages = {"bad": {"program": "bad"}, "last": {"program": "ok", "after": "all"}}
    went = project.go(stages)
    assert went.words == {"bad": "crashed", "last": "passed"} and went.code == 1


def test_a_stage_past_its_time_out_is_ended(project: Project) -> None:
    project.program("slow", "    time.sleep(60)")
    went = project.go({"slow": {"program": "slow"}}, timeout_s=1.0)
    assert went.words["slow"] == "crashed" and "time-out" in went.reasons["slow"]


@pytest.fixture
def ready(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in which a stage says that it is ready: no time-out comes before, however slow the machine is."""
    path, deadline = project.root / "ready", local.deadline
    monkeypatch.setattr(local, "deadline", lambda running: deadline(running) if written(path) else math.inf)
    return path


def test_a_time_out_ends_grandchildren_and_what_ignores_term(
    project: Project, ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "GRACE_S", 0.3)
    body = (
        "    import signal, subprocess\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f'    child = subprocess.Popen(["sleep", "600"])\n    open({str(ready)!r}, "w").write(str(child.pid))\n'
        "    time.sleep(600)"
    )
    project.program("deaf", body)
    went = project.go({"deaf": {"program": "deaf"}}, timeout_s=0.6)
    assert went.reasons["deaf"].startswith("ran past its time-out") and alive([int(ready.read_text())]) == []


def test_what_ends_well_after_its_time_out_still_ran_past_it(project: Project, ready: Path) -> None:
    body = (
        "    import signal, threading\n    over = threading.Event()\n"
        "    signal.signal(signal.SIGTERM, lambda *_: over.set())\n"
        f'    open({str(ready)!r}, "w").write("x")\n    over.wait(60)\n    return {{}}'
    )
    project.program("polite", body)
    went = project.go({"polite": {"program": "polite"}}, timeout_s=0.6)
    assert went.words["polite"] == "crashed" and "time-out" in went.reasons["polite"]


def test_a_grandchild_does_not_outlive_a_stage_that_passed(project: Project) -> None:
    pid = project.root / "pid"
    body = (
        f'    import subprocess\n    child = subprocess.Popen(["sleep", "600"])\n'
        f'    open({str(pid)!r}, "w").write(str(child.pid))\n    child.returncode = 0\n    return {{}}'
    )
    project.program("leaves", body)
    assert project.go({"leaves": {"program": "leaves"}}).code == 0
    assert alive([int(pid.read_text())]) == []


def test_a_fault_of_the_driver_ends_the_stages(project: Project) -> None:
    stages = slow_stages(project)
    run = project.open(stages)

    class Broken(Silent):
        def tick(self, states: dict[str, str], waits_for: Callable[[str], str]) -> None:
            if written(project.root / "pid"):
                raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        run.go(Broken())
    assert alive([int(word) for word in (project.root / "pid").read_text().split()]) == []


def test_a_full_disk_under_the_log_keeps_what_was_recorded(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    run = project.open(CHAIN)
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if b'"stage_started"' in data:
            raise OSError(28, "No space left on device")
        return real(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            run.go(Silent())
    went = project.go(CHAIN)
    assert went.code == 0 and went.run.directory == run.directory


def test_a_results_folder_that_cannot_be_written_as_another_user(project: Project) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); from kassay import paths; from pathlib import Path\n"
        "from kassay.rundir import Setup, open_run; from kassay.plan import Plan\nos.setuid(65534)\n"
        'plan = Plan(profile="p", workflow="w", stages=(), config={})\n'
        "none = frozenset()\n"
        'setup = Setup(results=Path(sys.argv[2]), settings={}, overrides=[], interpreter="x", timeout_s=1, '
        "only=none, force=none, keep=none)\n"
        "try: open_run(plan, setup)\nexcept Exception as error: print(type(error).__name__, error)"
    )
    project.results.mkdir(mode=0o755)
    top = str(Path(__file__).resolve().parent.parent)
    done = subprocess.run([sys.executable, "-c", script, top, str(project.results)], capture_output=True, text=True)
    assert done.stdout.startswith(f"RunError {project.results}"), done.stderr
    assert "cannot be written: Permission denied\nhint: make RESULTS=<folder>" in done.stdout


def test_the_project_is_no_results_folder_and_results_stay_out_of_git(project: Project) -> None:
    project.results = project.root
    with pytest.raises(RunError, match="no results folder"):
        project.open(CHAIN)
    project.results = project.root / "out" / "deep"
    project.go(CHAIN)
    assert (project.results / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("number", range(3))
def test_the_run_is_chosen_by_its_own_record(project: Project, number: int) -> None:
    """O13: names that are prefixes of each other, folders without a record, and an order that is not the names'."""
    run = project.open(CHAIN)
    suffix = run.directory.name.rpartition("-")[2]
    ours = {}
    for stamp, created in (("20260801T000000Z", "2026-08-01"), ("20260901T000000Z", "2026-07-01")):
        ours[stamp] = copied(run.directory, f"toy-{stamp}-{suffix}", created_at=created)
    copied(run.directory, f"toy-upstream-20270101T000000Z-{suffix}", created_at="2027-01-01", profile="toy-upstream")
    (project.results / f"toy-20280101T000000Z-{suffix}").mkdir()
    broken = copied(run.directory, f"toy-20290101T000000Z-{suffix}", created_at="2029-01-01")
    (broken / (paths.PLAN, paths.MANIFEST, paths.PLAN)[number]).write_text(("", "{", "[]")[number])
    shutil.rmtree(run.directory)
    assert project.open(CHAIN).directory == ours["20260801T000000Z"]
    assert (project.results / "latest").resolve() == ours["20260801T000000Z"]


def copied(run: Path, name: str, created_at: str, profile: str = "toy") -> Path:
    """A copy of a run directory under another name, with its records changed to match."""
    target = run.with_name(name)
    shutil.copytree(run, target)
    for file, changed in (
        (paths.PLAN, {"profile": profile}),
        (paths.MANIFEST, {"run": name, "created_at": created_at}),
    ):
        body = json.loads((target / file).read_text())
        (target / file).write_text(json.dumps({**body, **changed}))
    return target


def test_a_read_only_results_folder_is_said_before_anything_runs(project: Project, monkeypatch: Any) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(RunError, match="cannot be written: Permission denied"):
        project.open(CHAIN)


def test_a_second_driver_is_told_who_holds_the_run(project: Project) -> None:
    run = project.open(CHAIN)
    refused = pytest.raises(RunError, match=f"pid {os.getpid()} on ")
    with lock.owned(run.directory, "t", []), refused, lock.owned(run.directory, "u", []):
        pass


def test_a_torn_event_is_set_aside(project: Project) -> None:
    first = project.go(CHAIN)
    events = first.run.directory / paths.EVENTS
    lines = events.read_bytes().count(b"\n") + 1
    events.write_bytes(events.read_bytes() + b'{"schema": "kass')
    assert project.go(CHAIN).code == 0
    assert (first.run.directory / "events.jsonl.torn").read_bytes() == b'{"schema": "kass\n'
    told = [
        event for event in map(json.loads, events.read_text().splitlines()) if event["event"] == "torn_line_set_aside"
    ]
    assert [event["why"] for event in told] == [f"events.jsonl:{lines}, from a session that died"]
    assert all(json.loads(line) for line in events.read_text().splitlines())


DRIVER = """
import sys
from pathlib import Path
from kassay import paths
paths.ROOT = Path({root!r})
from tests.conftest import Project, Silent
project = Project.__new__(Project); project.root = paths.ROOT; project.results = paths.ROOT / "results"
try:
    sys.exit(project.go({stages!r}).code)
except KeyboardInterrupt:
    sys.exit(130)
"""


def drive(project: Project, stages: dict[str, Any]) -> subprocess.Popen[bytes]:
    """The same run in another process."""
    here = Path(__file__).resolve().parent.parent
    script = DRIVER.format(root=str(project.root), stages=stages)
    return subprocess.Popen([sys.executable, "-c", script], cwd=here, env={**os.environ, "PYTHONPATH": str(here)})


def written(path: Path) -> bool:
    """Whether the file is there, and not only made."""
    return path.exists() and path.stat().st_size > 0


def wait_for_pids(project: Project) -> list[int]:
    """The slow stage and its grandchild, as soon as they run and their driver has noted it."""
    deadline, path = time.monotonic() + 120, project.root / "pid"
    while not (written(path) and '"stage_started","stage":"slow"' in events_of(project)):
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)
    return [int(word) for word in path.read_text().split()]


def events_of(project: Project) -> str:
    """The events of the newest run, without blanks."""
    return (project.results / "latest" / paths.EVENTS).read_text().replace(" ", "")


def slow_stages(project: Project) -> dict[str, Any]:
    """A stage that starts a grandchild and waits until it is allowed to end."""
    pid, gate = project.root / "pid", project.root / "gate"
    body = (
        '    import subprocess\n    child = subprocess.Popen(["sleep", "600"])\n'
        f'    open({str(pid)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")\n'
        f"    while not os.path.exists({str(gate)!r}): time.sleep(0.05)\n"
        '    child.kill(); child.wait()\n    stage.write_json("out", {})\n    return {}'
    )
    project.program("slow", body)
    return {"first": {"program": "ok"}, "slow": {"program": "slow", "inputs": {"x": "first.out"}}}


def alive(pids: list[int]) -> list[int]:
    """Those that still run; a zombie does not."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found += [pid] if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE else []
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_stages_and_leaves_a_resumable_run(project: Project, number: int) -> None:
    stages = slow_stages(project)
    driver = drive(project, stages)
    pids = wait_for_pids(project)
    driver.send_signal(number)
    assert driver.wait(120) == 130
    assert alive(pids) == []
    (project.root / "gate").touch()
    went = project.go(stages)
    assert went.code == 0 and "first" in went.reused and went.started == {"slow": "did not finish"}


@pytest.mark.parametrize("early", [False, True])
def test_kill_9_of_the_driver_leaves_no_process_and_a_resumable_run(project: Project, early: bool) -> None:
    """Early: while the stage's own imports still go on, before it could ask to die with its driver."""
    stages = slow_stages(project)
    if early:
        path = project.root / "stages" / "slow.py"
        pid = project.root / "pid"
        head = f"import os, subprocess, time\nif not os.path.exists({str(project.root / 'gate')!r}):\n" + (
            f"    open({str(pid)!r}, \"w\").write(f\"{{os.getpid()}} {{subprocess.Popen(['sleep', '600']).pid}}\")\n"
            "    time.sleep(600)\n"
        )
        path.write_text(head + path.read_text())
    driver = drive(project, stages)
    pids = wait_for_pids(project)
    assert len(alive(pids)) == 2
    driver.kill()
    driver.wait(30)
    deadline = time.monotonic() + 60
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(pids) == []
    (project.root / "gate").touch()
    went = project.go(stages)
    assert went.code == 0 and went.started == {"slow": "did not finish"} and "first" in went.reused


def test_a_preview_says_what_the_loop_would_do(project: Project) -> None:
    project.go(CHAIN)
    run = project.open(CHAIN).directory
    (paths.stage_dir(run, "a") / paths.OUTCOME).write_text("{")
    told = preview(project.plan(CHAIN), project.results)
    lines = {line.split()[0]: line for line in told if not line.startswith(" ")}
    assert lines["a"].endswith("runs: its files cannot be read: RunError")
    assert lines["b"].endswith("runs: after a") and "up to date" in lines["side"]
    assert project.go(CHAIN).started == {"a": "its files cannot be read: RunError"}


def test_a_stage_of_its_own_time_out_and_retries(project: Project) -> None:
    project.program("slow", "    time.sleep(60)\n    return {}")
    project.program(
        "third",
        '    said = stage.params["said"]\n'
        '    open(said, "a").write("x")\n'
        "    if os.path.getsize(said) < 3:\n"
        '        print("not yet", file=sys.stderr); os._exit(7)\n'
        '    stage.write_json("out", {})\n'
        "    return {}",
    )
    said = str(project.root / "said")
    went = project.go(
        {
            "slow": {"program": "slow", "timeout_s": 1.5},
            "third": {"program": "third", "params": {"said": said}, "retries": 5},
        }
    )
    assert went.words == {"slow": "crashed", "third": "passed"}
    assert went.reasons["slow"].startswith("ran past its time-out of 1.5 s")
    stages = went.run.directory / "stages"
    assert went.run.outcomes["third"].attempt == 3 and len(list(stages.glob(".third.stale-*"))) == 2
    told = [line for line in (went.run.directory / paths.EVENTS).read_text().splitlines() if "stage_retried" in line]
    assert len(told) == 2 and "attempt 1 of 6 exit status 7 without its outcome; last line: not yet" in told[0]
    again = project.go({"third": {"program": "third", "params": {"said": said}, "retries": 0}})
    assert not again.started, "how often it may be tried is no part of what it is"


def test_a_disk_without_the_room_that_a_stage_needs_is_unmet(project: Project) -> None:
    resources = {"cpus": 1, "memory_gib": 0.1, "disk_gib": 1e9}
    went = project.go({"a": {"program": "ok", "resources": resources}, "b": {"argv": ["true"], "resources": resources}})
    assert went.words == {"a": "unmet", "b": "unmet"} and went.code == 4
    assert went.reasons["a"].endswith("GiB free, 1e+09 are needed")
