"""How well are the parameters of a Hill curve known, if points come in clusters that share their errors?

Rows of one geometry, process or machine err together: intervals that take rows as independent were 2.5 to 7 times too
narrow on the public ratios. Whole clusters are drawn with replacement, each draw is fitted again from the full fit,
and the alpha / 2 and 1 - alpha / 2 quantiles of the parameters are the ends (percentile, linear between order
statistics; Davison and Hinkley 1997, section 3.8). Approximate, the more so the fewer clusters: below eight it says so,
and the clusters themselves should be shown. A draw whose fit failed is counted, never left out in silence: its
parameters stand at an end of their search range and widen the interval.

Stream: `rng.integers(0, clusters, size=clusters)` a draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kassay.stats import Floats, InvalidData, Sidedness, require_count, require_level
from kassay.stats.hill import CONVERGED, HillFit, refit_hill

FEW_CLUSTERS = 8


@dataclass(frozen=True, kw_only=True)
class ClusterIntervals:
    """Percentile intervals of the three parameters."""

    method: str  # always `bootstrap of whole clusters, percentile, linear quantiles`
    sidedness: Sidedness  # always `two-sided`
    alpha: float  # probability outside each interval
    n: int  # points
    clusters: int  # what was drawn
    draws: int
    bit_generator: str  # numpy's, by name
    failed_draws: int  # whose fit did not converge inside its search range
    ceiling: tuple[float, float]
    half_batch: tuple[float, float]
    gamma: tuple[float, float]
    flags: tuple[str, ...]  # `few_clusters`, `failed_draws`


def cluster_intervals(
    batches: Floats,
    values: Floats,
    clusters: Sequence[str],
    fit: HillFit,
    *,
    alpha: float,
    draws: int,
    rng: np.random.Generator,
) -> ClusterIntervals:
    """Intervals around `fit`, which these points gave; raises InvalidData for fewer than two clusters."""
    require_level(alpha, "alpha")
    require_count(draws, "draws", least=1)
    if len(clusters) != len(values):
        raise InvalidData(f"{len(clusters)} clusters are named for {len(values)} points, allowed is one each")
    names = np.array(clusters)
    rows = [np.flatnonzero(names == name) for name in dict.fromkeys(clusters)]
    if len(rows) < 2:
        raise InvalidData(f"there is {len(rows)} cluster, allowed are two or more")
    picked = (rng.integers(0, len(rows), size=len(rows)) for _ in range(draws))
    resamples = (np.concatenate([rows[index] for index in indices]) for indices in picked)
    made = [refit_hill(batches[chosen], values[chosen], fit) for chosen in resamples]
    failed = sum(one.status != CONVERGED for one in made)
    drawn = np.array([(one.ceiling, one.half_batch, one.gamma) for one in made])
    ends = np.quantile(drawn, [alpha / 2, 1 - alpha / 2], axis=0, method="linear").T
    ceiling, half_batch, gamma = ((float(lower), float(upper)) for lower, upper in ends)
    flags = {"few_clusters": len(rows) < FEW_CLUSTERS, "failed_draws": failed > 0}
    return ClusterIntervals(
        method="bootstrap of whole clusters, percentile, linear quantiles",
        sidedness="two-sided",
        alpha=alpha,
        n=len(values),
        clusters=len(rows),
        draws=draws,
        bit_generator=type(rng.bit_generator).__name__,
        failed_draws=failed,
        ceiling=ceiling,
        half_batch=half_batch,
        gamma=gamma,
        flags=tuple(flag for flag, raised in flags.items() if raised),
    )
