"""What is said of drafts in a sentence."""

from kassay.kinds.speculation import AcceptanceRecord
from kassay.report.evidence import Report
from kassay.report.words import counted, fixed, one_line, sentence


def acceptance_line(report: Report) -> str:
    """The sentence of the findings: the spread of acceptance, and whether outputs were those of plain decoding."""
    made = report.of(AcceptanceRecord)
    if not made:
        return f"Not measured: {one_line(report.run.why_absent('acceptance'))}"
    shares = [one.acceptance for one in made if one.acceptance is not None]
    spread = f"acceptance is {fixed(min(shares), 2)} to {fixed(max(shares), 2)}" if shares else "nothing was drafted"
    others, asked = sum(one.other_requests for one in made), sum(one.requests for one in made)
    same = f"all {asked:,} outputs are" if not others else f"{asked - others:,} of {asked:,} outputs are"
    return sentence(f"over {counted(len(made), 'point')} {spread}; {same} those of plain decoding")
