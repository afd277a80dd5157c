"""The old law's arms under the interpreter: the same attention as the grouped kernels, by other bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kassay import paths

pytest.importorskip("triton", reason="the kernels need triton")

from kassay.errors import KassayError
from kassay.kernels.expand import EachHead, Expanding, Repeat
from kassay.kernels.fusion import ORDER, Grid, call_bytes
from kassay.kernels.launch import shape_of
from kassay.kernels.split import Cut
from kassay.kernels.workload import Calls, Heads
from tests.kernels.cases import CPU, INTERPRETER, LSE, NORM, SMALL, Case, case_of, norm

RAGGED = [33, 0, 70, 1]
PROGRAM = """
import json
from kassay.kernels import catalogue

planned = [item for recipe in ("k4v4-d", "native") for item in catalogue.expand_of(recipe, 128)]
assert [name for name, _, _ in planned] == ["head k4v4-d 1", "head k4v4-d 4", "repeat"]
found = [compile_it() for _, _, compile_it in planned]
told = [{"spills": one.spills, "registers": one.registers, "wide": "v4" in one.ptx} for one in found]
print(json.dumps(told))
"""


def run(kind: type[Expanding] | type[EachHead], case: Case, splits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-normalizer, into poisoned memory."""
    shape, longest = shape_of(case.layer, case.q_BHD.shape[1]), case.table_BX.shape[1] * case.layer.shape.page_tokens
    made = kind(shape, INTERPRETER, CPU, len(case.q_BHD), longest, Cut(tile=SMALL, splits=splits))
    out, lse = torch.full_like(case.q_BHD, float("nan")), torch.full(case.q_BHD.shape[:2], float("nan"))
    return made(case.q_BHD, case.layer, case.table_BX, case.lengths_B, out, lse)


def test_every_arm_of_the_old_law_attends_alike() -> None:
    heads = Heads(query_heads=6, kv_heads=2, head_dim=64, page_tokens=16)
    grid = Grid(heads, 256, INTERPRETER, CPU)
    calls = Calls(grid.pool, [80, 80])
    outs = {}
    for name in ORDER:
        arm = grid.arm(calls, name)
        if arm.recipe:
            calls.poison()
            arm.call(0)
            assert all(calls.error(arm.recipe, one)[0] < NORM["fp16"] for one in (0, 1)), name
            outs[name] = calls.out.clone()
            assert arm.cut is not None and (arm.cut.splits > 1) <= name.endswith(" split")
    for one, other in (("grouped", "expanded"), ("grouped", "expanding"), ("int4", "int4 each head")):
        assert norm((outs[one] - outs[other]).double().numpy(), outs[one].double().numpy()) < 2 * NORM["fp16"]
    grouped, copied = (call_bytes(heads, name, 2, 160) - 2 * 2 * 2 * 6 * 64 for name in ("grouped", "expanding split"))
    assert copied == 7 * grouped == 7 * 160 * 2 * 2 * 2 * 64


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(("kind", "recipe"), [(Expanding, "native"), (EachHead, "k4v4-d")])
def test_both_attend_as_the_reference(kind: type[Expanding] | type[EachHead], recipe: str, splits: int) -> None:
    case = case_of(recipe, (6, 2), 128, 16, RAGGED)
    norm, lse = case.errors(run(kind, case, splits))
    assert norm < NORM["fp16"] and lse < LSE, (norm, lse)


def test_a_head_is_repeated_for_its_own_queries_alone() -> None:
    case = case_of("native", (6, 2), 64, 16, [20, 33])
    repeat = Repeat(shape_of(case.layer, 6), CPU, 2, 48)
    made = repeat(case.layer, case.table_BX, case.lengths_B)
    wanted = case.layer.gather(case.table_BX, case.lengths_B, torch.float64)
    got = made.gather(repeat.table_BX, case.lengths_B, torch.float64)
    for one, other in zip(got, wanted, strict=True):
        assert torch.equal(one, other.repeat_interleave(3, dim=1))


def test_recipes_that_they_do_not_read_are_refused_by_name() -> None:
    coded, native = (shape_of(case_of(name, (4, 2), 64, 16, [3]).layer, 4) for name in ("k4v4-d", "native"))
    with pytest.raises(KassayError, match=r"repeated in 16 bits, recipe `k4v4-d` stores fewer"):
        Repeat(coded, CPU, 1, 16)
    with pytest.raises(KassayError, match=r"reads dynamic INT4, not recipe `native`"):
        EachHead(native, INTERPRETER, CPU, 1, 16)


def test_they_compile_for_a_gpu_and_spill_nothing(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(paths.ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    one, several, repeat = json.loads(done.stdout)
    assert one["spills"] == several["spills"] == repeat["spills"] == 0
    assert max(one["registers"], several["registers"]) <= 168, (one, several)
    assert repeat["wide"], "rows are copied 16 bytes at a time"
