"""What batch and context say about throughput together: one record for each law that was fitted to all contexts."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import as_long, one_of
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class LawRecord(Record):
    """One law on one recipe's rates at all contexts, in the same residual space as its rivals."""

    schema: ClassVar[str] = "kassay.saturation_law/1"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    law: str = doc("`hill of B, each context`, `hill of B, pooled`, `hill of B T, pooled` or `affine step time`.")
    batches: list[int] = doc("Batch of each point.")
    contexts_tokens: list[int] = doc("Context of each point in tokens.")
    steps_s: list[float] = doc("Measured decode step of each point in seconds.")
    residual_space: str = doc("`log` (ln S - ln fit) or `linear` (S - fit), of tokens per second.")
    parameters: dict[str, float] = doc("Fitted parameters by name and unit.")
    residuals: list[float] = doc("Residual of each point.")
    rss: float = doc("Sum of squared residuals.")
    rms_log_residual: float = doc("Root mean square of ln(measured/fitted).")
    aic: float = doc("n ln(rss / n) + 2 (k + 1), k parameters.")
    aicc: float | None = doc("AIC with its small-sample correction; null where that does not exist.")
    best: bool = doc("Whether it has the least AICc of all laws on these points.")
    cached_shares: list[float] | None = doc(
        "f_KV by time at each point: the share of a step that the cached tokens take; null for other laws, and where a "
        "cost is below zero."
    )
    flags: list[str] = doc("What limits the fit.")

    combinations = (
        one_of("residual_space", ("log", "linear")),
        as_long("batches", "contexts_tokens", "steps_s", "residuals", "cached_shares"),
    )
