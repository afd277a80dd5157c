"""The compile stage: every kernel of a recipe becomes machine code here, and one that does not is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kassay import paths
from tests.stages.conftest import runner

pytest.importorskip("triton", reason="the kernels need triton")

BROKEN = """
import sys
from kassay.kernels import catalogue, ahead

real = catalogue.compiled
def compiled(kernel, pointers, numbers, options):
    if "to_ptr" in pointers:
        raise ValueError("no such instruction")
    made = real(kernel, pointers, numbers, options)
    return made if "slot_ptr" not in pointers else ahead.Compiled(**{**vars(made), "spills": 16})
catalogue.compiled = compiled
sys.argv = ["compile.py", sys.argv[1]]
exec(compile(open(%r).read(), "compile.py", "exec"))
"""


def test_every_kernel_of_a_recipe_compiles(tmp_path: Path) -> None:
    ran = runner(tmp_path)("compile", {"recipes": ["k16v8-d"], "head_dims": [64, 128]}, {})
    assert ran.code == 0, ran.stderr
    found = {(one["kernel"], one["head_dim"]): one for one in ran.records("compiled_kernel")}
    names = [f"attention k16v8-d {splits}{pairs}" for splits in (1, 4) for pairs in ("", " pairs")]
    names += ["prefix k16v8-d 16", "prefix k16v8-d 32"]
    names += ["write k16v8-d", "gather k16v8-d", "unfused k16v8-d values", "merge"]
    names += ["turn k16v8-d", "turn k16v8-d plain", "norm", "norm add"]
    assert set(found) == {(name, head_dim) for name in names for head_dim in (64, 128)} | {("gate", 0)}
    assert all(one["spills_bytes"] == 0 and one["registers"] <= 255 and not one["error"] for one in found.values())
    assert len({one["cubin_sha256"] for one in found.values()}) == len(found)


def test_a_kernel_that_does_not_compile_or_spills_is_named(tmp_path: Path) -> None:
    ran = runner(tmp_path)("compile", {"recipes": ["k16v8-f"], "head_dims": [128]}, {})
    assert ran.code == 0, ran.stderr
    program = tmp_path / "broken.py"
    program.write_text(BROKEN % str(paths.ROOT / "stages" / "compile.py"))
    for left in ("outcome.json", "records.jsonl", "receipt.json"):
        (ran.directory / left).unlink()
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, program, ran.directory],
        env={**environment, "PYTHONPATH": str(paths.ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    reason = ran.outcome.reason
    assert "1 do not compile (unfused k16v8-f values, head dim 128: ValueError: no such instruction)" in reason
    assert "1 spill (write k16v8-f, head dim 128: 16 bytes)" in reason
