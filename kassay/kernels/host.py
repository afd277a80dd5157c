"""A device as kernels see it. Plain Python; `kassay.kernels.launch.host_of` fills it in from torch."""

from dataclasses import dataclass
from typing import Literal

Backend = Literal["cuda", "hip", "interpreter"]


@dataclass(frozen=True, kw_only=True)
class Host:
    """What rules ask of a device."""

    name: str
    backend: Backend
    capability: int  # of CUDA, 90 for sm_90; 0 elsewhere
    processors: int  # multiprocessors or compute units
    shared_bytes: int  # that one program may take
    shared_bytes_each: int  # of a multiprocessor
    registers_each: int  # of a multiprocessor, 32 bits wide
    bytes_per_us: float  # that memory could move, by its clock and width

    @property
    def converts_e4m3(self) -> bool:
        """Whether it has the instructions that `ASM` means: sm_89."""
        return self.backend == "cuda" and self.capability >= 89

    @property
    def launches_dependents(self) -> bool:
        """Whether a kernel may start while the one before it ends (programmatic dependent launch): sm_90."""
        return self.backend == "cuda" and self.capability >= 90

    @property
    def least_columns(self) -> int:
        """Queries of the smallest tile of its matrix units, as Triton uses them."""
        return 16 if self.backend == "hip" else 8


INTERPRETER = Host(
    name="Triton's interpreter",
    backend="interpreter",
    capability=0,
    processors=2,
    shared_bytes=1 << 30,
    shared_bytes_each=1 << 30,
    registers_each=1 << 30,
    bytes_per_us=1e6,
)
H200 = Host(
    name="NVIDIA H200",
    backend="cuda",
    capability=90,
    processors=132,
    shared_bytes=227 * 1024,
    shared_bytes_each=228 * 1024,
    registers_each=65536,
    bytes_per_us=4.917e6,
)
