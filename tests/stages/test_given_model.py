"""A checkpoint that is not ours through calibrate, oracle, quality and memory: its tokenizer, its compute type."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kassay import paths
from tests import given

BACKEND = {"checkpoint": "given", "compute": "fp32", "gpus": 0}
RECIPES = ["native", "k16v8-f", "k16v8-d", "k8v16-f", "k8v16-d", "k8v8-f", "k8v8-d"]
CALIBRATE: dict[str, Any] = {
    "model": "given",
    "sixteen": "fp16",
    "backend": BACKEND,
    "documents": 2,
    "check_documents": 2,
    "contexts_tokens": [60, 100],
    "decode_tokens": 8,
    "batch": 2,
    "seed": 1,
}
ORACLE = {"model": "given", "sixteen": "fp16", "backend": BACKEND, "recipes": RECIPES, "context_tokens": 70, "seed": 2}
QUALITY: dict[str, Any] = {
    "model": "given",
    "sixteen": "fp16",
    "backend": BACKEND,
    "recipes": ["native", "k16v8-f", "k8v8-d"],
    "split": "development",
    "seed": 1,
    "batch": 3,
    "answer_cap_tokens": 6,
    "endpoints": {
        "retrieval-short": {"measure": "retrieval", "items": 5, "context_tokens": 300},
        "retrieval-long": {"measure": "retrieval", "items": 4, "context_tokens": 400},
        "arithmetic": {"measure": "arithmetic", "items": 3, "context_tokens": 150},
        "nll-short": {"measure": "nll", "documents": 2, "context_tokens": 60, "targets": 8},
        "nll-long": {"measure": "nll", "documents": 2, "context_tokens": 120, "targets": 8},
    },
}


def asked(params: dict[str, Any], compute: str, gpus: int = 0, checkpoint: str = "given") -> dict[str, Any]:
    """The params in another compute type; 16 bits are those of the type where it has them."""
    sixteen = compute if compute != "fp32" else "fp16"
    return {**params, "sixteen": sixteen, "backend": {"checkpoint": checkpoint, "compute": compute, "gpus": gpus}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return given.save(tmp_path_factory.mktemp("models") / "snapshot", begin=True)


@pytest.fixture
def calibrated(run_stage: Callable[..., Any], folder: Path) -> Callable[..., Path]:
    def scales(compute: str, gpus: int = 0) -> Path:
        ran = run_stage("calibrate", asked(CALIBRATE, compute, gpus), {"model": folder}, gpus=gpus)
        assert ran.code == 0, ran.stderr
        (backend,) = ran.records("backend")
        assert backend["architecture"] == "Qwen2ForCausalLM" and backend["text"] == "Qwen2Tokenizer"
        named = {"fp32": "torch.float32", "fp16": "torch.float16", "bf16": "torch.bfloat16"}
        assert backend["compute_dtype"] == named[compute] and (backend["device"] == "cpu") == (not gpus)
        found = ran.records("scale")
        assert {body["component"] for body in found} == {"k", "v", "k_residual"}
        tokens = 2 * (60 + 8 - 1) + 2 * (100 + 8 - 1)  # the last target is not fed
        assert {body["elements"] for body in found} == {tokens * 2 * 32}
        return Path(ran.directory / "scales.json")

    return scales


@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_every_stage_of_the_study(
    compute: str, run_stage: Callable[..., Any], folder: Path, calibrated: Callable[..., Path]
) -> None:
    inputs = {"model": folder, "scales": calibrated(compute)}
    held = run_stage("oracle", {**asked(ORACLE, compute), "batch": 2}, inputs)
    assert held.code == 0, held.outcome.reason
    clean = [body for body in held.records("oracle_case") if body["mutation"] is None]
    assert ("read" in {body["quantity"] for body in clean}) == (compute != "fp32")
    own = [body["tolerance"] for body in clean if (body["case"], body["quantity"]) == ("chunk", "output")]
    replayed = {body["tolerance"] for body in clean if (body["case"], body["quantity"]) == ("replay", "output")}
    assert replayed == {2e-5} and (max(own) == 2e-5 if compute == "fp32" else min(own) > 4e-4)
    ran = run_stage("quality", asked(QUALITY, compute), inputs)
    assert ran.code == 0, ran.stderr
    answers, losses = ran.records("answer"), ran.records("document_loss")
    assert len(answers) == 3 * (5 + 4 + 3) and len(losses) == 3 * (2 + 2)
    assert {body["task"] for body in answers} == {"retrieval-short", "retrieval-long", "arithmetic"}
    assert {(body["context_tokens"], len(body["loss_nats"])) for body in losses} == {(60, 8), (120, 8)}
    stored = {body["recipe"]: body["key_dtype"] for body in ran.records("arm_storage")}
    assert stored["native"] == ("torch.bfloat16" if compute == "bf16" else "torch.float16")
    lengths = ran.records("item_length")
    assert {(body["task"], body["planned_tokens"]) for body in lengths} == {
        ("retrieval-short", 300),
        ("retrieval-long", 400),
        ("arithmetic", 150),
    }
    assert len(lengths) == 5 + 4 + 3 and all(body["context_tokens"] > 100 for body in lengths)


def test_memory_agrees_with_the_geometry(
    run_stage: Callable[..., Any], folder: Path, calibrated: Callable[..., Path]
) -> None:
    params = {name: ORACLE[name] for name in ("model", "sixteen", "backend", "recipes", "context_tokens", "seed")}
    params |= {"batch": 2, "budget_mib": 1, "device_ceiling_gib": 0, "reserved_ceiling_gib": 0}
    ran = run_stage("memory", params, {"model": folder, "scales": calibrated("fp32")})
    assert ran.code == 0, ran.outcome.reason
    parts = {(body["recipe"], body["part"]): body["payload_bytes"] for body in ran.records("memory_part")}
    assert parts["k16v8-d", "values"] == 2 * 70 * 2 * 2 * 32


def test_the_shipped_models_answer_as_without_a_backend(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    """Bit for bit: `backend` says what is done without it, and adds a record."""
    robust = paths.ROOT / "data" / "models" / "robust"
    plain = {name: value for name, value in QUALITY.items() if name != "backend"} | {"model": "robust"}
    ran = [
        run_stage("quality", params, {"model": robust, "scales": robust_scales})
        for params in (plain, asked(plain, "fp32", checkpoint="shipped"))
    ]
    assert all(one.code == 0 for one in ran), ran[1].stderr
    lines = [(one.directory / paths.RECORDS).read_text().splitlines() for one in ran]
    assert lines[0] == [line for line in lines[1] if json.loads(line)["schema"] != "kassay.backend/1"]
    assert len(lines[1]) == len(lines[0]) + 1 and ran[1].records("backend")[0]["text"] == "characters"
    assert not ran[1].records("item_length")


def test_what_recipes_do_not_cover_is_refused_by_name_before_weights_are_read(
    run_stage: Callable[..., Any], tmp_path: Path
) -> None:
    windowed = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0}
    model = given.save(tmp_path / "windowed", **windowed)
    (model / "model.safetensors").unlink()
    ran = run_stage("calibrate", CALIBRATE, {"model": model})
    assert ran.code == 1 and "sliding" in ran.outcome.reason


def test_what_a_checkpoint_lacks_is_said_by_name(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    ran = run_stage("calibrate", CALIBRATE, {"model": given.save(tmp_path / "mute", words=False)})
    assert ran.code == 4 and "mute: no tokenizer lies beside the weights" in ran.outcome.reason
    (tmp_path / "empty").mkdir()
    ran = run_stage("calibrate", CALIBRATE, {"model": tmp_path / "empty"})
    assert ran.code == 1 and "has no config.json" in ran.outcome.reason
    short = given.save(tmp_path / "short", max_position_embeddings=64)
    ran = run_stage("calibrate", CALIBRATE, {"model": short})
    assert ran.code == 1 and "the model has 64 positions, and 108 tokens are asked for" in ran.outcome.reason


def test_scales_of_other_weights_are_refused(
    run_stage: Callable[..., Any], calibrated: Callable[..., Path], tmp_path: Path
) -> None:
    other = given.save(tmp_path / "snapshot", seed=2, begin=True)
    ran = run_stage("quality", QUALITY, {"model": other, "scales": calibrated("fp32")})
    assert ran.code == 1 and "calibrated on another model" in ran.outcome.reason


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_torch_does_not_see_is_unmet(run_stage: Callable[..., Any], folder: Path) -> None:
    ran = run_stage("calibrate", asked(CALIBRATE, "bf16", 1), {"model": folder}, gpus=1)
    assert ran.code == 4 and "sees none" in ran.outcome.reason


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this host")
@pytest.mark.parametrize("compute", ["fp32", "fp16", "bf16"])
def test_every_stage_on_a_gpu(
    compute: str, run_stage: Callable[..., Any], folder: Path, calibrated: Callable[..., Path]
) -> None:
    inputs = {"model": folder, "scales": calibrated(compute, 1)}
    held = run_stage("oracle", {**asked(ORACLE, compute, 1), "batch": 2}, inputs, gpus=1)
    assert held.code == 0, held.outcome.reason
    ran = run_stage("quality", asked(QUALITY, compute, 1), inputs, gpus=1)
    assert ran.code == 0, ran.stderr
    (backend,) = ran.records("backend")
    assert backend["device"] == torch.cuda.get_device_name(0)
