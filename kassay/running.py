"""`make run`: the plan of .config, or what of it is not up to date.

STAGE=x[,y] runs those stages and what they need, FORCE=x runs x whatever is there, KEEP=x takes what is there of x
though it is stale. A name is a stage's or, for all its members, an entry's of the workflow.
"""

import argparse
import sys
from pathlib import Path

from kassay import digest, lock, paths, secret
from kassay.configure import say
from kassay.engine.choose import engine_of
from kassay.engine.stragglers import end_stragglers
from kassay.errors import PlanError
from kassay.plan import Plan
from kassay.planned import Planned, planned
from kassay.run import Run
from kassay.rundir import Setup
from kassay.words import Given

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended


def do_run(arguments: argparse.Namespace, given: Given) -> int:
    """Run the plan of .config, or what of it is not up to date."""
    asked = planned(given)
    results = paths.results_dir(str(asked.settings["RESULTS"].value))
    return carry_out(asked, results, arguments.stage, arguments.force, arguments.keep)


def carry_out(
    asked: Planned, results: Path, stage: str | None = None, force: str | None = None, keep: str | None = None
) -> int:
    """Run a plan in a results folder to its end and say how it went; its exit code."""
    from kassay.mirror.start import start
    from kassay.progress import shown_on_stderr

    secret.require_none(asked)
    digest.recall(paths.digests())
    setup = Setup(
        results=results,
        settings=asked.settings,
        overrides=asked.overrides,
        interpreter=sys.executable,
        timeout_s=float(asked.settings["STAGE_TIMEOUT_S"].value),
        only=named(asked.plan, "STAGE", stage),
        force=named(asked.plan, "FORCE", force),
        keep=named(asked.plan, "KEEP", keep),
    )
    engine = engine_of(asked.settings)
    run = Run(asked.plan, setup, engine)
    only = [stage.name for stage in run.stages] if setup.only else []
    with lock.owned(run.directory, engine.token, only) as before:
        if before is not None:
            end_stragglers(before.token)
            if asked.settings["ENGINE"].value == "local":  # a job of Slurm may go on, and still writes
                for left in run.stages:
                    secret.clean_logs(paths.stage_dir(run.directory, left.name), secret.known())
        watcher = shown_on_stderr(run.directory)
        mirror = start(run.directory, asked.settings)
        try:
            code = run.go(watcher, before)
        except KeyboardInterrupt:
            say(f"interrupted: {paths.shown(run.directory)}\nhint: make resumes it")
            return INTERRUPTED
        finally:
            watcher.close()
            if mirror is not None:
                mirror.finish()
            digest.remember(paths.digests())
    return conclude(run, code)


def named(plan: Plan, word: str, text: str | None) -> frozenset[str]:
    """The stages that a word of the command line names. Raises PlanError for a name that none has."""
    names = [stage.name for stage in plan.stages]
    found: set[str] = set()
    errors = []
    for name in filter(None, (part.strip() for part in (text or "").split(","))):
        members = {other for other in names if other == name or other.startswith(name + ".")}
        if not members:
            from kassay.config.tree import nearest

            errors.append(f"{word}: no stage `{name}` in workflow `{plan.workflow}`{nearest(name, names)}")
        found |= members
    if text is not None and not found and not errors:
        errors.append(f"{word}: it names no stage")
    if errors:
        raise PlanError(*errors, hint="make plan lists the stages")
    return frozenset(found)


def conclude(run: Run, code: int) -> int:
    """Print the last lines of a run: what ended badly, the verdict, where the report is."""
    from kassay.report.closing import closing_lines

    for line in closing_lines(run.directory, code, run.stages, run.outcomes, run.reuse.stale, not run.changed):
        say(line)
    return code
