"""The workflow of the reference execution: the shipped models, or the checkpoint that MODEL names."""

from pathlib import Path

import pytest

from kassay import plan
from kassay.config import kconfig
from kassay.errors import ConfigError, PlanError

PROFILE = "reference-seven-arm"
OF_MODELS = {"calibrate", "oracle", "quality", "memory"}


def planned(config: Path, **symbols: str) -> plan.Plan:
    kconfig.load_profile(PROFILE, symbols, config)
    return plan.of_settings(kconfig.load(config), [])


def by_name(made: plan.Plan) -> dict[str, plan.Stage]:
    return {stage.name: stage for stage in made.stages}


def test_seven_arms_on_two_models_without_anything_of_speed(tmp_path: Path) -> None:
    found = by_name(planned(tmp_path / ".config"))
    assert set(found) == {f"{name}.{model}" for name in OF_MODELS for model in ("robust", "fragile")} | {
        "freeze",
        "build",
        "certify",
        "direct",
        "report",
    }
    quality = found["quality.fragile"]
    assert quality.params["backend"] == {"checkpoint": "shipped", "compute": "fp32", "gpus": 0}
    assert len(quality.params["recipes"]) == 7 and len(quality.params["endpoints"]) == 5
    assert quality.inputs["model"] == "tree:data/models/fragile" and quality.gpus == 0
    assert found["calibrate.robust"].params["contexts_tokens"] == [500, 1000]
    study = found["certify"].params["study"]
    assert study["alpha"] * study["certificates"]["slots"] == pytest.approx(0.025)


def test_model_takes_any_folder_and_gpus_reach_every_stage_that_runs_it(tmp_path: Path) -> None:
    folder = tmp_path / "snapshot"
    folder.mkdir()
    made = planned(tmp_path / ".config", MODEL=str(folder), REFERENCE_GPUS="1", MODEL_COMPUTE_FP16="y")
    found = by_name(made)
    for name in OF_MODELS:
        stage = found[f"{name}.given"]
        assert stage.inputs["model"] == f"tree:{folder}" and stage.gpus == 1 and stage.host_needs() == {"gpus": 1}
        assert stage.params["backend"] == {"checkpoint": "given", "compute": "fp16", "gpus": 1}
        assert stage.params["sixteen"] == "fp16"
    assert found["calibrate.given"].params["contexts_tokens"] == [1024, 8192]
    study = made.config["study"]
    assert study["alpha"] * study["certificates"]["slots"] == pytest.approx(0.025)
    assert study["certificates"]["slots"] == 6 and "expected" not in study


def test_a_folder_that_is_not_there_is_an_error_of_the_plan(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="does not exist"):
        planned(tmp_path / ".config", MODEL=str(tmp_path / "nowhere"))


def test_what_is_about_a_given_model_needs_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="MODEL_LONG_CONTEXT_TOKENS"):
        planned(tmp_path / ".config", MODEL_LONG_CONTEXT_TOKENS="2048")
