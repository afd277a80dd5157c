"""Compile every kernel of ours for sm_90, on any machine: an error shows up before anything is sent to a GPU.

Rejected if a kernel does not compile or spills registers to memory.
"""

import hashlib
import os
from typing import Any

import triton

from kassay.kernels import catalogue
from kassay.kernels.ahead import Compiled
from kassay.kinds.kernel import CompiledKernel
from kassay.stage import Metrics, Rejection, Stage, main

TARGET = "sm_90"


def run(stage: Stage) -> Metrics | Rejection:
    """One record a kernel."""
    os.environ.setdefault("TRITON_CACHE_DIR", str(stage.directory / "triton"))
    planned = list(catalogue.kernels(stage.params["recipes"] or None, tuple(stage.params["head_dims"])))
    made = []
    for done, (name, head_dim, compile_it) in enumerate(planned, start=1):
        made.append(record(name, head_dim, compile_it))
        stage.append(made[-1])
        stage.progress(done, len(planned), name)
    failed = [f"{one.kernel}, head dim {one.head_dim}: {one.error}" for one in made if one.error]
    spilled = [f"{one.kernel}, head dim {one.head_dim}: {one.spills_bytes} bytes" for one in made if one.spills_bytes]
    metrics: Metrics = {
        "kernels": len(made),
        "most registers": max((one.registers for one in made if one.registers is not None), default=0),
    }
    said = [f"{len(failed)} do not compile ({failed[0]})"] if failed else []
    said += [f"{len(spilled)} spill ({spilled[0]})"] if spilled else []
    return stage.rejected("; ".join(said), **metrics) if said else metrics


def record(name: str, head_dim: int, compile_it: catalogue.Compile) -> CompiledKernel:
    """One kernel, compiled or with what the compiler said."""
    found: dict[str, Any] = {"registers": None, "spills_bytes": None, "shared_bytes": None, "cubin_sha256": ""}
    error = ""
    try:
        found = facts(compile_it())
    except Exception as raised:  # the compiler raises many kinds, and each is a result here
        error = f"{type(raised).__name__}: {str(raised).strip().splitlines()[0] if str(raised).strip() else ''}"
    return CompiledKernel(
        kernel=name, head_dim=head_dim, target=TARGET, triton=triton.__version__, **found, error=error
    )


def facts(made: Compiled) -> dict[str, Any]:
    """What a record says of machine code."""
    return {
        "registers": made.registers,
        "spills_bytes": made.spills,
        "shared_bytes": made.shared_bytes,
        "cubin_sha256": hashlib.sha256(made.cubin).hexdigest(),
    }


if __name__ == "__main__":
    main(run)
