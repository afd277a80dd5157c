"""What follows from printed counts, ratios and bounds by the statistics of kassay.stats.

Bounds are per cent or percentage points, as the sources print them; alphas and margins are exact shares. A claim is
true or false. Where a bound is printed and its counts are not, the counts are searched among all tables, and what
holds is said of every table that gives the bound.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from kassay.published.consistency import Told
from kassay.stats import InvalidData
from kassay.stats.blocks import PlannedContrast, contrast_verdicts
from kassay.stats.bootstrap import median_interval
from kassay.stats.exact import binomial_upper, sign_test
from kassay.stats.multiplicity import holm
from kassay.stats.net import RecoveredCounts, recover_counts
from kassay.stats.paired import tango_bounds

Numbers = tuple[Fraction, ...]


def bonferroni(family_alpha: Fraction, certificates: int) -> Fraction:
    """The alpha of each of so many certificates."""
    return family_alpha / certificates


def loss_upper_percent(losses: int, n: int, alpha: Fraction) -> float:
    """Exact one-sided upper bound of the gross-loss rate, per cent."""
    return 100 * binomial_upper(losses, n, alpha=float(alpha)).bound


def losses_within(losses: tuple[int, ...], n: int, alpha: Fraction, margin: Fraction) -> tuple[str, ...]:
    """`pass` or `fails` of gross-loss gates against one margin."""
    bounds = [binomial_upper(count, n, alpha=float(alpha)).bound for count in losses]
    return tuple("pass" if bound <= margin else "fails" for bound in bounds)


def floor_and_losses(
    native: int, floor: Fraction, losses: int, n: int, alpha: Fraction, margin: Fraction
) -> tuple[str, ...]:
    """`pass` or `fails` of a control's floor and of the gross-loss gate."""
    return "pass" if Fraction(native, n) >= floor else "fails", *losses_within((losses,), n, alpha, margin)


def net_includes_zero(gains: int, losses: int, n: int, alpha: Fraction) -> bool:
    """Whether the two-sided interval of the net difference holds zero."""
    found = tango_bounds(gains=gains, losses=losses, n=n, alpha=float(alpha), sidedness="two-sided")
    return found.lower <= 0 <= found.upper


def _tables_of(bound: Fraction, decimals: int, n: int, alpha: Fraction) -> RecoveredCounts:
    """All tables whose one-sided lower bound, percentage points, is printed as `bound` with so many decimals."""
    half = Fraction(1, 2 * 10**decimals)
    low, high = float((bound - half) / 100), float((bound + half) / 100)
    return recover_counts(n, alpha=float(alpha), low=low, high=high)


def recovered_lower_percent(bound: Fraction, decimals: int, n: int, alpha: Fraction) -> Told:
    """The lower bound, percentage points, of the table with the fewest differing answers that gives the printed one.

    `no counts` where there is none: the printed bound is then none of this method at this alpha.
    """
    found = _tables_of(bound, decimals, n, alpha)
    if not found.tables:
        return Told("no counts", _counts_in_words(found))
    gains, losses = found.tables[0]
    made = tango_bounds(gains=gains, losses=losses, n=n, alpha=float(alpha), sidedness="one-sided")
    return Told(100 * made.lower, _counts_in_words(found))


def _counts_in_words(found: RecoveredCounts) -> str:
    """The recovered counts as a sentence."""
    if not found.tables:
        return f"no counts of {found.n:,} items give this bound"
    (gains, losses), *others = found.tables
    said = f"recovered: {losses} losses and {gains} gains of {found.n:,}"
    more = ", ".join(f"{lost} and {won}" for won, lost in others)
    return f"{said}; also possible are {more}" if others else f"{said}, the only counts that give it"


def recovered_losses_pass(bound: Fraction, decimals: int, n: int, alpha: Fraction, margin: Fraction) -> Told:
    """`pass` or `fails` of the gross-loss gate for all counts that give a printed net bound, else `undecided`."""
    found = _tables_of(bound, decimals, n, alpha)
    verdicts = set(losses_within(tuple(losses for _, losses in found.tables), n, alpha, margin))
    return Told(verdicts.pop() if len(verdicts) == 1 else "undecided", _counts_in_words(found))


def sign_p(wins: int, n: int) -> Fraction:
    """One-sided exact sign test."""
    return Fraction(sign_test(wins, n).p_exact)


def holm_p(wins: tuple[int, ...], n: int, family: int, position: int) -> Fraction:
    """Holm-adjusted sign p of one comparison; those of the family beyond `wins` were not measured and keep 1."""
    adjusted = holm(_family_p(wins, n, family), alpha=0.05, sidedness="one-sided")
    return Fraction(adjusted.comparisons[position].adjusted_p_exact)


def _family_p(wins: Sequence[int], n: int, family: int) -> dict[str, Fraction | float | None]:
    """The raw sign p of each planned comparison, None for one that was not measured."""
    if len(wins) > family:
        raise InvalidData(f"{len(wins)} comparisons were measured of a family of {family}")
    return {str(place): sign_p(wins[place], n) if place < len(wins) else None for place in range(family)}


def gains_of_medians(
    medians: Numbers, wins: tuple[int, ...], n: int, family: int, alpha: Fraction, screen: Fraction
) -> tuple[str, ...]:
    """The verdict of each comparison whose candidate qualifies: adjusted sign test and screen of the median."""
    found = []
    for place, median in enumerate(medians):
        confirmed = holm_p(wins, n, family, place) <= alpha and median >= screen
        found.append("gain confirmed" if confirmed else "no confirmed gain")
    return tuple(found)


def gain_of_blocks(
    ratios: Numbers, wins_of_others: tuple[int, ...], family: int, alpha: Fraction, screen: Fraction
) -> str:
    """The verdict of one comparison from its block ratios, in a family of which the others are known by their wins."""
    n = len(ratios)
    planned = [_planned_contrast("0", tuple(map(float, ratios)))]
    planned += [_planned_contrast(str(1 + place), _like(wins, n)) for place, wins in enumerate(wins_of_others)]
    planned += [_planned_contrast(str(place), None) for place in range(len(planned), family)]
    made = contrast_verdicts(
        planned, planned_blocks=n, alpha=float(alpha), interval_alpha=0.05, screen_ratio=float(screen)
    )
    return made[0].verdict


def _like(wins: int, n: int) -> tuple[float, ...]:
    """Block ratios that win so often: of another comparison only the wins enter a family."""
    return tuple(2.0 if place < wins else 0.5 for place in range(n))


def _planned_contrast(name: str, ratios: tuple[float, ...] | None) -> PlannedContrast:
    """A qualified comparison, measured or not run."""
    reason = "" if ratios is not None else "not measured"
    return PlannedContrast(
        contrast=name, candidate="candidate", control="control", certificate="pass", ratios=ratios, reason=reason
    )


def median(ratios: Numbers) -> Fraction:
    """The median of block ratios, exactly."""
    ranked = sorted(ratios)
    return (ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) / 2


def median_end(ratios: Numbers, alpha: Fraction, end: str) -> float:
    """One end of the two-sided interval of the median, from its exact bootstrap distribution."""
    found = median_interval([float(ratio) for ratio in ratios], alpha=float(alpha))
    if end not in ("lower", "upper"):
        raise InvalidData(f"`end` is `{end}`, allowed are `lower` and `upper`")
    return found.lower if end == "lower" else found.upper


def loss_bound_within(upper: Fraction, ratio_margin: Fraction) -> str:
    """`pass` or `fails` of an upper bound of the NLL difference, nats, against the logarithm of a ratio."""
    return "pass" if upper <= math.log(ratio_margin) else "fails"


def failed_gates(
    nll_upper: Fraction,
    ratio_margin: Fraction,
    retrieval_losses: int,
    retrieval_n: int,
    retrieval_margin: Fraction,
    alpha: Fraction,
    gsm_losses: int | None,
    gsm_n: int,
    gsm_margin: Fraction,
) -> str:
    """The quality gates that a model fails, native floors left out; `none` if it fails none. No count: not run."""
    failed = []
    if loss_bound_within(nll_upper, ratio_margin) == "fails":
        failed.append("NLL margin")
    if losses_within((retrieval_losses,), retrieval_n, alpha, retrieval_margin) == ("fails",):
        failed.append("retrieval preservation")
    if gsm_losses is not None and losses_within((gsm_losses,), gsm_n, alpha, gsm_margin) == ("fails",):
        failed.append("GSM preservation")
    return ", ".join(failed) or "none"
