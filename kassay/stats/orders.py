"""In which order do the arms of a block run, and how evenly is every arm spread over places and neighbours?

Orders are the plan's: made here once (Williams 1949, Aust J Sci Res A2:149) or written out by a study, then read, never
remade. Imbalance is reported, not repaired. It does not time anything.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kassay.stats import InvalidData, require_count

Order = tuple[str, ...]  # the arms of one block, in the order in which their cells run


@dataclass(frozen=True, kw_only=True)
class BalanceReport:
    """How evenly orders spread the arms; imbalance is reported, not repaired."""

    blocks: int  # number of orders
    arms: tuple[str, ...]  # the arms, sorted; rows and columns of the counts follow it
    position_counts: tuple[tuple[int, ...], ...]  # [arm][position]: blocks in which the arm runs there
    carry_over_counts: tuple[tuple[int, ...], ...]  # [before][after]: blocks in which one directly follows the other
    position_balanced: bool  # all position counts are equal
    carry_over_balanced: bool  # all carry-over counts of different arms are equal


def williams_orders(arms: Sequence[str]) -> tuple[Order, ...]:
    """A Williams design: k orders of k arms for an even k, 2k for an odd one, balanced in both counts.

    Row r holds the arms (w + r) mod k with w = 0, 1, k-1, 2, k-2, ...; an odd k needs the reversed rows as
    well. Raises InvalidData for fewer than two arms or a repeated one.
    """
    k = len(arms)
    if k < 2 or len(set(arms)) != k:
        raise InvalidData(f"the arms are {list(arms)}, allowed are two or more different ones")
    first = [(step + 1) // 2 if step % 2 else (k - step // 2) % k for step in range(k)]
    rows = [tuple(arms[(place + row) % k] for place in first) for row in range(k)]
    if k % 2:
        rows += [row[::-1] for row in rows]
    return tuple(rows)


def counterbalanced_orders(arms: Sequence[str], blocks: int) -> tuple[Order, ...]:
    """The first `blocks` rows of the Williams design, repeated; balance_report says whether they are even."""
    require_count(blocks, "blocks", least=1)
    rows = williams_orders(arms)
    return tuple(rows[block % len(rows)] for block in range(blocks))


def balance_report(orders: Sequence[Order]) -> BalanceReport:
    """Position and carry-over counts of orders; raises InvalidData unless each holds every arm once."""
    if not orders:
        raise InvalidData("there are no orders, allowed is at least one block")
    arms = tuple(sorted(orders[0]))
    for block, order in enumerate(orders):
        if tuple(sorted(order)) != arms or len(set(order)) != len(arms):
            raise InvalidData(f"block {block} runs {list(order)}, allowed is each of {list(arms)} once")
    places = Counter((arm, position) for order in orders for position, arm in enumerate(order))
    follows = Counter(pair for order in orders for pair in pairwise(order))
    position_counts = tuple(tuple(places[arm, position] for position in range(len(arms))) for arm in arms)
    carry_over_counts = tuple(tuple(follows[before, after] for after in arms) for before in arms)
    return BalanceReport(
        blocks=len(orders),
        arms=arms,
        position_counts=position_counts,
        carry_over_counts=carry_over_counts,
        position_balanced=len({count for row in position_counts for count in row}) == 1,
        carry_over_balanced=len({follows[a, b] for a in arms for b in arms if a != b}) <= 1,
    )


def require_design(places: Sequence[tuple[int, int, str]], orders: Sequence[Order]) -> None:
    """Raise InvalidData unless the cells, as (block, position, arm), are exactly the planned ones, each once.

    A missing, repeated or added cell breaks the balance, and a mean of unequal counts is no remedy.
    """
    planned = {(block, position, arm) for block, order in enumerate(orders) for position, arm in enumerate(order)}
    seen = Counter(places)
    wrong = sorted(planned.symmetric_difference(seen) | {key for key, count in seen.items() if count > 1})
    if wrong:
        block, position, arm = wrong[0]
        raise InvalidData(
            f"{len(wrong)} cells are missing, repeated or not planned, first `{arm}` at place {position} of "
            f"block {block}; allowed is every planned cell once"
        )
