"""The oracle stage from request to outcome on a tiny random model: it passes, and every planted defect rejects it."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from kassay import digest, loaded
from kassay import stage as frame
from kassay.backend import judging, reference
from kassay.backend.paged_cases import PAGE_FAULTS
from kassay.kinds.oracle import OracleCase
from kassay.kv import formats, plane
from kassay.kv.calibrate import SCHEMA, AmaxFold, by_component
from kassay.kv.mutation import MUTATIONS
from kassay.kv.recipe import RECIPES
from kassay.record import read_kind
from tests import tiny
from tests.tiny import torch_as_it_was  # noqa: F401  an autouse fixture

PROGRAM = Path(__file__).parents[2] / "stages" / "oracle.py"

HELD = [recipe for recipe in RECIPES if not recipe.prebias]  # the tiny model has no key bias
FAULTS = len(PAGE_FAULTS) + sum(any(mutation.applies(recipe) for recipe in HELD) for mutation in MUTATIONS)


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("oracle_stage", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The model's directory and its scales artifact."""
    folder = tmp_path_factory.mktemp("models")
    directory = tiny.save(folder, "tiny", Qwen3Config, Qwen3ForCausalLM)
    ids_BT = torch.randint(0, 128, (2, 64), generator=torch.Generator().manual_seed(2))
    fold = AmaxFold()
    for layer, pair in enumerate(reference.prefill(reference.load(directory, 1), ids_BT).operands):
        for component, operand in zip("kv", pair, strict=True):
            fold.add(component, layer, operand.numpy())
    made = {"schema": SCHEMA, "model": "tiny", "model_sha256": digest.of_path(directory), "sixteen": "fp16"}
    (folder / "scales.json").write_text(json.dumps({**made, "scales": by_component(fold.scales(2))}))
    return directory, folder / "scales.json"


@pytest.fixture
def execute(program, checkpoint, tmp_path, monkeypatch):
    """Run the stage through its frame; (exit code, outcome, verdict, records)."""

    def run(context_tokens=40, model_sha256=None):
        model, scales = checkpoint
        request = {
            "stage": "oracle.tiny",
            "run": "test",
            "run_dir": str(tmp_path),
            "params": {
                "model": "tiny",
                "sixteen": "fp16",
                "recipes": [recipe.name for recipe in HELD],
                "context_tokens": context_tokens,
                "batch": 2,
                "seed": 5,
            },
            "inputs": {
                "model": {"path": str(model), "sha256": model_sha256 or digest.of_path(model)},
                "scales": {"path": str(scales), "sha256": digest.of_file(scales)},
            },
            "attempt": 1,
            "grant": {"cpus": 1, "gpus": 0},
            "roots": [str(PROGRAM.parents[1])],
        }
        (tmp_path / "request.json").write_text(json.dumps(request))
        monkeypatch.setattr(sys, "argv", ["oracle.py", str(tmp_path)])
        monkeypatch.setattr(frame, "die_with_parent", lambda: None)
        monkeypatch.setattr(loaded, "packages", dict)
        with pytest.raises(SystemExit) as ended:
            frame.main(program.run)
        outcome = json.loads((tmp_path / "outcome.json").read_text())
        if not (tmp_path / "verdict.json").exists():
            return ended.value.code, outcome, None, []
        verdict = json.loads((tmp_path / "verdict.json").read_text())
        return ended.value.code, outcome, verdict, read_kind(tmp_path / "records.jsonl", OracleCase)

    return run


@pytest.mark.parametrize("context_tokens", [40, 200], ids=["document", "retrieval"])
def test_the_clean_tree_passes(execute, context_tokens):
    code, outcome, verdict, records = execute(context_tokens)
    assert (verdict["missed"], verdict["escaped"]) == ([], [])
    assert (code, verdict["passed"]) == (0, True)
    assert outcome["metrics"]["mutations caught"] == f"{FAULTS} of {FAULTS}"
    assert 0 < outcome["metrics"]["worst error over tolerance"] < 0.5
    assert outcome["metrics"]["cases"] == len(records)
    clean = [record for record in records if record.mutation is None]
    assert all(record.within and record.caught is None for record in clean)
    assert {(r.recipe, r.layer, r.quantity) for r in clean if r.case == "chunk"} == {
        (recipe.name, layer, quantity)
        for recipe in HELD
        for layer in (0, 1)
        for quantity in ("codes", "scales", "output", "log_normalizer")
        if recipe.policy != "none" or quantity != "scales"
    }
    faults = [record for record in records if record.mutation is not None]
    assert all(record.caught and not record.within for record in faults)
    assert {(r.recipe, r.layer, r.mutation) for r in faults} == {
        (recipe.name, layer, mutation.name)
        for mutation in MUTATIONS
        for recipe in HELD
        for layer in (0, 1)
        if mutation.applies(recipe)
    } | {
        (recipe.name, layer, fault.name)
        for fault in PAGE_FAULTS
        for recipe in HELD
        for layer in (0, 1)
        if recipe.policy != "tensor"
    }


def slightly_off(decode):
    return lambda codes, scale, stored: decode(codes, scale, stored) * 1.0001


def through_bf16(encode):
    return lambda x, scale, stored: encode(x.bfloat16(), scale, stored)


def divided_by_448(scale_of):
    return lambda amax, stored: amax.float().clamp(min=1e-12) / formats.format_named(stored).largest


def as_fnuz(decode):
    def changed(codes, scale, stored):
        if stored != "e4m3fn":
            return decode(codes, scale, stored)
        return codes.contiguous().view(torch.float8_e4m3fnuz).float() * scale

    return changed


@pytest.mark.parametrize(
    ("name", "defect", "quantity"),
    [
        ("decode", slightly_off, "output"),
        ("decode", as_fnuz, "output"),
        ("encode", through_bf16, "codes"),
        ("scale_of", divided_by_448, "scales"),
    ],
    ids=["decode-off", "decode-fnuz", "encode-bf16", "scale-divided"],
)
def test_a_planted_defect_is_rejected(execute, monkeypatch, name, defect, quantity):
    monkeypatch.setattr(plane, name, defect(getattr(plane, name)))
    code, outcome, verdict, records = execute()
    assert code == 3
    assert not verdict["passed"]
    assert any(missed.endswith(": " + quantity) for missed in verdict["missed"])
    assert "clean comparisons missed" in outcome["reason"]
    assert any(not record.within for record in records if record.mutation is None)


def test_a_nan_is_rejected(execute, program, monkeypatch):
    log_normalizer = program.capture.log_normalizer
    monkeypatch.setattr(program.capture, "log_normalizer", lambda *given: log_normalizer(*given) * float("nan"))
    code, outcome, verdict, _ = execute()
    assert (code, verdict["passed"]) == (3, False)
    assert outcome["metrics"]["worst error over tolerance"] is None
    paged = [recipe for recipe in HELD if recipe.policy != "tensor"]
    assert len(verdict["missed"]) == 2 * (2 * len(HELD) + 3 * len(paged))  # layers times cases
    assert set(verdict["unpaged"]) == {recipe.name for recipe in HELD} - {recipe.name for recipe in paged}


def test_nan_in_the_reconstruction_never_passes(execute, monkeypatch):
    decode = plane.decode
    monkeypatch.setattr(plane, "decode", lambda *given: decode(*given) * float("nan"))
    code, outcome, _, _ = execute()
    assert code != 0
    assert "finite" in outcome["reason"]


def test_a_fault_that_escapes_is_rejected(execute, program, monkeypatch):
    harmless = replace(MUTATIONS[-1], name="harmless", applies=lambda recipe: True, inject=lambda stored: stored)
    monkeypatch.setattr(judging, "MUTATIONS", (*MUTATIONS, harmless))
    code, outcome, verdict, _ = execute()
    assert code == 3
    assert "faults escaped (native, layer 0: harmless (changed nothing))" in outcome["reason"]
    assert len(verdict["escaped"]) == 2 * len(HELD)
    assert outcome["metrics"]["mutations caught"] == f"{FAULTS} of {FAULTS + 1}"


def test_scales_of_another_model_are_refused(execute):
    code, outcome, verdict, _ = execute(model_sha256="0" * 64)
    assert (code, verdict) == (1, None)
    assert "calibrated on another model" in outcome["reason"]


def test_the_capture_leaves_model_and_cache_as_they_were(program, checkpoint):
    model = reference.load(checkpoint[0], 1)
    ids_BT = torch.arange(20)[None]
    held = reference.filled(model, RECIPES[0], None, reference.prefill(model, ids_BT), 5)
    before = model.config._attn_implementation
    with pytest.raises(RuntimeError, match="planted"), program.capture.captured(model, held):
        raise RuntimeError("planted")
    assert model.config._attn_implementation == before == "sdpa"
    assert "update" not in vars(held)
    with program.capture.captured(model, held) as reads:
        captured = model(ids_BT[:, :5], past_key_values=held, use_cache=True).logits
    again = reference.filled(model, RECIPES[0], None, reference.prefill(model, ids_BT), 5)
    assert torch.equal(captured, model(ids_BT[:, :5], past_key_values=again, use_cache=True).logits)
    assert [read.k_BGSD.shape[2] for read in reads] == [25, 25]
