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
import torch
from kassay.kernels.ahead import compiled, instructions
from kassay.kernels.device.attention import attention_merge, attention_split
from kassay.kernels.device.dequantize import dequantize_pages
from kassay.kernels.device.write import write_pages
from kassay.kernels import store, unfused
from kassay.kernels.host import H200
from kassay.kernels.launch import Decode, shape_of
from kassay.kernels.split import TILES, Cut
from kassay.kv.paged import LayerScales, PagedLayer, PagedShape
from kassay.kv.recipe import recipe_named

WORDS = {0: "fp16", 1: "i16", 2: "i16", 3: "i16"}
STORED = {0: "fp16", 1: "u8", 2: "u8", 3: "u8"}

def told(made):
    sass = instructions(made.cubin)
    found = {"spills": made.spills, "registers": made.registers, "shared": made.shared_bytes}
    return {**found, **{word: sass.count(word) for word in ("LDSM", "HMMA", "F2FP", "LDGSTS", "ACQBULK", "PREEXIT")}}

def layer_of(name):
    pool = PagedShape(pages=1, page_tokens=16, kv_heads=8, head_dim=128)
    return PagedLayer(recipe_named(name), pool, scales=LayerScales(keys=1.0, values=1.0))

def attention(name, splits):
    shape = shape_of(layer_of(name), 32)
    decode = Decode(shape, H200, torch.device("cpu"), 2, 8192, Cut(tile=TILES[splits > 1], splits=splits))
    pointers = {"q_ptr": "fp16", "k_ptr": WORDS[shape.key_number], "v_ptr": WORDS[shape.value_number],
                "k_scale_ptr": "fp32", "v_scale_ptr": "fp32", "table_ptr": "i32", "length_ptr": "i32",
                "o_ptr": "fp32" if splits > 1 else "fp16", "lse_ptr": "fp32"}
    numbers = {"scale": "fp32", "chunk": "i32", "table_stride": "i32", "width": "i32", "splits": "i32"}
    return told(compiled(attention_split, pointers, numbers, decode.options()))

found = {f"{name} {splits}": attention(name, splits) for name, splits in json.loads(sys.argv[1])}
merge = {"part_ptr": "fp32", "part_lse_ptr": "fp32", "o_ptr": "fp16", "lse_ptr": "fp32"}
found["merge"] = told(compiled(attention_merge, merge, {"splits": "i32"},
                               {"D": 128, "BLOCK_C": 16, "PDL": True, "num_warps": 4, "launch_pdl": True}))
layer = layer_of("k8v4-d")
shape = shape_of(layer, 8)
write = {"k_ptr": "fp16", "v_ptr": "fp16", "slot_ptr": "i64", "k_data_ptr": "u8", "v_data_ptr": "u8",
         "k_scale_ptr": "fp32", "v_scale_ptr": "fp32"}
found["write"] = told(compiled(write_pages, write, {"tokens": "i32", "k_stride": "i32", "v_stride": "i32"},
                               store.options(layer)))
for plane in (layer.keys, layer.values):
    pointers = {"words_ptr": "i16", "scale_ptr": "fp32", "to_ptr": "fp16", "table_ptr": "i32", "length_ptr": "i32"}
    found["unfused " + plane.rule.stored] = told(compiled(
        dequantize_pages, pointers, {"table_stride": "i32"}, unfused.options(shape, plane, H200)))
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
    assert len(found) == len(CASES) + 4
    assert not {name: told["spills"] for name, told in found.items() if told["spills"]}
    for recipe, splits in CASES:
        told = found[f"{recipe} {splits}"]
        assert told["LDSM"] and told["HMMA"] and told["LDGSTS"]
        assert told["registers"] <= 255
        assert bool(told["PREEXIT"]) == (splits > 1)
    assert found["merge"]["ACQBULK"]
