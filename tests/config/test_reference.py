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


def test_files_of_tasks_change_endpoints_and_inputs_and_without_them_nothing_changes(tmp_path: Path) -> None:
    problems, documents = tmp_path / "problems.jsonl", tmp_path / "documents.jsonl"
    for path in (problems, documents):
        path.write_text("{}\n")
    asked = {"MODEL": str(tmp_path), "MODEL_PROBLEMS_FILE": str(problems), "MODEL_PROBLEMS": "100"}
    plain = planned(tmp_path / ".config", MODEL=str(tmp_path))
    assert plain.hash() == planned(tmp_path / ".config", MODEL=str(tmp_path), MODEL_PROBLEMS_FILE="").hash()
    assert set(by_name(plain)["quality.given"].inputs) == {"stack", "model", "scales", "numerics"}
    made = planned(tmp_path / ".config", **asked, MODEL_DOCUMENTS_FILE=str(documents))
    quality = by_name(made)["quality.given"]
    assert quality.inputs["problems"] == f"tree:{problems}" and quality.inputs["documents"] == f"tree:{documents}"
    endpoints = quality.params["endpoints"]
    assert endpoints["arithmetic"] == {
        "measure": "gsm8k", "items": 100, "context_tokens": None, "data": "problems", "answer_cap_tokens": 2048,
    }  # fmt: skip
    assert [endpoints[name].get("data") for name in ("nll-short", "nll-long", "retrieval-long")] == [
        "documents", "documents", None,
    ]  # fmt: skip
    assert made.protocol() != plain.protocol() and made.config["study"]["gates"] == plain.config["study"]["gates"]
    assert [stage.name for stage in made.stages] == [stage.name for stage in plain.stages]
    problems.unlink()
    with pytest.raises(PlanError, match=r"problems.jsonl.* does not exist"):
        planned(tmp_path / ".config", **asked)


def test_what_is_about_a_given_model_needs_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="MODEL_LONG_CONTEXT_TOKENS"):
        planned(tmp_path / ".config", MODEL_LONG_CONTEXT_TOKENS="2048")
