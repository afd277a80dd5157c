"""Reading a run from another shell: what status, watch and logs tell of runs that go on, ended, or died."""

import io
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kassay import lock, paths, watch
from kassay.errors import RecordError, RunError
from kassay.watch import told
from kassay.watch.logs import Tail, follow
from kassay.watch.view import View
from tests.commandline import kassay
from tests.conftest import Project
from tests.driven import BAD, HERE, counting, drive, environment, until


@pytest.fixture
def stages(project: Project) -> dict[str, Any]:
    """A stage that waits for its gate, one that crashes, and what stands below them."""
    project.program("bad", BAD)
    return {
        "first": {"program": "ok"},
        "slow": counting(project, inputs={"x": "first.out"}),
        "below": {"program": "ok", "inputs": {"x": "slow.out"}},
        "bad": {"program": "bad"},
        "blocked": {"program": "ok", "inputs": {"x": "bad.out"}},
        "last": {"program": "ok", "after": "all"},
    }


@pytest.fixture
def driver(project: Project, stages: dict[str, Any]) -> Iterator["subprocess.Popen[str]"]:
    """The driver, while `slow` runs and all before it has ended."""
    process = drive(project, stages)
    until(lambda: {"slow": "running", "bad": "crashed", "blocked": "blocked"}.items() <= states(project).items())
    until((paths.stage_dir(latest(project), "slow") / paths.PROGRESS).exists)
    yield process
    process.kill()
    process.communicate()


def latest(project: Project) -> Path:
    """The directory of the newest run."""
    return (project.results / "latest").resolve()


def view(project: Project) -> View:
    """A fresh look at the newest run."""
    made = View(latest(project))
    made.refresh()
    return made


def states(project: Project) -> dict[str, str]:
    """A word for each stage; nothing before there is a run."""
    return view(project).states() if (project.results / "latest" / paths.PLAN).exists() else {}


def facts(project: Project) -> dict[str, str]:
    """The head of `make status` by name, and under each stage's name its cells."""
    head, _, rows = "\n".join(watch.status(latest(project))).partition("\n\n")
    told = {line[:9].strip(): line[9:] for line in head.splitlines()}
    return told | {line.split()[0]: re.sub("  +", "  ", line) for line in rows.splitlines()}


def open_gate(project: Project) -> None:
    """Let the slow stage end."""
    (project.root / "gate").touch()


def test_a_run_that_goes_on(project: Project, driver: "subprocess.Popen[str]") -> None:
    shown = facts(project)
    assert shown["run"] == latest(project).name and shown["profile"] == "toy"
    assert shown["plan"] == json.loads((latest(project) / paths.PLAN).read_text())["hash"]
    assert shown["driver"] == f"pid {driver.pid} on {platform.node()}, alive" and shown["state"] == "running"
    assert re.fullmatch(r"20\S+Z \(\d+\.\d s\)", shown["since"])
    assert shown["stages"] == "1 running, 2 waiting, 1 passed, 1 crashed, 1 blocked"
    assert shown["stage"] == "stage  state  time  gpus  progress  why"
    assert re.fullmatch(r"slow  running  \d+\.\d s  -  1 of 9 items  never ran", shown["slow"])
    assert shown["below"] == "below  waiting  -  -  -  waits for slow"
    assert shown["last"] == "last  waiting  -  -  -  waits for slow, below"
    assert re.fullmatch(r"bad  crashed  \d+\.\d s  -  -  ValueError: broken", shown["bad"])
    assert shown["blocked"].endswith("  `bad` was crashed")


def test_looking_locks_and_writes_nothing(project: Project, driver: "subprocess.Popen[str]") -> None:
    held = sorted(path.name for path in latest(project).iterdir())
    list(watch.status(latest(project)))
    assert sorted(path.name for path in latest(project).iterdir()) == held
    open_gate(project)
    assert driver.wait(120) == 1
    with lock.owned(latest(project), "token", []):
        assert facts(project)["driver"].startswith(f"pid {os.getpid()} ")


def test_a_run_that_ended_tells_its_exit_code(project: Project, driver: "subprocess.Popen[str]") -> None:
    open_gate(project)
    assert driver.wait(120) == view(project).exit_code == 1
    shown = facts(project)
    assert (shown["driver"], shown["state"]) == ("none", "ended, exit code 1: something crashed")
    assert states(project) == {
        "first": "passed",
        "slow": "passed",
        "below": "passed",
        "bad": "crashed",
        "blocked": "blocked",
        "last": "passed",
    }


def test_reused_stages_and_a_session_that_was_asked_for_less(project: Project) -> None:
    chain: dict[str, Any] = {"a": {"program": "ok"}, "b": {"program": "ok", "inputs": {"x": "a.out"}}}
    went = project.go(chain)
    project.go(chain)
    assert states(project) == {"a": "reused", "b": "reused"} and view(project).exit_code == went.code == 0
    project.go(chain, only={"a"})
    assert states(project) == {"a": "reused", "b": "passed"}
    assert facts(project)["b"].endswith("  of an earlier session")
    project.go({**chain, "b": {**chain["b"], "params": {"value": 2}}}, only={"a"})
    shown = facts(project)
    assert shown["a"].endswith(f"  from run {went.run.directory.name}")
    assert shown["b"] == "b  waiting  -  -  -  not asked for"


def test_kill_9_of_the_driver_is_lost_even_before_anybody_has_waited_for_it(
    project: Project, driver: "subprocess.Popen[str]"
) -> None:
    driver.kill()
    until(lambda: view(project).state == "lost")
    assert driver.returncode is None, "it is still a zombie"
    shown = facts(project)
    assert shown["driver"] == f"pid {driver.pid} on {platform.node()}, gone"
    assert shown["state"] == "lost: it has not ended, and its driver is gone; `make` resumes it"
    assert shown["slow"] == "slow  lost  -  -  -  its driver is gone"
    assert shown["below"] == "below  waiting  -  -  -  not reached; `make` resumes"
    assert facts(project)["bad"].startswith("bad  crashed")
    started = time.monotonic()
    assert watch.watch(latest(project)) == 1 and time.monotonic() - started < watch.DOUBT_S + 30


@pytest.mark.parametrize(
    ("changed", "state"), [({"started": 1}, "lost"), ({"pid": 2**22 + 1}, "lost"), ({"host": "elsewhere"}, "running")]
)
def test_a_driver_is_known_by_its_pid_and_start_and_only_on_its_host(
    project: Project, driver: "subprocess.Popen[str]", changed: dict[str, Any], state: str
) -> None:
    owner = latest(project) / paths.OWNER
    owner.write_text(json.dumps(json.loads(owner.read_text()) | changed))
    assert view(project).state == state


def test_an_interrupted_run_is_over(project: Project, driver: "subprocess.Popen[str]") -> None:
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(120) == 130 == view(project).exit_code
    assert facts(project)["state"] == "interrupted: its stages were ended; `make` resumes it"
    assert facts(project)["slow"].endswith("  it was ended with the run; `make` runs it again")


def test_a_driver_that_has_only_just_taken_the_run_is_starting(project: Project) -> None:
    run = project.open({"a": {"program": "ok"}})
    assert (view(project).state, facts(project)["since"]) == ("lost", "it has not begun")
    with lock.owned(run.directory, "token", []):
        assert view(project).state == "starting"
    project.go({"a": {"program": "ok"}})
    time.sleep(0.002)
    assert view(project).state == "ended"
    with lock.owned(run.directory, "token", []):
        assert view(project).state == "starting" and states(project) == {"a": "passed"}


def test_a_torn_last_event_is_not_there_yet(project: Project, driver: "subprocess.Popen[str]") -> None:
    made = view(project)
    events = latest(project) / paths.EVENTS
    line = json.dumps(json.loads(events.read_text().splitlines()[0]) | {"event": "stage_ended", "stage": "slow"})
    with events.open("a") as stream:
        stream.write(line[:30])
    assert made.refresh() == [] and made.stage_state("slow") == "running"
    with events.open("a") as stream:
        stream.write(line[30:] + "\n")
    assert [event.stage for event in made.refresh()] == ["slow"] and view(project).refresh() == []
    with events.open("a") as stream:
        stream.write("{}\n")
    with pytest.raises(RecordError, match=rf"{re.escape(str(events))}:\d+: not an event"):
        made.refresh()


def test_files_that_are_being_written_are_not_told(tmp_path: Path) -> None:
    for text in ("", "{", '{"done": 1', "[]", '{"done": 1}', "\x00"):
        (tmp_path / paths.PROGRESS).write_text(text)
        (tmp_path / paths.REQUEST).write_text(text)
        assert (told.progress(tmp_path), told.gpus(tmp_path)) == ("", "")


@pytest.mark.parametrize(
    ("grant", "shown"),
    [
        ({"gpus": 2, "gpu_ids": ["0", "1"]}, "0,1"),
        ({"gpus": 1, "gpu_ids": ["GPU-8f3c1a2b-0000"]}, "GPU-8f3c1a2b-0000"),
        ({"gpus": 2, "gpu_ids": None}, "2 of the cluster's"),
        ({"gpus": 0, "gpu_ids": []}, ""),
    ],
)
def test_gpus_are_those_of_the_grant(tmp_path: Path, grant: dict[str, Any], shown: str) -> None:
    (tmp_path / paths.REQUEST).write_text(json.dumps({"grant": grant}))
    assert told.gpus(tmp_path) == shown


def test_a_plain_executable_is_as_far_as_its_last_line(tmp_path: Path) -> None:
    (tmp_path / paths.STDOUT).write_text("begin\n")
    os.utime(tmp_path / paths.STDOUT, (1, 1))
    (tmp_path / paths.STDERR).write_text("\x1b[32mold\x1b[0m\r10 %\r\x1b[1m20 %\x1b[0m\n\n")
    assert told.progress(tmp_path) == "20 %"


def shell(call: str) -> "subprocess.Popen[str]":
    """A call of ours in a process of its own."""
    code = (
        f"import sys\nfrom pathlib import Path\nfrom kassay import watch\nfrom kassay.watch.logs import follow\n{call}"
    )
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", code]
    return subprocess.Popen(argv, cwd=HERE, env=environment(), stdout=pipe, stderr=pipe, text=True)


def rest(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """What is left to read of a process that ends; `communicate` would forget what `readline` has buffered."""
    assert process.stdout is not None and process.stderr is not None
    said = process.stdout.read(), process.stderr.read()
    process.wait(120)
    process.stdout.close()
    process.stderr.close()
    return said


def watching(project: Project) -> "subprocess.Popen[str]":
    """`make watch` in another shell, once it has said where the run is."""
    process = shell(
        "from argparse import Namespace\nwatch.asked_run = lambda arguments: Path(arguments.run)\n"
        f"sys.exit(watch.do_watch(Namespace(run={str(latest(project))!r}), None))"
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith(f"{latest(project).name}, running; 6 stages: 1 running"), line
    return process


def test_watch_prints_new_events_until_the_end_and_ends_as_the_run(
    project: Project, driver: "subprocess.Popen[str]"
) -> None:
    process = watching(project)
    open_gate(project)
    out, talk = rest(process)
    said = [re.sub(r"\[ *\d+\.\d s\] ", "", line) for line in out.splitlines()]
    assert said == [
        "stage ended slow (passed)",
        "stage started below (never ran)",
        "stage ended below (passed)",
        "stage started last (never ran)",
        "stage ended last (passed)",
        "run ended (exit code 1)",
    ]
    assert (process.returncode, talk) == (1, "ended, exit code 1: something crashed\n") and driver.wait(120) == 1


def test_watch_says_that_the_driver_died(project: Project, driver: "subprocess.Popen[str]") -> None:
    process = watching(project)
    driver.kill()
    _, talk = rest(process)
    assert process.returncode == 1 and talk.startswith("lost: it has not ended")


def test_ctrl_c_leaves_watch_at_once_and_the_run_alone(project: Project, driver: "subprocess.Popen[str]") -> None:
    process = watching(project)
    process.send_signal(signal.SIGINT)
    out, talk = rest(process)
    assert (process.returncode, out, talk) == (130, "", "")
    open_gate(project)
    assert driver.wait(120) == 1


def logs(project: Project, stage: str) -> str:
    """What `make logs` prints of a stage that has ended, with short paths."""
    out = io.BytesIO()
    follow(latest(project), stage, out)
    return out.getvalue().decode().replace(f"{latest(project)}/stages/", "")


def test_logs_follow_a_stage_to_its_end(project: Project, driver: "subprocess.Popen[str]") -> None:
    process = shell(f"follow(Path({str(latest(project))!r}), 'slow', sys.stdout.buffer)")
    assert process.stdout is not None
    head = [process.stdout.readline() for _ in range(2)]
    assert head == [f"==> {latest(project)}/stages/slow/stdout.log <==\n", "out 1\n"]
    open_gate(project)
    more, talk = rest(process)
    lines = [line for line in more.splitlines() if line and not line.startswith("==>")]
    assert sorted(lines) == sorted([f"out {n}" for n in range(2, 10)] + [f"err {n}" for n in range(1, 10)])
    assert (process.returncode, talk) == (0, "stage `slow`: passed\n")


def test_logs_of_a_stage_that_ended(project: Project, driver: "subprocess.Popen[str]", capsys: Any) -> None:
    said = logs(project, "bad").splitlines()
    assert said[:2] == ["==> bad/stderr.log <==", "line 0"] and said[-1] == "ValueError: broken"
    assert capsys.readouterr().err == "stage `bad`: crashed (ValueError: broken)\n"


def test_logs_of_a_stage_that_did_not_run(project: Project, driver: "subprocess.Popen[str]") -> None:
    with pytest.raises(RunError, match="stage `blocked`: blocked \\(`bad` was crashed\\); it left no log"):
        logs(project, "blocked")
    with pytest.raises(RunError, match=r"no stage `slwo` in run .*; did you mean `slow`\?"):
        logs(project, "slwo")
    driver.send_signal(signal.SIGTERM)
    driver.wait(120)
    with pytest.raises(RunError, match="stage `below`: waiting \\(not reached; `make` resumes\\)"):
        logs(project, "below")


def test_logs_wait_for_a_stage_that_has_not_started(project: Project, driver: "subprocess.Popen[str]") -> None:
    process = shell(f"follow(Path({str(latest(project))!r}), 'below', sys.stdout.buffer)")
    assert process.stderr is not None
    assert process.stderr.readline() == "stage `below` has not started: waits for slow\n"
    open_gate(project)
    out, talk = rest(process)
    assert (process.returncode, out) == (0, "") and talk.endswith("stage `below`: passed\n")


def test_logs_go_on_in_the_directory_of_the_next_attempt(project: Project, tmp_path: Path) -> None:
    body = (
        '    number = stage.request["attempt"]\n    print("attempt", number, flush=True)\n'
        f'    while not os.path.exists({str(tmp_path)!r} + "/" + str(number)): time.sleep(0.02)\n'
        '    print("end of", number, flush=True)\n    if number == 1: os.abort()\n    return {}'
    )
    project.program("flaky", body)
    process = drive(project, {"flaky": {"program": "flaky", "retries": 1}})
    until(lambda: states(project) == {"flaky": "running"})
    reader = shell(f"follow(Path({str(latest(project))!r}), 'flaky', sys.stdout.buffer)")
    assert reader.stdout is not None
    said = [reader.stdout.readline() for _ in range(2)]
    for number in (1, 2):
        (tmp_path / str(number)).touch()
        said += [reader.stdout.readline() for _ in range(2)]
    out, _ = rest(reader)
    lines = "".join(said) + out
    assert [line for line in lines.splitlines() if " " in line and "==>" not in line] == [
        "attempt 1",
        "end of 1",
        "attempt 2",
        "end of 2",
    ]
    assert process.wait(120) == reader.returncode == 0
    process.communicate()


def test_what_an_attempt_writes_between_two_looks_at_its_log_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, asked = tmp_path / paths.STDOUT, Tail.replaced
    log.write_text("begin\n")
    tail = Tail(log)
    assert b"".join(tail.added()) == b"begin\n"

    def late(tail: Tail) -> bool:
        log.write_text("begin\nthe end\n")
        log.rename(tmp_path / "of attempt 1")
        log.write_text("again\n")
        return asked(tail)

    monkeypatch.setattr(Tail, "replaced", late)
    assert b"".join(tail.added()) == b"the end\nagain\n"
    tail.close()


def test_a_stage_directory_that_is_a_link_to_an_attempt_is_read_alike(
    project: Project, driver: "subprocess.Popen[str]"
) -> None:
    """As the Slurm engine leaves it while a job is not over."""
    directory = paths.stage_dir(latest(project), "slow")
    directory.rename(directory.with_name(".slow.attempt-5f0c2d11"))
    directory.symlink_to(".slow.attempt-5f0c2d11", target_is_directory=True)
    assert "running" in facts(project)["slow"] and "1 of 9 items" in facts(project)["slow"]
    driver.kill()
    until(lambda: view(project).state == "lost")
    assert facts(project)["slow"].endswith("its driver is gone; its job may go on, the next `make` finds it")
    assert logs(project, "slow").splitlines()[:2] == ["==> slow/stdout.log <==", "out 1"]


YAML = "stages: {tell: {program: tell, resources: {cpus: 1, memory_gib: 0.1}}}\n"
TELL = 'from kassay.stage import main\ndef run(stage):\n    print("told")\n    return stage.rejected("no")\nmain(run)\n'
KCONFIG = 'choice WORKFLOW\nconfig WORKFLOW_TELL\n\tbool "tell"\nendchoice\nconfig WORKFLOW\n\tdefault "tell"\n'


def test_the_verbs(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    for folder in ("workflows/tell", "stages", "defconfigs"):
        (outside / folder).mkdir(parents=True)
    (outside / "workflows/tell/Kconfig").write_text(KCONFIG + "\tdepends on WORKFLOW_TELL\n")
    (outside / "workflows/tell/workflow.yaml").write_text(YAML)
    (outside / "stages/tell.py").write_text(TELL)
    (outside / "defconfigs/tell").write_text("CONFIG_WORKFLOW_TELL=y\n")
    own = {paths.OUTSIDE: str(outside)}
    assert kassay(tree, "defconfig", "tell", **own).returncode == 0
    none = kassay(tree, "status", **own)
    assert (none.returncode, none.stderr) == (2, "error: no run `latest` in results\nhint: make runs it\n")
    assert kassay(tree, "run", **own).returncode == 3
    shown = kassay(tree, "status", **own)
    assert (shown.returncode, shown.stderr) == (0, "") and re.search(r"\ntell +rejected +\d", shown.stdout)
    made = {"KASSAY_MAKE": "1", "MAKEFLAGS": " -- STAGE=tell RUN=latest"}
    read = kassay(tree, "logs", **own, **made)
    assert (read.returncode, read.stdout.splitlines()[1:]) == (0, ["told"]), read.stderr
    assert (read.stderr, kassay(tree, "watch", **own).returncode) == ("stage `tell`: rejected (no)\n", 3)
    wrong = kassay(tree, "logs", "tel", **own)
    assert wrong.returncode == 2 and "did you mean `tell`?\nhint: make status names them" in wrong.stderr
    lacks = kassay(tree, "logs", **own)
    assert lacks.stderr == "error: logs needs STAGE\nhint: make logs STAGE=build\n"


def test_stages_that_a_live_driver_was_not_asked_for_do_not_wait(project: Project) -> None:
    run = project.open({"a": {"program": "ok"}, "b": {"program": "ok"}})
    with lock.owned(run.directory, "token", ["a"]):
        assert facts(project)["b"].endswith("  not asked for")
        assert not facts(project)["a"].endswith("  not asked for")
