"""Profiles for a GPU on a host without one: what asks for it is unmet, what needs its result blocked, exit code 4."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from kassay import digest, needs, paths
from kassay.engine import Ended, Grant, Job
from kassay.errors import EXIT_PASSED, EXIT_UNMET
from kassay.outcome import Artifact, Outcome
from kassay.plan import Plan
from kassay.run import Run
from tests.config.test_profiles import planned
from tests.conftest import Silent, setup_of
from tests.engine.fake import HoldsNothing

NATIVE = {
    "unmet": {"device", "oracle", "memory"},
    "blocked": {"timing", "contrast", "sweep", "saturation"},
    "passed": {"freeze", "build", "compile", "calibrate", "report"},
}
ENDS = {
    "native-smoke": NATIVE,
    "decode-native": NATIVE,
    "cartridge-native": NATIVE,
    "int4-fusion": {"unmet": {"device", "grid"}, "blocked": {"law"}, "passed": {"freeze", "build", "report"}},
    "vllm-smoke": {"unmet": {"build"}, "blocked": {"calibrate", "smoke"}, "passed": {"freeze", "report"}},
    "vllm-release": {
        "unmet": {"build"},
        "blocked": {"calibrate", "smoke", "scales", "memory", "timing", "ratio", "sweep", "saturation"},
        "passed": {"freeze", "report"},
    },
    "vllm-serving": {
        "unmet": {"build", "build-tool"},
        "blocked": {"calibrate", "smoke", "scales", "serving", "verdict", "check-vllm", "check-aiperf"},
        "passed": {"freeze", "freeze-tool", "report"},
    },
    "vllm-study": {
        "unmet": {"build"},
        "blocked": {
            "calibrate", "smoke", "scales.robust", "scales.fragile", "quality.robust", "quality.fragile", "certify",
            "memory", "timing", "contrast", "ratio",
        },
        "passed": {"freeze", "report"},
    },
    "decode-upstream": {
        "unmet": {"device"}, "blocked": {"check", "timing"}, "passed": {"freeze", "build.candidate", "report"},
    },
}  # fmt: skip


class Judging(HoldsNothing):
    """Judges a job's needs as its program does at first; one that asks for no GPU is taken to have passed."""

    token = "judging"

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ended: list[Ended] = []

    def grant(self, job: Job) -> Grant:
        return Grant(cpus=job.cpus, memory_gib=job.memory_gib, gpus=0, exclusive=job.exclusive, gpu_ids=())

    def waits_for(self, job: Job) -> str:
        raise AssertionError(f"`{job.stage}` waits")

    def start(self, job: Job, grant: Grant) -> None:
        request = json.loads((job.directory / paths.REQUEST).read_bytes())
        lacks = needs.lacks(request["host"]) if "gpus" in request["host"] else []
        left = {} if lacks else {name: artifact(job.directory, name) for name in self.plan.read_of(job.stage)}
        Outcome(
            stage=job.stage, run=job.directory.parents[1].name, word="unmet" if lacks else "passed",
            reason="; ".join(lacks), metrics={}, artifacts=left, started_at="2026-01-01T00:00:00.000Z", duration_s=0.0,
            attempt=1, grant=request["grant"],
        ).save(job.directory)  # fmt: skip
        code = EXIT_UNMET if lacks else EXIT_PASSED
        self.ended.append(Ended(stage=job.stage, exit_code=code, timed_out=False, fault="", peak_bytes=None))

    def poll(self) -> list[Ended]:
        ended, self.ended = self.ended, []
        return ended

    def cancel(self) -> None:
        pass


def artifact(directory: Path, name: str) -> Artifact:
    """A file that another stage reads; of a stack the interpreter is read."""
    path = directory / f"{name}.json"
    digest.write_json(path, {"python": "python"})
    return Artifact(file=path.name, sha256=digest.of_file(path), bytes=path.stat().st_size)


@pytest.mark.parametrize("profile", ENDS)
def test_what_asks_for_a_gpu_is_unmet_and_what_is_below_it_blocked(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("this host has no network")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("kassay.run.short_of_disk", lambda directory, wanted_gib: "")  # the disk is another lack
    plan = planned(profile, tmp_path / ".config", [])
    run = Run(plan, setup_of(tmp_path / "results", "python", 1), Judging(plan))
    assert run.go(Silent()) == EXIT_UNMET
    found: dict[str, set[str]] = {}
    for name, made in run.outcomes.items():
        found.setdefault(made.word, set()).add(name)
    assert found == ENDS[profile]
    for name in found["unmet"]:
        assert run.outcomes[name].reason.startswith("1 GPU is needed"), run.outcomes[name].reason
    for name in found["blocked"]:
        stage = plan.stage(name)
        above = {needed: run.outcomes[needed].word for needed in stage.needs()}
        lacking = "; ".join(f"`{needed}` was {word}" for needed, word in above.items() if word != "passed")
        assert run.outcomes[name].reason == (stage.stop or lacking)
