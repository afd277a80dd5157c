"""What a kernel of ours became for an architecture, compiled on any machine."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import given_only
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class CompiledKernel(Record):
    """One kernel at one geometry."""

    schema: ClassVar[str] = "kassay.compiled_kernel/1"

    kernel: str = doc(
        "What was compiled: `attention <recipe> <splits>`, `prefix <recipe> <rows>`, `write`, `gather`, "
        "`unfused <recipe> <part>`, `merge`, `head <recipe> <splits>`, `repeat`, `turn <recipe>`, `norm`, `gate`."
    )
    head_dim: int = doc("Head dim; 0: the kernel has none.")
    target: str = doc("Architecture, such as `sm_90`.")
    triton: str = doc("Version of Triton.")
    registers: int | None = doc("Registers of a thread, null if it does not compile.")
    spills_bytes: int | None = doc("Stack frame of a thread, 0 where nothing is spilled; null if it does not compile.")
    shared_bytes: int | None = doc("Shared memory of a block, null if it does not compile.")
    cubin_sha256: str = doc("SHA-256 of the cubin, which names its source file too; empty if it does not compile.")
    error: str = doc("What the compiler said, empty if it compiles.")

    combinations = (given_only("error", ("",), "registers", "spills_bytes", "shared_bytes", "cubin_sha256"),)
