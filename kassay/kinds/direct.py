"""Direct comparisons between candidates: whether they differ, which is no question of a gate."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import one_of, ordered, rule, together
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class DirectRecord(Record):
    """One comparison of a family on one model."""

    schema: ClassVar[str] = "kassay.direct/2"

    family: str = doc("Name of the family in the study.")
    endpoint: str = doc("Endpoint that is compared.")
    model: str = doc("Name of the model.")
    comparison: str = doc("Name of the comparison in the study.")
    candidate: str = doc("Recipe compared.")
    control: str = doc("Recipe that it is compared with.")
    method: str = doc("The test.")
    sidedness: str = doc("`two-sided`.")
    n: int = doc("Paired items, all planned ones.")
    items_sha256: str = doc("Digest over the ids and digests of the paired items.")
    estimate: float = doc("(gains - losses) / n of answers; mean difference of losses in nats.")
    gains: int | None = doc("Items that only the candidate got right; null for prediction loss.")
    losses: int | None = doc("Items that only the other got right; null for prediction loss.")
    draws: int | None = doc("Resamples of the bootstrap; null for an exact test.")
    seed: int | None = doc("Seed of PCG64 that they were drawn with; null for an exact test.")
    p: float = doc("p of the test.")
    p_exact: str = doc("The same as a fraction: exact for McNemar, of extreme draws for the bootstrap.")
    holm_p: float = doc("Holm-adjusted p over the family.")
    holm_p_exact: str = doc("The same as a fraction; alpha is compared with it.")
    family_size: int = doc("Planned comparisons of the family, over all models.")
    alpha: float = doc("Level of the family.")
    unchanged: bool = doc("Whether the two agree on every item: no evidence of a difference, and none of equality.")
    different: bool = doc("Whether the adjusted p is at most alpha; false is no equivalence.")

    combinations = (
        one_of("sidedness", ("two-sided",)),
        together("gains", "losses"),
        together("draws", "seed"),
        rule(
            "`gains` are there exactly where `draws` are not: answers are tested exactly",
            lambda made: (made.gains is None) != (made.draws is None),
        ),
        ordered("p", "holm_p"),
        rule(
            "`different` is whether `holm_p` is at most `alpha`",
            lambda made: made.holm_p <= made.alpha if made.different else not made.holm_p < made.alpha,
        ),
        rule(
            "`unchanged` has no `gains`, no `losses` and an `estimate` of 0",
            lambda made: not made.unchanged or not (made.gains or made.losses or made.estimate),
        ),
    )
