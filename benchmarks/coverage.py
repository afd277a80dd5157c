"""How often do the bounds of kassay.stats miss what they bound? Seeded simulation, and enumeration where tables can be.

Every row compares the share of misses with alpha. Its error is that of the simulated share, sqrt(p (1 - p) / replicas):
a bound that is exact misses at most alpha, an approximate one about alpha, and the table says how far off.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kassay.stats import Floats
from kassay.stats.bootstrap import centered_test, mean_difference_bounds, median_interval, relative_mean_bounds
from kassay.stats.exact import binomial_upper, gate_power
from kassay.stats.hill import ceiling_interval, fit_hill, hill_curve
from kassay.stats.net import net_gate_power
from kassay.stats.paired import tango_bounds
from kassay.stats.ranks import spearman

SEED = 20261129
GSM_ITEMS = 1319
LEVELS = (0.05, 0.00625, 0.025 / 12)
CHANGE = 0.01  # nats, about the margin of the 8K studies


@dataclass(frozen=True, kw_only=True)
class Row:
    """One simulated case."""

    bound: str
    case: str
    alpha: float
    replicas: int
    misses: int

    def cells(self) -> list[str]:
        """The cells of the table."""
        share = self.misses / self.replicas
        error = math.sqrt(max(share, 1 / self.replicas) * (1 - share) / self.replicas)
        return [self.bound, self.case, f"{self.alpha:.5f}", f"{share:.5f}", f"{error:.5f}", str(self.replicas)]


def simulated(bound: str, case: str, alpha: float, replicas: int, missed: Callable[[np.random.Generator], bool]) -> Row:
    """A case, replicated with a generator of its own, so that no row depends on those before it."""
    seed = [SEED, *bound.encode(), *case.encode(), round(1e6 * alpha)]
    rng = np.random.default_rng(seed)
    misses = sum(missed(rng) for _ in range(replicas))
    return Row(bound=bound, case=case, alpha=alpha, replicas=replicas, misses=misses)


@cache
def upper_of(events: int, n: int, alpha: float) -> float:
    """The exact upper bound."""
    return binomial_upper(events, n, alpha=alpha).bound


@cache
def net_of(gains: int, losses: int, n: int, alpha: float) -> tuple[float, float]:
    """Both one-sided ends of the net difference."""
    made = tango_bounds(gains=gains, losses=losses, n=n, alpha=alpha, sidedness="one-sided")
    return made.lower, made.upper


def gross_loss_rows(replicas: int) -> Iterator[Row]:
    """The exact upper bound at true rates around the margins of the studies."""
    for n, rate in ((100, 0.05), (200, 0.05), (GSM_ITEMS, 0.005), (GSM_ITEMS, 0.02)):
        for alpha in LEVELS:

            def missed(rng: np.random.Generator, n: int = n, rate: float = rate, alpha: float = alpha) -> bool:
                return upper_of(int(rng.binomial(n, rate)), n, alpha) < rate

            yield simulated("gross loss, upper", f"n={n}, rate {rate:g}", alpha, replicas, missed)


def net_rows(replicas: int) -> Iterator[Row]:
    """Tango's lower bound at true tables from rare to frequent gains."""
    for gain, loss in ((0.0005, 0.0105), (0.005, 0.015), (0.0106, 0.0106), (0.05, 0.06)):
        for alpha in LEVELS:

            def missed(rng: np.random.Generator, gain: float = gain, loss: float = loss, alpha: float = alpha) -> bool:
                gains, losses, _ = rng.multinomial(GSM_ITEMS, [gain, loss, 1 - gain - loss])
                return net_of(int(gains), int(losses), GSM_ITEMS, alpha)[0] > gain - loss

            yield simulated("net, lower", f"n={GSM_ITEMS}, gain {gain:g}, loss {loss:g}", alpha, replicas, missed)


def documents_of(shape: str, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Losses of n documents, mean 2.4 nats, under a control and a candidate whose true mean change is CHANGE."""
    control = 2 + rng.gamma(4.0, 0.1, size=n)
    if shape == "normal":
        return control, control + CHANGE * (1 + rng.normal(size=n))
    freedom = {"gamma 4": 4.0, "exponential": 1.0}[shape]
    return control, control + rng.gamma(freedom, CHANGE / freedom, size=n)


def document_rows(replicas: int, draws: int) -> Iterator[Row]:
    """Percentile bounds of the change, from symmetric to very skewed: the upper tail is what few documents lack."""
    cases = [("mean difference", shape) for shape in ("normal", "gamma 4", "exponential")]
    for statistic, shape in [*cases, ("relative mean", "exponential")]:
        make = mean_difference_bounds if statistic == "mean difference" else relative_mean_bounds
        true = CHANGE if statistic == "mean difference" else CHANGE / 2.4
        for n in (16, 32, 64):
            for alpha in LEVELS[:2]:
                case = (shape, n, alpha, make, true)

                def missed(rng: np.random.Generator, case: tuple[Any, ...] = case) -> bool:
                    shape, n, alpha, make, true = case
                    return make(*documents_of(shape, n, rng), alpha=alpha, draws=draws, rng=rng).upper < true

                yield simulated(f"documents, {statistic}, upper", f"n={n}, {shape} change", alpha, replicas, missed)


def size_by_simulation(replicas: int, draws: int) -> Iterator[Row]:
    """Size of the centered test and of the exact rank test."""
    for documents in (16, 64):

        def rejected(rng: np.random.Generator, documents: int = documents) -> bool:
            control = rng.gamma(4.0, 0.5, size=documents)
            return centered_test(control, control + rng.normal(size=documents), draws=draws, rng=rng).p <= 0.05

        yield simulated("centered test, size", f"n={documents}", 0.05, replicas, rejected)
    for items in (5, 7):

        def related(rng: np.random.Generator, items: int = items) -> bool:
            return spearman(list(range(items)), list(rng.permutation(items).astype(float))).p <= 0.05

        yield simulated("rank correlation, all pairings, size", f"n={items}", 0.05, replicas, related)


def block_rows(replicas: int) -> Iterator[Row]:
    """The interval of a median ratio, which is descriptive: what it covers with few blocks."""
    for blocks in (3, 7, 10, 12):

        def missed(rng: np.random.Generator, blocks: int = blocks) -> bool:
            made = median_interval(list(np.exp(rng.normal(0.0, 0.01, size=blocks))), alpha=0.05)
            return not made.lower <= 1 <= made.upper

        yield simulated("median of blocks, both ends", f"n={blocks}", 0.05, replicas, missed)


def ceiling_rows(replicas: int) -> Iterator[Row]:
    """The profile interval of a saturation ceiling whose plateau the sweep reaches."""
    batches = np.array([1.0, 2, 4, 8, 16, 32, 64, 96])

    def missed(rng: np.random.Generator) -> bool:
        values = hill_curve(batches, ceiling=5000.0, half_batch=18.0, gamma=1.0)
        noisy = values * np.exp(rng.normal(0.0, 0.01, size=len(batches)))
        fit = fit_hill(batches, noisy, space="log", free_gamma=True)
        lower, upper = ceiling_interval(batches, noisy, fit, alpha=0.05)
        return not (lower is not None and lower <= 5000 and (upper is None or upper >= 5000))

    yield simulated(
        "saturation ceiling, both ends", "8 batches to 96, half batch 18, noise 1 %", 0.05, replicas, missed
    )


def all_rows(replicas: int, draws: int) -> Iterator[Row]:
    """Every case; what costs more is replicated less."""
    yield from gross_loss_rows(10 * replicas)
    yield from net_rows(10 * replicas)
    yield from document_rows(replicas, draws)
    yield from size_by_simulation(replicas, draws)
    yield from block_rows(replicas)
    yield from ceiling_rows(max(1, replicas // 5))


def size_rows() -> Iterator[list[str]]:
    """Exact size of the gate `net lower bound >= -1 point` at a true change of -1 point, by enumeration."""
    for alpha in LEVELS:
        sizes = [
            net_gate_power(GSM_ITEMS, margin=0.01, alpha=alpha, gain_rate=gain, loss_rate=gain + 0.01).power
            for gain in (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
        ]
        yield [f"{alpha:.5f}", *(f"{size:.5f}" for size in sizes), f"{max(sizes):.5f}"]


def power_rows() -> Iterator[list[str]]:
    """Power of both math objectives and of the retrieval gate at the levels of the studies, no net change."""
    for rate in (0.0, 0.001, 0.0025, 0.005, 0.0075, 0.0106, 0.015, 0.02):
        cells = [f"{rate:g}"]
        for alpha in LEVELS:
            gross = gate_power(GSM_ITEMS, margin=0.02, alpha=alpha, true_rate=rate).power
            net = net_gate_power(GSM_ITEMS, margin=0.01, alpha=alpha, gain_rate=rate, loss_rate=rate).power
            cells += [
                f"{gross:.3f}",
                f"{net:.3f}",
                f"{gate_power(200, margin=0.05, alpha=alpha, true_rate=rate).power:.3f}",
            ]
        yield cells
