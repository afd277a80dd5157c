"""The stages of workflow `vllm` where there is no GPU: what they refuse, and what they lack."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from kassay import paths
from kassay.backend.vllm_attest import effective
from kassay.stage import Stage
from tests.stages.conftest import runner
from tests.vllm.test_arguments import engine

ROBUST = paths.ROOT / "data" / "models" / "robust"
PARAMS = {"recipe": "k16v8-f", "engine": {}, "observe": [0], "output_tokens": 4, "seed": 1}


def test_the_install_check_is_unmet_without_vllm_and_refuses_scales_of_drawn_weights(tmp_path: Path) -> None:
    if find_spec("vllm") is not None:
        pytest.skip("vLLM is installed here")
    scales = tmp_path / "scales.json"
    run = runner(tmp_path)
    scales.write_text(json.dumps({"model": "robust", "dummy": False}))
    ran = run("vllm_smoke", PARAMS, {"model": ROBUST, "scales": scales})
    assert ran.code == 4 and ran.outcome.reason == "vLLM is not installed in the stack's environment"
    assert not (ran.directory / "install").exists()
    scales.write_text(json.dumps({"model": "qwen3-8b", "dummy": True}))
    ran = run("vllm_smoke", PARAMS, {"model": ROBUST, "scales": scales})
    assert ran.code == 1 and "were calibrated on drawn weights, whose text says nothing" in ran.stderr


def test_a_receipt_says_what_an_engine_really_used_and_nothing_where_none_ran(tmp_path: Path) -> None:
    request = {
        "stage": "check", "run": "r", "run_dir": str(tmp_path), "params": {}, "inputs": {}, "attempt": 1,
        "grant": {"cpus": 1, "memory_gib": 1, "gpus": 0, "gpu_ids": []}, "roots": [str(paths.ROOT)],
    }  # fmt: skip
    (tmp_path / paths.REQUEST).write_text(json.dumps(request))
    stage = Stage(tmp_path)
    assert "effective" not in stage.receipt()
    stage.attest("candidate", **effective(engine(key_format="bf16")))
    told = stage.receipt()["effective"]["candidate"]
    assert (told["keys"], told["values"], told["scales"], told["backend"]) == (
        "bf16", "e4m3fn", "dynamic", "PagedBackend"
    )  # fmt: skip
