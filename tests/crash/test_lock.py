"""One owner for each run: the second driver says who has it; what a dead one left is taken over, and that is told."""

import json
import platform
import re
import subprocess

from kassay import paths
from tests.crash.project import DrivenProject, wait_until

WAITING = """\
    Path({started!r}).touch()
    while not Path({gate!r}).exists(): time.sleep(0.02)
    stage.write_json("out", {{}})
    return {{}}"""


def waiting(driven: DrivenProject) -> None:
    """A workflow of one stage that waits for the gate `go`."""
    driven.program("waits", WAITING.format(started=str(driven.root / "started"), gate=str(driven.gates / "go")))
    driven.workflow({"only": {"program": "waits"}})


def test_a_second_driver_exits_2_and_names_pid_host_and_since_when(driven: DrivenProject) -> None:
    waiting(driven)
    first = driven.start()
    wait_until((driven.root / "started").exists, "the stage")
    second = driven.run()
    assert second.code == 2
    told = re.search(r"another driver has this run: pid (\d+) on (\S+) since (\d{4}-\d\d-\d\dT[\d:.]+Z)", second.err)
    assert told is not None and (int(told[1]), told[2]) == (first.pid, platform.node()), second.err
    assert "hint: " in second.err
    driven.open_gate("go")
    done = first.wait()
    assert (done.code, driven.words()) == (0, {"only": "passed"})
    assert len(driven.events("stage_started")) == 1 and driven.left() == [] and driven.temporaries() == []


def test_the_lock_of_a_dead_driver_is_taken_over_and_that_is_an_event(driven: DrivenProject) -> None:
    waiting(driven)
    first = driven.start()
    wait_until((driven.root / "started").exists, "the stage")
    first.kill()
    assert driven.left() == []
    driven.open_gate("go")
    done = driven.run()
    assert done.code == 0 and driven.temporaries() == []
    (event,) = driven.events("lock_taken_over")
    assert f"pid {first.pid} on {platform.node()} since " in event["why"]
    assert "lock taken over" in done.err
    assert driven.run().code == 0 and len(driven.events("lock_taken_over")) == 1, "a clean end leaves nobody to replace"


def test_a_number_that_something_else_has_now_holds_no_lock(driven: DrivenProject) -> None:
    waiting(driven)
    first = driven.start()
    wait_until((driven.root / "started").exists, "the stage")
    first.kill()
    assert driven.left() == []
    bystander = subprocess.Popen(["sleep", "600"])
    owner = driven.run_dir / paths.OWNER
    owner.write_text(json.dumps({**json.loads(owner.read_bytes()), "pid": bystander.pid}))
    driven.open_gate("go")
    try:
        assert driven.run().code == 0 and bystander.poll() is None, "it is neither believed nor touched"
        (event,) = driven.events("lock_taken_over")
        assert f"pid {bystander.pid} on {platform.node()} since " in event["why"]
    finally:
        bystander.kill()
        bystander.wait()
    assert not owner.exists()


def test_two_drivers_that_start_at_once_run_everything_once(driven: DrivenProject) -> None:
    waiting(driven)
    drivers = [driven.start() for _ in range(4)]
    wait_until((driven.root / "started").exists, "the stage")
    wait_until(lambda: sum(driver.process.poll() is not None for driver in drivers) == 3, "the end of three")
    driven.open_gate("go")
    ended = [driver.wait() for driver in drivers]
    assert sorted(done.code for done in ended) == [0, 2, 2, 2]
    assert all(done.plain and "another driver has this run" in done.err for done in ended if done.code == 2)
    assert len(driven.events("stage_started")) == 1 and driven.left() == [] and driven.temporaries() == []
    assert len([run for run in driven.results.iterdir() if not run.is_symlink() and run.is_dir()]) == 1
