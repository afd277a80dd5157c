"""A DAG of twelve stages that write records slowly, and rounds of it in which things are killed at random moments.

A round begins with an empty results folder and ends with a run to its end: in between, each session (a `kassay run`) is
shot at one moment, drawn uniformly over the length of an undisturbed one, and the next takes over what is left. So a
round is a chain of crashes on top of crashes, which is harsher than one crash each. A shot that comes when the session
is over is not counted. Every plain executable leaves a process in the background that would live on for long.
"""

import math
import os
import random
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kassay import paths
from tests.crash.project import Done, DrivenProject, Driver, command_line

Target = Literal["driver", "stage", "both"]
RECORDS = 20
PROGRAM = """\
    from typing import ClassVar
    from dataclasses import dataclass
    from kassay.record import Record, doc
    @dataclass(frozen=True, kw_only=True)
    class Line(Record):
        schema: ClassVar[str] = "toy.line/1"
        stage: str = doc("Name.")
        number: int = doc("Place, from 1 on.")
        above: str = doc("What the stage reads.")
    above = ",".join(stage.input_sha256(name)[:8] for name in sorted(stage.inputs))
    for number in range(1, {records} + 1):
        stage.append(Line(stage=stage.name, number=number, above=above))
        stage.progress(number, {records}, "lines")
        time.sleep(0.002)
    return {{}}"""
SCRIPT = """\
sleep 30 &
above=$(cat /dev/null {inputs} | cksum)
n=0
while [ $n -lt {records} ]; do
  n=$((n + 1))
  printf '{{"schema": "toy.line/1", "stage": "{name}", "number": %d, "above": "%s"}}\\n' $n "$above" >> records.jsonl
  [ $((n % 4)) -ne 0 ] || sleep 0.01
done"""
# name -> what it reads; chains, a fork, a join. The first of each line are programs, the others plain executables.
DAG = {
    "a": [],
    "b": ["a"],
    "c": ["b"],
    "d": ["c"],
    "e": [],
    "f": ["e"],
    "g": ["e"],
    "h": ["f", "g"],
    "i": [],
    "j": ["i"],
    "k": ["j", "d"],
    "l": ["h", "k"],
}
PROGRAMS = ("a", "f", "k")


def workflow(driven: DrivenProject) -> None:
    """Write the twelve stages."""
    driven.program("lines", PROGRAM.format(records=RECORDS))
    driven.workflow({name: stage(name, above) for name, above in DAG.items()})


def stage(name: str, above: list[str]) -> dict[str, Any]:
    """One entry."""
    inputs = {f"x{number}": f"{other}.records" for number, other in enumerate(above)}
    if name in PROGRAMS:
        return {"program": "lines", "inputs": inputs}
    read = " ".join(f"{{in.x{number}}}" for number in range(len(above)))
    script = SCRIPT.format(name=name, inputs=read, records=RECORDS)
    return {"argv": ["sh", "-c", script], "inputs": inputs, "outputs": {"records": "records.jsonl"}}


def records(driven: DrivenProject) -> dict[str, bytes]:
    """The records of every stage; there is no time in them."""
    return {name: (driven.stage(name) / paths.RECORDS).read_bytes() for name in DAG}


@dataclass(kw_only=True)
class Campaign:
    """Shots at one project."""

    driven: DrivenProject
    draw: random.Random
    expected: dict[str, bytes] = field(default_factory=dict)
    lasts_s: float = math.inf  # an undisturbed run
    rounds: int = 0
    most: int = 0  # kills that one run has survived

    def prepare(self) -> None:
        """Run undisturbed: what is right, and how long it takes at best once plans and bytecode are kept."""
        workflow(self.driven)
        for _ in range(3):
            self.begin()
            began = time.monotonic()
            done = self.driven.run()
            self.lasts_s = min(self.lasts_s, time.monotonic() - began)
            assert done.code == 0, done.err
        self.expected = records(self.driven)
        assert all(text.count(b"\n") == RECORDS for text in self.expected.values())

    def begin(self) -> None:
        """Throw all results away, and sometimes what was kept of the plan."""
        shutil.rmtree(self.driven.results, ignore_errors=True)
        if self.draw.random() < 0.2:
            shutil.rmtree(self.driven.root / "build", ignore_errors=True)

    def shoot(self, target: Target, wanted: int) -> None:
        """So many kills that hit, and a right end of the run in which the last of them fell."""
        hits = 0
        while hits < wanted:
            self.begin()
            survived = 0
            while hits < wanted:
                driver = self.driven.start()
                hit = self.session(driver, target)
                hits, survived = hits + hit, survived + hit
                if not hit and driver.process.poll() == 0:
                    break
            self.rounds, self.most = self.rounds + 1, max(self.most, survived)
            self.check()

    def session(self, driver: Driver, target: Target) -> bool:
        """One session with one shot; whether it hit."""
        moment = time.monotonic() + self.draw.uniform(0, self.lasts_s)
        while time.monotonic() < moment and driver.process.poll() is None:
            time.sleep(0.001)
        if target == "driver":
            hit = driver.process.poll() is None
            driver.kill()
        else:
            hit = self.kill_a_stage(driver)
        if target == "both":
            hit = hit and driver.process.poll() is None
            driver.kill()
        if target == "stage":
            told_of_the_kill(driver.wait(), hit)
        elif driver.process.wait() == 0:
            hit = False
        if hit and self.draw.random() < 0.5:  # else the next driver starts while the stages of this one still die
            assert self.driven.left() == []
        return hit

    def kill_a_stage(self, driver: Driver) -> bool:
        """KILL one of the stages' processes as soon as there is one; false if the session ends before."""
        while driver.process.poll() is None:
            if leaders := self.leaders(driver):
                try:
                    os.kill(self.draw.choice(leaders), signal.SIGKILL)
                    return True
                except ProcessLookupError:
                    continue
            time.sleep(0.001)
        return False

    def leaders(self, driver: Driver) -> list[int]:
        """Processes of stages: children of the driver that work in a stage directory."""
        found = []
        for task in Path(f"/proc/{driver.pid}/task").glob("*/children"):
            try:
                found += [int(word) for word in task.read_text().split()]
            except OSError:
                continue
        return sorted(pid for pid in found if in_a_stage(pid))

    def check(self) -> None:
        """The next plain run, once more if a crash has to be told, gives what an undisturbed one does."""
        done = self.driven.run()
        assert done.code == 0, done.err
        assert records(self.driven) == self.expected
        assert self.driven.words() == dict.fromkeys(DAG, "passed")
        assert self.driven.left() == [] and self.driven.temporaries() == []
        torn = self.driven.run_dir / f"{paths.EVENTS}.torn"
        assert not torn.exists(), "an event is one write, which a kill does not divide"


def in_a_stage(pid: int) -> bool:
    """Whether a process works in a stage directory, and lives."""
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).parent.name == "stages" and bool(command_line(pid))
    except OSError:
        return False


def told_of_the_kill(done: Done, hit: bool) -> None:
    """What a driver says whose stage was killed; one that had ended by itself in the last moment has passed."""
    assert done.plain, done.err
    if done.code == 0:
        return
    assert hit and done.code == 1 and "ended by SIGKILL" in done.err and "exit code 1: " in done.err, done.err
