"""Every planned comparison of a family of loads as one row, whatever stopped it: what a matrix over models says.

A row walks through the study's stages in order. Each has a verdict, or a predeclared stop rule kept it from running, or
it has no result, which is said and never counts as a pass. Only a row whose stages all pass is timed into the family;
every other comparison keeps its place in Holm's with p = 1, those that the study counts without listing them included.

A load is timed in blocks of its own, with the arms that qualified: where fewer count than the plan needs, its rows
alone are `invalidated`, p = 1.

A result of a stage that a stop rule forbids is an error: a negative row is never run on. Pure functions; who writes the
records is stages/matrix.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kassay.judging import needed_ratios
from kassay.kinds.matrix import MatrixRow
from kassay.stats import InvalidData
from kassay.stats.blocks import INVALIDATED, ContrastVerdict, PlannedContrast, contrast_verdicts
from kassay.stats.certificate import worst

TIMING = "timing"  # the stage that a row ends with
NOT_RUN = "not run"
Verdicts = Mapping[tuple[str, str, str], tuple[str, str]]  # (model, comparison, stage) -> verdict, reason
Ratios = Mapping[tuple[str, str], Sequence[float]]  # (workload, comparison) -> within-block ratios


@dataclass(frozen=True, kw_only=True)
class Walk:
    """What the stages before timing say of one row."""

    verdicts: tuple[str, ...]  # one a stage
    reasons: tuple[str, ...]
    quality: str  # `pass`, or the worst verdict of the stages that ran; `unestablished` where one lacks its result
    timed: str  # what stands for timing if it may not run: the stop rule's word or `not run`; empty if it may
    why: str  # why it may not


def rows(
    study: dict[str, Any], verdicts: Verdicts, ratios: Ratios, invalid: Mapping[tuple[str, str], str] | None = None
) -> list[MatrixRow]:
    """One row for each load and comparison, in the study's order; InvalidData for a result that nothing plans.

    `invalid` says of each comparison that was timed at a load of which too few blocks count, why.
    """
    void = invalid or {}
    timing, stages = study["timing"], [stage for stage in study["stages"] if stage != TIMING]
    places = [(workload, name) for workload in timing["workloads"] for name in study["comparisons"]]
    require_planned(study, places, stages, verdicts, [*ratios, *void])
    walks = {place: walk(study, place, stages, verdicts) for place in places}
    family = [contrast(study, place, walks[place], ratios.get(place), void.get(place, "")) for place in places]
    unlisted = timing["family_size"] - len(family)
    if unlisted < 0:
        raise InvalidData(f"{len(family)} rows are planned, and Holm counts {timing['family_size']}")
    family += [missing(f"not listed {number}") for number in range(unlisted)]
    decided = contrast_verdicts(
        family,
        planned_blocks=timing["blocks"],
        least_blocks=needed_ratios(timing),
        alpha=timing["alpha"],
        interval_alpha=timing["interval_alpha"],
        screen_ratio=timing["screen_ratio"],
    )
    return [
        row(study, place, stages, walks[place], one, INVALIDATED if place in void else one.verdict)
        for place, one in zip(places, decided[: len(places)], strict=True)
    ]


def require_planned(
    study: dict[str, Any],
    places: Sequence[tuple[str, str]],
    stages: Sequence[str],
    verdicts: Verdicts,
    timed: Iterable[tuple[str, str]],
) -> None:
    """Raise InvalidData for results of a model, comparison, stage or load that the study does not plan."""
    planned = {(model_of(study, load), name, stage) for load, name in places for stage in stages}
    strange = [str(key) for key in verdicts if key not in planned] + [str(key) for key in timed if key not in places]
    if strange:
        raise InvalidData(f"there are results of {', '.join(strange)}, which the study does not plan")


def model_of(study: dict[str, Any], workload: str) -> str:
    """The model of a load."""
    return str(study["workloads"][workload]["model"])


def walk(study: dict[str, Any], place: tuple[str, str], stages: Sequence[str], verdicts: Verdicts) -> Walk:
    """The stages of one row in their order, under the study's stop rules."""
    model, comparison = model_of(study, place[0]), place[1]
    off: dict[str, tuple[str, str]] = {}  # stage -> the word and the reason of the rule that keeps it from running
    told: list[tuple[str, str]] = []
    for stage in stages:
        found = verdicts.get((model, comparison, stage))
        if found is not None and stage in off:
            raise InvalidData(f"`{stage}` has a result on `{model}`, though {off[stage][1]}")
        said = off.get(stage) or found or (NOT_RUN, f"there is no result of `{stage}`")
        told.append((said[0], "" if said[0] == "pass" else said[1]))
        for stop in study["stops"]:
            if stop["after"] == stage and said[0] in stop["when"]:
                for later in stop["gates_off"]:
                    off.setdefault(later, (stop["verdict"], f"`{stage}` {said[0]}: a predeclared rule stops here"))
    lacking = [stage for stage, said in zip(stages, told, strict=True) if said[0] != "pass"]
    ran = [said for said, _ in told if said in ("pass", "fails", "unestablished", "ineligible")]
    quality = "pass" if not lacking else worst([*ran, "unestablished"])
    word, why = off.get(TIMING, ("", "") if not lacking else (NOT_RUN, f"`{lacking[0]}` is no pass"))
    return Walk(
        verdicts=tuple(said for said, _ in told),
        reasons=tuple(reason for _, reason in told),
        quality=quality,
        timed=word,
        why=why,
    )


def contrast(
    study: dict[str, Any], place: tuple[str, str], found: Walk, ratios: Sequence[float] | None, invalid: str
) -> PlannedContrast:
    """A row as a member of the family. Raises InvalidData where it was timed without being allowed to."""
    pair = study["comparisons"][place[1]]
    if (ratios is not None or invalid) and found.timed:
        raise InvalidData(f"`{place[0]}` was timed, though {found.why}")
    reason = found.why or invalid or ("" if ratios is not None else "it qualifies, and there is no timing of it")
    return PlannedContrast(
        contrast=" ".join(place),
        candidate=pair["candidate"],
        control=pair["control"],
        certificate=found.quality,
        ratios=None if ratios is None else tuple(ratios),
        reason=reason,
    )


def missing(name: str) -> PlannedContrast:
    """A comparison that the study counts and does not list."""
    return PlannedContrast(
        contrast=name, candidate="", control="", certificate="unestablished", ratios=None, reason="not listed"
    )


def row(
    study: dict[str, Any],
    place: tuple[str, str],
    stages: Sequence[str],
    found: Walk,
    decided: ContrastVerdict,
    judged: str,
) -> MatrixRow:
    """A row as a record, with the study's expectation beside the verdict."""
    verdict = found.timed or judged
    expected = (study.get("expected") or {}).get(place[0], {}).get(place[1])
    return MatrixRow(
        study=study["name"],
        workload=place[0],
        model=model_of(study, place[0]),
        comparison=place[1],
        candidate=decided.candidate,
        control=decided.control,
        stages=list(stages),
        verdicts=list(found.verdicts),
        reasons=list(found.reasons),
        **decided.figures(),
        verdict=verdict,
        reason=found.why or decided.reason,
        expected=expected,
        as_expected=None if expected is None else expected == verdict,
    )
