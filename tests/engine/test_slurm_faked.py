"""The Slurm engine against commands that answer as the test says: every turn that a cluster can take."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.engine import Ended, Job, slurm
from kassay.engine.attempt import held_attempt
from kassay.engine.launcher import CLAIM, EXIT, JOB
from kassay.engine.slurm import SlurmEngine
from kassay.errors import RunError
from tests.engine.conftest import Faked
from tests.engine.fake import job, start, until


def attempt_of(asked: Job) -> Path:
    """The directory in which the job runs."""
    found = held_attempt(asked.directory)
    assert found is not None
    return found.directory


def leave(directory: Path, exit_code: int = 0, timed_out: bool = False) -> None:
    """What the launcher leaves."""
    told = {"job": "7", "node": "n1", "exit_code": exit_code, "timed_out": timed_out}
    (directory / EXIT).write_text(json.dumps(told))


def polled(engine: SlurmEngine, times: int = 3) -> list[Ended]:
    """What some polls tell."""
    return [ended for _ in range(times) for ended in engine.poll()]


def at_last(engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch) -> Ended:
    """The one end that is told when what was awaited is late."""
    monkeypatch.setattr(slurm, "LATE_S", 0.0)
    ended: list[Ended] = []

    def told() -> bool:
        ended.extend(engine.poll())
        return bool(ended)

    until(told)
    assert len(ended) == 1
    return ended[0]


@pytest.fixture
def started(faked: Faked, tmp_path: Path) -> tuple[SlurmEngine, Job]:
    """An engine and its one job, which waits in the queue."""
    engine, asked = faked.engine(), job(tmp_path)
    start(engine, asked)
    return engine, asked


Started = tuple[SlurmEngine, Job]


def test_what_is_submitted(faked: Faked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SBATCH_ARRAY_INX", "SBATCH_WAIT", "SQUEUE_STATES", "SLURM_MEM_PER_CPU"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_CONF", "/there/slurm.conf")
    monkeypatch.setenv("HF_TOKEN", "hush")
    engine = SlurmEngine(max_cpus=0, partition="gpu", account="lab;rm", poll_s=0.0)
    asked = replace(job(tmp_path, exclusive=True, timeout_s=61.0), cpus=3, memory_gib=0.3)
    start(engine, asked)
    directory = attempt_of(asked)
    words = faked.calls()[0].split(" ")
    options = words[: words.index(str(slurm.LAUNCHER.with_name("batch.sh")))]
    assert set(options) == {
        "--parsable",
        "--no-requeue",
        "--export=ALL",
        "--nodes=1",
        "--ntasks=1",
        "--open-mode=append",
        f"--job-name={directory.name.removeprefix('.').replace('.attempt-', '.')}",
        f"--chdir={directory}",
        "--output=stdout.log",
        "--error=stderr.log",
        "--cpus-per-task=3",
        "--mem=308M",
        "--time=2",
        "--partition=gpu",
        "--account=lab;rm",
        "--exclusive",
    }
    environment = dict(line.partition("=")[::2] for line in (faked.folder / "environment").read_text().splitlines())
    assert environment["KASSAY_ERRAND"] == "of the job" and environment["HF_TOKEN"] == "hush"
    assert [name for name in environment if name.startswith(("SLURM_", "SBATCH_", "SQUEUE_"))] == ["SLURM_CONF"]
    told = json.loads((directory / JOB).read_text())
    assert told["id"] == "7" and str(directory) in told["argv"] and str(asked.directory) not in told["argv"]
    assert not any("hush" in path.read_text() for path in directory.iterdir())


@pytest.mark.parametrize(
    ("count", "asked_for", "on_the_node"), [(0, [], {"CUDA_VISIBLE_DEVICES": ""}), (2, ["--gres=gpu:2"], {})]
)
def test_gpus_are_slurms_to_give_and_the_drivers_own_do_not_travel(
    faked: Faked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, asked_for: list[str], on_the_node: Any
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "SBATCH_GRES", "SBATCH_GPUS", "KASSAY_JOB"):
        monkeypatch.setenv(name, "gpu:7")
    engine, asked = faked.engine(), job(tmp_path, gpus=count)
    granted = start(engine, asked)
    assert (granted.gpus, granted.gpu_ids) == (count, None)
    assert [word for word in faked.calls()[0].split(" ") if word.startswith("--g")] == asked_for
    told = dict(line.partition("=")[::2] for line in (faked.folder / "environment").read_text().splitlines())
    assert not {"CUDA_VISIBLE_DEVICES", "SBATCH_GRES", "SBATCH_GPUS", "KASSAY_JOB"} & set(told)
    assert json.loads((attempt_of(asked) / JOB).read_text())["environment"] == on_the_node


@pytest.mark.parametrize(
    "state",
    ["PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED", "REQUEUE_HOLD", "TELEPORTED"],
)
def test_what_goes_on_is_waited_for(started: Started, faked: Faked, state: str) -> None:
    engine, asked = started
    faked.say(state)
    leave(attempt_of(asked))
    assert polled(engine) == [] and not engine.grant(replace(asked, exclusive=True))


@pytest.mark.parametrize(
    ("state", "exit_code", "fault"),
    [
        ("COMPLETED", 0, ""),
        ("FAILED", 3, ""),
        ("CANCELLED", 0, "Slurm says CANCELLED of job 7"),
        ("NODE_FAIL", None, "Slurm says NODE_FAIL of job 7"),
        ("OUT_OF_MEMORY", 0, "Slurm says OUT_OF_MEMORY of job 7"),
        ("PREEMPTED", None, "Slurm says PREEMPTED of job 7"),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_how_a_job_ends(
    started: Started, faked: Faked, state: str, exit_code: int | None, fault: str, listed: bool
) -> None:
    """As squeue says, or, once squeue has forgotten the job, as sacct says."""
    engine, asked = started
    faked.say("RUNNING")
    assert polled(engine) == []
    directory = attempt_of(asked)
    if exit_code is not None:
        leave(directory, exit_code)
    if listed:
        faked.say(state)
    else:
        faked.forget()
        faked.account(f"7|{state} by 0\n7.batch|CANCELLED\n7.extern|COMPLETED\n")
    (ended,) = polled(engine)
    assert ended == Ended(
        stage=asked.stage, exit_code=None if fault else exit_code, timed_out=False, fault=fault, peak_bytes=None
    )
    assert not asked.directory.is_symlink() and not directory.exists() and not engine.holds(asked.directory)
    assert json.loads((asked.directory / JOB).read_text())["id"] == "7"


def test_a_time_out_of_slurm_is_one(started: Started, faked: Faked) -> None:
    engine, asked = started
    faked.say("TIMEOUT", "TimeLimit")
    assert polled(engine) == [Ended(stage=asked.stage, exit_code=None, timed_out=True, fault="", peak_bytes=None)]


@pytest.mark.parametrize("accounted", [None, "", "7|RUNNING\n"])
def test_without_an_end_anywhere_the_files_decide(started: Started, faked: Faked, accounted: str | None) -> None:
    """No accounting, an accounting that has nothing yet, and one that never heard of the end."""
    engine, asked = started
    faked.forget()
    faked.account(accounted)
    leave(attempt_of(asked), 4)
    assert polled(engine) == [Ended(stage=asked.stage, exit_code=4, timed_out=False, fault="", peak_bytes=None)]


@pytest.mark.parametrize("accounted", [None, "", "7|RUNNING\n"])
def test_without_an_end_and_without_files_it_crashed(
    started: Started, faked: Faked, monkeypatch: pytest.MonkeyPatch, accounted: str | None
) -> None:
    engine, asked = started
    faked.forget()
    faked.account(accounted)
    assert polled(engine) == [], "the files may be late"
    fault = "Slurm does not know the job any more, and it left no exit status"
    assert at_last(engine, monkeypatch) == Ended(
        stage=asked.stage, exit_code=None, timed_out=False, fault=fault, peak_bytes=None
    )


def test_late_files_are_waited_for(started: Started, faked: Faked) -> None:
    engine, asked = started
    faked.say("COMPLETED")
    assert polled(engine) == []
    (attempt_of(asked) / EXIT).write_text('{"job": "7", "node": "n1", "exit_c')
    assert polled(engine) == [], "half of it is none"
    leave(attempt_of(asked))
    assert polled(engine) == [Ended(stage=asked.stage, exit_code=0, timed_out=False, fault="", peak_bytes=None)]


def test_files_that_never_come_are_a_crash(started: Started, faked: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = started
    faked.say("COMPLETED")
    fault = "Slurm says COMPLETED of job 7, and it left no exit status"
    assert at_last(engine, monkeypatch) == Ended(
        stage=asked.stage, exit_code=None, timed_out=False, fault=fault, peak_bytes=None
    )


def test_time_to_be_late_starts_anew_when_a_job_goes_on_again(
    started: Started, faked: Faked, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = started
    now = [0.0]
    monkeypatch.setattr(slurm, "LATE_S", 0.3)
    monkeypatch.setattr(slurm.time, "monotonic", lambda: now[0])
    for state, at in (("COMPLETED", 1.0), ("RUNNING", 1.2), ("COMPLETED", 1.4), ("COMPLETED", 1.6)):
        now[0] = at
        faked.say(state)
        assert engine.poll() == []
    now[0] = 1.8
    assert len(engine.poll()) == 1


def test_a_queue_that_does_not_answer_ends_nothing(started: Started, faked: Faked) -> None:
    engine, asked = started
    faked.say("COMPLETED")
    leave(attempt_of(asked))
    (faked.folder / "silent").touch()
    assert polled(engine) == []
    (faked.folder / "silent").unlink()
    assert polled(engine) == [Ended(stage=asked.stage, exit_code=0, timed_out=False, fault="", peak_bytes=None)]


def test_a_queue_that_stays_silent_is_told_and_what_left_its_status_ends(
    started: Started, faked: Faked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, asked = started
    (faked.folder / "silent").touch()
    assert polled(engine) == [] and capsys.readouterr().err == ""
    leave(attempt_of(asked), 3)
    assert at_last(engine, monkeypatch) == Ended(
        stage=asked.stage, exit_code=3, timed_out=False, fault="", peak_bytes=None
    )
    assert "Slurm has not answered for" in (said := capsys.readouterr().err) and "Unable to contact" in said


@pytest.mark.parametrize("words", ["Invalid partition name specified", "Requested node configuration is not available"])
def test_what_sbatch_refuses_is_that_stages_crash(faked: Faked, tmp_path: Path, words: str) -> None:
    (faked.folder / "refusals").write_text(f"sbatch: error: {words}\n")
    engine, asked = faked.engine(), job(tmp_path)
    start(engine, asked)
    assert engine.poll() == [
        Ended(stage=asked.stage, exit_code=None, timed_out=False, fault="sbatch refused it", peak_bytes=None)
    ]
    assert (asked.directory / paths.STDERR).read_text() == f"sbatch: error: {words}\n"
    assert len(faked.calls()) == 1 and not asked.directory.is_symlink() and engine.grant(replace(asked, exclusive=True))


def test_a_submission_that_got_no_answer_is_sent_again(faked: Faked, tmp_path: Path) -> None:
    (faked.folder / "refusals").write_text("sbatch: error: Unable to contact slurm controller\n")
    engine, asked = faked.engine(), job(tmp_path)
    start(engine, asked)
    assert len(faked.calls()) == 2 and json.loads((attempt_of(asked) / JOB).read_text())["id"] == "7"


def test_a_submission_that_was_taken_without_an_answer_is_not_sent_again(faked: Faked, tmp_path: Path) -> None:
    (faked.folder / "refusals").write_text("sbatch: error: Socket timed out on send/recv operation\n")
    asked = job(tmp_path)
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr("kassay.engine.attempt.secrets.token_hex", lambda size: "ab12")
        (faked.folder / "taken").write_text("errand.ab12")
        start(faked.engine(), asked)
    assert len(faked.calls()) == 1 and json.loads((attempt_of(asked) / JOB).read_text())["id"] == "7"


def test_a_controller_that_never_answers_is_that_stages_crash(faked: Faked, tmp_path: Path) -> None:
    (faked.folder / "refusals").write_text("sbatch: error: Unable to contact slurm controller\n" * 9)
    engine, asked = faked.engine(), job(tmp_path)
    start(engine, asked)
    assert [ended.fault for ended in engine.poll()] == ["sbatch refused it"] and len(faked.calls()) == 3


def test_a_job_that_can_never_start_is_cancelled_and_says_why(started: Started, faked: Faked) -> None:
    engine, asked = started
    faked.say("PENDING", "Resources")
    assert polled(engine) == []
    faked.say("PENDING", "PartitionTimeLimit")
    fault = "Slurm never starts job 7: PartitionTimeLimit"
    assert polled(engine) == [Ended(stage=asked.stage, exit_code=None, timed_out=False, fault=fault, peak_bytes=None)]
    assert "scancel 7" in faked.calls()


def test_cancel_waits_until_the_job_is_gone(started: Started, faked: Faked) -> None:
    engine, asked = started
    faked.say("RUNNING")
    engine.cancel()
    assert "scancel 7" in faked.calls() and not engine.holds(asked.directory) and asked.directory.is_dir()


def test_a_job_that_stays_is_named_and_can_be_found_again(
    started: Started, faked: Faked, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, asked = started
    monkeypatch.setattr(slurm, "GONE_S", 0.2)
    (faked.folder / "deaf").touch()
    with pytest.raises(RunError) as caught:
        engine.cancel()
    assert caught.value.messages == ("Slurm has not ended job 7 in 0 s",) and "scancel" in str(caught.value.hint)
    assert faked.engine().holds(asked.directory)


def test_an_interrupted_submission_is_cancelled_by_its_name(
    faked: Faked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while sbatch runs: its answer is lost, the job is in the queue."""
    engine, asked = faked.engine(), job(tmp_path)
    real = slurm.cluster.submit

    def interrupted(*arguments: object) -> str:
        real(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(slurm.cluster, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            start(engine, asked)
    engine.cancel()
    assert "scancel 7" in faked.calls() and not engine.holds(asked.directory)


def test_the_next_driver_finds_the_job_again(started: Started, faked: Faked) -> None:
    _, asked = started
    directory = attempt_of(asked)
    faked.say("RUNNING")
    second = faked.engine()
    assert second.holds(asked.directory) and second.attach(asked) and polled(second) == []
    assert not second.grant(replace(asked, exclusive=True))
    leave(directory, 3)
    faked.say("FAILED")
    assert polled(second) == [Ended(stage=asked.stage, exit_code=3, timed_out=False, fault="", peak_bytes=None)]
    assert [call for call in faked.calls() if "job-name" in call] == faked.calls()[:1], "submitted once"


def never_submitted(asked: Job, faked: Faked) -> None:
    faked.forget()
    told = json.loads((attempt_of(asked) / JOB).read_text())
    (attempt_of(asked) / JOB).write_text(json.dumps({**told, "id": None}))


def died_before_job_json(asked: Job, faked: Faked) -> None:
    faked.forget()
    (attempt_of(asked) / JOB).unlink()


@pytest.mark.parametrize("how", [never_submitted, died_before_job_json])
def test_what_never_became_a_job_is_not_waited_for(
    started: Started, faked: Faked, how: Callable[[Job, Faked], None]
) -> None:
    _, asked = started
    how(asked, faked)
    second = faked.engine()
    assert second.holds(asked.directory) and not second.attach(asked)
    second.release(asked.directory)
    assert asked.directory.is_dir() and not asked.directory.is_symlink()


@pytest.mark.parametrize("sign", ["claim", "queue", "accounting", "silence"])
def test_a_job_whose_id_was_never_written_down_is_known_by_other_signs(
    started: Started, faked: Faked, sign: str
) -> None:
    _, asked = started
    if sign != "queue":
        faked.forget()
    told = json.loads((attempt_of(asked) / JOB).read_text())
    (attempt_of(asked) / JOB).write_text(json.dumps({**told, "id": None}))
    if sign == "claim":
        (attempt_of(asked) / CLAIM).touch()
    elif sign == "accounting":
        faked.account("7|RUNNING\n")
    elif sign == "silence":
        (faked.folder / "silent").touch()
    assert faked.engine().attach(asked)


def test_release_ends_a_job_that_nobody_asks_for_any_more(started: Started, faked: Faked) -> None:
    _, asked = started
    faked.say("RUNNING")
    second = faked.engine()
    second.release(asked.directory)
    assert "scancel 7" in faked.calls() and not second.holds(asked.directory) and asked.directory.is_dir()


@pytest.mark.parametrize("broken", ["after the first rename", "before the last"])
def test_a_driver_that_died_while_it_renamed_loses_nothing(started: Started, faked: Faked, broken: str) -> None:
    _, asked = started
    faked.say("COMPLETED")
    leave(attempt_of(asked))
    asked.directory.unlink()  # the link is not yet there, or no more
    second = faked.engine()
    assert second.holds(asked.directory) and second.attach(asked)
    assert [ended.exit_code for ended in polled(second)] == [0]
    assert (asked.directory / EXIT).exists() and os.listdir(asked.directory.parent) == [asked.stage]


def test_a_link_to_another_runs_result_is_no_job(faked: Faked, tmp_path: Path) -> None:
    other = tmp_path / "other" / "stages" / "errand"
    other.mkdir(parents=True)
    (other / JOB).write_text("{}")
    link = tmp_path / "stages" / "errand"
    link.parent.mkdir()
    link.symlink_to(os.path.relpath(other, link.parent))
    engine = faked.engine()
    assert not engine.holds(link)
    engine.release(link)
    assert link.is_symlink() and faked.calls() == []


def test_a_run_has_no_more_in_the_queue_than_it_may(faked: Faked, tmp_path: Path) -> None:
    engine = SlurmEngine(max_cpus=2, partition="", account="", poll_s=0.0)
    first, second, third = (job(tmp_path, stage) for stage in ("a", "b", "c"))
    start(engine, first)
    assert engine.grant(second) and not engine.grant(replace(second, cpus=2))
    start(engine, second)
    assert not engine.grant(third) and engine.waits_for(third) == "0 of 2 cores are free"
    unlimited = faked.engine()
    start(unlimited, third)
    assert unlimited.grant(replace(first, cpus=999, memory_gib=9999.0))


def test_the_queue_is_asked_at_its_period_and_sooner_once_a_status_is_there(
    faked: Faked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, asked = SlurmEngine(max_cpus=0, partition="", account="", poll_s=60.0), job(tmp_path)
    start(engine, asked)
    times = []
    monkeypatch.setattr(slurm.cluster, "queue", lambda: times.append(1) or [])
    monkeypatch.setattr(slurm.cluster, "accounted", lambda name: None)
    monkeypatch.setattr(slurm, "LATE_S", 1e9)
    assert polled(engine, 5) == [] and len(times) == 1
    leave(attempt_of(asked))
    assert len(polled(engine, 1)) == 1 and len(times) == 2
