"""Exact binomial answers: how large can a rate be, is a share of wins chance, and can a gate pass at all?

Formulas
    upper bound   U solves P(X <= x | n, U) = alpha, U = BetaInv(1 - alpha; x + 1, n - x), U = 1 at x = n
    lower bound   L solves P(X >= x | n, L) = alpha, L = BetaInv(alpha; x, n - x + 1),     L = 0 at x = 0
    sign test     p = sum of C(n, k) / 2^n over k >= wins
    McNemar       p = min(1, 2 P(X <= min(b, c))), X ~ Binomial(b + c, 1/2)
    gate power    P(X <= m | n, p), m the most losses whose upper bound stays within the margin

Sources: Clopper and Pearson 1934 (Biometrika 26:404), in the one-sided form; McNemar 1947 (Psychometrika
12:153), exact. All rates are shares between 0 and 1 of *all* items. P-values of the two tests are exact
fractions. Nothing here decides a verdict: kassay.stats.certificate does.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from scipy.special import bdtr, betainccinv, betaincinv

from kassay.stats import InvalidData, Sidedness, require_count, require_level, require_part


@dataclass(frozen=True, kw_only=True)
class BinomialBound:
    """A one-sided exact bound of a binomial rate."""

    method: str  # always `clopper-pearson`
    sidedness: Sidedness  # always `one-sided`: alpha is spent on this end alone
    end: Literal["lower", "upper"]  # which end of the rate is bounded
    events: int  # counted events, 0 to n
    n: int  # all items, errors and truncations included
    alpha: float  # probability that the bound misses the true rate, at most
    estimate: float  # events / n, a share
    bound: float  # the bound, a share


@dataclass(frozen=True, kw_only=True)
class SignTest:
    """One-sided exact sign test of wins against chance; ties are non-wins and stay in n."""

    method: str  # always `exact sign test`
    sidedness: Sidedness  # always `one-sided`: more wins than chance
    wins: int  # blocks won, 0 to n
    n: int  # all blocks, ties included
    p: float  # P(at least `wins` of n | 1/2)
    p_exact: str  # the same as an exact fraction, such as `11/1024`


@dataclass(frozen=True, kw_only=True)
class McNemarTest:
    """Two-sided exact McNemar test of gains against losses on the same items."""

    method: str  # always `exact mcnemar`
    sidedness: Sidedness  # always `two-sided`
    gains: int  # items wrong under the control and right under the candidate
    losses: int  # items right under the control and wrong under the candidate
    p: float  # 1 without discordant items, which is no evidence of equality
    p_exact: str  # the same as an exact fraction, such as `9/256`


@dataclass(frozen=True, kw_only=True)
class GatePower:
    """How often a gross-loss gate passes when the true loss rate is known, printed beside the gate."""

    method: str  # always `exact binomial`
    sidedness: Sidedness  # always `one-sided`
    n: int  # paired items
    margin: float  # largest upper bound that passes, a share
    alpha: float  # level of the gate's upper bound
    true_rate: float  # the loss rate supposed true, a share
    largest_losses: int | None  # most losses that pass; None: not even zero losses pass
    power: float  # probability that the gate passes


def binomial_upper(events: int, n: int, *, alpha: float) -> BinomialBound:
    """Exact one-sided upper bound of a rate; raises InvalidData unless 0 <= events <= n and n >= 1.

    The complemented inverse is taken, since 1 - alpha loses digits at a small alpha; zero events have a
    closed form.
    """
    require_part(events, n, "events")
    require_level(alpha, "alpha")
    if events == n:
        bound = 1.0
    elif events == 0:
        bound = -math.expm1(math.log(alpha) / n)
    else:
        bound = float(betainccinv(events + 1, n - events, alpha))
    return _bound("upper", events, n, alpha, bound)


def binomial_lower(events: int, n: int, *, alpha: float) -> BinomialBound:
    """Exact one-sided lower bound of a rate; raises InvalidData unless 0 <= events <= n and n >= 1."""
    require_part(events, n, "events")
    require_level(alpha, "alpha")
    if events == 0:
        bound = 0.0
    elif events == n:
        bound = math.exp(math.log(alpha) / n)
    else:
        bound = float(betaincinv(events, n - events + 1, alpha))
    return _bound("lower", events, n, alpha, bound)


def _bound(end: Literal["lower", "upper"], events: int, n: int, alpha: float, bound: float) -> BinomialBound:
    return BinomialBound(
        method="clopper-pearson",
        sidedness="one-sided",
        end=end,
        events=events,
        n=n,
        alpha=alpha,
        estimate=events / n,
        bound=bound,
    )


def sign_test(wins: int, n: int) -> SignTest:
    """P(at least `wins` wins of `n` | 1/2), exact; raises InvalidData outside 0 <= wins <= n, n >= 1."""
    require_part(wins, n, "wins")
    p = Fraction(sum(math.comb(n, k) for k in range(wins, n + 1)), 2**n)
    return SignTest(method="exact sign test", sidedness="one-sided", wins=wins, n=n, p=float(p), p_exact=str(p))


def mcnemar_test(*, gains: int, losses: int) -> McNemarTest:
    """Two-sided exact p of `gains` against `losses`, capped at 1; raises InvalidData for negative counts."""
    require_count(gains, "gains", least=0)
    require_count(losses, "losses", least=0)
    n = gains + losses
    tail = Fraction(sum(math.comb(n, k) for k in range(min(gains, losses) + 1)), 2**n)
    p = min(Fraction(1), 2 * tail)
    return McNemarTest(
        method="exact mcnemar",
        sidedness="two-sided",
        gains=gains,
        losses=losses,
        p=float(p),
        p_exact=str(p),
    )


def largest_losses(n: int, *, margin: float, alpha: float) -> int | None:
    """Most losses of `n` whose upper bound is at most `margin`; None when not even 0 are admissible.

    Bisection: the bound grows with the losses, and n losses (bound 1) always exceed a margin below 1.
    """
    require_count(n, "n", least=1)
    require_level(margin, "margin")
    if not binomial_upper(0, n, alpha=alpha).bound <= margin:
        return None
    admissible, refused = 0, n
    while refused - admissible > 1:
        middle = (admissible + refused) // 2
        if binomial_upper(middle, n, alpha=alpha).bound <= margin:
            admissible = middle
        else:
            refused = middle
    return admissible


def smallest_n(losses: int, *, margin: float, alpha: float) -> int:
    """Fewest items with which `losses` losses are admissible: the size that resolves a margin.

    Bisection over n: with the losses fixed the bound falls as n grows, so doubling finds an end.
    """
    require_count(losses, "losses", least=0)
    require_level(margin, "margin")
    refused, admissible = losses, losses + 1
    while not binomial_upper(losses, admissible, alpha=alpha).bound <= margin:
        refused, admissible = admissible, 2 * admissible
    while admissible - refused > 1:
        middle = (admissible + refused) // 2
        if binomial_upper(losses, middle, alpha=alpha).bound <= margin:
            admissible = middle
        else:
            refused = middle
    return admissible


def gate_power(n: int, *, margin: float, alpha: float, true_rate: float) -> GatePower:
    """Probability that the upper bound over `n` items stays within `margin` at a true loss rate.

    `true_rate` may be 0; raises InvalidData for one outside 0 to 1 (1 excluded).
    """
    if true_rate != 0:
        require_level(true_rate, "true_rate")
    most = largest_losses(n, margin=margin, alpha=alpha)
    power = 0.0 if most is None else float(bdtr(most, n, true_rate))
    if not 0 <= power <= 1:
        raise InvalidData(f"`power` is `{power!r}` at n = {n}, allowed is 0 to 1: this is a bug")
    return GatePower(
        method="exact binomial",
        sidedness="one-sided",
        n=n,
        margin=margin,
        alpha=alpha,
        true_rate=true_rate,
        largest_losses=most,
        power=power,
    )
