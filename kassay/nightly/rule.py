"""How far a metric may move from its baseline, and why so far.

    same     |value - baseline| <= slack      lower    value <= baseline + slack      higher   value >= baseline - slack
    slack    the tolerance, or the tolerance times |baseline| where it is relative

Nothing is divided, so a baseline of 0 is a limit like any other: `lower` with slack 0 says that it must not rise.
Numbers are compared as the decimals that they are written as: 0.43 - 0.05 is 0.38. A metric with raw pairs is judged
by them (kassay.nightly.judging); its tolerance is then the part that the median quotient must have lost.
"""

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeGuard

BETTER = ("higher", "lower", "same")
BY = ("equality", "absolute tolerance", "relative tolerance", "pairs")
KEYS = ("by", "better", "tolerance", "why")  # of a rule in a file
Value = float | int | bool | str


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What is asked of metrics."""

    name: str  # under which a baseline's file has it
    by: str  # one of BY
    better: str  # one of BETTER: where it may go freely
    tolerance: float  # 0 for equality; a share where it is relative or by pairs
    why: str  # why it is so large, for whom it turns red


EQUAL = Rule(name="count", by="equality", better="same", tolerance=0.0, why="it follows from plan and pins")
WORD = Rule(name="word", by="equality", better="same", tolerance=0.0, why="another word is another answer")
# A fit's last steps depend on the order of operations: the audit allows the same (kassay.audit.compare.FITTED).
COMPUTED = Rule(
    name="computed",
    by="relative tolerance",
    better="same",
    tolerance=1e-6,
    why="computed, not timed: only last digits are open",
)
TIMED = Rule(
    name="timed",
    by="relative tolerance",
    better="same",
    tolerance=0.5,
    why="measured on the host once a night, without pairs: other load moves it, so only gross changes are told",
)
RATE = Rule(
    name="rate",
    by="relative tolerance",
    better="higher",
    tolerance=0.5,
    why="tokens per second once a night, without pairs: other load moves it, so only a halved rate is told",
)
BYTES = Rule(
    name="bytes",
    by="relative tolerance",
    better="lower",
    tolerance=0.01,
    why="memory of one process: allocators round, and 1 % is less than any recipe saves",
)
PAIRED = Rule(
    name="pairs",
    by="pairs",
    better="higher",
    tolerance=0.02,
    why="block by block against the baseline; a loss below 2 % is within what placement of processes moves",
)
MEDIAN = Rule(
    name="median",
    by="relative tolerance",
    better="higher",
    tolerance=0.5,
    why="so few blocks that no sign test could reach the level: only gross losses of the median are told",
)


def of_gate(margin: float, decides: str) -> Rule:
    """The rule of a gate's estimate: it may lose a tenth of the margin that the study froze."""
    return Rule(
        name=f"gate {margin:g} {decides}",
        by="absolute tolerance",
        better="lower" if decides == "upper" else "higher",
        tolerance=abs(margin) / 10,
        why=f"a tenth of the frozen margin {margin:g}",
    )


def faults(name: str, body: Any) -> list[str]:
    """What is wrong with a rule of a baseline."""
    if not isinstance(body, dict) or set(body) != set(KEYS):
        return [f"rule `{name}`: allowed are {', '.join(f'`{key}`' for key in KEYS)}"]
    found = []
    if body.get("by") not in BY:
        found.append(f"`by` is `{body.get('by')}`, allowed are {', '.join(BY)}")
    if body.get("better") not in BETTER:
        found.append(f"`better` is `{body.get('better')}`, allowed are {', '.join(BETTER)}")
    tolerance = body.get("tolerance")
    if not is_number(tolerance) or not 0 <= tolerance < math.inf:
        found.append(f"`tolerance` is `{tolerance}`, allowed is a number from 0 on")
    if not isinstance(body.get("why"), str) or not body["why"].strip():
        found.append("`why` is empty, allowed is the reason in words")
    return [f"rule `{name}`: {one}" for one in found]


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number, NaN and infinities included; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def holds(rule: Rule, before: Value, now: Value) -> bool:
    """Whether a value is within its rule; words and truth values must be equal. NaN never holds."""
    if not is_number(before) or not is_number(now):
        return type(before) is type(now) and before == now
    if not math.isfinite(before) or not math.isfinite(now):
        return False
    old, new, slack = Decimal(repr(before)), Decimal(repr(now)), Decimal(repr(rule.tolerance))
    if rule.by == "relative tolerance":
        slack *= abs(old)
    lost = {"higher": old - new, "lower": new - old, "same": abs(new - old)}[rule.better]
    return lost <= slack


def gained(rule: Rule, before: Value, now: Value) -> bool:
    """Whether a value that holds is better than its baseline by more than the tolerance."""
    if rule.better == "same" or not is_number(before) or not is_number(now):
        return False
    mirrored = replace(rule, better="lower" if rule.better == "higher" else "higher")
    return not holds(mirrored, before, now)
