"""A Slurm cluster on this machine for the tests that need one, and Slurm's commands as fakes for those that do not."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kassay.engine import cluster, slurm
from kassay.engine.slurm import SlurmEngine

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts" / "slurm-mini"
DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch")


@dataclass(frozen=True, kw_only=True)
class Mini:
    """A cluster that scripts/slurm-mini/start.sh brought up."""

    folder: Path

    def repair(self) -> None:
        """Bring back what a test has killed."""
        subprocess.run([SCRIPTS / "start.sh", self.folder], check=True, capture_output=True, timeout=600)

    def pid(self, daemon: str) -> int:
        """The process of a daemon, as `slurmd.n1`."""
        return int((self.folder / f"{daemon}.process").read_text().split()[0])

    def engine(self, partition: str = "debug") -> SlurmEngine:
        """An engine that asks often."""
        return SlurmEngine(max_cpus=0, partition=partition, account="", poll_s=0.3)


@pytest.fixture(scope="session")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mini]:
    """The cluster; where Slurm is not installed, tests that need it are skipped."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    if lacking := [name for name in DAEMONS if shutil.which(name, path=path) is None]:
        pytest.skip(f"Slurm is not installed: no {', '.join(lacking)}; scripts/slurm-mini/start.sh installs it")
    if os.geteuid() != 0:
        pytest.skip("only root can start a Slurm cluster")
    folder = tmp_path_factory.mktemp("slurm")
    done = subprocess.run([SCRIPTS / "start.sh", folder], capture_output=True, text=True, timeout=600, check=False)
    try:
        assert done.returncode == 0, done.stderr
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", path)
            patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
            yield Mini(folder=folder)
    finally:
        subprocess.run([SCRIPTS / "stop.sh", folder], check=False, capture_output=True, timeout=600)


FAKES = {
    "sbatch": """
printf '%s\\n' "$*" >> "$FAKE/calls"
if [ -s "$FAKE/refusals" ]; then
  head -n 1 "$FAKE/refusals" >&2
  sed -i 1d "$FAKE/refusals"
  [ ! -e "$FAKE/taken" ] || echo "7|RUNNING|None|$(cat "$FAKE/taken")" > "$FAKE/queue"
  exit 1
fi
for word; do case $word in --job-name=*) name=${word#--job-name=} ;; esac; done
echo "7|PENDING|None|$name" > "$FAKE/queue"
env > "$FAKE/environment"
echo "7;mini"
""",
    "squeue": """
if [ -e "$FAKE/silent" ]; then echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; fi
cat "$FAKE/queue"
""",
    "sacct": """
if [ ! -e "$FAKE/accounted" ]; then echo "Slurm accounting storage is disabled" >&2; exit 1; fi
printf '%s\\n' "$*" >> "$FAKE/calls"
cat "$FAKE/accounted"
""",
    "scancel": """
printf 'scancel %s\\n' "$*" >> "$FAKE/calls"
[ -e "$FAKE/deaf" ] || sed -i 's/|[A-Z]*|/|CANCELLED|/' "$FAKE/queue"
""",
}


@dataclass(frozen=True, kw_only=True)
class Faked:
    """Slurm's commands on PATH that answer from files of a folder."""

    folder: Path

    def say(self, state: str, reason: str = "None") -> None:
        """What squeue lists of the one job."""
        name = (self.folder / "queue").read_text().strip().rpartition("|")[2]
        (self.folder / "queue").write_text(f"7|{state}|{reason}|{name}\n")

    def forget(self) -> None:
        """squeue lists the job no more."""
        (self.folder / "queue").write_text("")

    def account(self, rows: str | None) -> None:
        """What sacct answers; None: there is no accounting."""
        if rows is not None:
            (self.folder / "accounted").write_text(rows)

    def calls(self) -> list[str]:
        """The command lines that were given."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def engine(self) -> SlurmEngine:
        """An engine that asks at every look."""
        return SlurmEngine(max_cpus=0, partition="", account="", poll_s=0.0)


@pytest.fixture
def faked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faked:
    """Fakes of sbatch, squeue, sacct and scancel, and an engine's pauses cut short; what is late a test says itself."""
    folder, programs = tmp_path / "fake", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    (folder / "queue").touch()
    for name, body in FAKES.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE", str(folder))
    monkeypatch.setattr(slurm, "TICK_S", 0.0)
    monkeypatch.setattr(slurm, "QUICK_S", 0.0)
    monkeypatch.setattr(cluster, "RETRY_S", (0.0, 0.0))
    return Faked(folder=folder)
