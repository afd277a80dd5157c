"""What the speed-ups say of the old INT4 law together: three claims, each judged on every pair that can tell.

    occupancy   where neither side splits its contexts, the speed-up over a head-expanding baseline follows the batch
                times heads, that is programs in flight
    splits      where both sides split, it follows what is cached instead
    ceiling     the ceiling over a baseline that makes the copy within the call is above that over a baseline that reads
                each grouped byte once: the clustered intervals do not overlap

A pair bears a claim out or contradicts it only if it is settled (`follows` or `closest`); a claim holds if all its
pairs bear it out, fails if all contradict it, and is unsettled between. Names of arms are kassay.kernels.fusion's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kassay.stats.clusters import ClusterIntervals
from kassay.stats.explanations import CACHED, CACHED_HEADS, OCCUPANCY, ONE_CEILING, Explained

SPLIT = " split"
Pairs = Mapping[tuple[str, str], tuple[Explained, dict[str, ClusterIntervals]]]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim and its verdict."""

    claim: str
    pairs: tuple[str, ...]
    agreeing: int
    against: int
    verdict: str  # `holds`, `fails` or `unsettled`
    reason: str


def claims(explained: Pairs) -> list[Claim]:
    """The three claims, on the pairs that are there; one without a pair is left out."""
    whole = {pair: made for pair, made in explained.items() if not any(name.endswith(SPLIT) for name in pair)}
    split = {pair: made for pair, made in explained.items() if all(name.endswith(SPLIT) for name in pair)}
    expanding = {pair: made for pair, made in whole.items() if pair[1].startswith("expand")}
    made = [
        followed("whole contexts: batch times heads, over a head-expanding baseline", expanding, OCCUPANCY),
        followed("split contexts: what is cached", split, (CACHED, CACHED_HEADS)),
        ceilings(explained),
    ]
    return [claim for claim in made if claim.pairs]


def followed(claim: str, pairs: Pairs, covariates: tuple[str, ...]) -> Claim:
    """Does every pair follow one of these?"""
    said, answers = [], []
    for (candidate, baseline), (made, _) in pairs.items():
        settled = made.verdict in ("follows", "closest")
        answers.append((made.best.covariate in covariates) if settled else None)
        said.append(f"{candidate} over {baseline}: {made.verdict} {made.best.covariate}")
    return judged(claim, [f"{one} over {other}" for one, other in pairs], answers, said)


def ceilings(explained: Pairs) -> Claim:
    """Is the ceiling over the copying baseline above that over the grouped one, both whole or both split?"""
    names, answers, said = [], [], []
    for candidate, baseline in explained:
        grouped = baseline.replace("expanding", "grouped")
        if not baseline.startswith("expanding") or (candidate, grouped) not in explained:
            continue
        copied, read = (ceiling(*explained[candidate, one]) for one in (baseline, grouped))
        names.append(f"{candidate} over {baseline}, over {grouped}")
        apart = copied[1] > read[2]
        answers.append(True if apart else False if copied[2] < read[1] else None)
        texts = [f"{mid:.3g} ({low:.3g} to {high:.3g})" for mid, low, high in (copied, read)]
        said.append(f"{candidate}: {texts[0]} over {baseline}, {texts[1]} over {grouped}")
    return judged("the baseline makes the ceiling", names, answers, said)


def ceiling(made: Explained, ends: dict[str, ClusterIntervals]) -> tuple[float, float, float]:
    """Ceiling and its clustered interval, by the best covariate with one ceiling."""
    low, high = ends[made.best.covariate].ceiling
    return made.of(made.best.covariate, ONE_CEILING).fit.ceiling, low, high


def judged(claim: str, names: list[str], answers: Iterable[bool | None], said: list[str]) -> Claim:
    """The claim over its pairs."""
    known = list(answers)
    agreeing, against = known.count(True), known.count(False)
    word = "holds" if agreeing == len(known) else "fails" if against == len(known) else "unsettled"
    return Claim(
        claim=claim, pairs=tuple(names), agreeing=agreeing, against=against, verdict=word, reason="; ".join(said)
    )
