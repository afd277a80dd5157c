"""Compile a kernel for a GPU that is not there: what a machine without one can say about it.

Triton needs no driver for this: registers and shared memory come of its own ptxas, instructions of its own cuobjdump.
The interpreter accepts programs that the compiler refuses, so every kernel is compiled so before it is sent anywhere.
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SM_90 = GPUTarget("cuda", 90, 32)
GFX942 = GPUTarget("hip", "gfx942", 64)


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """One kernel for one architecture."""

    registers: int  # of a thread
    spills: int  # bytes of a thread's stack frame
    shared_bytes: int
    ptx: str
    cubin: bytes


def compiled(kernel: Any, pointers: dict[str, str], numbers: dict[str, str], options: dict[str, Any]) -> Compiled:
    """Compile for sm_90, with what its machine code takes."""
    made = machine_code(kernel, pointers, numbers, options, SM_90)
    registers, spills = usage(made.asm["cubin"])
    return Compiled(
        registers=registers, spills=spills, shared_bytes=made.metadata.shared,
        ptx=made.asm["ptx"], cubin=made.asm["cubin"],
    )  # fmt: skip


def machine_code(
    kernel: Any, pointers: dict[str, str], numbers: dict[str, str], options: dict[str, Any], target: GPUTarget
) -> Any:
    """Triton's result. `pointers` and `numbers`: argument -> type, such as `fp16` or `i32`; `options`: the rest.

    Pointers are taken to be aligned to 16 bytes, as torch aligns them.
    """
    known = ("num_warps", "num_stages", "launch_pdl") if target.backend == "cuda" else ("num_warps", "num_stages")
    launch = {name: options[name] for name in known if name in options}
    fixed = {name: value for name, value in options.items() if name not in (*known, "launch_pdl")}
    kinds = {**{name: f"*{kind}" for name, kind in pointers.items()}, **numbers}
    signature = {name: kinds.get(name, "constexpr") for name in kernel.arg_names}
    aligned: dict[Any, Any] = {
        (index,): [["tt.divisibility", 16]] for index, name in enumerate(kernel.arg_names) if name in pointers
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=fixed, attrs=aligned)
    return triton.compile(source, target=target, options=launch)


def usage(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread and bytes of its stack frame."""
    told = tool("cuobjdump", "--dump-resource-usage", cubin)
    found = re.search(r"REG:(\d+) STACK:(\d+)", told)
    assert found is not None, f"a bug: cuobjdump said `{told}`"
    return int(found[1]), int(found[2])


def instructions(cubin: bytes) -> str:
    """The machine code, as text."""
    return tool("cuobjdump", "--dump-sass", cubin)


def tool(name: str, option: str, cubin: bytes) -> str:
    """What a program of Triton's wheel says of a cubin."""
    program = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([program, option, path], capture_output=True, text=True, check=True)
    return done.stdout
