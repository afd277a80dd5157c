"""Runs of a results folder: the list of them, and the verbs that look at several (`make runs`, `compare`, `query`).

A run that goes on, was interrupted or lost its driver is listed like an ended one, with its state. The verdict line is
the one of its report; a run that has none, or whose report is older than its end, has `-` in its place.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kassay.words import Given

if TYPE_CHECKING:
    from kassay.watch.view import View

REPORT = "report.json"
NO_VERDICT = ""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One run in the list."""

    run: str
    created_at: str  # UTC, ISO 8601; empty where the manifest cannot be read
    state: str  # starting, running, ended, interrupted or lost; `unreadable` where its plan cannot be read
    exit_code: int | None  # None: it has not ended
    words: dict[str, int]  # state of a stage -> how many have it
    bytes: int  # in files of its own; what it took from other runs is theirs
    verdict: str  # of its report; empty where there is none that is current


def do_runs(arguments: argparse.Namespace, given: Given) -> int:
    """List the runs, newest first: state, exit code, outcomes, size, verdict."""
    from kassay.columns import columns

    machine = for_programs(arguments.to)
    found = [listed(run_dir) for run_dir in run_dirs(results_folder())]
    if machine:
        for one in found:
            print(json.dumps(vars(one), ensure_ascii=False))
        return 0
    head = ["run", "state", "exit", "outcomes", "size", "verdict"]
    rows = [[one.run, one.state, code(one), words(one), size(one.bytes), one.verdict] for one in found]
    for line in columns([head, *rows] if rows else [], longest=160):
        print(line)
    if not rows:
        print("no runs yet", file=sys.stderr)
    return 0


def do_compare(arguments: argparse.Namespace, given: Given) -> int:
    """Compare the runs A and B: settings, pins, hosts, gates, metrics; 4 where something must not be compared."""
    from kassay.compare import compare
    from kassay.compare.lines import as_json, lines
    from kassay.configure import required
    from kassay.rundir import chosen_run

    machine = for_programs(arguments.to)
    results = results_folder()
    names = [required(getattr(arguments, name), "compare", name.upper(), "<run id>") for name in ("a", "b")]
    made = compare(*(chosen_run(results, name) for name in names))
    for line in as_json(made) if machine else lines(made):
        print(line)
    return made.exit_code


def do_query(arguments: argparse.Namespace, given: Given) -> int:
    """Ask the records of all runs in SQL, to a table, CSV, JSON or Parquet; without SQL, list the views."""
    from kassay.columns import columns
    from kassay.configure import say
    from kassay.query import opened
    from kassay.query.asking import require_reading
    from kassay.query.output import destination, write
    from kassay.query.views import meaning

    results = results_folder()
    if arguments.sql:  # what can be told without reading
        require_reading(arguments.sql)
        if arguments.to not in (None, "", "table"):
            destination(arguments.to, results)
    found = opened(results, (arguments.run,) if arguments.run else ())
    try:
        for remark in found.remarks:
            say(remark)
        if arguments.sql:
            write(found, arguments.sql, arguments.to or "", results)
        else:
            for line in columns([["view", "holds"], *([view, meaning(view)] for view in found.views)], longest=120):
                print(line)
    finally:
        found.close()
    return 0


def for_programs(to: str | None) -> bool:
    """Whether JSON is asked for. Raises ConfigError for a form that there is not."""
    from kassay.errors import ConfigError

    if to not in (None, "", "table", "json"):
        raise ConfigError(f"TO=`{to}`: allowed are table and json")
    return to == "json"


def results_folder() -> Path:
    """The results folder of .config."""
    from kassay import paths
    from kassay.config import kconfig

    return paths.results_dir(str(kconfig.load(paths.config())["RESULTS"].value))


def run_dirs(results: Path) -> tuple[Path, ...]:
    """The run directories, newest first."""
    from kassay.query.scan import runs_in

    return runs_in(results)


def listed(run_dir: Path) -> Listed:
    """What the list says of a run."""
    from kassay import paths
    from kassay.errors import RunError
    from kassay.watch.told import read_object
    from kassay.watch.view import View

    created_at = str(read_object(run_dir / paths.MANIFEST).get("created_at", ""))
    try:
        view = View(run_dir)
        view.refresh()
    except RunError:
        return Listed(
            run=run_dir.name, created_at=created_at, state="unreadable", exit_code=None, words={},
            bytes=own_bytes(run_dir), verdict=NO_VERDICT,
        )  # fmt: skip
    ended = view.state in ("ended", "interrupted")
    return Listed(
        run=run_dir.name,
        created_at=created_at,
        state=view.state,
        exit_code=view.exit_code if ended else None,
        words=dict(Counter(outcome_of(view, name) for name in view.planned)),
        bytes=own_bytes(run_dir),
        verdict=verdict(run_dir, view) if ended else NO_VERDICT,
    )


def outcome_of(view: "View", name: str) -> str:
    """How a stage ended, one that was reused or kept included; its state where it did not end."""
    state = view.stage_state(name)
    found = view.outcome(name) if state in ("reused", "kept") else None
    return found.word if found else state


def verdict(run_dir: Path, view: "View") -> str:
    """The verdict line of the run's own report, if that tells how the run ended now."""
    try:
        told: dict[str, Any] = json.loads((run_dir / REPORT).read_bytes())
        stages = {stage["name"]: stage["word"] for stage in told["run"]["stages"]}
    except (OSError, ValueError, KeyError, TypeError):
        return NO_VERDICT
    now = {name: outcome_of(view, name) for name, planned in view.planned.items() if not planned.after_all}
    return str(told["verdict"]) if all(stages.get(name) == word for name, word in now.items()) else NO_VERDICT


def own_bytes(folder: Path) -> int:
    """Bytes of the regular files below a folder; no link is followed."""
    return sum(entry.stat(follow_symlinks=False).st_size for entry in files_below(folder))


def files_below(folder: Path) -> "Iterator[os.DirEntry[str]]":
    """Regular files, at any depth; what vanishes while we look is passed over."""
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield entry


def code(one: Listed) -> str:
    """The exit code, if there is one."""
    return "" if one.exit_code is None else str(one.exit_code)


def words(one: Listed) -> str:
    """`12 passed, 1 rejected`."""
    return ", ".join(f"{count} {word}" for word, count in sorted(one.words.items()))


def size(count: int) -> str:
    """Bytes for people."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
