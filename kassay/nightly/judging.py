"""Tonight beside the baseline: one word for each metric, and whether it is red.

    pass           within its rule                        improved      better by more than its rule allows to lose
    regressed      past its rule                          changed       past a rule that knows no better
    unestablished  pairs: the median lost more than the tolerance, the test does not say that it is no chance
    missing        in the baseline and not in this run    invalid       not finite, or of another type or size
    new            in this run and not in the baseline    refused       the two may not be compared, so nothing was

Where both nights have raw pairs, block k of one ran the same arms in the same order as block k of the other; only
blocks that count in both are taken, and so few of them that no test could reach alpha are `invalid`. A quotient below 1
in block k says that tonight's ratio is lower there; if only chance moves it, that is as likely as the contrary.
Regressed: the exact one-sided sign test over the blocks (ties are no losses) has a Holm-adjusted p <= alpha over all
paired metrics of the baseline, missing ones included, and the median quotient is at most 1 - tolerance. Sources:
kassay.stats.exact, kassay.stats.multiplicity. It does not say how much power so few blocks have: `unestablished` is no
proof of sameness.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from kassay.errors import EXIT_PASSED, EXIT_REJECTED, EXIT_UNMET
from kassay.nightly import rule
from kassay.nightly.rule import Value, is_number
from kassay.nightly.watched import Metric
from kassay.stats.exact import sign_test
from kassay.stats.multiplicity import HolmComparison, holm

GREEN = ("pass", "improved", "unestablished", "new")
ESTABLISHED = (
    "regressed",
    "changed",
    "differs",
)  # the comparison was made and says no; all others that are red could not be made
NOTHING_IN_COMMON = "no metric of the baseline is in this run: nothing was compared"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found of one metric, or of the comparison as a whole."""

    metric: str  # its name; empty for the whole
    word: str  # as above
    text: str  # with its numbers

    @property
    def red(self) -> bool:
        """Whether the night is red for it."""
        return self.word not in GREEN

    def line(self) -> str:
        """All of it in one line."""
        return f"{self.word}: {f'{self.metric}: ' if self.metric else ''}{self.text}"


def judge(before: Mapping[str, Metric], now: Mapping[str, Metric], alpha: float) -> list[Finding]:
    """A finding for each metric of either; `alpha` is the level of all paired metrics together."""
    tests = paired_tests(before, now, alpha)
    found = [
        of_pairs(name, one, now[name], tests[name]) if name in tests and name in now else of_value(name, one, now)
        for name, one in before.items()
    ]
    if not set(before) & set(now):
        found.insert(0, Finding(metric="", word="missing", text=NOTHING_IN_COMMON))
    fresh = [name for name in now if name not in before]
    return found + [Finding(metric=name, word="new", text=f"{shown(now[name].value)}, no baseline") for name in fresh]


def exit_code(findings: list[Finding]) -> int:
    """3 where something is established, 4 where something could not be compared or nothing was, 0 otherwise."""
    if any(one.word in ESTABLISHED for one in findings):
        return EXIT_REJECTED
    if not findings or any(one.red for one in findings):
        return EXIT_UNMET
    return EXIT_PASSED


def of_value(name: str, before: Metric, now: Mapping[str, Metric]) -> Finding:
    """A metric by its value alone."""
    if name not in now:
        return Finding(metric=name, word="missing", text=f"the baseline has {shown(before.value)}, this run has none")
    old, new = before.value, now[name].value
    if new is None or old is None:
        return Finding(metric=name, word="invalid", text=f"{shown(old)} -> {shown(new)}: nothing can be said of it")
    if is_number(old) != is_number(new) or isinstance(old, bool) != isinstance(new, bool):
        return Finding(metric=name, word="invalid", text=f"{shown(old)} -> {shown(new)}: of another type")
    if not is_finite(new) or not is_finite(old):
        return Finding(metric=name, word="invalid", text=f"{shown(old)} -> {shown(new)}: not finite")
    said = f"{shown(old)} -> {shown(new)}"
    if not rule.holds(before.rule, old, new):
        word = "changed" if before.rule.better == "same" else "regressed"
        return Finding(metric=name, word=word, text=f"{said}; {asked(before.rule)}")
    word = "improved" if rule.gained(before.rule, old, new) else "pass"
    return Finding(metric=name, word=word, text=said if old != new else shown(new))


def paired_tests(
    before: Mapping[str, Metric], now: Mapping[str, Metric], alpha: float
) -> dict[str, HolmComparison | None]:
    """The sign test of every metric that is judged by pairs, adjusted over them all; None: it could not be made."""
    family = [name for name, one in before.items() if one.rule.by == "pairs"]
    p: dict[str, Fraction | None] = {}
    for name in family:
        quotients = quotients_of(before[name], now.get(name))
        losses = sum(one < 1 for one in quotients or ())
        enough = quotients and len(family) * 0.5 ** len(quotients) <= alpha
        p[name] = Fraction(sign_test(losses, len(quotients)).p_exact) if quotients and enough else None
    if not family:
        return {}
    made = {one.comparison: one for one in holm(p, alpha=alpha, sidedness="one-sided").comparisons}
    return {name: None if p[name] is None else made[name] for name in family}


def quotients_of(before: Metric, now: Metric | None) -> list[float] | None:
    """Tonight's ratio over the baseline's in each block that counts in both; None without one, or if one is useless."""
    if now is None or not before.pairs or not now.pairs:
        return None
    if not all(is_finite(ratio) and ratio > 0 for ratio in (*before.pairs.values(), *now.pairs.values())):
        return None
    return [now.pairs[block] / ratio for block, ratio in before.pairs.items() if block in now.pairs] or None


def of_pairs(name: str, before: Metric, now: Metric, test: HolmComparison | None) -> Finding:
    """A metric by its raw pairs."""
    quotients = quotients_of(before, now)
    if test is None or quotients is None or now.value is None:
        text = (
            f"{shown(before.value)} -> {shown(now.value)}: {len(quotients or ())} usable blocks count in both, "
            "too few for any test at this level"
        )
        return Finding(metric=name, word="invalid", text=text)
    median = statistics.median(quotients)
    lost = median <= 1 - before.rule.tolerance
    word = "regressed" if lost and test.rejected else "unestablished" if lost else "pass"
    losses = sum(one < 1 for one in quotients)
    text = (
        f"{shown(before.value)} -> {shown(now.value)}, median quotient {median:.4f} over {len(quotients)} blocks, "
        f"lower in {losses}, Holm p {test.adjusted_p:.3g}"
    )
    return Finding(metric=name, word=word, text=text)


def asked(one: rule.Rule) -> str:
    """A rule in words."""
    if one.by == "equality":
        return f"allowed is the same ({one.why})"
    amount = f"{one.tolerance:.4g}" if one.by == "absolute tolerance" else f"{100 * one.tolerance:.4g} %"
    ways = {"higher": f"down by at most {amount}", "lower": f"up by at most {amount}", "same": f"by at most {amount}"}
    return f"allowed is {ways[one.better]} ({one.why})"


def is_finite(value: Value) -> bool:
    """Whether a value is a word, a truth value or a finite number."""
    return not is_number(value) or abs(value) < float("inf")


def shown(value: Value | None) -> str:
    """A value, as short as it is exact."""
    if value is None:
        return "not finite"
    return f"`{value}`" if isinstance(value, str) else repr(value)
