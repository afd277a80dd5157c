"""The profiles' own parameters make engines that are allowed: every arm of every stage."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import paths
from kassay.backend.vllm_arguments import cell_of, engine_arguments
from kassay.backend.vllm_geometry import GEOMETRIES
from tests.config.test_profiles import planned


def stages_of(profile: str, config: Path) -> dict[str, dict[str, Any]]:
    """Parameters of the stages of a profile, by stage."""
    return {stage.name: stage.params for stage in planned(profile, config, []).stages}


def test_the_install_check_and_its_calibration(tmp_path: Path) -> None:
    found = stages_of("vllm-smoke", tmp_path / ".config")
    fixed = {"model": "m", "dummy": False, "attention": "plug-in", "seed": 1}
    smoke = found["smoke"]
    given = {"recipe": smoke["recipe"], "scales": "s", "observe": tuple(smoke["observe"]), "calibrate": False}
    made = engine_arguments(cell_of(smoke["engine"], **given, **fixed))
    assert made["additional_config"]["kassay"]["recipe"] == "k16v8-f"
    calibrate = found["calibrate"]
    cell = cell_of(calibrate["engine"], recipe="native", scales=None, observe=(), calibrate=True, **fixed)
    assert engine_arguments(cell)["additional_config"]["kassay"]["calibrate"] is True
    assert calibrate["context_tokens"] + calibrate["decode_tokens"] <= cell.sequence_tokens
    assert "timing" not in found


def test_every_timed_arm_and_the_pool_that_holds_its_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(paths.ROOT / "stages"))
    import vllm_timing_cell

    found = stages_of("vllm-release", tmp_path / ".config")
    params = found["timing"]
    assert params["geometry"] in GEOMETRIES and found["ratio"]["control"] in params["arms"]
    for arm in params["arms"]:
        stage = SimpleNamespace(params={**params, "arm": arm}, directory=tmp_path, inputs={"scales": "s"})
        cell = vllm_timing_cell.cell(stage)
        engine_arguments(cell)
        assert cell.graphs == (params["batch"],) and cell.dummy
        native_bytes = 4096 * GEOMETRIES[params["geometry"]]["num_hidden_layers"]
        assert cell.pool_bytes >= params["batch"] * cell.sequence_tokens * native_bytes, "the native arm would preempt"
