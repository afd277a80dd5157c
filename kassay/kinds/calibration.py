"""Fixed scales and what they rest on."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import one_of, ordered, rule
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class ScaleRecord(Record):
    """The calibrated scale of one component of one layer."""

    schema: ClassVar[str] = "kassay.scale/2"

    model: str = doc("Name of the model.")
    sixteen: str = doc("16-bit format of the operands, `fp16` or `bf16`.")
    component: str = doc("`k`, `v`, or `k_residual`: keys without their rotated bias.")
    layer: int = doc("Layer from 0.")
    amax: float = doc("Largest absolute operand over all calibration tokens.")
    scale: float = doc("FP32 scale: max(amax, 1e-12) times fp32(1/448).")
    elements: int = doc("Operands folded, prefill and decode tokens.")
    zeros: int = doc("Operands that were exactly zero.")
    all_zero: bool = doc("Whether all were zero: the scale is the floor's and rests on nothing.")
    saturated: int = doc("Operands of the calibration that round beyond the range under the scale; 0 if it is right.")
    saturated_elsewhere: int = doc("Operands of the development documents that do.")

    combinations = (
        one_of("sixteen", ("fp16", "bf16")),
        one_of("component", ("k", "v", "k_residual")),
        ordered("zeros", "elements"),
        rule(
            "`all_zero` is whether `amax` is 0 and `zeros` are all `elements`",
            lambda made: made.all_zero == (made.amax == 0) == (made.zeros == made.elements),
        ),
    )
