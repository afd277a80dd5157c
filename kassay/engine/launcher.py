"""The program of a Slurm job: it runs one stage on the node and leaves how that ended, `exit.json`, as its last file.

`python -I -S launcher.py <directory>` reads job.json there. Standard library only, as the node may have nothing else.
Whatever the stage has started is gone before exit.json is written, processes that made a session of their own
included: orphans are handed to this process, so all of them are its descendants. A directory is run in once: a job
that Slurm started again, or a second copy of a submission whose answer was lost, finds the claim and does nothing.
"""

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

JOB, CLAIM, EXIT = "job.json", "claim.json", "exit.json"
PR_SET_CHILD_SUBREAPER = 36
PERIOD_S = 0.05
GRACE_S = 5.0  # what a stage gets between TERM and KILL, as from the local engine; Slurm's KillWait is 30 s by default
CANNOT_START = 127
NOT_HERE = 75  # EX_TEMPFAIL: the directory is another job's
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    """Claim the directory, run the stage, end what is left of it, say how it ended."""
    directory = Path(sys.argv[1])
    told = json.loads((directory / JOB).read_bytes())
    here = {"job": os.environ.get("SLURM_JOB_ID", ""), "node": os.environ.get("SLURMD_NODENAME", "")}
    try:
        with (directory / CLAIM).open("x", encoding="utf-8") as stream:
            json.dump(here, stream)
    except FileExistsError:
        print(f"{directory}: another job has claimed it; nothing is run twice", file=sys.stderr)
        return NOT_HERE
    os.environ.update(told.get("environment", {}))  # what Slurm does not let through
    asked: list[int] = []
    for number in ENDING:
        signal.signal(number, lambda number, frame: asked.append(number))
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)
    exit_code, timed_out = run(told["argv"], told["timeout_s"], asked)
    end_descendants()
    leave(directory, {**here, "exit_code": exit_code, "timed_out": timed_out})
    return exit_code if exit_code >= 0 else 128 - exit_code


def run(argv: list[str], timeout_s: float, asked: list[int]) -> tuple[int, bool]:
    """The stage's exit code, negative for a signal, and whether it ran past its time. TERM and the time-out end it."""
    stdin = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    # Python ignores PIPE and XFSZ, who started a job in a shell's background INT and QUIT: a stage would inherit that.
    usual = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]
    try:
        child = os.posix_spawnp(argv[0], argv, os.environ, file_actions=stdin, setsid=True, setsigdef=usual)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
        return CANNOT_START, False
    deadline = time.monotonic() + timeout_s
    kill_at, timed_out = None, False
    while (exit_code := reap(child)) is None:
        now = time.monotonic()
        if kill_at is None and (asked or now > deadline):
            kill_at, timed_out = now + GRACE_S, not asked
            os.killpg(child, signal.SIGTERM)
        elif kill_at is not None and now > kill_at:
            os.killpg(child, signal.SIGKILL)
        time.sleep(PERIOD_S)
    return exit_code, timed_out


def reap(child: int) -> int | None:
    """Take in what has ended, adopted orphans too; the child's exit code once it is among them."""
    while (ended := os.waitpid(-1, os.WNOHANG))[0]:
        if ended[0] == child:
            return os.waitstatus_to_exitcode(ended[1])
    return None


def end_descendants() -> None:
    """KILL all that the stage left behind and wait until it is gone; what the kernel holds on to is left to Slurm."""
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended by itself
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(PERIOD_S)


def descendants(root: int) -> list[int]:
    """Processes below `root`, from /proc/<pid>/stat, whose second field may hold any character."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_bytes()
            except OSError:
                continue  # it has ended meanwhile
            parents[int(entry)] = int(stat.rpartition(b")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def leave(directory: Path, told: dict[str, Any]) -> None:
    """Write exit.json so that it is there as a whole or not at all. Its directory entry follows all of the stage's."""
    temporary = directory / f".{EXIT}.{os.getpid()}"
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(told, stream)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(directory / EXIT)


if __name__ == "__main__":
    sys.exit(main())
