"""Composition of two accelerations: whether their speed-ups multiply."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class CompositionRecord(Record):
    """rho of four arms on one load: S_combined / (S_quantized S_speculative), paired within blocks."""

    schema: ClassVar[str] = "kassay.composition/1"

    model: str = doc("Name of the model.")
    batch: int = doc("Requests of the load.")
    context_tokens: int = doc("Tokens of each prompt.")
    output_tokens: int = doc("Tokens generated for each request.")
    plain: str = doc("Arm without either acceleration.")
    quantized: str = doc("Arm with a quantized cache alone.")
    speculative: str = doc("Arm with speculation alone.")
    combined: str = doc("Arm with both.")
    quantized_speedups: list[float] = doc("Rate of the quantized arm over the plain one's, in block order.")
    speculative_speedups: list[float] = doc("The same of the speculative arm.")
    combined_speedups: list[float] = doc("The same of the arm with both.")
    rhos: list[float] = doc("rho of each block.")
    median: float = doc("Median of the rhos.")
    lower: float = doc("Lower end of the exact bootstrap interval of the median, two-sided, descriptive.")
    upper: float = doc("Upper end of the same interval.")
    alpha: float = doc("Probability outside the interval.")
    below: int = doc("Blocks with rho below 1.")
    above: int = doc("Blocks with rho above 1.")
    point_class: str = doc("`sub-multiplicative`, `super-multiplicative` or `multiplicative`, by the median alone.")
    interval_class: str = doc("The same by the whole interval, `undecided` where it holds 1: what may be said.")
