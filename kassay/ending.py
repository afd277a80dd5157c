"""How a stage's process ended becomes its outcome: believed only if everything that tells of it agrees."""

from typing import Any

from kassay import digest, executable, identity, paths, secret
from kassay.engine import Ended, Job
from kassay.errors import RunError
from kassay.identity import Wanted
from kassay.outcome import Outcome, Word, exit_code, load
from kassay.rundir import make_place
from kassay.stage import utc_now
from kassay.tail import last_lines

LONG_S = 1.0  # an outcome that took longer is durable at once; others when the run ends
TAIL_BYTES = 8192


def outcome_of(
    ended: Ended, wanted: Wanted, job: Job, told: dict[str, Any], read: dict[str, str]
) -> tuple[Outcome, dict[str, Any]]:
    """The outcome of a stage that was started; its receipt if the driver wrote it.

    `told` is what the driver knows of it, `read` the artifacts that others read, each with its reader.
    """
    if removed := not job.directory.is_dir():
        make_place(job.directory)
    leaked = secret.clean(job.directory)
    written, broken = (None, "") if wanted.stage.argv else declared(job)
    receipt: dict[str, Any] = {}
    how = "its directory was removed while it ran" if removed else fault(ended, wanted, job, written, broken)
    if not how and written is not None:
        how = written.lacks(read)
    if not how and leaked:
        how = f"{leaked}: withheld, so that it is no result any more"
    if not how and wanted.stage.argv:
        receipt = executable.write_receipt(job)
        artifacts = executable.artifacts_of(wanted.stage, job.directory)
        written = Outcome(word="passed", reason="", metrics={}, artifacts=artifacts, **told)
        written.save(job.directory, durable=told["duration_s"] > LONG_S)
    elif how:
        told_last = last_lines(job.directory / paths.STDERR, TAIL_BYTES)
        reason = f"{how}; last line: {told_last[-1]}" if told_last else how
        written = Outcome(word="crashed", reason=reason, metrics={}, artifacts={}, **told)
        written.save(job.directory, durable=told["duration_s"] > LONG_S)
    assert written is not None, "a bug: neither an outcome nor a fault"
    return written, receipt


def declared(job: Job) -> tuple[Outcome | None, str]:
    """The outcome that a stage program left, or what is wrong with it; a broken one is set aside."""
    try:
        return load(job.directory), ""
    except RunError as error:
        (job.directory / paths.OUTCOME).rename(job.directory / f"{paths.OUTCOME}.broken")
        return None, error.messages[0]


def fault(ended: Ended, wanted: Wanted, job: Job, written: Outcome | None, broken: str) -> str:
    """Why the process did not keep the contract; empty if it did, whatever word it declared."""
    if ended.timed_out:
        return f"ran past its time-out of {job.timeout_s:g} s"
    if broken or ended.fault:
        return broken or ended.fault
    if wanted.stage.argv:
        found = executable.why_not(wanted.stage, job.directory, ended)
    else:
        expected = None if written is None else exit_code([written.word])
        found = "" if ended.exit_code == expected else unexplained(ended)
    return found or (changed_input(wanted) if written is None or written.word in identity.REUSABLE else "")


def unexplained(ended: Ended) -> str:
    """An end that the outcome does not agree with, or says nothing of."""
    said = executable.how(ended)
    return said if (ended.exit_code or 0) < 0 else f"{said} without its outcome"


def changed_input(wanted: Wanted) -> str:
    """The input of a tree that is another one now than when the stage was asked: what it has read cannot be told."""
    for name, reference in wanted.stage.inputs.items():
        if not reference.startswith("tree:") or reference == "tree:.":
            continue  # a stage's artifact does not change; the whole project is frozen by the stage that reads it
        before = wanted.inputs[name]
        if not before.path.exists() or digest.of_path(before.path) != before.sha256:
            return f"input `{name}` ({reference}) changed while it ran"
    return ""


def unstarted(stage: str, run: str, word: Word, reason: str) -> Outcome:
    """The outcome that the driver writes for a stage that it does not start."""
    return Outcome(
        stage=stage,
        run=run,
        word=word,
        reason=reason,
        metrics={},
        artifacts={},
        started_at=utc_now(),
        duration_s=0.0,
        attempt=0,
        grant=None,
    )
