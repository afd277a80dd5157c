"""What is said of fused INT4 without matplotlib: the verdict line, the grid in a sentence, and the rows of both tables.

A spread of half-batches is shown only where every layout's own half-batch was found within the batches that were
measured there: one beyond them is extrapolated, and one over some of the layouts understates it.
"""

from collections import Counter
from collections.abc import Sequence

from kassay.kinds.fusion import FusionCell, FusionClaim, FusionFit, FusionVerdict
from kassay.report.evidence import Report
from kassay.report.words import ABSENT, counted, listed, number, one_line

LAW = "fusion_law"  # the program that judges
SETTLED = {"follows": "following", "closest": "closest to"}  # verdicts that name a quantity, and how they are told
MOST_FAILURES = 3  # reasons that are told one by one
CLAIMS = ["claim", "verdict", "speed-ups", "numbers"]
SPEED_UPS = ["speed-up", "verdict", "numbers", "least, median, largest", "above limit", "spread"]
SPEED_UPS += ["× query heads", "× KV heads"]


def fusion_headline(report: Report) -> str:
    """The verdict line of a run that judges claims on the old law; empty where nothing judges them."""
    claims = report.of(FusionClaim)
    if not claims:
        return f"No claim is judged: {absence(report)}." if report.run.program(LAW) else ""
    said = [f"“{one_line(one.claim)}” {one.verdict} ({counts_of(one)})" for one in claims]
    return f"Fused INT4, claims and how many speed-ups bear them out: {'; '.join(said)}."


def fusion_line(report: Report) -> str:
    """One sentence for the head of the page: what the speed-ups follow."""
    made = report.of(FusionVerdict)
    if not made:
        return f"Not judged: {absence(report)}."
    counts = Counter(f"{SETTLED[one.verdict]} {one.covariate}" for one in made if one.verdict in SETTLED)
    counts += Counter(one.verdict for one in made if one.verdict not in SETTLED)
    return f"Of {counted(len(made), 'speed-up')}: {listed([f'{count} {said}' for said, count in counts.items()])}."


def absence(report: Report) -> str:
    """Why no claim or speed-up is judged."""
    return one_line("; ".join(report.faults) or report.run.why_absent(LAW))


def counts_of(claim: FusionClaim) -> str:
    """`3 of 4, none contradicts`: speed-ups that bear a claim out, and those against it where not all do."""
    said = f"{claim.agreeing} of {len(claim.pairs)}"
    if claim.verdict == "holds":
        return said
    return f"{said}, {claim.against or 'none'} contradict{'' if claim.against > 1 else 's'}"


def grid_line(report: Report) -> str:
    """What was measured, from its cells; empty without any."""
    cells = report.of(FusionCell)
    if not cells:
        return ""
    places = {(one.query_heads, one.kv_heads, one.batch, one.context_tokens) for one in cells}
    rounds = {len(one.rounds_us) for one in cells if one.rounds_us is not None}
    failed = Counter(one_line(one.failed, 80) for one in cells if one.failed)
    why = [f"{reason} ({count:,})" for reason, count in failed.most_common(MOST_FAILURES)]
    if rest := failed.total() - sum(count for _, count in failed.most_common(MOST_FAILURES)):
        why.append(f"other reasons ({rest:,})")
    return (
        f"{counted(len(places), 'cell')}: head layouts (query heads/KV heads) "
        f"{listed(list(dict.fromkeys(layout_of(one) for one in cells)))}, "
        f"head dim {values([one.head_dim for one in cells])}, pages of {values([one.page_tokens for one in cells])} "
        f"tokens; batches {values([one.batch for one in cells])}; contexts "
        f"{values([one.context_tokens for one in cells])} tokens, at most "
        f"{max(one.batch * one.context_tokens for one in cells):,} in a cell. "
        f"{counted(len({one.arm for one in cells}), 'arm')} in {values(list(rounds))} timed rounds: "
        f"{len(cells) - failed.total():,} of {len(cells):,} measurements, "
        + (f"{failed.total():,} failed: {listed(why)}." if failed else "none failed.")
    )


def values(numbers: Sequence[int]) -> str:
    """Different numbers in order: `1, 2 and 4`."""
    return listed([f"{value:,}" for value in sorted(set(numbers))])


def layout_of(cell: FusionCell) -> str:
    """`32/8`."""
    return f"{cell.query_heads}/{cell.kv_heads}"


def pair_of(made: FusionVerdict) -> str:
    """`int4 over grouped`."""
    return f"{made.candidate} over {made.baseline}"


def followed(made: FusionVerdict) -> str:
    """The quantity that a speed-up follows, or that none does."""
    return made.covariate if made.verdict in SETTLED else ABSENT


def best_fit(report: Report, made: FusionVerdict) -> FusionFit | None:
    """The fit that a verdict is about."""
    own = (made.candidate, made.baseline)
    return next((one for one in report.of(FusionFit) if one.best and (one.candidate, one.baseline) == own), None)


def remarks(fit: FusionFit | None) -> str:
    """What limits a fit."""
    if fit is None:
        return ""
    status = [] if fit.status == "converged" else [fit.status]
    return ", ".join([*status, *(flag.replace("_", " ") for flag in fit.flags)])


def range_of(made: FusionVerdict) -> str:
    """Least, median and largest speed-up."""
    return ", ".join(number(value) for value in (made.lowest, made.median, made.highest))


def half_spreads(report: Report, made: FusionVerdict) -> list[str]:
    """The three spreads of half-batches, each a dash unless all half-batches lie within what was measured."""
    batches: dict[str, list[int]] = {}
    for one in report.of(FusionCell):
        if one.arm == made.candidate and one.rounds_us is not None:
            batches.setdefault(layout_of(one), []).append(one.batch)
    within = all(
        half is not None and layout in batches and min(batches[layout]) <= half <= max(batches[layout])
        for layout, half in zip(made.layouts, made.half_batches, strict=True)
    )
    found = (made.half_spread, made.half_spread_query_heads, made.half_spread_kv_heads)
    return [number(value) if within else ABSENT for value in found]


def claim_rows(report: Report) -> list[list[str]]:
    """The rows of report.md: every claim."""
    return [[one.claim, one.verdict, counts_of(one), one.reason] for one in report.of(FusionClaim)]


def speed_up_rows(report: Report) -> list[list[str]]:
    """The rows of report.md: every speed-up."""
    return [
        [
            pair_of(one),
            f"{one.verdict} {followed(one)}",
            "; ".join(filter(None, (one.reason, remarks(best_fit(report, one))))),
            range_of(one),
            f"{one.above_limit} of {one.n}",
            *half_spreads(report, one),
        ]
        for one in report.of(FusionVerdict)
    ]
