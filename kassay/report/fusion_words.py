"""What the head of a page says of fused INT4, without matplotlib."""

from kassay.kinds.fusion import FusionClaim
from kassay.report.evidence import Report
from kassay.report.words import counted


def fusion_line(report: Report) -> str:
    """One sentence for the head of the page."""
    claims = report.of(FusionClaim)
    if not claims:
        return "Not judged: no grid was measured."
    return f"Of {counted(len(claims), 'claim')}: " + "; ".join(f"“{one.claim}” {one.verdict}" for one in claims) + "."
