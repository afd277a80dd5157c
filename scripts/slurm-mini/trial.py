"""The whole study on a throw-away Slurm cluster while things go wrong, against the same study on the local engine.

    make slurm-trial [TRIAL=decode-cpu+smoke]      as root; the full decode-cpu takes about twenty minutes

In a clone of this checkout, so that nothing of the user's is touched: `make` locally; then `make` with the `slurm`
fragment, in which a job is cancelled from outside, the node of a running stage is killed with all its processes, and
the driver is killed while a stage runs. Each time the next `make` goes on. In the end every record that is no
measurement of time or memory must be the local one's, byte by byte.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kassay.engine.launcher import descendants

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
EQUAL = ("calibrate", "oracle", "quality", "certify")  # stages whose records hold neither time nor memory
NODES = ("n1", "n2")
PATIENCE_S = 900.0


class Trial:
    """A clone, its configuration, and what is done to it."""

    def __init__(self, folder: Path, profile: str) -> None:
        self.clone = folder / "kassay"
        self.cluster = folder / "cluster"
        self.profile = profile
        subprocess.run(["git", "clone", "-q", str(TOP), str(self.clone)], check=True)
        self.environment = dict(os.environ)

    def make(self, *words: str) -> None:
        """Run make to its end."""
        subprocess.run(["make", *words], cwd=self.clone, env=self.environment, check=True)

    def driver(self) -> subprocess.Popen[bytes]:
        """The driver of the configured run, so that it can be killed."""
        return subprocess.Popen([".venv/bin/python", "-m", "kassay", "run"], cwd=self.clone, env=self.environment)

    def start_cluster(self) -> None:
        """Bring the cluster up, or back, and take over what its commands need."""
        subprocess.run([HERE / "start.sh", self.cluster], check=True)
        asked = ["bash", "-c", 'source "$0/env" && env -0', str(self.cluster)]
        told = subprocess.run(asked, check=True, capture_output=True).stdout
        self.environment = dict(pair.decode().split("=", 1) for pair in told.split(b"\0") if b"=" in pair)

    def stage(self, name: str) -> Path:
        """The directory of a stage of the run on Slurm."""
        return self.clone / "on-slurm" / "latest" / "stages" / name

    def claim(self, name: str) -> dict[str, str]:
        """Which job runs the stage on which node; empty while none does."""
        try:
            return dict(json.loads((self.stage(name) / "claim.json").read_bytes()))
        except (OSError, ValueError):
            return {}

    def until_runs(self, name: str, driver: subprocess.Popen[bytes]) -> dict[str, str]:
        """Wait for a job of the stage that has begun and not ended."""
        wait(lambda: driver.poll() is not None or self.goes_on(name))
        if driver.poll() is not None:
            raise SystemExit(f"the driver ended with {driver.returncode} before `{name}` ran")
        return self.claim(name)

    def goes_on(self, name: str) -> bool:
        """Whether the stage's job has claimed its directory and left no exit status."""
        return bool(self.claim(name)) and not (self.stage(name) / "exit.json").exists()

    def outcome(self, name: str) -> dict[str, object]:
        """What a stage's outcome says."""
        return dict(json.loads((self.stage(name) / "outcome.json").read_bytes()))


def wait(done: Callable[[], bool]) -> None:
    """Look every 50 ms until it is so."""
    until = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > until:
            raise SystemExit("gave up waiting")
        time.sleep(0.05)


def cancel_a_job(trial: Trial) -> None:
    """scancel from outside: that stage crashed, and says so; what does not need it went on."""
    driver = trial.driver()
    job = trial.until_runs("calibrate.fragile", driver)["job"]
    subprocess.run(["scancel", job], env=trial.environment, check=True)
    code = driver.wait()
    reason = str(trial.outcome("calibrate.fragile")["reason"])
    say(f"cancelled job {job} of calibrate.fragile: driver ended with {code}; {reason}")
    assert code == 1 and "CANCELLED" in reason, reason
    assert trial.outcome("oracle.robust")["word"] == "passed"


def kill_a_node(trial: Trial) -> None:
    """KILL a node's daemon and all that it runs: that stage crashed, and says so."""
    driver = trial.driver()
    node = trial.until_runs("quality.fragile", driver)["node"]
    before = int((trial.cluster / f"slurmd.{node}.process").read_text().split()[0])
    victims = [before, *steps_of(node)]
    for pid in victims:
        for one in [*descendants(pid), pid]:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                pass
    code = driver.wait()
    reason = str(trial.outcome("quality.fragile")["reason"])
    say(f"killed node {node} under quality.fragile: driver ended with {code}; {reason}")
    assert code == 1 and "NODE_FAIL" in reason, reason
    trial.start_cluster()


def steps_of(node: str) -> list[int]:
    """The slurmstepd processes of a node, told by its name in their environment's jobs."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and b"slurmstepd" in read(f"/proc/{entry}/cmdline"):
            children = descendants(int(entry))
            if any(f"SLURMD_NODENAME={node}\0".encode() in read(f"/proc/{pid}/environ") for pid in children):
                found.append(int(entry))
    return found


def read(path: str) -> bytes:
    """A file of /proc, empty if its process is gone."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def kill_the_driver(trial: Trial) -> None:
    """kill -9 while a stage runs: the next driver attaches to the very job, and the run ends well."""
    driver = trial.driver()
    job = trial.until_runs("timing", driver)["job"]
    driver.kill()
    driver.wait()
    code = trial.driver().wait()
    events = [json.loads(line) for line in (trial.stage("x").parents[1] / "events.jsonl").read_text().splitlines()]
    told = [event["event"] for event in events if event["stage"] == "timing"][-3:]  # it was blocked in earlier sessions
    say(f"killed the driver while job {job} of timing ran: the next ended with {code}; its events {', '.join(told)}")
    assert code == 0 and told == ["stage_started", "stage_attached", "stage_ended"], told
    assert trial.claim("timing")["job"] == job


def compare(trial: Trial) -> None:
    """Records without times are the same bytes on both engines."""
    local = trial.clone / "results" / "latest" / "stages"
    names = sorted(path.name for path in local.iterdir() if path.name.partition(".")[0] in EQUAL)
    for name in names:
        one, other = (folder / "records.jsonl" for folder in (local / name, trial.stage(name)))
        same = one.read_bytes() == other.read_bytes()
        say(f"{name}: {one.stat().st_size} bytes of records {'equal' if same else 'DIFFER'}")
        assert same, name
    runs = (local.parent, trial.stage("x").parents[1])
    verdicts = [json.loads((run / "report.json").read_bytes())["verdict"] for run in runs]
    say(f"verdicts equal: {verdicts[0] == verdicts[1]}; {verdicts[1]}")
    assert verdicts[0] == verdicts[1]


def say(text: str) -> None:
    """A line of the trial among the output of make."""
    print(f"trial: {text}", flush=True)


def main() -> int:
    """The trial of a profile in a new folder, which stays if something was wrong; the cluster is stopped always."""
    folder, profile = Path(tempfile.mkdtemp(prefix="slurm-trial.")), sys.argv[1]
    trial = Trial(folder, profile)
    trial.make(f"defconfig-{profile}")
    trial.make()
    try:
        trial.start_cluster()
        trial.make(f"defconfig-{profile}+slurm", "SLURM_POLL_S=1", "RESULTS=on-slurm")
        cancel_a_job(trial)
        kill_a_node(trial)
        kill_the_driver(trial)
        compare(trial)
    finally:
        subprocess.run([HERE / "stop.sh", trial.cluster], check=False)
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
