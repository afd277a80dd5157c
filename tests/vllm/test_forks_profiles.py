"""The profiles of the published forks: what each runs, what a rule keeps from running, and with which engines."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from kassay import paths, plan
from kassay.backend.vllm_arguments import cell_of, engine_arguments
from kassay.config import compose, kconfig
from tests.config.test_profiles import planned
from tests.stages.conftest import runner

DECODE_ONLY = ("decode", "decode-full", "decode-sat", "decode-upstream")
CLOSED = {
    "prebias": "the line is closed and countersigned",
    "cartridge": "a connector of its own, which no stage drives",
}
TIMED = {  # arms -> role whose stack they run on
    "awq-8k-b32": {"native": "native", "compact": "preceding", "candidate": "candidate"},
    "dense-8k-b32": {"native": "native", "compact": "preceding", "candidate": "candidate"},
    "dense-1k-b32": {
        "candidate": "candidate", "native-flashinfer": "native", "native-fa3": "native", "compact": "preceding",
    },
    "b32-matrix": {"native": "native", "k16v8": "candidate"},
}  # fmt: skip
UNTIMED = {
    "worker": "quality precedes timing",
    "october-b8": "its three arms are of two forks",
    "d64-repair": "below the floor",
}


def given(profile: str, folder: Path) -> plan.Plan:
    """The plan of a profile with a checkpoint and the argument that takes its scales."""
    (folder / "model").mkdir(exist_ok=True)
    told = {
        "WORKER_MODEL": str(folder / "model"),
        "WORKER_SCALES_ARGUMENT": "kv_scales_file",
    }  # fmt: skip
    kconfig.load_profile(profile, told, folder / ".config")
    settings = kconfig.load(folder / ".config")
    return plan.build(profile, "worker", compose.compose(paths.place(f"{paths.WORKFLOWS}/worker"), settings, []))


def stages(made: plan.Plan) -> dict[str, Any]:
    """Stages by name."""
    return {stage.name: stage for stage in made.stages}


@pytest.mark.parametrize("profile", [*DECODE_ONLY, *CLOSED, *TIMED, *UNTIMED])
def test_without_a_checkpoint_nothing_that_serves_a_request_runs_and_the_plan_says_why(
    profile: str, tmp_path: Path
) -> None:
    found = stages(planned(profile, tmp_path / ".config", []))
    reason = found["check"].stop
    if profile in DECODE_ONLY:
        assert reason.startswith("decode-only: this vLLM raises NotImplementedError at the prefill")
        assert found["timing"].stop.startswith("decode-only")
    elif profile in CLOSED:
        assert CLOSED[profile] in reason and CLOSED[profile] in found["timing"].stop
    else:
        assert reason.startswith("no checkpoint is given: WORKER_MODEL=<folder>")
    assert not found["device"].stop and "check" in found["timing"].needs()


@pytest.mark.parametrize("profile", [*TIMED, *UNTIMED])
def test_with_a_checkpoint_the_engine_is_checked_and_timed_where_the_study_says(profile: str, tmp_path: Path) -> None:
    found = stages(given(profile, tmp_path))
    check, timing = found["check"], found["timing"]
    assert not check.stop and {"stack", "model"} <= set(check.inputs)
    assert check.inputs["scales"] == timing.inputs["scales"] == "calibrate.scales"
    params = check.params
    cell = cell_of(params["engine"], model="m", dummy=False, recipe=params["recipe"], attention="fork", scales="s",
                   observe=(), calibrate=False, seed=1, variables=params["variables"])  # fmt: skip
    made = engine_arguments(cell)
    assert made["kv_cache_dtype"] == ("auto", "fp8_e4m3") and made["kv_scales_file"] == "s"
    assert ("VLLM_COMPACT_PREFILL", "1") in cell.variables
    if profile in UNTIMED:
        assert UNTIMED[profile] in timing.stop
        return
    assert not timing.stop and timing.exclusive
    assert {arm: body["role"] for arm, body in timing.params["arms"].items()} == TIMED[profile]
    roles = {name.partition(".")[2] for name in timing.inputs if name.startswith("stacks.")}
    assert roles >= set(TIMED[profile].values()), "an arm's stack is not an input of its timing"
    assert found["ratio"].params["control"] in timing.params["arms"]


@pytest.mark.parametrize("profile", TIMED)
def test_every_timed_arm_of_a_fork_makes_an_engine(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(paths.ROOT / "stages"))
    import vllm_timing_cell

    params = stages(given(profile, tmp_path))["timing"].params
    for arm in params["arms"]:
        stage = SimpleNamespace(params={**params, "arm": arm}, inputs={"model": "m", "scales": "s"})
        cell = vllm_timing_cell.cell(stage)
        made = engine_arguments(cell)
        native = params["arms"][arm]["recipe"] == "native"
        assert made["kv_cache_dtype"] == ("auto" if native else ("auto", "fp8_e4m3")) and not cell.dummy
        assert cell.pool_bytes >= 32 * cell.sequence_tokens * 36 * 4096, "the native arm of Qwen3-8B would preempt"


def test_the_reference_environment_is_that_of_the_reference_workflow(tmp_path: Path) -> None:
    pins = yaml.safe_load((paths.ROOT / "workflows" / "reference" / "stack" / "torch.yaml").read_text())
    params = stages(given("worker", tmp_path))["freeze-reference"].params
    assert params["requirements"] == pins["requirements"] and params["modules"] == pins["modules"]


def test_a_fork_without_the_argument_that_takes_its_scales_is_refused(tmp_path: Path) -> None:
    engine = stages(given("worker", tmp_path))["check"].params["engine"] | {"scales_argument": ""}
    cell = cell_of(engine, model="m", dummy=False, recipe="k16v8-f", attention="fork", scales="s", observe=(),
                   calibrate=False, seed=1)  # fmt: skip
    with pytest.raises(Exception, match="needs scales and the engine argument that takes them"):
        engine_arguments(cell)


def test_the_check_is_unmet_without_vllm(tmp_path: Path) -> None:
    (tmp_path / "scales.json").write_text(json.dumps({"scales": {}}))
    ran = runner(tmp_path)("vllm_check", {"engine": {}}, {"scales": tmp_path / "scales.json"})
    assert ran.code == 4 and "vLLM is not installed" in ran.outcome.reason
