"""How often does a gate on the net difference pass, and which counts give a printed bound?

The gate passes when Tango's lower bound of p(gain) - p(loss) reaches -margin (kassay.stats.paired). The bound reaches
d exactly when the score T(d) >= z, which is a closed form, so neither question needs a bound to be solved:
    power      sum over losses c of P(c losses) P(at least b(c) gains | c losses), b(c) the fewest that pass
    inversion  all (gains, losses) with T(low) >= z and T(high) <= z for a bound printed as low to high
The losses are Binomial(n, p_loss), and the gains among the other pairs Binomial(n - c, p_gain / (1 - p_loss)): an
enumeration of every table, no simulation. T rises with the gains at fixed losses, so the fewest are found by bisection.

Power at a true difference of -margin is the size of the gate, nominally alpha; how far it is off is what "approximate
coverage" means. Source: Tango 1998 (Stat Med 17:891). All rates and margins are shares of all pairs.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, gammaln, xlog1py, xlogy

from kassay.stats import Floats, InvalidData, Sidedness, require_count, require_finite, require_level

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class NetGatePower:
    """How often a gate on the net difference passes at known rates, printed beside the gate."""

    method: str  # always `tango score, enumeration of all tables`
    sidedness: Sidedness  # always `one-sided`: the lower bound
    n: int  # paired items
    margin: float  # the lower bound must reach its negative, a share
    alpha: float  # level of the lower bound
    gain_rate: float  # supposed true share of gains
    loss_rate: float  # supposed true share of losses
    power: float  # probability that the gate passes


@dataclass(frozen=True, kw_only=True)
class RecoveredCounts:
    """The counts that give a printed lower bound; one table is a recovery, several are only candidates."""

    method: str  # always `tango score, inversion over all tables`
    sidedness: Sidedness  # always `one-sided`
    n: int  # paired items
    alpha: float  # level of the bound
    low: float  # least bound that is printed so, a share
    high: float  # largest bound that is printed so
    tables: tuple[tuple[int, int], ...]  # (gains, losses), fewest differing items first


def tango_score(gains: Counts, losses: Counts, n: int, difference: float) -> Floats:
    """T(d) of each table, arrays of equal shape; d strictly between -1 and 1, T = 0 where its variance vanishes."""
    require_count(n, "n", least=1)
    require_finite(difference, "difference")
    if not -1 < difference < 1:
        raise InvalidData(f"`difference` is {difference}, allowed is strictly between -1 and 1")
    d = difference
    big_b = (2 * n - gains + losses) * d - (gains + losses)
    big_c = -losses * d * (1 - d)
    root = np.sqrt(np.maximum(0.0, big_b * big_b - 8 * n * big_c))
    plain = (root - big_b) / (4 * n)
    q = np.where(big_b > 0, -2 * big_c / np.where(big_b > 0, root + big_b, 1.0), plain)  # the form that keeps digits
    variance = n * (2 * q + d * (1 - d))
    distance = gains - losses - n * d
    return np.where(variance > 0, distance / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0)


def fewest_gains(n: int, *, difference: float, alpha: float, strictly: bool) -> Counts:
    """For each number of losses, shape (n + 1,), the fewest gains whose lower bound reaches `difference`.

    `strictly`: exceeds it. n - losses + 1, which is impossible, where no number of gains does. Bisection over the gains
    at all losses at once.
    """
    require_level(alpha, "alpha")
    z = -NormalDist().inv_cdf(alpha)
    losses = np.arange(n + 1, dtype=np.int64)
    refused, passing = np.full(n + 1, -1, dtype=np.int64), n - losses + 1
    while (passing - refused > 1).any():
        middle = np.where(passing - refused > 1, (passing + refused) // 2, np.maximum(refused, 0))
        score = tango_score(middle, losses, n, difference)
        good = (score > z) if strictly else (score >= z)
        open_ = passing - refused > 1
        passing, refused = np.where(open_ & good, middle, passing), np.where(open_ & ~good, middle, refused)
    return passing


def net_gate_power(n: int, *, margin: float, alpha: float, gain_rate: float, loss_rate: float) -> NetGatePower:
    """Probability that the lower bound over `n` pairs reaches -`margin`; exact but for rounding.

    Rates may be 0; raises InvalidData for one outside 0 to 1 or a sum of 1 or more.
    """
    require_count(n, "n", least=1)
    require_level(margin, "margin")
    for name, rate in (("gain_rate", gain_rate), ("loss_rate", loss_rate)):
        require_finite(rate, name)
        if not 0 <= rate < 1:
            raise InvalidData(f"`{name}` is {rate}, allowed is from 0 to below 1")
    if not gain_rate + loss_rate < 1:
        raise InvalidData(f"the rates sum to {gain_rate + loss_rate}, allowed is below 1")
    fewest = fewest_gains(n, difference=-margin, alpha=alpha, strictly=False)
    losses = np.arange(n + 1)
    others = n - losses
    log_ways = gammaln(n + 1) - gammaln(losses + 1) - gammaln(others + 1)
    of_losses = np.exp(log_ways + xlogy(losses, loss_rate) + xlog1py(others, -loss_rate))
    enough = np.where(fewest <= 0, 1.0, 1 - bdtr(np.maximum(fewest - 1, 0), others, gain_rate / (1 - loss_rate)))
    return NetGatePower(
        method="tango score, enumeration of all tables",
        sidedness="one-sided",
        n=n,
        margin=margin,
        alpha=alpha,
        gain_rate=gain_rate,
        loss_rate=loss_rate,
        power=float(np.clip(np.sum(of_losses * np.where(fewest > others, 0.0, enough)), 0.0, 1.0)),
    )


def recover_counts(n: int, *, alpha: float, low: float, high: float) -> RecoveredCounts:
    """Every table of `n` pairs whose one-sided lower bound lies in `low` to `high`; there may be none."""
    if not low <= high:
        raise InvalidData(f"the bound is printed as {low} to {high}, allowed is an interval")
    first = fewest_gains(n, difference=low, alpha=alpha, strictly=False)
    beyond = fewest_gains(n, difference=high, alpha=alpha, strictly=True)
    tables = [(gains, losses) for losses in range(n + 1) for gains in range(int(first[losses]), int(beyond[losses]))]
    return RecoveredCounts(
        method="tango score, inversion over all tables",
        sidedness="one-sided",
        n=n,
        alpha=alpha,
        low=low,
        high=high,
        tables=tuple(sorted(tables, key=lambda table: (sum(table), table))),
    )
