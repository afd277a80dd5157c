"""The local engine with real processes: what it leaves (nothing), what it grants, and what it costs."""

import errno
import json
import os
import pickle
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kassay import gpus, paths
from kassay.engine import Ended, Job, local, reaper, stragglers
from kassay.engine.local import LocalEngine
from tests.engine.fake import job, running, start, until
from tests.test_gpus import LISTED, MORE, fake, printing

DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for last in (False, True):
    if os.fork():
        os._exit(0) if last else os.waitpid(-1, 0)
        break
    os.setsid()
else:
    if {bare}:
        os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, "bare"], {{}})
    open({pid!r}, "w").write(str(os.getpid()))
    time.sleep(600)
while not (os.path.exists({pid!r}) and os.path.getsize({pid!r})): time.sleep(0.002)
"""
BARE = "import os, sys, time\nif sys.argv[1:]: open({pid!r}, 'w').write(str(os.getpid())); time.sleep(600)\n"


def daemon(directory: Path, stage: str, then: str = "", bare: bool = False, **asked: Any) -> tuple[Job, Path]:
    """A job that leaves a double-forked process in a session of its own, deaf to TERM, and then does something else."""
    made = job(directory, stage, **asked)
    pid = made.directory / "pid"
    program = made.directory / "daemon.py"
    head = BARE.format(pid=str(pid)) if bare else ""
    program.write_text(head + DAEMON.format(pid=str(pid), bare=bare) + then)
    return replace(made, argv=(sys.executable, "-I", "-S", str(program))), pid


def shell(directory: Path, stage: str, body: str, **asked: Any) -> Job:
    """A job that is a line of shell."""
    return replace(job(directory, stage, **asked), argv=("/bin/sh", "-c", body))


def ends(engine: LocalEngine, count: int = 1, seconds: float = 120.0) -> dict[str, Ended]:
    """Poll until so many have ended."""
    found: list[Ended] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found} ended"
        found += engine.poll()
    return {end.stage: end for end in found}


def number(path: Path) -> int:
    """The process number in a file that a job writes."""
    until(lambda: path.exists() and path.read_text() != "")
    return int(path.read_text())


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    """Four cores; nothing runs afterwards. What earlier tests left to this process, a child subreaper, is taken in."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    made = LocalEngine(cpus=4, memory_gib=4)
    yield made
    made.cancel()


@pytest.fixture
def tick_s(monkeypatch: pytest.MonkeyPatch) -> float:
    """Two looks a minute: whoever waits for one, in place of being told, is seen on the slowest machine."""
    monkeypatch.setattr(local, "TICK_S", 30.0)
    return local.TICK_S


def test_what_a_stage_leaves_keeps_it_for_moments_only(engine: LocalEngine, tmp_path: Path, tick_s: float) -> None:
    began = time.monotonic()
    for name in range(12):
        start(engine, shell(tmp_path, f"s{name}", "setsid sleep 600 & sleep 0.01"))
        ends(engine)
    assert time.monotonic() - began < tick_s, "each waits for what it left, but not for a tick"


@pytest.mark.parametrize("bare", [False, True])
def test_a_daemon_is_gone_when_the_end_of_its_stage_is_told(engine: LocalEngine, tmp_path: Path, bare: bool) -> None:
    asked, pid = daemon(tmp_path, "leaves", bare=bare)
    start(engine, asked)
    assert ends(engine)["leaves"].exit_code == 0
    assert not Path(f"/proc/{number(pid)}").exists(), "not even a zombie"


def test_a_daemon_of_a_stage_that_runs_is_left_alone_and_one_without_a_mark_until_nothing_runs(
    engine: LocalEngine, tmp_path: Path
) -> None:
    first, own = daemon(tmp_path, "goes-on", then="time.sleep(600)")
    start(engine, first)
    kept = number(own)
    second, bare = daemon(tmp_path, "ends", bare=True)
    start(engine, second)
    assert set(ends(engine)) == {"ends"}
    unmarked = number(bare)
    assert running(kept) and running(unmarked)
    engine.cancel()
    assert not Path(f"/proc/{kept}").exists() and not Path(f"/proc/{unmarked}").exists()


def test_daemons_without_a_mark_of_stages_side_by_side_are_gone_in_the_end(engine: LocalEngine, tmp_path: Path) -> None:
    made = [daemon(tmp_path, f"s{number}", bare=True) for number in range(9)]
    waiting, told = [asked for asked, _ in made], 0
    while told < len(made):
        if waiting and engine.grant(waiting[-1]) is not None:
            start(engine, waiting.pop())
        else:
            told += len(engine.poll())
    assert not any(Path(f"/proc/{number(pid)}").exists() for _, pid in made)


def test_what_is_the_drivers_own_is_never_ended(engine: LocalEngine, tmp_path: Path) -> None:
    mirror = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        start(engine, job(tmp_path, "first"))
        ends(engine)
        marked = {**os.environ, "KASSAY_JOB": "mirror"}
        late = subprocess.Popen(["sleep", "600"], start_new_session=True, env=marked)
        in_session = subprocess.Popen(["sleep", "600"])
        for name in ("second", "third"):
            start(engine, daemon(tmp_path, name)[0])
            ends(engine)
        engine.cancel()
        assert all(one.poll() is None for one in (mirror, late, in_session))
        assert engine._reaper is not None and running(engine._reaper.pid)
    finally:
        for one in (mirror, late, in_session):
            one.kill()
            assert one.wait() == -signal.SIGKILL


def test_threads_of_the_drivers_own_are_no_orphans(engine: LocalEngine, tmp_path: Path) -> None:
    """/proc/<thread> is there for who asks, and says that its parent is the driver."""
    gate = tmp_path / "gate"
    body = (
        "import threading, time, os\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.001)\n"
        "for _ in range(3): threading.Thread(target=time.sleep, args=(600,)).start()\n"
        f"open({str(gate)!r} + '.open', 'w').close()"
    )
    mirror = subprocess.Popen([sys.executable, "-c", body], start_new_session=True)
    try:
        wait = f"touch {gate}; while ! [ -e {gate}.open ]; do :; done"
        start(engine, shell(tmp_path, "short", wait))
        ends(engine)
        assert mirror.poll() is None
    finally:
        mirror.kill()
        mirror.wait()


def test_a_stages_orphans_that_ended_are_taken_in_while_it_runs(engine: LocalEngine, tmp_path: Path) -> None:
    asked = shell(tmp_path, "many", "for i in 1 2 3 4 5; do (setsid sh -c 'echo $$ >> pids' &); done; sleep 600")
    start(engine, asked)
    pids_file = asked.directory / "pids"
    until(lambda: engine.poll() == [] and pids_file.exists() and len(pids_file.read_text().split()) == 5)
    engine.poll()
    pids = (asked.directory / "pids").read_text().split()
    until(lambda: engine.poll() == [] and not any(Path(f"/proc/{pid}").exists() for pid in pids))
    engine.cancel()


def test_a_time_out_ends_a_deaf_stage_and_does_not_keep_others_waiting(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "GRACE_S", 60.0)
    deaf, pid = daemon(tmp_path, "deaf", then="time.sleep(600)", timeout_s=0.5)
    start(engine, deaf)
    number(pid)
    until(lambda: engine.poll() == [] and engine._running["deaf"].timed_out)
    start(engine, job(tmp_path, "quick"))
    assert set(ends(engine)) == {"quick"} and running(number(pid)), "told within the grace of the other"
    engine._running["deaf"].kill_at = time.monotonic()  # the grace is over
    end = ends(engine)["deaf"]
    assert (end.exit_code, end.timed_out) == (-signal.SIGKILL, True)
    assert not Path(f"/proc/{number(pid)}").exists()


def test_a_stage_that_closes_its_output_runs_on(engine: LocalEngine, tmp_path: Path) -> None:
    start(engine, shell(tmp_path, "mute", "exec >&- 2>&- <&-; sleep 0.5; touch done; exit 3"))
    assert ends(engine)["mute"].exit_code == 3
    assert (tmp_path / "stages" / "mute" / "done").exists()


def test_a_log_that_cannot_be_opened_is_a_crash_of_that_stage_in_words(engine: LocalEngine, tmp_path: Path) -> None:
    for log in (paths.STDOUT, paths.STDERR):
        asked = job(tmp_path, log.partition(".")[0])
        (asked.directory / log).mkdir()
        start(engine, asked)
        end = ends(engine)[asked.stage]
        assert end.exit_code is None and end.fault == f"{asked.directory / log}: Is a directory"
    gone = job(tmp_path, "gone")
    gone.directory.rmdir()
    start(engine, gone)
    assert ends(engine)["gone"].fault.endswith("No such file or directory")
    start(engine, job(tmp_path, "well"))
    assert ends(engine)["well"].exit_code == 0


def test_a_full_disk_under_a_log_is_a_crash_of_that_stage(engine: LocalEngine, tmp_path: Path) -> None:
    asked = job(tmp_path, "full")
    (asked.directory / paths.STDOUT).symlink_to("/nowhere/out")
    (asked.directory / paths.STDERR).symlink_to("/dev/full")
    start(engine, asked)
    end = ends(engine)["full"]
    assert end.exit_code is None and end.fault.startswith(str(asked.directory / paths.STDOUT))


def test_few_open_files_are_enough_and_none_reaches_a_stage(engine: LocalEngine, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = set(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + 20, hard))
    try:
        for name in range(60):
            asked = shell(tmp_path, f"s{name}", "ls /proc/self/fd; touch done")
            start(engine, replace(asked, exclusive=name % 2 == 0))
            assert ends(engine)[asked.stage].exit_code == 0
            assert (asked.directory / paths.STDOUT).read_text().split() == ["0", "1", "2", "3"], "3 is of ls itself"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 3, "the reaper's pipe and list, and /dev/null"


def test_the_end_is_seen_at_once(engine: LocalEngine, tmp_path: Path, tick_s: float) -> None:
    began = time.monotonic()
    start(engine, job(tmp_path, "first", seconds=0.3))
    ends(engine)
    assert 0.3 < time.monotonic() - began < tick_s


def test_the_peak_of_memory_is_told_where_it_is_known(engine: LocalEngine, tmp_path: Path) -> None:
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    large = replace(job(tmp_path, "large"), argv=(sys.executable, "-c", f"len(b'x' * {own + 50_000_000})"))
    start(engine, large)
    start(engine, job(tmp_path, "small"))
    found = ends(engine, 2)
    peak = found["large"].peak_bytes
    assert peak is not None and own + 50_000_000 < peak < own + 150_000_000
    assert found["small"].peak_bytes is None, "less than the driver's own cannot be told"


def test_a_second_ctrl_c_cuts_the_grace_short(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "GRACE_S", 60.0)
    deaf, pid = daemon(tmp_path, "deaf", then="time.sleep(600)")
    start(engine, deaf)
    number(pid)
    pressed, exited = iter([True]), local.exited

    def interrupted(process: "subprocess.Popen[bytes]") -> bool:
        if next(pressed, False):
            raise KeyboardInterrupt
        return exited(process)

    monkeypatch.setattr(local, "exited", interrupted)
    began = time.monotonic()
    engine.cancel()
    assert not any(pressed) and time.monotonic() - began < local.GIVE_UP_S, "neither the grace nor given up"
    assert not Path(f"/proc/{number(pid)}").exists()


def test_what_was_started_and_not_yet_noted_is_ended_by_cancel(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come between the start of a process and the note of it."""
    lost = []

    def interrupted(*given: Any) -> Any:
        lost.append(local_spawn(*given))
        raise KeyboardInterrupt

    local_spawn = local.spawn
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(local, "spawn", interrupted)
        start(engine, job(tmp_path, "lost", seconds=600.0))
    engine.cancel()
    assert not Path(f"/proc/{lost[0].pid}").exists()
    lost[0].returncode = -signal.SIGKILL
    start(engine, job(tmp_path, "alone", exclusive=True))
    assert ends(engine)["alone"].exit_code == 0


DRIVER = """
import pickle, sys, time
from kassay.engine.local import LocalEngine
engine, waiting = LocalEngine(cpus=8, memory_gib=8), pickle.load(open(sys.argv[1], 'rb'))
print(engine.token, flush=True)
while waiting:
    for job in list(waiting):
        if (grant := engine.grant(job)) is not None:
            engine.start(job, grant)
            waiting.remove(job)
            print("started", job.stage, ",".join(grant.gpu_ids), flush=True)
        else:
            print("waits", job.stage, engine.waits_for(job), flush=True)
    for end in engine.poll():
        print("ended", end.stage, flush=True)
while engine._running:
    for end in engine.poll():
        print("ended", end.stage, flush=True)
"""


def drive(jobs: list[Job]) -> tuple["subprocess.Popen[str]", str]:
    """Another driver that starts the jobs; its process and its token."""
    told = jobs[0].directory.parent / f"{jobs[0].stage}.jobs"
    told.write_bytes(pickle.dumps(jobs))
    environment = {**os.environ, "PYTHONPATH": str(Path(paths.__file__).parents[1]), "KASSAY_JOB": ""}
    argv = [sys.executable, "-c", DRIVER, str(told)]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def kill(driver: "subprocess.Popen[str]") -> None:
    """End a driver as `kill -9` does."""
    driver.kill()
    driver.communicate(timeout=30)


def said(driver: "subprocess.Popen[str]", word: str) -> list[str]:
    """The next line of a driver that begins so."""
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith(word):
            return line.split(None, 2)
    raise AssertionError(f"it never said `{word}`")


def test_nothing_outlives_a_driver_that_is_killed(tmp_path: Path) -> None:
    deaf, pid = daemon(tmp_path, "daemon", then="time.sleep(600)")
    cleared = shell(tmp_path, "cleared", f"exec env -i sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/cleared; sleep 600'")
    driver, token = drive([deaf, cleared])
    assert {said(driver, "started")[1] for _ in range(2)} == {"daemon", "cleared"}, "the reaper knows both groups"
    pids = [number(pid), number(tmp_path / "cleared")]
    assert stragglers.carrying(token)
    kill(driver)
    until(lambda: not any(map(running, pids)) and not stragglers.carrying(token))


def test_a_driver_that_takes_over_ends_what_the_reaper_did_not(tmp_path: Path) -> None:
    deaf, pid = daemon(tmp_path, "daemon", then="time.sleep(600)")
    driver, token = drive([deaf])
    own = number(pid)
    for entry in filter(str.isdigit, os.listdir("/proc")):
        if f"KASSAY_JOB={token}/reaper\0".encode() in stragglers.environment(int(entry)) + b"\0":
            os.kill(int(entry), signal.SIGKILL)
    kill(driver)
    time.sleep(0.2)
    assert running(own), "the reaper was killed too"
    assert reaper.stragglers(token) == [] and not running(own) and reaper.stragglers("") == []


def test_a_driver_that_ends_well_leaves_no_reaper(tmp_path: Path) -> None:
    driver, token = drive([job(tmp_path, "one")])
    driver.communicate(timeout=30)
    assert driver.returncode == 0
    told = [stragglers.environment(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()]
    assert not any(token.encode() in text for text in told)


def test_two_drivers_respect_a_stage_that_must_be_alone(engine: LocalEngine, tmp_path: Path) -> None:
    start(engine, job(tmp_path, "here", seconds=600.0))
    beside = job(tmp_path, "beside", seconds=0.0)
    driver, _ = drive([beside])
    assert said(driver, "ended")[1] == "beside"
    driver.communicate()
    driver, _ = drive([job(tmp_path, "alone", exclusive=True, seconds=600.0)])
    assert said(driver, "waits")[2] == "another run on this host\n"
    engine.cancel()
    assert said(driver, "started")[1] == "alone"
    waiting = job(tmp_path, "waiting")
    assert engine.grant(waiting) is None and engine.waits_for(waiting) == "another run on this host"
    kill(driver)
    until(lambda: engine.grant(waiting) is not None)
    assert engine.poll() == []
    assert LocalEngine(cpus=1, memory_gib=1).grant(replace(waiting, exclusive=True)), "a grant not used is taken back"


def test_without_a_folder_for_locks_it_is_said_once_and_runs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    for name in ("a", "b"):
        engine = LocalEngine(cpus=1, memory_gib=1)
        start(engine, job(tmp_path, name, exclusive=True))
        assert ends(engine)[name].exit_code == 0
    assert capsys.readouterr().err.count("no locks between runs on this host") == 1


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two GPUs, the first with two MIG instances."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    plain = LISTED.replace("  MIG", "  Not")
    printing(folder, "0, NVIDIA A100, 40960\n1, NVIDIA A100, 40960\n", MORE, plain)
    return folder


def seen(asked: Job) -> str | None:
    """What a job found in CUDA_VISIBLE_DEVICES."""
    told = asked.directory / "told.json"
    until(lambda: told.exists() and told.read_text() != "")
    value: str | None = json.loads(told.read_text())[gpus.VISIBLE]
    return value


def wanting(directory: Path, stage: str, count: int, seconds: float = 600.0) -> Job:
    """A job that tells its GPUs and stays."""
    return job(directory, stage, gpus=count, seconds=seconds, tell=[gpus.VISIBLE, "CUDA_DEVICE_ORDER"])


def test_stages_side_by_side_have_gpus_of_their_own(smi: Path, engine: LocalEngine, tmp_path: Path) -> None:
    first, second, third, none = (wanting(tmp_path, f"s{n}", 1) for n in range(4))
    none = replace(none, gpus=0)
    many = wanting(tmp_path, "many", 3)
    assert start(engine, first).gpu_ids == ("0",)
    assert engine.grant(many) is None and engine.waits_for(many) == "1 of 2 GPUs are free"
    assert start(engine, second).gpu_ids == ("1",) and start(engine, none).gpu_ids == ()
    assert engine.grant(third) is None and engine.waits_for(third) == "0 of 2 GPUs are free"
    assert (seen(first), seen(second), seen(none)) == ("0", "1", "")
    order = json.loads((first.directory / "told.json").read_text())["CUDA_DEVICE_ORDER"]
    assert order == "PCI_BUS_ID", "an index is nvidia-smi's"
    engine.cancel()
    granted = start(engine, many)
    assert (granted.gpus, granted.gpu_ids) == (2, ("0", "1")), "what there is, once nothing else holds any"
    engine.cancel()


def test_gpu_0_is_not_granted_twice_on_a_host(smi: Path, engine: LocalEngine, tmp_path: Path) -> None:
    driver, _ = drive([wanting(tmp_path, "there", 1)])
    assert said(driver, "started")[2] == "0\n"
    assert start(engine, wanting(tmp_path, "here", 1)).gpu_ids == ("1",)
    both = wanting(tmp_path, "both", 2)
    other = LocalEngine(cpus=4, memory_gib=4)
    assert other.grant(both) is None and other.waits_for(both) == "another run on this host"
    kill(driver)
    engine.cancel()
    until(lambda: other.grant(both) is not None)


def test_one_gpu_under_two_names_is_one(smi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = job(tmp_path, "x", gpus=1)
    first = LocalEngine(cpus=4, memory_gib=4)
    assert first.grant(asked) is not None
    monkeypatch.setenv(gpus.VISIBLE, "GPU-0a1b,GPU-1a1b")
    second = LocalEngine(cpus=4, memory_gib=4)
    granted = second.grant(asked)
    assert granted is not None and granted.gpu_ids == ("GPU-1a1b2c3d-0000-0000-0000-000000000000",)


def test_instances_are_granted_one_by_one_and_their_gpu_not_beside_them(
    smi: Path, engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printing(smi, "0, NVIDIA A100, 40960\n1, NVIDIA A100, 40960\n", MORE, LISTED)
    whole = LocalEngine(cpus=4, memory_gib=4)
    monkeypatch.setenv(gpus.VISIBLE, "MIG-0011,MIG-1111")
    first, second = wanting(tmp_path, "a", 1), wanting(tmp_path, "b", 1)
    assert (start(engine, first).gpu_ids or ("",))[0].startswith("MIG-0011")
    assert (start(engine, second).gpu_ids or ("",))[0].startswith("MIG-1111")
    assert (seen(first) or "").startswith("MIG-0011") and (seen(second) or "").startswith("MIG-1111")
    monkeypatch.delenv(gpus.VISIBLE)
    granted = whole.grant(job(tmp_path, "c", gpus=1))
    assert granted is not None and granted.gpu_ids == ("1",)
    engine.cancel()


def test_where_there_is_no_gpu_the_stage_starts_and_says_so_itself(
    smi: Path, engine: LocalEngine, tmp_path: Path
) -> None:
    fake(smi, "exit 18")
    asked = wanting(tmp_path, "a", 1, seconds=0.0)
    granted = start(engine, asked)
    assert (granted.gpus, granted.gpu_ids) == (0, ()) and ends(engine)["a"].exit_code == 0 and seen(asked) == ""


def test_a_run_within_a_stage_is_ended_with_it(engine: LocalEngine, tmp_path: Path) -> None:
    """A driver that is itself below a stage: its stages have sessions and marks of their own."""
    inner, pid = daemon(tmp_path, "inner", then="time.sleep(600)")
    (tmp_path / "jobs").write_bytes(pickle.dumps([inner]))
    outer = replace(
        job(tmp_path, "outer", timeout_s=3.0),
        argv=(sys.executable, "-c", DRIVER, str(tmp_path / "jobs")),
        environment={"PYTHONPATH": str(Path(paths.__file__).parents[1])},
    )
    start(engine, outer)
    own = number(pid)
    assert stragglers.environment(own).count(f"KASSAY_JOB={engine.token}.1/".encode()) == 1
    assert ends(engine)["outer"].timed_out
    until(lambda: not Path(f"/proc/{own}").exists(), seconds=0.1)


def test_the_engine_costs_little_beside_the_processes_themselves(tmp_path: Path) -> None:
    """200 stages against 200 bare processes, in turns of 10; the bound is generous, and one bad turn does not count."""
    ratios = []
    engine = LocalEngine(cpus=1, memory_gib=1)
    jobs = [replace(job(tmp_path, f"s{n}"), argv=("/bin/true",)) for n in range(201)]
    start(engine, jobs[-1])
    ends(engine)
    for turn in range(0, 200, 10):
        began = time.perf_counter()
        for asked in jobs[turn : turn + 10]:
            start(engine, asked)
            ends(engine)
        between = time.perf_counter()
        for _ in range(10):
            subprocess.Popen(["/bin/true"], stdin=subprocess.DEVNULL, start_new_session=True).wait()
        ratios.append((between - began) / (time.perf_counter() - between))
    assert statistics.median(ratios) < 3, ratios


def test_a_kernel_without_pidfds_is_asked(engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", absent)
    start(engine, shell(tmp_path, "quick", "exit 3"))
    start(engine, shell(tmp_path, "slow", "sleep 0.3"))
    late = shell(tmp_path, "late", "sleep 600")
    start(engine, replace(late, timeout_s=0.5))
    found = ends(engine, 3)
    assert (found["quick"].exit_code, found["slow"].exit_code, found["late"].timed_out) == (3, 0, True)
