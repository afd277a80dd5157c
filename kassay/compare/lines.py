"""A comparison as lines for people and pipes: columns are two or more spaces apart, and an empty cell is `-`."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from kassay.columns import columns
from kassay.compare import Change, Comparison
from kassay.compare.subject import Subject
from kassay.report.words import counted, one_line


def lines(made: Comparison) -> Iterator[str]:
    """What is refused comes first, then what differs; what is equal is counted."""
    yield from columns([described("A", made.a), described("B", made.b)])
    for one in made.refused:
        yield one.line()
    if made.withheld:
        yield f"{counted(made.withheld, 'value')} not compared"
    yield from block("settings", made.settings)
    yield from heading("pins", len(made.pins))
    yield from (f"  {one_line(name)}" for name in made.pins)
    yield from block("hosts", made.hosts)
    differing = [change for change in made.gates if change.said]
    yield from heading("gates and other words", len(differing), len(made.gates) - len(differing))
    yield from rows(differing)
    yield from heading("metrics", len(made.metrics), made.equal)
    yield from rows(made.metrics)
    if made.alone:
        yield from ("", *(one_line(name, 200) for name in made.alone))


def described(role: str, one: Subject) -> tuple[str, ...]:
    """A run in a few words."""
    ended = "not ended" if one.exit_code is None else f"exit code {one.exit_code}"
    protocol = "no study" if one.protocol is None else f"protocol {one.protocol[:8]}{' frozen' if one.frozen else ''}"
    return role, one.run, ended, f"plan {one.plan_hash[:8]}", protocol


def heading(title: str, differ: int, equal: int | None = None) -> Iterator[str]:
    """`metrics: 3 differ, 120 equal`."""
    yield ""
    yield f"{title}: {differ or 'none'} differ{'s' if differ == 1 else ''}" + (
        f", {equal} equal" if equal is not None else ""
    )


def block(title: str, changes: Sequence[Change]) -> Iterator[str]:
    """A heading and what differs."""
    yield from heading(title, len(changes))
    yield from rows(changes)


def rows(changes: Iterable[Change]) -> Iterator[str]:
    """A line a change: name, A, B, and the difference of numbers."""
    told = [(change.name, change.a, change.b, "" if change.said == "another" else change.said) for change in changes]
    if not any(difference for *_, difference in told):  # words only
        yield from (f"  {line}" for line in columns([row[:-1] for row in told]))
    else:
        yield from (f"  {line}" for line in columns(told))


def as_json(made: Comparison) -> Iterator[str]:
    """The same as one JSON document."""
    yield json.dumps(asdict(made), indent=1, ensure_ascii=False, allow_nan=False)
