"""`make nightly`: a run of PROFILE in a folder of its own, audited, judged against its baseline, told, and tidied up.

The work tree must be clean, so that a night is the night of a commit. Nothing of earlier runs is reused: a night that
took yesterday's measurements would measure nothing. `make nightly RUN=<run>` judges a run that is there, and runs none.

Exit codes: 1 a stage crashed; 3 something is worse or other than the baseline, or the audit differs; 4 something could
not be compared, or was not measured; 0 all is as it was accepted; 130 it was interrupted.
"""

import argparse
import datetime
import os
import shutil
import tempfile
from pathlib import Path

from kassay import atomic, lock, paths
from kassay.configure import required, say
from kassay.errors import ConfigError, RunError, SourceError
from kassay.nightly import baseline, nights
from kassay.nightly.verdict import Verdict, judged
from kassay.planned import Planned
from kassay.words import Given

CONFIG = "config"  # a night's own .config: that of the project is left as it is
SHOWN_FILES = 5
HINT = 'make baseline RUN=nightly/latest/latest REASON="<why this is how it should be>"'


def do_nightly(arguments: argparse.Namespace, given: Given) -> int:
    """Run PROFILE anew, audit it and judge it by its baseline; RUN: judge that run only."""
    if arguments.run:
        return told(judged(run_of(arguments), arguments.baseline, previous=None))
    profile = given.symbols.get("PROFILE") or os.environ.get("PROFILE")
    name = required(profile, "nightly", "PROFILE", "decode-cpu+smoke")
    variables = {key: text for key, text in given.symbols.items() if key != "PROFILE"}
    commit = clean_commit()
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / paths.config().name
        asked = planned_night(name, variables, given.overrides, config)
        baseline.load(baseline.place(asked.plan.profile, arguments.baseline))  # what is wrong in it is said now
        folder = paths.results_dir(str(asked.settings["RESULTS"].value)) / nights.FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with lock.held(folder / f".{asked.plan.profile}.lock", wait=False):
                previous = next(iter(nights.of_profile(folder, asked.plan.profile)), None)
                night = nights.begin(folder, asked.plan.profile, commit)
                shutil.copy(config, night / CONFIG)
                return through(asked, night, arguments.baseline, previous)
        except BlockingIOError:
            raise RunError(f"another nightly of `{asked.plan.profile}` goes on", hint="wait for it") from None


def through(asked: Planned, night: Path, given: str | None, previous: nights.Mark | None) -> int:
    """One night from its mark to its verdict."""
    from kassay.running import INTERRUPTED, carry_out

    atomic.point(night.parent / nights.LATEST, night.name)
    run = None
    try:
        code = carry_out(asked, night)
        run = (night / nights.LATEST).resolve().name
        if code == INTERRUPTED:
            nights.end(night, run, None)
            return INTERRUPTED
        made = judged(night / run, given, previous)
        made.save(night)
    except BaseException:
        nights.end(night, run, None)
        raise
    nights.end(night, run, made.exit_code)
    tidy(night, asked, given)
    say(f"{paths.shown(night)}: {made.headline}")
    return told(made)


def run_of(arguments: argparse.Namespace) -> Path:
    """The directory of the run that RUN names; a checkout that only runs nights has no .config to ask."""
    from kassay.config.tree import tree
    from kassay.rundir import chosen_run
    from kassay.watch import asked_run

    if paths.config().is_file():
        return asked_run(arguments).resolve()
    with tree() as kconf:
        return chosen_run(paths.results_dir(kconf.syms["RESULTS"].str_value), arguments.run).resolve()


def told(made: Verdict) -> int:
    """Print a verdict; its exit code."""
    for line in made.lines():
        print(line)
    return made.exit_code


def planned_night(name: str, variables: dict[str, str], overrides: str, config: Path) -> Planned:
    """The plan of a profile, by a configuration of its own."""
    from kassay import plan
    from kassay.config import compose, kconfig

    kconfig.load_profile(name, variables, config)
    settings = kconfig.load(config)
    words = compose.split_overrides(overrides)
    return Planned(plan=plan.of_settings(settings, words), settings=settings, overrides=words)


def clean_commit() -> str:
    """The commit of our own tree. Raises SourceError unless it and those of KASSAY_PATH are as a commit has them."""
    from kassay.source.tree import frozen_tree

    errors, commits = [], []
    for tree in paths.trees():
        found = frozen_tree(tree)
        commits.append(found["commit"])
        if found["commit"] is None:
            errors.append(f"{tree}: no git work tree with a commit: a nightly is that of a commit")
        elif dirty := found["dirty"]:
            more = f" and {len(dirty) - SHOWN_FILES} more" if len(dirty) > SHOWN_FILES else ""
            errors.append(f"{tree}: not as its commit has it: {', '.join(dirty[:SHOWN_FILES])}{more}")
    if errors:
        raise SourceError(*errors, hint="commit or remove them; make runs a tree as it is")
    return str(commits[0])


def tidy(night: Path, asked: Planned, given: str | None) -> None:
    """Remove the nights of this profile that need not be kept, and say which."""
    keep, days = (int(asked.settings[name].value) for name in ("NIGHTLY_KEEP", "NIGHTLY_DAYS"))
    held = baseline.load(baseline.place(asked.plan.profile, given))
    kept_runs = set() if held is None else {held.subject.run}
    marks = nights.of_profile(night.parent, asked.plan.profile)
    for mark in nights.removable(marks, keep, days, kept_runs, datetime.datetime.now(datetime.UTC)):
        if nights.remove(night.parent, mark):
            say(f"removed {mark.night}: more than {keep} nights, or older than {days} days")


def do_baseline(arguments: argparse.Namespace, given: Given) -> int:
    """Accept the run RUN as the baseline of its profile, with a REASON that is kept."""
    reason = (arguments.reason or "").strip()
    if not arguments.run or not reason:
        lacking = " and ".join(name for name, text in (("RUN", arguments.run), ("REASON", reason)) if not text)
        raise ConfigError(f"baseline needs {lacking}", hint=HINT)
    run_dir = run_of(arguments)
    mark = nights.read(run_dir.parent)
    commit = mark.commit if mark is not None and mark.run == run_dir.name else None
    for line in baseline.accept(run_dir, arguments.baseline, reason, commit):
        print(line)
    say("hint: commit it, then nights are judged by it")
    return 0
