"""A matrix over many loads counted once more, by plain code that shares nothing with kassay.matrix.

Verdicts of gates are taken from their numbers, the study's stop rules walked again row by row, blocks judged again from
cells and conditions, ratios taken from the stamps, Holm stepped down over the whole family, those included that the
study counts and does not list. Intervals are not drawn again here (kassay.audit.rederive does).
"""

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from kassay import paths
from kassay.audit import compare
from kassay.audit.blocks import cells_of, holm, needed_of, ratios_of, recount_blocks, recount_design, tail
from kassay.audit.checks import Body, bodies, check
from kassay.audit.files import Run
from kassay.audit.gates import of_cases, verdict_of, worst
from kassay.entry import Stage

TIMED_LAST = "timing"
RAN = ("pass", "fails", "unestablished", "ineligible")
Place = tuple[str, str]  # load, comparison


@dataclass(kw_only=True)
class Row:
    """What follows of one planned row."""

    said: list[str] = field(default_factory=list)  # by the stages before timing
    stopped: str = ""  # the word that stands for timing where it may not run
    quality: str = "pass"
    ratios: list[float] | None = None
    void: bool = False  # timed, and too few blocks count
    p: Fraction | None = None  # None: there was no test


def recount(run: Run, stage: Stage, told: compare.Compared) -> None:
    """Every row of a stage `matrix`, and every block."""
    study, made = stage.params["study"], run.folder(stage.name) / paths.RECORDS
    gates = gates_of(run, stage, study)
    rows = {
        (load, name): walked(study, gates, load, name)
        for load in study["timing"]["workloads"]
        for name in study["comparisons"]
    }
    for load, raw in files_of(run, stage, "timing"):
        recount_load(told, run, stage, load, raw, rows)
    for row in rows.values():
        if row.ratios is not None and row.quality == "pass":
            wins, n = sum(ratio > 1 for ratio in row.ratios), len(row.ratios)
            row.p = Fraction(tail(wins, n), 2**n)
    recorded = {(one["workload"], one["comparison"]): one for one in bodies(made, "matrix_row")}
    check(told, "rows", "presence", [list(place) for place in recorded], [list(place) for place in rows])
    adjusted = adjusted_of(rows, study["timing"]["family_size"])
    for place, row in rows.items():
        if place in recorded:
            recount_row(told, study, place, row, adjusted[place], recorded[place])


def files_of(run: Run, stage: Stage, group: str) -> Iterator[tuple[str, Path]]:
    """(member, file) of the inputs `<group>.<member>`. Raises ValueError for one that is not there."""
    for name, reference in stage.inputs.items():
        of, _, member = name.partition(".")
        if of == group and member:
            path = run.artifact(reference)
            if path is None:
                raise ValueError(f"input {name} is not there")
            yield member, path


def gates_of(run: Run, stage: Stage, study: Body) -> dict[tuple[str, str, str], str]:
    """(model, comparison, gate) -> verdict, from the numbers of each gate."""
    found: dict[tuple[str, str, str], str] = {}
    pairs = study["comparisons"].items()
    for _, path in files_of(run, stage, "gates"):
        for gate in bodies(path, "gate"):
            own = [
                name
                for name, two in pairs
                if [two["candidate"], two["control"]] == [gate["candidate"], gate["control"]]
            ]
            found |= {(gate["model"], name, gate["gate"]): verdict_of(gate) for name in own}
        for gate in bodies(path, "case_gate"):
            found |= {(gate["model"], name, gate["gate"]): of_cases(gate) for name, _ in pairs}
    return found


def walked(study: Body, gates: dict[tuple[str, str, str], str], load: str, name: str) -> Row:
    """The stages of one row in their order; a rule that stops keeps later ones off, and the first rule stays."""
    row, off = Row(), dict[str, str]()
    model = study["workloads"][load]["model"]
    for stage in study["stages"]:
        if stage == TIMED_LAST:
            continue
        word = off.get(stage) or gates.get((model, name, stage), "not run")
        row.said.append(word)
        for rule in study["stops"]:
            if rule["after"] == stage and word in rule["when"]:
                off = {later: rule["verdict"] for later in rule["gates_off"]} | off
    if any(word != "pass" for word in row.said):
        row.quality = worst([*(word for word in row.said if word in RAN), "unestablished"])
        row.stopped = "not run"
    row.stopped = off.get(TIMED_LAST, row.stopped)
    return row


def recount_load(told: compare.Compared, run: Run, stage: Stage, load: str, raw: Path, rows: dict[Place, Row]) -> None:
    """The blocks of one timed load, and the ratios of the rows whose arms it holds."""
    study, made = stage.params["study"], run.folder(stage.name) / paths.RECORDS
    orders = dict(files_of(run, stage, "orders"))[load]
    design: list[list[str]] = orders_of(orders)
    cells = cells_of(raw)[load]
    recount_design(told, load, cells, design)
    check(
        told,
        f"cells of {load}",
        "model",
        sorted({cell["model"] for cell in cells}),
        [study["workloads"][load]["model"]],
    )
    good = recount_blocks(told, raw, load, cells, study["timing"], made)
    for name, pair in study["comparisons"].items():
        if not all({pair["candidate"], pair["control"]} <= set(order) for order in design):
            continue
        row = rows[load, name]
        check(told, f"row {name} at {load}", "timed though", row.stopped, "")
        row.void = len(good) < needed_of(study["timing"])
        row.ratios = None if row.void else ratios_of(cells, good, pair["candidate"], pair["control"])


def orders_of(path: Path) -> list[list[str]]:
    """The planned orders of a load."""
    found: list[list[str]] = json.loads(path.read_bytes())["orders"]
    return found


def adjusted_of(rows: dict[Place, Row], family_size: int) -> dict[Any, Fraction]:
    """Holm over the whole family: a comparison without a test has p = 1, and so has one that is not listed."""
    p_values: dict[Any, Fraction] = {place: Fraction(1) if row.p is None else row.p for place, row in rows.items()}
    p_values |= {("not listed", number): Fraction(1) for number in range(family_size - len(rows))}
    return holm(p_values)


def recount_row(told: compare.Compared, study: Body, place: Place, row: Row, p: Fraction, one: Body) -> None:
    """One row against what follows."""
    name, pair, timing = f"row {place[1]} at {place[0]}", study["comparisons"][place[1]], study["timing"]
    verdict = verdict_of_row(row, p, timing)
    expected = (study.get("expected") or {}).get(place[0], {}).get(place[1])
    derived = {
        "study": study["name"],
        "model": study["workloads"][place[0]]["model"],
        "candidate": pair["candidate"],
        "control": pair["control"],
        "stages": [stage for stage in study["stages"] if stage != TIMED_LAST],
        "verdicts": row.said,
        "ratios": row.ratios,
        "median": None if row.ratios is None else statistics.median(row.ratios),
        "wins": None if row.ratios is None else sum(ratio > 1 for ratio in row.ratios),
        "p": None if row.p is None else float(row.p),
        "holm_p": float(p),
        "family_size": timing["family_size"],
        "alpha": timing["alpha"],
        "screen_ratio": timing["screen_ratio"],
        "verdict": verdict,
        "expected": expected,
        "as_expected": None if expected is None else expected == verdict,
    }
    for field_name, value in derived.items():
        check(told, name, field_name, one[field_name], value)


def verdict_of_row(row: Row, p: Fraction, timing: Body) -> str:
    """What stopped it, else that its blocks do not count, that nothing timed it, or what test and screen say."""
    if row.stopped:
        return row.stopped
    if row.void:
        return "invalidated"
    if row.ratios is None:
        return "not run"
    won = p <= Fraction(timing["alpha"]) and statistics.median(row.ratios) >= timing["screen_ratio"]
    return "gain confirmed" if won else "no confirmed gain"
