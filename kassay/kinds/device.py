"""The GPU that a study ran on, as the driver and the stack's torch tell it."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class DeviceRecord(Record):
    """One GPU, seen from a stack."""

    schema: ClassVar[str] = "kassay.device/1"

    index: int = doc("Index among the visible devices, from 0.")
    name: str = doc("Name as torch tells it.")
    capability: str = doc("Compute capability, `9.0`.")
    multiprocessors: int = doc("Number of streaming multiprocessors.")
    memory_bytes: int = doc("Total memory in bytes, as torch tells it.")
    driver: str | None = doc("Driver version, as nvidia-smi tells it; null if it does not.")
    torch: str = doc("Version of torch.")
    cuda: str | None = doc("CUDA version that torch was built with; null for another backend.")
    copy_gb_per_s: float = doc(
        "Bytes read and written per second by a copy of 1 GiB, median of the repetitions, in GB/s."
    )
    copy_repetitions_s: list[float] = doc("Seconds of each repetition of the copy, in order, the warm-up left out.")
