"""When the requests of an open loop are sent, and whether they were.

    poisson    gaps are independent draws of an exponential distribution: their CV tends to 1
    constant   every gap is 1/rate: CV 0

The drawn gaps are scaled so that their mean is 1/rate: 32 gaps of a rate are off it by 18 % in the mean, and blocks
with other loads would be compared. What is left is compared twice: the schedule's gap variation with what was offered,
within TOLERANCE standard errors, and the starts with the schedule, exactly but for their lag. Another tool's starts
are compared with what was offered. CV: population standard deviation of the gaps over their mean.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kassay.stats import InvalidData

PATTERNS = ("poisson", "constant")
TOLERANCE = 4.0  # standard errors by which a Poisson rate or CV may be off: 1 in 16,000
RATE_SHARE = 0.02  # by which the rate of the starts may be off that of the schedule


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Rate and gap variation of a sequence of moments."""

    per_s: float | None  # None: fewer than two moments
    gap_cv: float | None  # None: fewer than two gaps


def offsets(pattern: str, *, per_s: float, count: int, seed: int) -> list[float]:
    """Seconds from the first request to each, a function of the arguments alone. Raises InvalidData for no schedule."""
    if pattern not in PATTERNS or not per_s > 0 or count < 1:
        raise InvalidData(f"no schedule of {count} requests at {per_s} a second, `{pattern}`: {', '.join(PATTERNS)}")
    drawn = random.Random(seed)
    gaps = [drawn.expovariate(1.0) if pattern == "poisson" else 1.0 for _ in range(count - 1)]
    scale = len(gaps) / per_s / sum(gaps) if gaps else 0.0
    return [0.0, *accumulate(gap * scale for gap in gaps)]


def pace(moments_s: Sequence[float]) -> Pace:
    """Rate and gap variation of moments in their order."""
    gaps = [later - earlier for earlier, later in pairwise(sorted(moments_s))]
    span = sum(gaps)
    if not span > 0:
        return Pace(per_s=None, gap_cv=None)
    mean = span / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    return Pace(per_s=1 / mean, gap_cv=deviation / mean if len(gaps) > 1 else None)


def off_offer(found: Pace, *, pattern: str, per_s: float, count: int) -> list[str]:
    """Where a pace is not what was offered; of another tool's starts this is all that can be asked."""
    if found.per_s is None:
        return []
    spread = TOLERANCE / math.sqrt(count - 1) if pattern == "poisson" else RATE_SHARE
    wanted_cv = 1.0 if pattern == "poisson" else 0.0
    faults = []
    if not abs(per_s / found.per_s - 1) <= spread:
        faults.append(f"the rate is {found.per_s:.3g} a second where {per_s:.3g} were offered")
    if found.gap_cv is not None and not abs(found.gap_cv - wanted_cv) <= max(spread, 0.1):
        faults.append(f"the gaps vary by {found.gap_cv:.2f} of their mean where {wanted_cv:g} was offered")
    return faults


def off_schedule(planned: Pace, kept: Pace, *, largest_lag_s: float, lag_limit_s: float) -> list[str]:
    """Where the starts are not what the schedule says."""
    faults = []
    if not largest_lag_s <= lag_limit_s:
        faults.append(f"a request started {largest_lag_s:.3f} s late, allowed is {lag_limit_s:g} s")
    if planned.per_s and kept.per_s and not abs(kept.per_s / planned.per_s - 1) <= RATE_SHARE:
        faults.append(f"the starts came at {kept.per_s:.3g} a second, the schedule's rate is {planned.per_s:.3g}")
    return faults
