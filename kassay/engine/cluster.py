"""Slurm's commands as functions: submit, list, account, cancel. No shell, no environment that would change an answer.

Jobs are looked up by their unique names, so that a job whose id was never heard of is found too. A single unknown id
is an error to squeue and scontrol, a name is not.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

from kassay import paths
from kassay.engine.states import Row, word_of

BATCH = Path(__file__).with_name("batch.sh")
ANSWER_S = 60.0  # what a command gets; squeue retries by itself for some seconds
RETRY_S = (1.0, 3.0, 10.0)  # between submissions that got no answer
ACCOUNTED_SINCE = "now-30days"  # sacct's own default is midnight
FIELDS = "%i|%T|%r|%j"
# The user's filters and formats, and what an enclosing job would tell ours; SLURM_CONF says where the cluster is.
FOREIGN = ("SLURM_", "SQUEUE_", "SACCT_", "SCANCEL_")
OURS = {"SLURM_CONF"}
BREAKING = {"SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_TEST_ONLY", "SBATCH_WAIT"}
# A stage says itself how many GPUs it wants; without an option these would give some to one that wants none.
GPUS = {"SBATCH_GRES", "SBATCH_GPUS", "SBATCH_GPUS_PER_NODE", "SBATCH_GPUS_PER_TASK", "SBATCH_GPUS_PER_SOCKET"}
NO_ANSWER = ("unable to contact", "socket timed out", "connection refused", "zero bytes", "temporarily", "no answer")


class Unanswered(Exception):
    """A command failed; the message is what it said."""


def fit_environment(environment: dict[str, str]) -> dict[str, str]:
    """The environment without what changes how Slurm's commands answer."""
    return {
        name: value
        for name, value in environment.items()
        if name in OURS or not (name.startswith(FOREIGN) or name in BREAKING | GPUS)
    }


def ask(argv: list[str], environment: dict[str, str]) -> str:
    """Standard output of a command. Raises Unanswered. A Ctrl-C of the terminal does not reach the command."""
    program = shutil.which(argv[0])  # on the driver's PATH: the job's may be another
    if program is None:
        raise Unanswered(f"{argv[0]}: it is not on PATH")
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            env=fit_environment(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unanswered(f"{argv[0]}: no answer in {ANSWER_S:.0f} s") from None
    except OSError as error:
        raise Unanswered(f"{argv[0]}: {error.strerror}") from None
    if done.returncode != 0:
        raise Unanswered(done.stderr.strip() or f"{argv[0]}: exit status {done.returncode}")
    return done.stdout


def submit(name: str, options: list[str], argv: list[str], directory: Path, environment: dict[str, str]) -> str:
    """The id of a new job of that name. Raises Unanswered when sbatch refuses it.

    A submission whose answer was lost may have been taken; it is looked up before it is sent again. Should it show up
    later still, the claim in its directory lets one of the two run.
    """
    fixed = ["--parsable", "--no-requeue", "--export=ALL", "--nodes=1", "--ntasks=1", "--open-mode=append"]
    logs = [f"--chdir={directory}", f"--output={paths.STDOUT}", f"--error={paths.STDERR}"]
    command = ["sbatch", *fixed, f"--job-name={name}", *logs, *options, str(BATCH), *argv]
    for pause in (*RETRY_S, None):
        try:
            return ask(command, environment).strip().partition(";")[0]
        except Unanswered as error:
            if pause is None or not any(words in str(error).lower() for words in NO_ANSWER):
                raise
        time.sleep(pause)
        try:
            if rows := [row for row in queue() if row.name == name]:
                return rows[0].job
        except Unanswered:
            pass  # nobody answers yet
    raise RuntimeError("a bug: the last submission neither was taken nor failed")


def queue() -> list[Row]:
    """All jobs of this user that squeue lists, those that ended a while ago too. Raises Unanswered."""
    asked = ["squeue", "--me", "--noheader", "--states=all", f"--format={FIELDS}"]
    rows = (line.strip().split("|", 3) for line in ask(asked, dict(os.environ)).splitlines())
    return [
        Row(job=row[0], name=row[3], state=word_of(row[1]), reason=row[2], listed=True) for row in rows if len(row) == 4
    ]


def accounted(name: str) -> Row | None:
    """What sacct has of the job of that name; None if it has nothing or does not answer, as without a database."""
    asked = ["sacct", "--allocations", "--noheader", "--parsable2", f"--starttime={ACCOUNTED_SINCE}"]
    try:
        told = ask([*asked, f"--name={name}", "--format=JobIDRaw,State"], dict(os.environ))
    except Unanswered:
        return None
    rows = [line.split("|") for line in told.splitlines()]
    found = [
        Row(job=row[0], name=name, state=word_of(row[1]), reason="", listed=False)
        for row in rows
        if len(row) == 2 and row[0].isdigit()
    ]
    return found[-1] if found else None


def scancel(jobs: list[str]) -> None:
    """Ask Slurm to end jobs; whether it did is for `queue` to say."""
    try:
        ask(["scancel", *jobs], dict(os.environ))
    except Unanswered:
        pass  # one of them has ended already, or nobody answers: it is asked again while a job is listed
