"""Stage vllm_quality without a GPU: a cell for each arm, what of it becomes the stage's, and what is no answer."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import paths
from kassay.errors import KassayError
from kassay.kinds.quality import Answer, ArmStorage, ItemLength
from kassay.kinds.vllm import VllmCohort, VllmEngine
from kassay.record import Record
from tests.stages.test_model_stages import ROBUST
from tests.vllm.standin import Kept
from tests.vllm.test_arguments import engine
from tests.vllm.test_quality import COHORT, PARAMS

ARMS = {
    "native": {"recipe": "native", "attention": "flash-attn"},
    "k16v8-f": {"recipe": "k16v8-f", "attention": "plug-in"},
}
Change = Callable[[str, list[Record]], list[Record]]


class Cells:
    """Cells that leave records without an engine."""

    def __init__(self, folder: Path, change: Change) -> None:
        self.folder, self.change, self.ran = folder, change, list[tuple[str, str, str]]()

    def __call__(self, stage: Any, name: str, program: str, params: dict[str, Any]) -> Path:
        self.ran.append((name, program, params["arm"]))
        fixed = params["arm"].endswith("-f")
        formats = {"value_format": "e4m3fn", "scale_policy": "fixed"} if fixed else {"scale_policy": "none"}
        after = engine(arm=name, **{"value_format": "fp16"} | formats)
        before = replace(after, key_format="bf16", scale_policy="dynamic")
        answer = Answer(model="robust", recipe=name, task="retrieval", split="s", item_id="i", item_digest="d",
                        expected="7", text="7", parsed="7", outcome="correct", tokens=2)  # fmt: skip
        length = ItemLength(model="robust", task="retrieval", item_id="i", item_digest="d", planned_tokens=9,
                            context_tokens=8, question_tokens=2)  # fmt: skip
        directory = self.folder / name
        directory.mkdir()
        made = self.change(name, [before, replace(COHORT, arm=name), length, answer, after])
        (directory / "records.jsonl").write_text("".join(one.to_json() + "\n" for one in made))
        return directory


@pytest.fixture
def answered(tmp_path: Path, robust_scales: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The stage on such cells: itself, its cells and its metrics."""
    monkeypatch.syspath_prepend(str(paths.ROOT / "stages"))
    import vllm_quality

    scales = tmp_path / "scales.json"
    scales.write_text(json.dumps(json.loads(robust_scales.read_bytes()) | {"dummy": False}))

    def run(change: Change = lambda name, made: made) -> Any:
        stage, cells = Kept({**PARAMS, "arms": ARMS}), Cells(tmp_path, change)
        stage.inputs = {"model": ROBUST, "scales": scales}
        stage.request = {"inputs": {name: {"sha256": stage.input_sha256(name)} for name in stage.inputs}}
        told: dict[str, Any] = {}
        monkeypatch.setattr(stage, "attest", lambda arm, **effective: told.update({arm: effective}))
        monkeypatch.setattr(vllm_quality, "require_vllm", lambda: None)
        monkeypatch.setattr(vllm_quality, "run_cell", cells)
        return SimpleNamespace(metrics=vllm_quality.run(stage), stage=stage, cells=cells, attested=told)

    return run


def test_every_arm_has_a_cell_and_its_engines_last_word(answered: Callable[..., Any]) -> None:
    found = answered()
    stage = found.stage
    assert found.cells.ran == [(arm, "vllm_quality_cell", arm) for arm in ARMS]
    assert [(one.recipe, one.key_dtype, one.value_dtype) for one in stage.of(ArmStorage)] == [
        ("native", "fp16", "fp16"), ("k16v8-f", "fp16", "e4m3fn")
    ]  # fmt: skip
    own = stage.input_sha256("scales")
    assert [one.scales_sha256 for one in stage.of(ArmStorage)] == [None, own], "scales of those that have fixed ones"
    assert found.attested["k16v8-f"]["scales"] == "fixed", "after the last cohort, not before the first"
    assert [one.recipe for one in stage.of(Answer)] == list(ARMS) and len(stage.of(VllmEngine)) == 4
    assert len(stage.of(ItemLength)) == 1 and [one.arm for one in stage.of(VllmCohort)] == list(ARMS)
    assert found.metrics == {"items": 2, "arms": 2, "cohorts": 1, "preemptions": 0}


def test_arms_that_answered_other_items_are_no_stage(answered: Callable[..., Any]) -> None:
    def fewer(name: str, made: list[Record]) -> list[Record]:
        return [replace(one, prompt_tokens=99) if isinstance(one, VllmCohort) and name != "native" else one
                for one in made]  # fmt: skip

    with pytest.raises(KassayError, match="arms `native` and `k16v8-f` answered different cohorts"):
        answered(fewer)
