"""A tree of its own with a workflow of the test's choosing, and the real driver on it: `python -m kassay run`.

The driver is a process that can be killed, signalled and started twice. All that it starts inherits a marker in its
environment, so that whatever is left can be found, a process of a session of its own included. Temporary folders of the
driver lie in the tree too (TMPDIR), so that two tests never meet.
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from kassay import paths
from kassay.engine import local

MARKER = "KASSAY_CRASH_TEST"
PATIENCE_S = 180.0  # more than any run of these tests takes, also beside other work
HOUR_S = 3600.0
# Hidden names that kassay keeps on purpose, all told in docs: locks, the book of verified results, what was set aside.
DECLARED = re.compile(r"\.gitignore|\.lock|\.book\.json|\..+\.stale-\d+|\..+\.attempt-[0-9a-f]+")
KCONFIG = """\
choice WORKFLOW

config WORKFLOW_TOY
	bool "toy: stages of a test"

endchoice

config WORKFLOW
	default "toy" if WORKFLOW_TOY
"""
FRAME = """\
import os, signal, subprocess, sys, time
from pathlib import Path
from kassay.stage import Unmet, main
def run(stage):
{body}
main(run)
"""


@dataclass(frozen=True, kw_only=True)
class Done:
    """A driver that ended."""

    code: int  # negative: by that signal
    out: str
    err: str

    @property
    def plain(self) -> bool:
        """Whether it ended without a traceback."""
        return "Traceback" not in self.err


class Driver:
    """`python -m kassay <words>` as a process; what it says goes to two files, so that it never waits for a reader."""

    def __init__(self, root: Path, words: tuple[str, ...], environment: dict[str, str], under: tuple[str, ...]) -> None:
        said = root / "said"
        said.mkdir(exist_ok=True)
        self.out, self.err = (said / f"{secrets.token_hex(4)}.{name}" for name in ("out", "err"))
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [*under, sys.executable, "-m", "kassay", *words],
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def wait(self, patience_s: float = PATIENCE_S) -> Done:
        """Until it has ended; one that does not is killed, and the test with it."""
        try:
            code = self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the driver hangs; it said:\n{self.err.read_text()}") from None
        return Done(code=code, out=self.out.read_text(), err=self.err.read_text())

    def kill(self) -> None:
        """kill -9, and wait for it."""
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals, whole_group: bool = False) -> None:
        """Send a signal to the driver, or as a terminal does to its whole group."""
        (os.killpg if whole_group else os.kill)(self.pid, number)


class DrivenProject:
    """The tree, its runs, and what they leave."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.results = root / "results"
        self.token = secrets.token_hex(8)
        self.gates = root / "gates"
        self.drivers: list[Driver] = []
        for folder in (self.gates, root / "tmp"):
            folder.mkdir()
        (root / "workflows" / "toy").mkdir()
        (root / "workflows" / "toy" / "Kconfig").write_text(KCONFIG)
        (root / "defconfigs" / "toy").write_text(
            "# purpose: a test; hardware: any; time: seconds\nCONFIG_WORKFLOW_TOY=y\nCONFIG_MAX_CPUS=2\n"
        )

    def program(self, name: str, body: str) -> None:
        """Write stages/<name>.py whose run() has this body."""
        (self.root / "stages" / f"{name}.py").write_text(FRAME.format(body=body))

    def workflow(self, stages: dict[str, Any]) -> None:
        """Write the workflow, resources filled in, and choose it."""
        full = {name: {"resources": {"cpus": 1, "memory_gib": 0.1}, **body} for name, body in stages.items()}
        text = json.dumps({"stages": full}, indent=1)  # JSON is YAML
        (self.root / "workflows" / "toy" / "workflow.yaml").write_text(text)
        if not (self.root / ".config").exists():
            done = self.kassay("defconfig", "toy")
            assert done.code == 0, done.err

    def environment(self, **changes: str) -> dict[str, str]:
        """What the driver gets: no words of a make around it, the marker, a temporary folder of its own."""
        dropped = ("KASSAY_MAKE", "KASSAY_PATH", "SET", "MAKEFLAGS")
        kept = {name: text for name, text in os.environ.items() if name not in dropped}
        own = {"PYTHONPATH": str(self.root), "TMPDIR": str(self.root / "tmp"), MARKER: self.token, "NO_COLOR": "1"}
        return {**kept, **own, **changes}

    def start(self, *words: str, under: tuple[str, ...] = (), **environment: str) -> Driver:
        """Start `kassay run` with these words, `under` another command that becomes it."""
        self.drivers.append(Driver(self.root, ("run", *words), self.environment(**environment), under))
        return self.drivers[-1]

    def kassay(self, *words: str) -> Done:
        """Another verb, to its end."""
        return Driver(self.root, words, self.environment(), ()).wait()

    def run(self, *words: str, **environment: str) -> Done:
        """`kassay run` to its end; never with a traceback."""
        done = self.start(*words, **environment).wait()
        assert done.plain, done.err
        return done

    def open_gate(self, name: str) -> None:
        """Let a stage that waits for this gate go on."""
        (self.gates / name).touch()

    @property
    def run_dir(self) -> Path:
        """The run directory that was opened last."""
        return (self.results / "latest").resolve()

    def stage(self, name: str) -> Path:
        """A stage's directory in that run."""
        return paths.stage_dir(self.run_dir, name)

    def outcome(self, name: str) -> dict[str, Any]:
        """The content of outcome.json of a stage."""
        return dict(json.loads((self.stage(name) / paths.OUTCOME).read_bytes()))

    def words(self) -> dict[str, str]:
        """How every stage of the run ended, by its own file."""
        names = sorted(path.name for path in (self.run_dir / "stages").iterdir() if not path.name.startswith("."))
        return {name: self.outcome(name)["word"] for name in names}

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind, of all sessions of the run."""
        lines = (self.run_dir / paths.EVENTS).read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def took_s(self, stage: str) -> float:
        """Seconds from a stage's last start to the end that the driver noted."""
        first, last = (
            [datetime.fromisoformat(event["at"]) for event in self.events(kind) if event["stage"] == stage][-1]
            for kind in ("stage_started", "stage_ended")
        )
        return (last - first).total_seconds()

    def processes(self) -> list[int]:
        """Those that carry our marker, or work in our tree; zombies do not count."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid() and self.is_ours(entry):
                found.append(int(entry.name))
        return found

    def is_ours(self, entry: Path) -> bool:
        """Whether a process of /proc was started by a driver of this tree."""
        try:
            if (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return False
            marked = f"{MARKER}={self.token}".encode() in (entry / "environ").read_bytes().split(b"\0")
            return marked or Path(os.readlink(entry / "cwd")).is_relative_to(self.root)
        except OSError:
            return False  # it ended while we looked

    def left(self, patience_s: float = 30.0) -> list[str]:
        """The command lines of processes that are still there after a while; empty is what every test wants."""
        deadline = time.monotonic() + patience_s
        while (pids := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return [f"{pid}: {command_line(pid)}" for pid in pids]

    def temporaries(self) -> list[str]:
        """Hidden files and folders that nobody declared; what lies in folders that were set aside is theirs."""
        found = []
        for top in (self.results, self.root / "build"):
            for folder, folders, files in os.walk(top):
                odd = [name for name in [*folders, *files] if name[0] == "." and not DECLARED.fullmatch(name)]
                found += [os.path.relpath(os.path.join(folder, name), self.root) for name in odd]
                folders[:] = [name for name in folders if not name.startswith(".")]
        return sorted(found)

    def grant_no_end(self) -> None:
        """Let a stage that is told to end have an hour: whoever waits for it, in place of not having to, is seen."""
        path, line = self.root / "kassay" / "engine" / "local.py", f"\nGRACE_S = {local.GRACE_S}  #"
        assert path.read_text().count(line) == 1, "a bug of the test: no such line"
        path.write_text(path.read_text().replace(line, f"\nGRACE_S = {HOUR_S}  #"))

    def forget(self) -> None:
        """Throw all results away, and what is kept under build/."""
        for folder in (self.results, self.root / "build"):
            shutil.rmtree(folder, ignore_errors=True)

    def end(self) -> None:
        """After a test: kill what a failure left, by its number, and wait for the drivers among it."""
        for driver in self.drivers:
            driver.kill()
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def command_line(pid: int) -> str:
    """What a process was started as."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone"


def wait_until(question: Any, what: str, patience_s: float = PATIENCE_S) -> None:
    """Until `question()` is true."""
    deadline = time.monotonic() + patience_s
    while not question():
        assert time.monotonic() < deadline, f"{what}: never came"
        time.sleep(0.01)


def copy_tree(target: Path) -> Path:
    """A copy of what the driver reads of the project; data are linked."""
    target.mkdir()
    for name in ("Kconfig", "Makefile"):
        shutil.copy(paths.ROOT / name, target)
    for name in ("kassay", "defconfigs", "workflows", "stages"):
        shutil.copytree(paths.ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    return target
