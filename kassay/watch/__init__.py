"""Reading a run from another shell: `make status`, `make watch`, `make logs`. The run does not notice.

Nothing is locked or written, so a live run, an ended one and one whose driver died are read alike.
"""

import argparse
import datetime
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kassay.words import Given

if TYPE_CHECKING:
    from kassay.events import Event
    from kassay.watch.view import View

PERIOD_S = 0.5
DOUBT_S = 2.0  # for how long a run may have no driver before it is lost: one that begins has none for a moment


def do_status(arguments: argparse.Namespace, given: Given) -> int:
    """Print where a run is, live or ended, and what each stage does or why it ended so."""
    for line in status(asked_run(arguments)):
        print(line)
    return 0


def do_watch(arguments: argparse.Namespace, given: Given) -> int:
    """Show a run that goes on elsewhere until it ends, and end with its exit code."""
    from kassay.watch.view import INTERRUPTED

    try:
        return watch(asked_run(arguments))
    except KeyboardInterrupt:
        return INTERRUPTED


def do_logs(arguments: argparse.Namespace, given: Given) -> int:
    """Print the logs of the stage STAGE, and go on while it runs."""
    from kassay.configure import required
    from kassay.watch.logs import follow
    from kassay.watch.view import INTERRUPTED

    stage = required(arguments.stage, "logs", "STAGE", "build")
    try:
        follow(asked_run(arguments), stage, sys.stdout.buffer)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def asked_run(arguments: argparse.Namespace) -> Path:
    """The directory of the run that RUN names, the latest without it."""
    from kassay import paths
    from kassay.config import kconfig
    from kassay.rundir import chosen_run

    settings = kconfig.load(paths.config())
    return chosen_run(paths.results_dir(str(settings["RESULTS"].value)), arguments.run)


def status(run_dir: Path) -> Iterator[str]:
    """Lines of text: the run, then one line a stage."""
    from kassay.watch.screen import counts, listing
    from kassay.watch.view import View

    view = View(run_dir)
    view.refresh()
    facts = {
        "run": view.run_dir.name,
        "profile": view.profile,
        "plan": view.hash,
        "since": since(view),
        "driver": str(view.driver or "none"),
        "state": how(view),
        "stages": counts(view.states()).partition(": ")[2],
    }
    yield from (f"{name:9}{text}" for name, text in facts.items())
    yield ""
    yield from listing(view.row(name) for name in view.planned)


def since(view: "View") -> str:
    """When the last session began, and how long it goes on or took."""
    from kassay.report.words import seconds

    session = view.session
    if session.started_at is None:
        return "it has not begun"
    if not view.live and not session.over:
        return session.started_at
    return f"{session.started_at} ({seconds(seconds_between(session.started_at, session.over_at))})"


def seconds_between(start: str, end: str) -> float:
    """Between two times of events; an empty end is now."""
    now = datetime.datetime.now(datetime.UTC)
    until = datetime.datetime.fromisoformat(end) if end else now
    return max(0.0, (until - datetime.datetime.fromisoformat(start)).total_seconds())


def how(view: "View") -> str:
    """The state of the run in words."""
    from kassay.report.words import exit_meaning

    if view.state == "ended":
        return f"ended, exit code {view.exit_code}: {exit_meaning(view.exit_code)}"
    if view.state == "interrupted":
        return "interrupted: its stages were ended; `make` resumes it"
    if view.state == "lost":
        return "lost: it has not ended, and its driver is gone; `make` resumes it"
    return view.state


def watch(run_dir: Path) -> int:
    """Show a run until it ends or is lost; its exit code."""
    from kassay.configure import say
    from kassay.watch.show import shown_on_stdout
    from kassay.watch.view import View

    view = View(run_dir)
    view.refresh()
    if view.live or view.session.started_at is None:
        show = shown_on_stdout(view)
        try:
            for events in looks(view):
                show.go_on(events)
        finally:
            show.close()
    else:
        for line in status(run_dir):
            print(line)
    say(how(view))
    return view.exit_code


def looks(view: "View") -> "Iterator[list[Event]]":
    """The new events of each look at a run, until it is over or has been without a driver for a while."""
    lost_since = None
    while True:
        events = view.refresh()
        yield events
        now = time.monotonic()
        lost_since = (lost_since or now) if view.state == "lost" else None
        if not view.live and (lost_since is None or now - lost_since > DOUBT_S):
            return
        time.sleep(PERIOD_S)
