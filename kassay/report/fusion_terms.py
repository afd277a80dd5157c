"""What the words of the section on fused INT4 mean: its arms, verdicts and flags, those that the records have.

Arms are kassay.kernels.fusion's, which needs torch and is not imported; a test holds the names together. Thresholds are
kassay.stats.explanations'.
"""

from kassay.kinds.fusion import FusionCell, FusionFit, FusionVerdict
from kassay.report.evidence import Report
from kassay.report.words import percent
from kassay.stats.explanations import FLAT
from kassay.stats.saturation import LARGEST_MISFIT, REACHED, SPACE_GAP

SPLIT = " split"
ARMS = {
    "int4": "fused INT4, a program a KV head for its whole group of query heads",
    "int4 each head": "fused INT4, a program a query head: the launch behind the old law",
    "grouped": "K16/V16, each grouped byte read once",
    "expanded": "K16/V16 over a copy for every query head that was there before the call",
    "expanding": "K16/V16 that makes this copy within the call",
    "torch repeat": "repeat_interleave to the query heads, then torch's flash attention: the published baseline",
}
MISFIT, NAMED = percent(LARGEST_MISFIT, 0), "least AICc and least error on layouts left out name one quantity"
VERDICTS = {
    "follows": f"{NAMED}, and its curve misses by at most {MISFIT} rms",
    "closest": f"{NAMED}, but its curve misses by more than {MISFIT} rms",
    "unsettled": "the two name different quantities, or the best fit failed; it tells nothing of a claim",
    "flat": f"the middle nine tenths of the ratios lie within {FLAT:g} times each other: nothing to explain",
}
FLAGS = {
    "plateau_not_reached": f"the curve ends below {percent(REACHED, 0)} of its ceiling, which is extrapolated",
    "residual_spaces_disagree": f"ceilings by linear and by log residuals differ by more than {percent(SPACE_GAP, 0)}",
    "failed_draws": "some resamples of layouts had no fit; they widen the interval",
}
FIRST = (
    (
        "old law",
        "as published, the speed-up of fused INT4 over FP16 attention is a Hill curve of the batch, one ceiling",
    ),
    ("speed-up", "time of the baseline over the candidate's, median over rounds; above 1 the candidate is faster"),
)
LAST = (
    (
        "byte limit",
        "bytes that the baseline must move over those of the candidate: the speed-up if both ran at one rate",
    ),
    ("half, half-batch", "the quantity, and the batch, at half the ceiling of a curve"),
    (
        "rms, left out",
        "root mean square of ln(measured/fitted) over all cells, and over layouts that a fit did not see",
    ),
)


def terms(report: Report) -> list[tuple[str, str]]:
    """(term, meaning) in reading order; of arms, verdicts and flags only those of this run."""
    verdicts = report.of(FusionVerdict)
    pairs = [name for one in verdicts for name in (one.candidate, one.baseline)]
    arms = dict.fromkeys([*(one.arm for one in report.of(FusionCell)), *pairs])
    names = {arm.removesuffix(SPLIT) for arm in arms}
    own = [(name, meaning) for name, meaning in ARMS.items() if name in names]
    cut = [("… split", "the same with each context cut into parts that run side by side; other arms read it whole")]
    judged = {one.verdict for one in verdicts}
    said = [(word, meaning) for word, meaning in VERDICTS.items() if word in judged]
    raised = {flag for one in report.of(FusionFit) if one.best for flag in one.flags}
    flags = [(flag.replace("_", " "), meaning) for flag, meaning in FLAGS.items() if flag in raised]
    return [*FIRST, *own, *(cut if arms.keys() - names else []), *said, *LAST, *flags]
