"""Words that kinds of several stages conclude with, and what goes together wherever they stand."""

from typing import Any

from kassay.combination import ordered, rule, together

VERDICTS = ("pass", "fails", "unestablished", "ineligible")  # of gates, certificates and qualifications alike
WORST_FIRST = ("fails", "ineligible", "unestablished", "pass")
OF_ANSWERS = ("gross loss rate", "net change")
OF_LOSSES = ("relative mean nll", "mean nll difference")
TESTED = ("gain confirmed", "no confirmed gain")  # verdicts of a comparison that a certified candidate was tested in

OF_RATIOS = (  # what every comparison of rates has
    together("ratios", "median", "lower", "upper", "wins", "p"),
    ordered("lower", "upper"),
    ordered("p", "holm_p"),
    rule("`wins` are at most as many as `ratios`", lambda made: (made.wins or 0) <= len(made.ratios or ())),
    rule(
        "`verdict` is `gain confirmed` only where `holm_p` is at most `alpha` and `median` reaches `screen_ratio`",
        lambda made: (
            made.verdict != "gain confirmed" or (made.holm_p <= made.alpha and (made.median or 0) >= made.screen_ratio)
        ),
    ),
)
AS_EXPECTED = rule(
    "`as_expected` is whether `verdict` is `expected`, and null where that is",
    lambda made: made.as_expected == (None if made.expected is None else made.verdict == made.expected),
)


def bounds_say(gate: Any) -> str:
    """The verdict of a gate's bounds, whatever its floor says."""
    if gate.decides == "lower":
        return "pass" if gate.lower >= gate.margin else "fails" if gate.upper < gate.margin else "unestablished"
    return "pass" if gate.upper <= gate.margin else "fails" if gate.lower > gate.margin else "unestablished"


def below_floor(gate: Any) -> bool:
    """Whether the control of a gate answers less than its floor asks for."""
    return gate.native_floor is not None and not (gate.native_score or 0) >= gate.native_floor


def worst(verdicts: list[str]) -> str:
    """The worst of the verdicts of certificates; empty for none."""
    return next((word for word in WORST_FIRST if word in verdicts), "")


def is_part(some: list[str], names: list[str]) -> bool:
    """Whether these are different ones of those names."""
    return len(set(some)) == len(some) and set(some) <= set(names)
