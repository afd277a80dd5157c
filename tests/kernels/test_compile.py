"""Kernels compiled for sm_90 without a GPU, in a process of its own as the interpreter is on in this one.

The interpreter accepts programs that the compiler refuses. What is asked of the machine code: nothing is spilled, and
words reach the tensor cores through `ldmatrix` and asynchronous copies.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kassay import paths

pytest.importorskip("triton", reason="the kernels need triton")

PROGRAM = """
import json, sys
from kassay.kernels import catalogue
from kassay.kernels.ahead import instructions

def told(made):
    sass = instructions(made.cubin)
    found = {"spills": made.spills, "registers": made.registers, "shared": made.shared_bytes}
    return {**found, **{word: sass.count(word) for word in ("LDSM", "HMMA", "F2FP", "LDGSTS", "ACQBULK", "PREEXIT")}}

found = {f"{name} {splits}": told(catalogue.attention(name, 128, splits)()) for name, splits in json.loads(sys.argv[1])}
found["prebias"] = told(catalogue.attention("prebias-k8v8-d", 128, 1)())
found["prebias write"] = told(catalogue.write("prebias-k8v8-d", 128)())
found["beside"] = told(catalogue.attention("k16v8-d", 128, 1, beside=2)())
for name in ("k16v8-f", "k8v8-d", "k4v4-d"):
    found[f"pairs {name}"] = told(catalogue.attention(name, 128, 1, heads=2)())
found["prefix"] = told(catalogue.prefix("k16v8-d", 128, 32)())
found["gather k8v4-d"] = told(catalogue.gathered("k8v4-d", 128)())
found["merge"] = told(catalogue.merge(128)())
found["write"] = told(catalogue.write("k8v4-d", 128)())
for name, _, compile_it in catalogue.unfused_of("k8v4-d", 128):
    found[name] = told(compile_it())
found["turn"] = told(catalogue.turn("k16v8-f", 128, normed=True)())
found["turn plain"] = told(catalogue.turn("k8v4-d", 64, normed=False)())
found["norm add"] = told(catalogue.norm(4096, adds=True)())
found["gate"] = told(catalogue.gated()())
print(json.dumps(found))
"""
CASES = [("native", 1), ("k16v8-d", 1), ("k16v8-f", 4), ("k8v8-d", 4), ("k8v16-f", 1), ("ki8vi8-d", 1), ("k4v4-d", 4)]


def test_all_kernels_compile_for_sm_90(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(CASES)],
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(paths.ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == len(CASES) + 16
    assert not {name: told["spills"] for name, told in found.items() if told["spills"]}
    for recipe, splits in CASES:
        told = found[f"{recipe} {splits}"]
        assert told["LDSM"] and told["HMMA"] and told["LDGSTS"]
        assert told["registers"] <= 255
        assert bool(told["PREEXIT"]) == (splits > 1)
    assert found["merge"]["ACQBULK"]
    for name in ("turn", "turn plain", "norm add", "gate"):
        assert found[name]["ACQBULK"] and found[name]["PREEXIT"], f"{name} does not start beside what it waits for"
    assert found["prefix"]["PREEXIT"] and found["prefix"]["LDGSTS"]
    assert found["beside"]["PREEXIT"] and found["beside"]["ACQBULK"]  # starts beside the prefix, ends after it
