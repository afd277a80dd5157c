"""What is asked of a tool, as numbers from its rows, and the bars that kassay is held to.

Cold cost over the floor: (wall of the tool - mean wall of the bare spawns just before and after it) / stages, median of
the rounds; the same of CPU, which a busy neighbour disturbs less.
Growth: wall a stage at 1,000 over wall a stage at 100 within a round, the median of the rounds.
Bars of absolute time depend on the machine; the slack is what `--bars` forgives before it fails.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks.row import START, Row

MIB = 1 << 20
SMALL, LARGE, CHAIN = "fan-100", "fan-1000", "chain-100"
NOISY = 2.0  # absolute times: what a busy neighbour does to two shared cores
STEADY = 1.25  # ratios, counts and bytes within one run


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A limit on one quantity."""

    name: str
    unit: str
    limit: float
    slack: float  # factor on the limit
    values: Callable[[list[Row]], list[float]]  # one a round


def of(rows: list[Row], shape: str, phase: str) -> list[Row]:
    """The sound rows of one shape and phase."""
    return [row for row in rows if (row.shape, row.phase, row.fault) == (shape, phase, "")]


def wall(shape: str, phase: str) -> Callable[[list[Row]], list[float]]:
    """Wall seconds of a phase."""
    return lambda rows: [row.wall_s for row in of(rows, shape, phase)]


def over_floor_ms(rows: list[Row], shape: str) -> list[float]:
    """Cold milliseconds a stage above the bare spawn of the same round."""
    return [(row.wall_s - row.floor_wall_s) / row.stages * 1e3 for row in of(rows, shape, "cold")]


def cpu_over_floor_ms(rows: list[Row], shape: str) -> list[float]:
    """Cold CPU milliseconds a stage, of the tool and its stages, above those of the bare spawn."""
    return [(row.cpu_s - row.floor_cpu_s) / row.stages * 1e3 for row in of(rows, shape, "cold")]


def growth(rows: list[Row]) -> list[float]:
    """Cold wall a stage at 1,000 over that at 100, both of one round."""
    small = {row.round: row.wall_s / row.stages for row in of(rows, SMALL, "cold")}
    large = {row.round: row.wall_s / row.stages for row in of(rows, LARGE, "cold")}
    return [large[number] / small[number] for number in sorted(small.keys() & large.keys())]


def driver_mib(rows: list[Row]) -> list[float]:
    """The driver's peak over the phases of 1,000 stages, round by round."""
    peaks: dict[int, int] = {}
    for row in rows:
        if row.shape == LARGE and not row.fault:
            peaks[row.round] = max(peaks.get(row.round, 0), row.driver_bytes)
    return [peak / MIB for _, peak in sorted(peaks.items())]


BARS = (
    Bar(name="cold over the bare spawn, 1,000 stages", unit="ms a stage", limit=1.5, slack=NOISY,
        values=lambda rows: over_floor_ms(rows, LARGE)),
    Bar(name="growth of the cold wall a stage, 1,000 over 100", unit="x", limit=1.2, slack=STEADY, values=growth),
    Bar(name="no-op of 1,000, workflow composed anew", unit="s", limit=0.6, slack=NOISY, values=wall(LARGE, "fresh")),
    Bar(name="no-op of 1,000 just after the cold run, composed plan cached", unit="s", limit=0.25, slack=NOISY,
        values=wall(LARGE, "noop")),
    Bar(name="no-op of 1,000 once more", unit="s", limit=0.25, slack=NOISY, values=wall(LARGE, "again")),
    Bar(name="one leaf of 1,000 changed", unit="s", limit=0.3, slack=NOISY, values=wall(LARGE, "leaf")),
    Bar(name="stages run in a chain of 100 after an unchanged first output", unit="stages", limit=1, slack=1,
        values=lambda rows: [float(row.ran) for row in of(rows, CHAIN, "leaf")]),
    Bar(name="`--help`", unit="s", limit=0.12, slack=NOISY, values=wall(START, "help")),
    Bar(name="driver's peak, 1,000 stages", unit="MiB", limit=45, slack=STEADY, values=driver_mib),
)  # fmt: skip


def verdict(bar: Bar, rows: list[Row]) -> str:
    """`met`, `not met` or `not measured`, of one tool's rows."""
    values = bar.values(rows)
    if not values:
        return "not measured"
    return "met" if median(values) <= bar.limit else "not met"


def missed(rows: list[Row]) -> list[str]:
    """The bars that one tool's rows miss by more than the slack, or do not tell of."""
    found = []
    for bar in BARS:
        values = bar.values(rows)
        if not values or not median(values) <= bar.limit * bar.slack:
            told = f"{median(values):.3g} {bar.unit}" if values else "not measured"
            found.append(f"{bar.name}: {told}, allowed is {bar.limit} {bar.unit} x {bar.slack}")
    return found
