"""Kernels compiled for sm_90 and for AMD's gfx942 without a GPU, in processes of their own: this one interprets.

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
AMD_PROGRAM = """
import json, re
from dataclasses import replace
import torch
from kassay.kernels import ahead, catalogue
from kassay.kernels.host import H200
from kassay.kernels.launch import Decode, shape_of
from kassay.kernels.split import Cut, candidates

lds = 64 * 1024
host = replace(H200, name="MI300X", backend="hip", capability=0, processors=304)
host = replace(host, shared_bytes=lds, shared_bytes_each=lds)
catalogue.H200 = host
catalogue.compiled = lambda *given: ahead.machine_code(*given, ahead.GFX942)

def told(made):
    text = made.asm["amdgcn"]
    spills = re.search(r"vgpr_spill_count: +(\\d+)", text)
    return {"spills": int(spills[1]), "shared": made.metadata.shared, "mfma": text.count("v_mfma")}

found = {}
for name in ("native", "k16v8-f", "k8v8-d", "k4v4-d", "prebias-k8v8-d"):
    shape = shape_of(catalogue.layer_of(name, 128), 32)
    tiles = [cut.tile for cut in candidates(shape, host, 32, 8192)]
    for tile in (tiles[0], tiles[-1]):
        decode = Decode(shape, host, torch.device("cpu"), 2, 8192, Cut(tile=tile, splits=2))
        found[f"{name} {tile.tokens} {tile.heads}"] = told(catalogue.launched(decode)())
found["merge"] = told(catalogue.merge(128)())
found["write"] = told(catalogue.write("k8v4-d", 128)())
found["turn"] = told(catalogue.turn("prebias-k8v8-d", 128, normed=False)())
found["gather"] = told(catalogue.gathered("k16v8-d", 128)())
found["norm"] = told(catalogue.norm(4096, adds=True)())
print(json.dumps(found))
"""
CASES = [("native", 1), ("k16v8-d", 1), ("k16v8-f", 4), ("k8v8-d", 4), ("k8v16-f", 1), ("ki8vi8-d", 1), ("k4v4-d", 4)]


def answer(program: str, cache: Path) -> dict[str, dict[str, int]]:
    """What the program says of each kernel."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(CASES)],
        env={**environment, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(paths.ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, int]] = json.loads(done.stdout)
    return found


def test_kernels_compile_for_an_amd_gpu_within_its_shared_memory(tmp_path: Path) -> None:
    found = answer(AMD_PROGRAM, tmp_path)
    assert len(found) >= 10
    for name, told in found.items():
        assert told["spills"] == 0 and told["shared"] <= 64 * 1024, name
        assert told["mfma"] or name in ("merge", "write", "turn", "gather", "norm"), f"{name}: no matrix product"


def test_all_kernels_compile_for_sm_90(tmp_path: Path) -> None:
    found = answer(PROGRAM, tmp_path)
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
