"""Which certificates a study plans, at which level, and what they say together of a candidate.

A study names its objectives, and one of them (`route`) for whatever comes later, before there is a result; nothing here
chooses another one afterwards. An alpha that is shared is the family's over its slots, all of which are judged: none is
dropped, and none is added.
"""

import math
from collections.abc import Iterable
from typing import Any, Protocol

from kassay.stats import InvalidData
from kassay.stats.certificate import Qualification, qualification

LEVELS = 1e-9  # relative: levels are decimals of a quotient


class Certified(Protocol):
    """What is read of a certificate, whether it is a result or a record."""

    @property
    def objective(self) -> str: ...
    @property
    def control(self) -> str: ...
    @property
    def candidate(self) -> str: ...
    @property
    def verdict(self) -> str: ...


def objectives_of(study: dict[str, Any]) -> dict[str, list[str]]:
    """Objective -> its gates. Raises InvalidData for none, and for an objective without a gate."""
    found: dict[str, list[str]] = study["certificates"]["objectives"]
    if not found or not all(found.values()):
        raise InvalidData("the study names no objective, or one without a gate: nothing would always hold")
    return found


def route_of(study: dict[str, Any]) -> str:
    """The objective that later stages ask for. Raises InvalidData where the study leaves it open among several."""
    objectives, route = objectives_of(study), study["certificates"].get("route")
    if route is None and len(objectives) == 1:
        return next(iter(objectives))
    if route not in objectives:
        raise InvalidData(f"the study's route is `{route}`, allowed is one of {', '.join(objectives)}")
    return str(route)


def require_allocation(study: dict[str, Any], models: Iterable[str]) -> None:
    """Raise InvalidData unless exactly the planned models are judged, at the level that the slots leave each."""
    planned, judged = sorted(study["models"]), sorted(models)
    if judged != planned:
        raise InvalidData(f"the models {', '.join(judged) or 'none'} are judged, planned are {', '.join(planned)}")
    made = study["certificates"]
    slots, family_alpha = made["slots"], made["family_alpha"]
    if family_alpha is None:
        return
    count = len(planned) * len(made["comparisons"])
    if slots != count:
        raise InvalidData(f"{count} certificates of an objective share the level of {slots} slots")
    if not math.isclose(family_alpha / slots, study["alpha"], rel_tol=LEVELS):
        raise InvalidData(
            f"the level is {study['alpha']}, and {family_alpha} in {slots} slots is {family_alpha / slots}"
        )


def controls_of(study: dict[str, Any], candidate: str) -> list[str]:
    """The controls that a candidate must be certified against, in the study's order."""
    pairs = [study["comparisons"][name] for name in study["certificates"]["comparisons"]]
    return [pair["control"] for pair in pairs if pair["candidate"] == candidate]


def candidates_of(study: dict[str, Any]) -> list[str]:
    """The candidates that are certified, in the study's order."""
    pairs = [study["comparisons"][name] for name in study["certificates"]["comparisons"]]
    return list(dict.fromkeys(pair["candidate"] for pair in pairs))


def qualified(study: dict[str, Any], made: Iterable[Certified], candidate: str, objective: str) -> Qualification:
    """What one model's certificates make of a candidate. Raises InvalidData unless each planned one is there once."""
    own = [one for one in made if one.candidate == candidate and one.objective == objective]
    verdicts = {one.control: one.verdict for one in own}
    if len(verdicts) != len(own):
        raise InvalidData(f"`{candidate}` has two certificates for `{objective}` against one control")
    return qualification(
        verdicts, objective=objective, candidate=candidate, planned_controls=controls_of(study, candidate)
    )
