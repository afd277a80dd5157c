"""Direct comparisons between candidates: whether they differ, which is no question of a gate."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class DirectRecord(Record):
    """One comparison of a family on one model."""

    schema: ClassVar[str] = "kassay.direct/1"

    family: str = doc("Name of the family in the study.")
    endpoint: str = doc("Endpoint that is compared.")
    model: str = doc("Name of the model.")
    comparison: str = doc("Name of the comparison in the study.")
    candidate: str = doc("Recipe compared.")
    control: str = doc("Recipe that it is compared with.")
    method: str = doc("The test.")
    sidedness: str = doc("`two-sided`.")
    n: int = doc("Paired items, all planned ones.")
    estimate: float = doc("(gains - losses) / n of answers; mean difference of losses in nats.")
    gains: int | None = doc("Items that only the candidate got right; null for prediction loss.")
    losses: int | None = doc("Items that only the other got right; null for prediction loss.")
    draws: int | None = doc("Resamples of the bootstrap; null for an exact test.")
    p: float = doc("p of the test.")
    holm_p: float = doc("Holm-adjusted p over the family.")
    family_size: int = doc("Planned comparisons of the family, over all models.")
    alpha: float = doc("Level of the family.")
    different: bool = doc("Whether the adjusted p is at most alpha; false is no equivalence.")
