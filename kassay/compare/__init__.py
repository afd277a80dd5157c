"""Two runs beside each other: `make compare A=<run> B=<run>`.

Settings, pins, hosts, gates and metrics, with what differs; and what must not be compared, with the reason
(kassay.compare.refusals). Nothing is judged: whether a difference is a regression is for a study, or for the nightly
run with its tolerances. Read-only, from the run directories alone.
"""

from dataclasses import dataclass
from pathlib import Path

from kassay.compare.metrics import Metric, metrics_of
from kassay.compare.refusals import UNSET, Refusal, pins, refusals
from kassay.compare.subject import Subject, subject_of
from kassay.errors import EXIT_PASSED, EXIT_UNMET, RunError


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing in both runs."""

    name: str
    a: str
    b: str
    said: str  # the difference, or why there is none to tell; empty for equal values


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What two runs have in common and what not."""

    a: Subject
    b: Subject
    refused: tuple[Refusal, ...]
    settings: tuple[Change, ...]  # of those that differ
    pins: tuple[str, ...]  # of those that differ, `name was -> now`
    hosts: tuple[Change, ...]  # of those that differ
    gates: tuple[Change, ...]  # every verdict that may be compared, equal ones too
    metrics: tuple[Change, ...]  # every number that may be compared and differs
    equal: int  # numbers that are the same
    alone: tuple[str, ...]  # what only one of the two has
    withheld: int  # values that are not compared, for the reasons in `refused`

    @property
    def exit_code(self) -> int:
        """0 where all could be compared, 4 where something was refused, or there is nothing that both have."""
        compared = self.equal or self.gates or self.metrics
        return EXIT_UNMET if self.refused or not compared else EXIT_PASSED


def compare(a: Path, b: Path) -> Comparison:
    """The comparison of two run directories. Raises RunError for one that is none, and for a run with itself."""
    first, second = subject_of(a), subject_of(b)
    if first.run == second.run:
        raise RunError(f"`{first.run}` is compared with itself", hint="make runs lists the others")
    refused = refusals(first, second)
    was, now = metrics_of(a), metrics_of(b)
    allowed = [name for name in was if name in now and not forbidden(was[name], now[name], refused)]
    changes = [changed(was[name], now[name]) for name in allowed]
    words = {name for name in allowed if is_word(was[name]) or is_word(now[name])}
    numbers = [change for change in changes if change.name not in words]
    return Comparison(
        a=first,
        b=second,
        refused=tuple(refused),
        settings=tuple(differences(first.settings, second.settings)),
        pins=tuple(pins(first, second)),
        hosts=tuple(differences(hosts(first), hosts(second))),
        gates=tuple(change for change in changes if change.name in words),
        metrics=tuple(change for change in numbers if change.said),
        equal=sum(not change.said for change in numbers),
        alone=tuple(f"{name}: only in {one.run}" for one, names in alone(first, second, was, now) for name in names),
        withheld=len(was.keys() & now.keys()) - len(allowed),
    )


def alone(a: Subject, b: Subject, was: dict[str, Metric], now: dict[str, Metric]) -> list[tuple[Subject, list[str]]]:
    """What only one run has, by run."""
    return [(a, [name for name in was if name not in now]), (b, [name for name in now if name not in was])]


def forbidden(was: Metric, now: Metric, refused: list[Refusal]) -> bool:
    """Whether a value must not be compared. How a stage ended is always told, but for another question."""
    parts = {one.part for one in refused}
    if "everything" in parts:
        return True
    if was.name.endswith(": outcome"):
        return False
    return "judgements" in parts or ("host-bound" in parts and (was.host_bound or now.host_bound))


def is_word(metric: Metric) -> bool:
    """Whether a value is a verdict or another word, and no number."""
    return isinstance(metric.value, str | bool)


def changed(was: Metric, now: Metric) -> Change:
    """The difference of two values; an absent one has none, and its reason stands in its place."""
    a, b = was.value, now.value
    if a is None or b is None:
        said = "" if a is None and b is None else "no difference: one is absent"
    elif isinstance(a, str | bool) or isinstance(b, str | bool):
        said = "" if a == b else "another"
    else:
        said = "" if a == b else difference(float(a), float(b))
    return Change(name=was.name, a=shown(was), b=shown(now), said=said)


def difference(a: float, b: float) -> str:
    """`+0.012 (+3.1 %)`; without a share where the first is 0."""
    share = f" ({100 * (b - a) / abs(a):+.3g} %)" if a else ""
    return f"{b - a:+.4g}{share}"


def shown(metric: Metric) -> str:
    """A value as it is told."""
    if metric.value is None:
        return f"absent ({metric.absent})"
    if isinstance(metric.value, float):
        return f"{metric.value:.6g}{f' {metric.unit}' if metric.unit else ''}"
    return f"{metric.value}"


def hosts(one: Subject) -> dict[str, object]:
    """What a reader wants to know of where a run was made."""
    told: dict[str, object] = {f"host {key}": value for key, value in (one.host or {}).items()}
    return told | {"GPUs": ", ".join(one.devices) or "none", "kassay commit": one.own_commit or "unknown"}


def differences(was: dict[str, object], now: dict[str, object]) -> list[Change]:
    """The keys whose values differ."""
    return [
        Change(name=name, a=str(was.get(name, UNSET)), b=str(now.get(name, UNSET)), said="another")
        for name in sorted({*was, *now})
        if was.get(name, UNSET) != now.get(name, UNSET)
    ]
