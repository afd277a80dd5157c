"""Ceilings of memory on vLLM bind every arm and pool, and what no window shows is unmeasured."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import memory_limits
from kassay.backend import vllm_memory
from kassay.kinds.memory import MemoryGate
from kassay.memory_sources import sources
from kassay.stage import Rejection
from tests.vllm.standin import Kept
from tests.vllm.test_memory import ARMS, PARAMS, Cells


@pytest.mark.parametrize(
    ("high", "wrong"),
    [(None, []), ("native-budget", ["device ceiling", "reserved ceiling"]), ("native-slots", ["device ceiling"])],
)
def test_ceilings_bind_every_cell(
    high: str | None, wrong: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device's samples and the allocator's peaks of any cell; one whose windows are no evidence is unmeasured."""
    cells, limit = Cells(tmp_path, {}), 1 << 30
    params = {**PARAMS, "arms": {arm: ARMS[arm] for arm in ("native", "k16v8-f")}, "device_ceiling_gib": 1,
              "reserved_ceiling_gib": 1}  # fmt: skip

    def cell(stage: Any, name: str, program: str, given: dict[str, Any]) -> Path:
        directory = cells(stage, name, program, given)
        told = json.loads((directory / "arm.json").read_bytes())
        peak = limit + 1 if name == high and "reserved ceiling" in wrong else limit
        (directory / "arm.json").write_text(json.dumps({**told, "peaks": [7, peak]}))
        return directory

    def kept(stage: Any, directory: Path) -> list[Any]:
        own = SimpleNamespace(source="device", device="GPU-a", fault="", largest_bytes=limit)
        other = SimpleNamespace(source="resident", device="host", fault="a gap", largest_bytes=1 << 40)
        own.largest_bytes += directory.name == high == "native-budget"
        own.fault = "nothing answered" if directory.name == high == "native-slots" else ""
        return [own, other]

    monkeypatch.setattr(vllm_memory, "run_cell", cell)
    monkeypatch.setattr(vllm_memory, "kept", kept)
    monkeypatch.setattr(vllm_memory, "allocated_bytes", lambda device: 1 << 40)
    monkeypatch.setattr("kassay.backend.vllm.require_vllm", lambda: None)
    stage = Kept(params)
    ended = vllm_memory.run(stage, sources(), memory_limits.limits(params))
    bad = [one.gate for one in stage.of(MemoryGate) if one.verdict != "pass"]
    assert bad == wrong and isinstance(ended, Rejection) == bool(wrong)
