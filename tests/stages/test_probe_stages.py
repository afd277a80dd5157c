"""The probes end to end at small sizes: fragile keys are found, a model without a key bias is ineligible."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from tests.stages.conftest import Ran, runner

MODELS = paths.ROOT / "data" / "models"
COMMON: dict[str, Any] = {
    "sixteen": "fp16",
    "exchanges": [],
    "split": "development",
    "seed": 1,
    "documents": 3,
    "context_tokens": 250,
    "targets": 64,
    "batch": 3,
    "retrieval": {"items": 0, "context_tokens": 256},
    "answer_cap_tokens": 32,
}
PLANNED: dict[str, dict[str, Any]] = {
    "screen": {"recipes": ["ki8v4-d", "ki6v4-d"]},
    "asymmetry": {"recipes": ["k16v8-d", "k8v16-d"]},
    "layers": {
        "recipes": ["k16v8-d", "k8v8-d"],
        "exchanges": [
            {"name": "demoted", "base": "k16v8-d", "instead": "k8v8-d"},
            {"name": "repaired", "base": "k8v8-d", "instead": "k16v8-d"},
        ],
    },
    "prebias": {
        "recipes": ["k8v8-d", "prebias-k8v8-d", "prebias-k8v8-f"],
        "retrieval": {"items": 10, "context_tokens": 500},
    },
}


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Ran]:
    """Every probe on both models, by (probe, model)."""
    run = runner(tmp_path_factory.mktemp("probed"))
    found = {}
    for model in ("robust", "fragile"):
        asked = {"model": model, "sixteen": "fp16", "documents": 2, "check_documents": 2, "contexts_tokens": [250]}
        made = run("calibrate", asked | {"decode_tokens": 8, "batch": 2, "seed": 1}, {"model": MODELS / model})
        assert made.code == 0, made.stderr
        given = {"model": MODELS / model, "scales": made.directory / "scales.json"}
        for probe, planned in PLANNED.items():
            found[probe, model] = run("probe", {**COMMON, "probe": probe, "model": model, **planned}, given)
            assert found[probe, model].code == 0, found[probe, model].stderr
    return found


@pytest.fixture(scope="module")
def findings(probed: dict[tuple[str, str], Ran], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What stages/probes.py concludes from all of them."""
    inputs = {f"{probe}.{model}": ran.directory / "records.jsonl" for (probe, model), ran in probed.items()}
    params = {"screen": {"coarse": "ki6v4-d", "fine": "ki8v4-d"}, "layers": {"high": "k16v8-d", "low": "k8v8-d"}}
    ran = runner(tmp_path_factory.mktemp("concluded"))("probes", params, inputs)
    assert ran.code == 0, ran.stderr
    return ran.records("probe_finding")


def one(findings: list[dict[str, Any]], model: str, quantity: str, arm: str) -> dict[str, Any]:
    """The only finding of that name."""
    found = [each for each in findings if (each["model"], each["quantity"], each["arm"]) == (model, quantity, arm)]
    assert len({(each["value"], each["reason"]) for each in found}) == 1
    return found[0]


def test_the_screen_flags_the_fragile_model_alone(findings: list[dict[str, Any]]) -> None:
    pair = "ki6v4-d / ki8v4-d"
    assert one(findings, "fragile", "error_ratio", pair)["label"] == "flagged"
    assert one(findings, "robust", "error_ratio", pair)["label"] == "not flagged"


def test_keys_break_it_and_values_do_not(findings: list[dict[str, Any]]) -> None:
    assert one(findings, "fragile", "relative_loss_change", "k8v16-d")["label"] == "catastrophic"
    for model, arm in (("fragile", "k16v8-d"), ("robust", "k8v16-d"), ("robust", "k16v8-d")):
        assert one(findings, model, "relative_loss_change", arm)["label"] == "tolerant"


def test_single_layers(findings: list[dict[str, Any]], probed: dict[tuple[str, str], Ran]) -> None:
    costs = [one(findings, "fragile", "cost_of_demotion", f"demoted-{layer}")["value"] for layer in range(4)]
    share = one(findings, "fragile", "concentration", "k8v8-d in k16v8-d")
    worst = costs.index(max(costs))
    assert share["label"] == f"layer {worst}" and share["value"] == pytest.approx(
        max(costs) / sum(max(c, 0) for c in costs)
    )
    assert one(findings, "fragile", "recovery", f"repaired-{worst}")["value"] > 0.5
    quiet = one(findings, "robust", "recovery", "repaired-0")
    assert quiet["value"] is None and "nothing to recover" in quiet["reason"]
    arms = {arm["arm"]: arm for arm in probed["layers", "fragile"].records("probe_arm")}
    assert (arms["demoted-2"]["recipe"], arms["demoted-2"]["layer"]) == ("k16v8-d", 2)
    assert arms["demoted-2"]["layer_recipe"] == "k8v8-d"


def test_prebias_repairs_retrieval_where_there_is_a_bias(
    findings: list[dict[str, Any]], probed: dict[tuple[str, str], Ran]
) -> None:
    repaired = one(findings, "fragile", "retrieval_recovery", "prebias-k8v8-d / k8v8-d")
    assert (repaired["value"], repaired["label"]) == (1.0, "substantial")
    assert one(findings, "fragile", "retrieval_accuracy", "k8v8-d")["value"] < 0.8
    assert one(findings, "fragile", "retrieval_accuracy", "prebias-k8v8-d")["value"] == 1.0
    refused = one(findings, "robust", "relative_loss_change", "prebias-k8v8-d")
    assert (refused["value"], refused["label"]) == (None, "ineligible")
    assert "the model has 0" in refused["reason"]
    assert not [text for text in probed["prebias", "robust"].records("probe_text") if "prebias" in text["arm"]]


def test_the_oracle_judges_prebias_too(probed: dict[tuple[str, str], Ran], run_stage: Callable[..., Ran]) -> None:
    scales = probed["prebias", "fragile"].directory.parent / "calibrate-5" / "scales.json"
    params = {"model": "fragile", "sixteen": "fp16", "context_tokens": 60, "batch": 2, "seed": 1}
    recipes = ["prebias-k8v8-d", "prebias-k8v8-f"]
    ran = run_stage("oracle", params | {"recipes": recipes}, {"model": MODELS / "fragile", "scales": scales})
    assert ran.code == 0, ran.outcome.reason
    cases = ran.records("oracle_case")
    rotated = [case for case in cases if case["quantity"] == "key_offset"]
    assert len(rotated) == 8 and all(case["within"] and case["peak_error"] > 0 for case in rotated)
    faults = {case["mutation"] for case in cases if case["caught"]}
    assert {"bias_forgotten", "bias_late", "pages_swapped", "one_slot_too_many"} <= faults


def test_an_arm_that_saw_other_texts_is_no_pair(
    probed: dict[tuple[str, str], Ran], tmp_path: Path, run_stage: Callable[..., Ran]
) -> None:
    lines = (probed["screen", "robust"].directory / "records.jsonl").read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if "probe_text" in line and '"ki8v4-d"' in line)
    cut = tmp_path / "records.jsonl"
    cut.write_text("".join(lines[:at] + lines[at + 1 :]))
    ran = run_stage("probes", {"screen": {"coarse": "ki6v4-d", "fine": "ki8v4-d"}}, {"screen.robust": cut})
    assert ran.code == 1 and "arm `ki8v4-d` did not see the texts that native saw" in ran.outcome.reason
