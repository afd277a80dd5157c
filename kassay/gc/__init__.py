"""`make gc`: what under build/ no run needs any more; listed first, deleted only with `NOW=1`.

    build/stacks, build/mirror   environments that a run names: by a request, a stack.json, its mirror's records
    build/wheels                 what those were built with
    build/sources, build/mirrors checkouts and bare repositories that a run froze its sources from

Results are never touched: a run that is not wanted is removed by hand, and what it alone needed is garbage then. So are
the set-aside stages of a run (`.<stage>.stale-<n>`), which are evidence and may be reused.

Only what carries our mark is deleted: a stack its attestation, a wheel its built.json, a repository the name that
follows from its origin. Anything else is left, and said. No link is followed, neither a folder of build/ that is one
nor one inside what is deleted. What another process makes or uses is left too; while a run goes on, nothing is
deleted. All of it can be made again from the pins.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock

from kassay import earlier, paths
from kassay.errors import ConfigError, RunError
from kassay.gc import marks
from kassay.gc.references import References, read
from kassay.lock import held

YES = "1"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One thing below build/."""

    path: Path
    bytes: int
    kept: bool
    why: str


def do_gc(now: str | None) -> int:
    """List what is garbage; delete it if `now` says so."""
    from kassay.configure import say
    from kassay.runs import results_folder, size

    if now not in (None, "", YES):
        raise ConfigError(f"NOW=`{now}`: allowed is NOW={YES}, which deletes what is listed without it")
    folders = results_folders(results_folder())
    with alone(folders) as busy:
        found = list(entries(read(folders)))
        garbage = [entry for entry in found if not entry.kept]
        for entry in garbage:
            print(f"{paths.shown(entry.path)}  {size(entry.bytes)}  {entry.why}")
        for entry in found:
            if entry.kept:
                say(f"kept: {paths.shown(entry.path)}  {size(entry.bytes)}  {entry.why}")
        say(f"runs were looked for in: {', '.join(paths.shown(folder) for folder in folders)}")
        total = f"{len(garbage)} of {len(found)} entries, {size(sum(entry.bytes for entry in garbage))}"
        if not now or not garbage:
            say(f"{total}: {f'make gc NOW={YES} deletes them' if garbage else 'nothing to delete'}")
            return 0
        if busy:
            raise RunError(
                f"run `{busy}` goes on: nothing is deleted beside it", hint="make gc NOW=1 once it has ended"
            )
        gone = [entry for entry in garbage if delete(entry.path)]
        for entry in garbage:
            if entry not in gone:
                say(f"left: {paths.shown(entry.path)}: another process uses it")
        say(f"deleted {len(gone)} entries, {size(sum(entry.bytes for entry in gone))}")
    return 0


def results_folders(configured: Path) -> list[Path]:
    """The results folder of .config, and every other one in the project that holds a run."""
    beside = [path.parent.parent for path in paths.ROOT.glob(f"*/*/{paths.MANIFEST}") if not path.parent.is_symlink()]
    return sorted({configured, *(folder.resolve() for folder in beside)})


@contextmanager
def alone(folders: list[Path]) -> Iterator[str]:
    """Keep new drivers from starting; gives the id of a run that goes on, empty if none does."""
    with ExitStack() as locks:
        busy = ""
        for folder in filter(Path.is_dir, folders):
            locks.enter_context(held(folder / paths.LOCK, wait=True))
            for run_dir in (Path(run.path) for run in runs_of(folder)):
                try:
                    locks.enter_context(held(run_dir / paths.LOCK, wait=False))
                except BlockingIOError:
                    busy = run_dir.name
        yield busy


def runs_of(folder: Path) -> "list[os.DirEntry[str]]":
    """The run directories of a results folder that a driver had; links to them are none."""
    return [run for run in earlier.entries(folder) if (Path(run.path) / paths.LOCK).is_file()]


def entries(needed: References) -> Iterator[Entry]:
    """Everything in the folders that gc looks at, with whether it stays and why."""
    stacks = {kind: list(below(kind)) for kind in marks.FOLDERS}
    attested = [path / paths.ATTESTED for path in stacks["stacks"] if needed.stack(path)]
    needed = needed.with_texts(attested)
    for kind, found in stacks.items():
        folder = paths.build() / kind
        if folder.is_symlink():
            yield Entry(path=folder, bytes=0, kept=True, why="is a link, which is not followed")
        for path in found:
            yield judged(kind, path, needed)


def below(kind: str) -> Iterator[Path]:
    """The entries of a folder of build/; none of one that is a link. Locks are part of what they lock."""
    folder = paths.build() / kind
    if folder.is_symlink() or not folder.is_dir():
        return
    with os.scandir(folder) as found:
        yield from sorted(Path(entry.path) for entry in found if not entry.name.endswith(".lock"))


def judged(kind: str, path: Path, needed: References) -> Entry:
    """Whether one entry stays, and why."""
    from kassay.runs import own_bytes

    if path.is_symlink() or not path.is_dir():
        return Entry(path=path, bytes=0, kept=True, why="is no folder of ours")
    held_bytes = own_bytes(path)
    if marks.half_made(path):
        return Entry(path=path, bytes=held_bytes, kept=False, why="was left half made")
    if fault := marks.FOLDERS[kind](path):
        return Entry(path=path, bytes=held_bytes, kept=True, why=f"carries no mark of ours: {fault}")
    why = needed.why(kind, path)
    return Entry(path=path, bytes=held_bytes, kept=bool(why), why=why or "no run needs it")


def delete(path: Path) -> bool:
    """Take an entry away, out of sight first; False where another process has it."""
    lock = marks.lock_of(path)
    try:
        with filelock.FileLock(lock, timeout=0):
            target = path
            if not marks.half_made(path):  # a name that the next who makes the same clears, if we die here
                target = path.with_name(f".{path.name}{marks.MAKING}{secrets.token_hex(4)}")
                path.rename(target)
            writable(target)
            shutil.rmtree(target)
    except filelock.Timeout:
        return False
    return True


def writable(folder: Path) -> None:
    """Let the folders below be emptied: checkouts may hold read-only ones. No link is followed."""
    folder.chmod(folder.stat().st_mode | 0o700)
    with os.scandir(folder) as found:
        inside = [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]
    for path in inside:
        writable(path)
