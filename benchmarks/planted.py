"""How often is a planted slowdown of 3 % confirmed, and how often none, through the blocks that judge a run?

    python -m benchmarks.planted

The clock of a cell is a counter of work: the units that its arm really performed, times what the host adds, which is
seeded. A host drifts from block to block (common to the cells of a block) and disturbs each fresh process on its own;
only the second reaches a ratio within a block. 40 repetitions of a study each, of 12 blocks of two arms in Williams
order, with 3 % more units in one arm and with none; every repetition goes through orders, cells, ratios, sign test,
Holm, screen and verdict of kassay.stats.blocks.
"""

from dataclasses import dataclass

import numpy as np

from kassay.stats.blocks import BlockCell, PlannedContrast, block_ratios, contrast_verdicts
from kassay.stats.orders import counterbalanced_orders

SEED = 20261130
REPETITIONS = 40
BLOCKS = 12
TOKENS = 256  # of a cell
UNITS_PER_TOKEN = 1000
SLOWDOWN = 0.03
DRIFT = 0.05  # standard deviation of the host's step from block to block, in ln time
NOISES = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05)  # of a fresh process, in ln time
FAST, SLOW = "fast", "slow"


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What of 40 studies was confirmed at one noise."""

    noise: float  # standard deviation of a process, in ln time
    planted: int  # confirmed with the planted slowdown
    null: int  # confirmed without
    reached: int  # planted ones whose median met the screen


class Counter:
    """A clock that only work moves."""

    def __init__(self) -> None:
        self.units = 0

    def decode(self, units: int) -> None:
        """One token of so many units."""
        for _ in range(units // 100):
            self.units += 100
        self.units += units % 100


def cell_units(slowdown: float) -> int:
    """Units that a cell performs, counted while it does."""
    counter = Counter()
    for _ in range(TOKENS):
        counter.decode(round(UNITS_PER_TOKEN * (1 + slowdown)))
    return counter.units


def study(slowdown: float, noise: float, rng: np.random.Generator) -> tuple[str, float]:
    """Verdict and median ratio of one study: the fast arm over the slow one."""
    orders = counterbalanced_orders((FAST, SLOW), BLOCKS)
    units = {FAST: cell_units(0.0), SLOW: cell_units(slowdown)}
    host = np.exp(np.cumsum(rng.normal(0, DRIFT, BLOCKS)))
    cells = [
        BlockCell(
            block=block,
            position=position,
            arm=arm,
            rate_per_s=float(TOKENS / (units[arm] * host[block] * np.exp(rng.normal(0, noise)))),
        )
        for block, order in enumerate(orders)
        for position, arm in enumerate(order)
    ]
    planned = PlannedContrast(
        contrast="fast / slow",
        candidate=FAST,
        control=SLOW,
        certificate="pass",
        ratios=block_ratios(cells, orders=orders, candidate=FAST, control=SLOW),
        reason="",
    )
    (made,) = contrast_verdicts([planned], planned_blocks=BLOCKS, alpha=0.05, interval_alpha=0.05, screen_ratio=1.01)
    return made.verdict, made.summary.median if made.summary else 0.0


def counted(noise: float, repetitions: int = REPETITIONS) -> Counted:
    """Both kinds of study at one noise, each repetition from a seed of its own."""
    kept: dict[float, list[tuple[str, float]]] = {}
    for rank, slowdown in enumerate((SLOWDOWN, 0.0)):
        seeds = [np.random.SeedSequence([SEED, rank, round(noise * 1e6), index]) for index in range(repetitions)]
        kept[slowdown] = [study(slowdown, noise, np.random.Generator(np.random.PCG64(seed))) for seed in seeds]
    return Counted(
        noise=noise,
        planted=sum(verdict == "gain confirmed" for verdict, _ in kept[SLOWDOWN]),
        null=sum(verdict == "gain confirmed" for verdict, _ in kept[0.0]),
        reached=sum(median >= 1.01 for _, median in kept[SLOWDOWN]),
    )


def main() -> None:
    """The table."""
    print(f"# {REPETITIONS} studies each: {BLOCKS} blocks, slowdown {SLOWDOWN:.0%}, drift {DRIFT:.0%} a block")
    print("noise of a process   planted confirmed   median met the screen   null confirmed")
    for noise in NOISES:
        made = counted(noise)
        print(f"{made.noise:18.1%}   {made.planted:17}   {made.reached:21}   {made.null:14}")


if __name__ == "__main__":
    main()
