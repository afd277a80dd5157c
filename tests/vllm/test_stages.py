"""The stages of workflow `vllm` where there is no GPU: what they refuse, and what they lack."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from kassay import paths
from tests.stages.conftest import runner

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
