"""What each state of Slurm means: a table of all of them, and O25's rows."""

import pytest

from kassay.engine import Ended
from kassay.engine.attempt import Left
from kassay.engine.states import (
    ACTIVE,
    BY_SLURM,
    NEVER_STARTS,
    Row,
    goes_on,
    how_it_ended,
    never_starts,
    the_one,
    word_of,
)


def row(state: str, listed: bool = True, reason: str = "None", job: str = "7") -> Row:
    return Row(job=job, name="x.1", state=word_of(state), reason=reason, listed=listed)


def left(exit_code: int, timed_out: bool = False, job: str = "7") -> Left:
    return Left(job=job, node="n1", exit_code=exit_code, timed_out=timed_out)


def ended(exit_code: int | None, timed_out: bool = False, fault: str = "") -> Ended:
    return Ended(stage="x", exit_code=exit_code, timed_out=timed_out, fault=fault, peak_bytes=None)


@pytest.mark.parametrize("state", sorted(ACTIVE))
@pytest.mark.parametrize("files", [None, left(0)])
def test_a_job_that_goes_on_has_not_ended_whatever_lies_there(state: str, files: Left | None) -> None:
    assert how_it_ended("x", row(state), files, late=True) is None


@pytest.mark.parametrize("state", sorted(BY_SLURM))
@pytest.mark.parametrize("files", [None, left(0), left(3)])
@pytest.mark.parametrize("listed", [True, False])
def test_what_slurm_ended_never_passes_and_keeps_its_word(state: str, files: Left | None, listed: bool) -> None:
    assert how_it_ended("x", row(state, listed), files, late=False) == ended(None, fault=f"Slurm says {state} of job 7")


@pytest.mark.parametrize("files", [None, left(0), left(-15)])
def test_slurms_time_limit_is_a_time_out_whatever_the_process_made_of_it(files: Left | None) -> None:
    assert how_it_ended("x", row("TIMEOUT"), files, late=False) == ended(None, timed_out=True)


@pytest.mark.parametrize(
    ("state", "files", "told"),
    [
        ("COMPLETED", left(0), ended(0)),
        ("FAILED", left(3), ended(3)),
        ("FAILED", left(-9), ended(-9)),
        ("FAILED", left(-15, timed_out=True), ended(-15, timed_out=True)),
        ("COMPLETED", left(3), ended(3, fault="Slurm says COMPLETED of job 7, but its process ended with 3")),
        ("FAILED", left(0), ended(0, fault="Slurm says FAILED of job 7, but its process ended with 0")),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_a_job_that_ended_by_itself_ended_as_its_launcher_says(
    state: str, files: Left, told: Ended, listed: bool
) -> None:
    assert how_it_ended("x", row(state, listed), files, late=False) == told


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
def test_files_may_be_late_but_not_for_ever(state: str) -> None:
    assert how_it_ended("x", row(state), None, late=False) is None
    fault = f"Slurm says {state} of job 7, and it left no exit status"
    assert how_it_ended("x", row(state), None, late=True) == ended(None, fault=fault)


@pytest.mark.parametrize("seen", [None, row("RUNNING", listed=False), row("PENDING", listed=False)])
def test_a_job_that_the_queue_has_lost_is_judged_by_its_files(seen: Row | None) -> None:
    """sacct keeps RUNNING where it never heard of the end."""
    assert how_it_ended("x", seen, None, late=False) is None
    assert how_it_ended("x", seen, left(0), late=False) == ended(0)
    fault = "Slurm does not know the job any more, and it left no exit status"
    assert how_it_ended("x", seen, None, late=True) == ended(None, fault=fault)


def test_a_word_of_a_newer_slurm_waits_while_listed_and_never_passes() -> None:
    assert how_it_ended("x", row("TELEPORTED"), left(0), late=True) is None
    fault = "Slurm says TELEPORTED of job 7"
    assert how_it_ended("x", row("TELEPORTED", listed=False), left(0), late=False) == ended(None, fault=fault)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("CANCELLED by 1000", "CANCELLED"),
        ("CANCELLED+", "CANCELLED"),
        (" completed ", "COMPLETED"),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
        ("OUT_OF_ME+", "OUT_OF_ME"),
        ("?", "?"),
    ],
)
def test_words_are_read_out_of_what_is_around_them(text: str, word: str) -> None:
    assert word_of(text) == word


@pytest.mark.parametrize("reason", sorted(NEVER_STARTS))
def test_waiting_for_what_will_not_come(reason: str) -> None:
    assert never_starts(row("PENDING", reason=reason)) and not never_starts(row("RUNNING", reason=reason))


@pytest.mark.parametrize("reason", ["Resources", "Priority", "None", "ReqNodeNotAvail", "BeginTime", "JobHeldUser"])
def test_waiting_for_what_may_come(reason: str) -> None:
    assert not never_starts(row("PENDING", reason=reason)) and goes_on(row("PENDING", reason=reason))


def test_of_two_jobs_of_a_name_the_one_that_goes_on_counts_then_the_one_that_ran() -> None:
    doubled, ran = row("FAILED", job="7"), row("COMPLETED", job="8")
    assert the_one([doubled, ran], "x.1", left(0, job="8")) == ran
    assert the_one([ran, doubled], "x.1", left(0, job="8")) == ran
    assert the_one([doubled, row("RUNNING", job="8")], "x.1", left(0, job="7")) == row("RUNNING", job="8")
    assert the_one([ran], "x.2", None) is None


def test_an_end_says_why_where_it_has_no_exit_code() -> None:
    with pytest.raises(ValueError, match="a bug: stage `x` ended without an exit code"):
        ended(None)
