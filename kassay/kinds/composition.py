"""Composition of two accelerations: whether their speed-ups multiply."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class CompositionRecord(Record):
    """rho of four arms on one load: S_combined / (S_quantized S_speculative), paired within blocks."""

    schema: ClassVar[str] = "kassay.composition/2"

    load: str = doc("Name of the load, that of its cells.")
    model: str = doc("Name of the model.")
    batch: int = doc("Requests of the load.")
    context_tokens: int = doc("Tokens of each prompt.")
    output_tokens: int = doc("Tokens generated for each request.")
    plain: str = doc("Arm without either acceleration.")
    quantized: str = doc("Arm with a quantized cache alone.")
    speculative: str = doc("Arm with speculation alone.")
    combined: str = doc("Arm with both.")
    blocks: int = doc("Planned blocks.")
    valid_blocks: list[int] = doc("Numbers of the blocks that count, in whose order ratios stand.")
    needed_blocks: int = doc("How many must count; with fewer the load is `invalidated`, and has no numbers.")
    quantized_speedups: list[float] = doc(
        "Rate of the quantized arm over the plain one's in each block that counts; empty if the load is invalidated."
    )
    speculative_speedups: list[float] = doc("The same of the speculative arm.")
    combined_speedups: list[float] = doc("The same of the arm with both.")
    rhos: list[float] = doc("rho of each block that counts; empty if the load is invalidated.")
    median: float | None = doc("Median of the rhos; null if the load is invalidated, as are the numbers below.")
    lower: float | None = doc("Lower end of the exact bootstrap interval of the median, two-sided, descriptive.")
    upper: float | None = doc("Upper end of the same interval.")
    alpha: float = doc("Probability outside the interval.")
    below: int | None = doc("Blocks with rho below 1.")
    above: int | None = doc("Blocks with rho above 1.")
    point_class: str | None = doc(
        "`sub-multiplicative`, `super-multiplicative` or `multiplicative`, by the median alone."
    )
    interval_class: str = doc(
        "The same by the whole interval, `undecided` where it holds 1: what may be said; `invalidated` if too few "
        "blocks count."
    )
    reason: str = doc("Why the load is invalidated; empty if it is not.")
