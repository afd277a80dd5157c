"""Fixed scales and what they rest on."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class ScaleRecord(Record):
    """The calibrated scale of one component of one layer."""

    schema: ClassVar[str] = "kassay.scale/1"

    model: str = doc("Name of the model.")
    component: str = doc("`k` or `v`.")
    layer: int = doc("Layer from 0.")
    amax: float = doc("Largest absolute operand over all calibration tokens.")
    scale: float = doc("FP32 scale: max(amax, 1e-12) times fp32(1/448).")
    elements: int = doc("Operands folded, prefill and decode tokens.")
    zeros: int = doc("Operands that were exactly zero.")
