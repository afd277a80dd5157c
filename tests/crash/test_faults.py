"""Faults of stages and of what they leave: each a right outcome and a clear message, and a small driver."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.engine import local
from tests.crash.project import MARKER, DrivenProject, wait_until

MIB = 1 << 20


def sh(script: str, **body: Any) -> dict[str, Any]:
    """A stage that is a shell script and leaves out.txt."""
    return {"argv": ["sh", "-c", script], "outputs": {"out": "out.txt"}, **body}


DAEMON = (  # until the daemon is there its stage ignores TERM: a time-out may come before
    "trap '' TERM\n"
    "setsid sh -c 'trap \"\" TERM INT HUP; echo $$ > {pid}; while :; do sleep 1; done' > /dev/null 2>&1 &\n"
    "while [ ! -s {pid} ]; do sleep 0.01; done\ntrap - TERM\n"
)


@pytest.mark.parametrize("ends", ["passes", "crashes", "times-out"])
@pytest.mark.parametrize("clean", [False, True], ids=["with-its-environment", "without"])
def test_a_daemon_in_a_session_of_its_own_ends_with_its_stage(driven: DrivenProject, ends: str, clean: bool) -> None:
    pid = driven.root / "pid"
    script = DAEMON.format(pid=pid).replace("setsid", "env -i PATH=$PATH setsid" if clean else "setsid")
    script += {"passes": "echo x > out.txt", "crashes": "exit 7", "times-out": "sleep 600"}[ends]
    driven.workflow(
        {"one": sh(script, **({"timeout_s": 0.5} if ends == "times-out" else {})), "two": sh("echo > out.txt")}
    )
    done = driven.run()
    assert pid.exists() and driven.left(0.1) == []
    said = {"passes": "2 of 2 stages passed", "crashes": "exit status 7", "times-out": "ran past its time-out of 0.5 s"}
    assert said[ends] in done.err and done.code == (0 if ends == "passes" else 1)


def test_a_daemon_of_a_killed_driver_ends_too(driven: DrivenProject) -> None:
    pid = driven.root / "pid"
    driven.workflow({"one": sh(DAEMON.format(pid=pid) + "sleep 600")})
    driver = driven.start()
    wait_until(lambda: pid.exists() and pid.read_text(), "the daemon")
    driver.kill()
    assert driven.left() == []


def test_driver_and_reaper_killed_at_once_leave_what_the_next_run_ends(driven: DrivenProject) -> None:
    pid, gate = driven.root / "pid", driven.gates / "go"
    driven.workflow({"one": sh(f"[ -e {gate} ] || {{ {DAEMON.format(pid=pid)} sleep 600; }}\necho x > out.txt")})
    driver = driven.start()
    wait_until(lambda: pid.exists() and pid.read_text(), "the daemon")
    reapers = [number for number in driven.processes() if "stragglers" in command(number)]
    assert len(reapers) == 1
    os.kill(reapers[0], 9)
    driver.kill()
    assert driven.left(0.3) != [], "nobody is there to end them"
    driven.open_gate("go")
    done = driven.run()
    assert done.code == 0 and driven.left() == [] and "died and left it" in done.err


def command(pid: int) -> str:
    """What a process was started as."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


# Linux counts the memory that a process had before its exec, which is this one's: a small process stands between.
MEASURED = """
import os, sys
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(child, 0)
open(sys.argv[1], "w").write(str(used.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_200_megabytes_of_output_stay_out_of_the_driver(driven: DrivenProject) -> None:
    flood = "yes 'a line of output that nobody will ever read' | head -c 200000000 >&2"
    script = f"{flood}; printf '\\nthe end\\n' >&2; exit 5"
    driven.workflow({"one": sh(script), "two": sh("yes | tr -d '\\n' | head -c 200000000 >&2; exit 6")})
    peak = driven.root / "peak"
    done = driven.start(under=(sys.executable, "-c", MEASURED, str(peak))).wait()
    assert done.plain and done.code == 1 and int(peak.read_text()) * 1024 < 150 * MIB
    assert "one crashed: exit status 5; last line: the end" in done.err and len(done.err) < 50_000
    for name in ("one", "two"):
        (driven.stage(name) / paths.STDERR).unlink()


@pytest.mark.parametrize("script", ["exec >&- 2>&-; echo whole > out.txt", "exec <&- >&- 2>&-; echo whole > out.txt"])
def test_an_executable_that_closes_its_standard_streams_passes(driven: DrivenProject, script: str) -> None:
    driven.workflow({"one": sh(script)})
    assert driven.run().code == 0 and driven.words() == {"one": "passed"}


def test_a_program_that_closes_its_standard_streams_passes(driven: DrivenProject) -> None:
    driven.program("closes", '    for fd in (0, 1, 2): os.close(fd)\n    stage.write_json("out", {})\n    return {}')
    driven.workflow({"one": {"program": "closes"}})
    done = driven.run()
    assert done.code == 0, done.err


def many(count: int) -> dict[str, Any]:
    """So many small stages side by side and one that reads them all."""
    members = [f"m{number}" for number in range(count)]
    join = {
        "argv": ["sh", "-c", "cat {in.x.m0} > out.txt"],
        "inputs": {"x": "many.*.out"},
        "outputs": {"out": "out.txt"},
    }
    return {"many": sh("echo {member} > out.txt", each={"member": members}), "join": join}


def test_400_stages_under_300_descriptors(driven: DrivenProject) -> None:
    driven.workflow(many(400))
    under = ("sh", "-c", 'ulimit -n 300; exec "$@"', "sh")
    done = driven.start("MAX_CPUS=8", under=under).wait()
    assert done.plain and done.code == 0 and "401 of 401 stages passed" in done.err
    assert driven.left() == [] and driven.temporaries() == []


def test_too_few_descriptors_are_said_and_no_wrong_result_is_left(driven: DrivenProject) -> None:
    driven.workflow({f"s{number}": sh("sleep 0.3; echo x > out.txt") for number in range(40)})
    under = ("sh", "-c", 'ulimit -n 24; exec "$@"', "sh")
    done = driven.start("MAX_CPUS=40", under=under).wait()
    assert done.plain and done.code in (1, 2) and "Too many open files" in done.err, done.err
    assert driven.left() == []
    assert driven.run("MAX_CPUS=8").code == 0
    assert set(driven.words().values()) == {"passed"} and driven.temporaries() == []


@pytest.mark.parametrize("hours", [-5, 5])
def test_files_of_another_time_are_what_they_are(driven: DrivenProject, hours: int) -> None:
    """The clock was set: every file of the run is from the future, or from the past."""
    driven.workflow({"one": sh("echo x > out.txt"), "two": sh("cat {in.x} > out.txt", inputs={"x": "one.out"})})
    assert driven.run().code == 0
    then = time.time() + hours * 3600
    for folder in (driven.results, driven.root / "workflows", driven.root / "stages", driven.root / "build"):
        for path in [folder, *folder.rglob("*")]:
            os.utime(path, (then, then), follow_symlinks=False)
    for _ in range(2):
        done = driven.run()
        assert done.code == 0 and "nothing to do" in done.err
    (driven.stage("one") / "out.txt").write_text("y\n")
    done = driven.run()
    assert done.code == 0 and "stage started one (artifact out.txt is gone or was changed)" in done.err
    assert (driven.stage("one") / "out.txt").read_text() == "x\n"


def test_a_clock_that_is_set_back_while_stages_run(driven: DrivenProject) -> None:
    """The clocks of driver and stages jump back by an hour after the request: durations do not care."""
    (driven.root / "sitecustomize.py").write_text(
        "import time\nreal, real_ns, began = time.time, time.time_ns, time.monotonic()\n"
        "def back(): return 3600 if time.monotonic() - began > 0.5 else 0\n"
        "time.time = lambda: real() - back()\ntime.time_ns = lambda: real_ns() - back() * 10**9\n"
    )
    driven.program("waits", '    time.sleep(0.7)\n    stage.write_json("out", {})\n    return {}')
    driven.workflow({"one": {"program": "waits"}, "two": sh("sleep 0.7; echo > out.txt")})
    done = driven.run()
    assert done.code == 0, done.err
    assert all(0.7 <= driven.outcome(name)["duration_s"] < 30 for name in ("one", "two"))
    assert "nothing to do" in driven.run().err


def test_an_environment_that_is_not_utf8_reaches_the_stages(driven: DrivenProject) -> None:
    driven.workflow({"one": sh('printf %s "$ODD" > out.txt')})
    under = ("env", os.fsdecode(b"ODD=\xff\xfe"))
    done = driven.start(under=under).wait()
    assert done.plain and done.code == 0
    assert (driven.stage("one") / "out.txt").read_bytes() == b"\xff\xfe"
    assert MARKER not in done.err


def test_a_stage_that_stops_itself_runs_into_its_time_out(driven: DrivenProject) -> None:
    driven.workflow({"one": sh("kill -STOP $$", timeout_s=0.3)})
    done = driven.run()
    assert done.code == 1 and "ran past its time-out of 0.3 s" in done.err
    assert local.GRACE_S <= driven.took_s("one") < local.GIVE_UP_S
    assert driven.left() == []


def test_a_stage_that_kills_its_own_driver(driven: DrivenProject) -> None:
    gate = driven.gates / "go"
    driven.workflow({"one": sh(f"[ -e {gate} ] || kill -9 $PPID; echo x > out.txt; sleep 0.2")})
    assert driven.start().wait().code == -9
    assert driven.left() == []
    driven.open_gate("go")
    assert driven.run().code == 0
    assert driven.temporaries() == []
