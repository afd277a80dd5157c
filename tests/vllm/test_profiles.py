"""The profiles' own parameters make engines that are allowed: every arm of every stage."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import memory_limits, paths, plan, validity
from kassay.backend import vllm_geometry, vllm_memory, vllm_quality
from kassay.backend.vllm_arguments import cell_of, engine_arguments
from kassay.backend.vllm_geometry import GEOMETRIES, geometry_of
from kassay.config import compose, kconfig
from kassay.errors import KassayError
from kassay.kv.recipe import recipe_named
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


def test_memory_at_a_geometry_has_sizes_of_its_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(paths.ROOT / "stages"))
    import vllm_memory_cell

    params = stages_of("vllm-release", tmp_path / ".config")["memory"]
    folder = vllm_geometry.model_folder(params["geometry"], tmp_path)
    geometry = geometry_of(folder)
    assert (geometry.layers, geometry.kv_heads, geometry.head_dim) == (36, 8, 128)
    limits = memory_limits.limits(params)
    sizes = {"request_tokens": params["context_tokens"] + params["output_tokens"], "batch": params["batch"]}
    slots: dict[str, int] = {}
    for arm, own in params["arms"].items():
        stage: Any = SimpleNamespace(params={**params, "arm": arm}, directory=tmp_path, inputs={"scales": "s"})
        recipe = recipe_named(own["recipe"])
        block = 16 * vllm_memory.token_bytes(geometry, recipe)
        pool = vllm_memory.pool_bytes(vllm_memory.SLOTS, limits, geometry, recipe, **sizes)
        cell = vllm_memory_cell.cell(stage, folder, pool)
        assert pool == 17000 * block and engine_arguments(cell)["kv_cache_memory_bytes"] == pool
        assert 1 + params["batch"] * -(-cell.sequence_tokens // 16) <= 17000, "the requests fit"
        slots[arm] = vllm_memory.pool_bytes(vllm_memory.BUDGET, limits, geometry, recipe, **sizes) // block * 16
    assert (slots["native"], slots["k16v8-f"]) == (291264, 388352), "the slots that the published study prints"


def test_the_study_s_arms_its_cohorts_and_what_its_pools_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(paths.ROOT / "stages"))
    import vllm_memory_cell
    import vllm_quality_cell
    import vllm_timing_cell

    found = stages_of("vllm-study", tmp_path / ".config")
    study = found["certify"]["study"]
    robust = paths.ROOT / "data" / "models" / "robust"
    inputs = {"scales": "s", "model": robust}
    for model in ("robust", "fragile"):
        params = found[f"quality.{model}"]
        assert list(params["arms"]) == list(study["arms"]) and params["batch"] == 32
        vllm_quality.require_felt(params, {"model": model, "dummy": False, "contents": {"calibration": ["d"]}})
        for arm in params["arms"]:
            stage: Any = SimpleNamespace(params={**params, "arm": arm}, directory=tmp_path, inputs=inputs)
            cell = vllm_quality_cell.cell(stage)
            engine_arguments(cell)
            assert not cell.dummy and max(cell.graphs) == params["batch"]
            longest = max(one["context_tokens"] for one in params["endpoints"].values()) + 128
            native_bytes = vllm_memory.token_bytes(geometry_of(robust), recipe_named("native"))
            assert cell.pool_bytes >= params["batch"] * longest * native_bytes, "a cohort would be preempted"
            assert cell.sequence_tokens > longest
            scales = found[f"scales.{model}"]
            assert scales["context_tokens"] + scales["decode_tokens"] <= cell.sequence_tokens
    memory, timing = found["memory"], found["timing"]
    for arm in memory["arms"]:
        stage = SimpleNamespace(params={**memory, "arm": arm}, directory=tmp_path, inputs=inputs)
        made = vllm_memory_cell.cell(stage, robust, 1 << 20)
        assert made.pool_bytes == 1 << 20 and engine_arguments(made)["kv_cache_memory_bytes"] == 1 << 20
        stage = SimpleNamespace(params={**timing, "arm": arm}, directory=tmp_path, inputs=inputs)
        engine_arguments(vllm_timing_cell.cell(stage))
    assert memory["study_memory"]["budget_gib"] == 0.25 and memory["backend"] == {"engine": "vllm"}
    assert found["contrast"]["study"] == study and study["timing"]["family"] == ["k16v8-f", "k8v8-f"]


def test_a_given_checkpoint_has_two_contexts_and_levels_that_add_up(tmp_path: Path) -> None:
    config = tmp_path / ".config"
    kconfig.load_profile("vllm-study", {"VLLM_STUDY_MODEL": str(tmp_path)}, config)
    settings = kconfig.load(config)
    made = plan.build("vllm-study", "vllm", compose.compose(paths.ROOT / "workflows" / "vllm", settings, []))
    found = {stage.name: stage.params for stage in made.stages}
    study = found["certify"]["study"]
    assert set(study["endpoints"]) == {"arithmetic", "retrieval-short", "retrieval-long", "nll-short", "nll-long"}
    assert study["alpha"] * study["certificates"]["slots"] == study["certificates"]["family_alpha"]
    assert found["quality.given"]["endpoints"]["nll-long"]["context_tokens"] == 8192
    engine = found["quality.given"]["engine"]
    assert engine["sequence_tokens"] > 8192 + 128 and engine["batched_tokens"] >= engine["sequence_tokens"]


def test_a_checkpoint_s_problems_and_documents_may_come_from_files(tmp_path: Path) -> None:
    config, files = tmp_path / ".config", {"problems": tmp_path / "p.jsonl", "documents": tmp_path / "d.jsonl"}
    for path in files.values():
        path.write_text("{}\n")
    symbols = {f"VLLM_STUDY_{name.upper()}_FILE": str(path) for name, path in files.items()}
    kconfig.load_profile("vllm-study", {"VLLM_STUDY_MODEL": str(tmp_path), **symbols}, config)
    composed = compose.compose(paths.ROOT / "workflows" / "vllm", kconfig.load(config), [])
    quality = {stage.name: stage for stage in plan.build("vllm-study", "vllm", composed).stages}["quality.given"]
    assert {name: quality.inputs[name] for name in files} == {name: f"tree:{path}" for name, path in files.items()}
    problems = quality.params["endpoints"]["arithmetic"]
    assert problems == {"measure": "gsm8k", "items": 1319, "context_tokens": None, "data": "problems",
                        "answer_cap_tokens": 2048}  # fmt: skip
    assert quality.params["endpoints"]["nll-long"]["data"] == "documents"
    assert quality.params["engine"]["sequence_tokens"] > problems["answer_cap_tokens"]


def test_passes_of_a_worker_are_those_of_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(paths.ROOT / "stages"))
    import vllm_timing_cell

    def request(*steps: int) -> Any:
        return SimpleNamespace(completion_steps=list(steps))

    assert vllm_timing_cell.passes([request(1, 2, 3), request(2, 3, 4)]) == (3, 3)
    assert vllm_timing_cell.passes([request(1, 2, 4), request(2, 3, 4)]) == (4, 3), "a request that waited"
    assert vllm_timing_cell.passes([request(1, 2, 2), request(2, 3, 4)]) == (3, 2), "two tokens in one step"
    assert vllm_timing_cell.passes([request(1, 2), request()]) == (0, 0)


def test_arms_without_a_certificate_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(paths.ROOT / "stages"))
    import vllm_timing

    made = [{"model": "robust", "candidate": name, "control": "native"} for name in ("k16v8-f", "k8v8-f")]
    vllm_timing.require_judged(made, "robust", ["native", "k16v8-f", "k8v8-f"])
    for certificates, model, arms in ((made[:1], "robust", ["native", "k8v8-f"]), (made, "fragile", ["native"])):
        with pytest.raises(KassayError, match=r"no certificate of .* judges"):
            vllm_timing.require_judged(certificates, model, arms)


def test_a_worker_s_cell_has_the_evidence_that_contrast_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are admitted one after another and then served at every step; one that waited makes it invalid."""
    monkeypatch.syspath_prepend(str(paths.ROOT / "stages"))
    import torch
    import vllm_timing_cell

    params = {
        "model": "robust", "geometry": "", "arm": "k16v8-f", "block": 0, "pilot": False, "position": 0, "batch": 2,
        "context_tokens": 3, "output_tokens": 4, "warmups": 1,
    }  # fmt: skip

    def served(at: int, *late: int) -> Any:
        span = SimpleNamespace(started_ns=at, ended_ns=at + 5, prefilled_tokens=6, preemptions=0)
        steps = [[0, 1, 2, 3], [1, 2, 3 + sum(late), 4 + sum(late)]]
        requests = [SimpleNamespace(output_tokens=4, completion_steps=own) for own in steps]
        return SimpleNamespace(span=span, requests=requests, outputs=[[1, 2, 3, 4]] * 2)

    stage: Any = SimpleNamespace(params=params)
    rows = torch.tensor([[1, 2, 3], [4, 5, 6]])
    whole = vllm_timing_cell.timing(stage, [served(1), served(10)], rows)
    assert list(validity.lacks(whole, [whole])) == []
    waited = vllm_timing_cell.timing(stage, [served(1), served(10, 1)], rows)
    assert [rule for rule, _ in validity.lacks(waited, [waited])] == ["schedule"]
