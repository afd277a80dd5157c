"""benchmarks/attention.py without a GPU: a shape under the interpreter, and what its table must not let pass."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from benchmarks import attention, attention_table
from kassay.kernels import tuned
from kassay.kernels.split import TILES, Cut
from kassay.kernels.workload import Heads, Pool
from tests.kernels.cases import CPU, INTERPRETER

TINY = Heads(query_heads=4, kv_heads=2, head_dim=64, page_tokens=16)


def once(call: Callable[[int], object], calls: int) -> Callable[[int], object]:
    """In place of a captured graph: the first call runs."""
    call(0)
    return call


def told(graphs: dict[str, Any], calls: int, rounds: int) -> dict[str, list[float]]:
    """In place of a clock: the first arm took 10 us, each later one 1 us less."""
    return {name: [10.0 - number] * rounds for number, name in enumerate(graphs)}


@pytest.fixture(scope="module")
def row() -> Iterator[dict[str, Any]]:
    """A tuned shape, without a clock."""
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setenv("TRITON_INTERPRET", "1")
        for module in (attention, tuned):
            patch.setattr(module, "captured", once)
            patch.setattr(module, "interleaved", told)
        patch.setattr(tuned, "microseconds", lambda graph, calls, replays: [5.0] * replays)
        patch.setattr(tuned, "candidates", lambda *call: [Cut(tile=TILES[3], splits=2)])
        patch.setattr(attention, "CUDA", CPU)
        pool = Pool(TINY, ("native", "k4v4-d"), 256, INTERPRETER, CPU)
        yield attention.measure(pool, 2, 70, ("native", "k4v4-d"), True)


def test_a_shape_has_its_arms_errors_and_absences(row: dict[str, Any], tmp_path: Path) -> None:
    assert {"native", "k4v4-d", "k4v4-d unfused"} <= set(row["rounds_us"]) and not row["wrong"]
    assert row["gather_TB_s"] is None and set(row["errors"]) >= {"native", "k4v4-d"}
    assert row["call_bytes"]["native"] == 2 * 70 * 2 * 2 * 64 * 2 + 4 * 2 * 4 * 64
    text = attention_table.text(row, 4.2)
    assert "4/2 heads of 64, pages of 16, fp16, batch 2, context 70 (140 tokens), tuned" in text
    attention_table.draw([row], tmp_path / "made.png")
    assert (tmp_path / "made.png").stat().st_size > 5000


def test_a_ratio_above_the_byte_limit_is_an_error(row: dict[str, Any]) -> None:
    most = attention_table.limit(row, "k4v4-d")
    assert most is not None and 3 < most < 3.77
    for ratio, named in ((most, []), (1.02 * most, ["k4v4-d"]), (float("nan"), ["k4v4-d"])):
        times = {"native": [10.0] * 21, "k4v4-d": [10.0 / ratio] * 21}
        changed = {**row, "rounds_us": times}
        assert attention_table.impossible(changed) == named, ratio
        assert ("error: K4/V4 d is above its byte limit" in attention_table.text({**changed}, 4.2)) == bool(named)


def test_without_a_gpu_it_is_unmet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["attention"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert attention.main() == 4 and "sees no GPU" in capsys.readouterr().out
