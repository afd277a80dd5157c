"""Verdicts of gates, and of parts put together, taken from their numbers once more."""

from collections.abc import Iterable

from kassay.audit.checks import Body

BAD = ("fails", "ineligible", "unestablished")  # from the worst on


def verdict_of(gate: Body) -> str:
    """The verdict of a gate from its numbers."""
    lower, upper, margin = gate["lower"], gate["upper"], gate["margin"]
    floor = gate["native_floor"]
    if floor is not None and not gate["native_score"] >= floor:
        return "ineligible"
    passes, harm = (
        (upper <= margin, lower > margin) if gate["decides"] == "upper" else (lower >= margin, upper < margin)
    )
    return "pass" if passes else "fails" if harm else "unestablished"


def of_cases(gate: Body) -> str:
    """The verdict of a gate of checks: every one of its cases holds, and there is one."""
    return "pass" if 0 < gate["cases"] == gate["passed"] else "fails"


def worst(verdicts: Iterable[str]) -> str:
    """The verdict over parts; no parts are no pass."""
    found = list(verdicts)
    return next((word for word in BAD if word in found), "pass" if found else "nothing")
