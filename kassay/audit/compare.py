"""Are two sets of records the same? By what identifies each record, field by field.

Every value is compared bit for bit but those of LOOSE: a resampled mean is summed by vector instructions, an incomplete
beta function and a fit end at the last digits of the processor's. There a relative tolerance holds, for the numbers
inside a sentence too; words, counts, verdicts, seeds, digests and p values as fractions have none.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kassay.audit import Difference
from kassay.audit.files import different

ROUNDING = 1e-12  # of special functions and of sums of a few thousand values
RESAMPLED = 1e-9  # of quantiles over resampled means
FITTED = 1e-6  # of a fit, whose last steps depend on the order of operations
LOOSE: dict[str, dict[str, float]] = {  # kind -> field -> relative tolerance
    "kassay.gate": dict.fromkeys(("estimate", "lower", "upper", "power", "reason"), RESAMPLED),
    "kassay.direct": {"estimate": ROUNDING},
    "kassay.saturation": dict.fromkeys(
        (
            "ceiling_per_s", "ceiling_lower_per_s", "ceiling_upper_per_s", "other_ceiling_per_s", "half_batch", "gamma",
            "reached", "rms_log_residual", "r2", "fitted_per_s", "elasticities", "marginal_per_s", "statement",
        ),
        FITTED,
    ),
}  # fmt: skip
FITTED_KINDS = (  # every number of theirs is of a fit or an interval
    "kassay.law", "kassay.saturation_law", "kassay.composition", "kassay.fusion_fit", "kassay.fusion_verdict",
    "kassay.fusion_claim",
)  # fmt: skip
KEYS = (  # fields that tell one record of a kind from another
    "model", "workload", "recipe", "candidate", "control", "comparison", "contrast", "objective", "gate", "endpoint",
    "family", "context_tokens", "batch", "figure", "law", "probe", "arm", "quantity", "load", "baseline", "covariate",
    "ceiling_rule", "claim",
)  # fmt: skip
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass
class Compared:
    """What a comparison found."""

    stage: str
    values: int = 0
    loose: int = 0
    differences: list[Difference] = field(default_factory=list)

    def add(self, record: str, name: str, recorded: object, derived: object) -> None:
        """One more difference."""
        self.differences.append(different(self.stage, record, name, recorded, derived))


def records(stage: str, recorded: Sequence[dict[str, Any]], derived: Sequence[dict[str, Any]]) -> Compared:
    """Two lists of parsed records, as one stage left them and as they were derived again."""
    told = Compared(stage=stage)
    was, now = numbered(recorded), numbered(derived)
    for name in was.keys() - now.keys():
        told.add(name, "presence", "there", "no such record")
    for name in now.keys() - was.keys():
        told.add(name, "presence", "no such record", "there")
    if not told.differences and list(was) != list(now):
        told.add("records.jsonl", "order", list(was), list(now))
    for name in was:
        if name in now:
            fields(told, name, was[name], now[name])
    return told


def numbered(bodies: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each record under what identifies it; one that is there twice is told apart by its number."""
    seen: Counter[str] = Counter()
    found = {}
    for body in bodies:
        said = ", ".join(f"{key} {body[key]}" for key in KEYS if key in body)
        name = f"{body.get('schema')} ({said})" if said else str(body.get("schema"))
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name} no. {seen[name]}"] = body
    return found


def fields(told: Compared, name: str, was: dict[str, Any], now: dict[str, Any]) -> None:
    """The fields of one record."""
    for key in {**was, **now}:
        if key not in was or key not in now:
            told.add(name, key, was.get(key, "absent"), now.get(key, "absent"))
            continue
        told.values += 1
        tolerance = tolerance_of(str(was.get("schema")), key)
        if same(was[key], now[key]):
            continue
        if tolerance and near(was[key], now[key], tolerance):
            told.loose += 1
        else:
            told.add(name, key, was[key], now[key])


def tolerance_of(schema: str, key: str) -> float:
    """The relative tolerance of a field; 0 for one that is compared bit for bit."""
    kind = schema.rpartition("/")[0]
    return FITTED if kind in FITTED_KINDS else LOOSE.get(kind, {}).get(key, 0.0)


def same(was: Any, now: Any) -> bool:
    """Whether two values of JSON are the same to the bit; 1 and 1.0 are not, and neither are 0.0 and -0.0."""
    if isinstance(was, float) and isinstance(now, float):
        return was.hex() == now.hex()
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(map(same, was, now))
    if isinstance(was, dict) and isinstance(now, dict):
        return was.keys() == now.keys() and all(same(was[key], now[key]) for key in was)
    return type(was) is type(now) and bool(was == now)


def near(was: Any, now: Any, tolerance: float) -> bool:
    """Whether two values agree but for the digits that the tolerance leaves open."""
    if isinstance(was, float) and isinstance(now, float):
        return math.isclose(was, now, rel_tol=tolerance, abs_tol=tolerance * 1e-3)
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(near(a, b, tolerance) for a, b in zip(was, now, strict=True))
    if isinstance(was, dict) and isinstance(now, dict):
        return was.keys() == now.keys() and all(near(was[key], now[key], tolerance) for key in was)
    if isinstance(was, str) and isinstance(now, str):
        numbers = zip(map(float, NUMBER.findall(was)), map(float, NUMBER.findall(now)), strict=False)
        return NUMBER.sub("#", was) == NUMBER.sub("#", now) and all(near(a, b, tolerance) for a, b in numbers)
    return same(was, now)
