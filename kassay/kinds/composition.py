"""Composition of two accelerations: whether their speed-ups multiply."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import as_long, given_only, one_of, ordered, rule
from kassay.record import Record, doc

CLASSES = ("sub-multiplicative", "super-multiplicative", "multiplicative")


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

    combinations = (
        one_of("interval_class", (*CLASSES, "undecided", "invalidated")),
        one_of("point_class", (*CLASSES, None)),
        given_only(
            "interval_class", (*CLASSES, "undecided"), "quantized_speedups", "speculative_speedups",
            "combined_speedups", "rhos", "median", "lower", "upper", "below", "above", "point_class",
        ),
        given_only("interval_class", ("invalidated",), "reason"),
        rule(
            "`interval_class` is `invalidated` exactly where fewer of `valid_blocks` are there than `needed_blocks`",
            lambda made: (made.interval_class == "invalidated") == (len(made.valid_blocks) < made.needed_blocks),
        ),
        as_long("quantized_speedups", "speculative_speedups", "combined_speedups", "rhos"),
        rule(
            "`rhos` are as many as `valid_blocks`, or none",
            lambda made: not made.rhos or len(made.rhos) == len(made.valid_blocks),
        ),
        ordered("lower", "upper"),
        rule(
            "`below` and `above` add up to no more than `rhos`",
            lambda made: (made.below or 0) + (made.above or 0) <= len(made.rhos),
        ),
        rule("`valid_blocks` are at most `blocks`", lambda made: len(made.valid_blocks) <= made.blocks),
    )  # fmt: skip
