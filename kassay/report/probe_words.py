"""What the probes say in one sentence, for the page's head, its section and the text report."""

from kassay.kinds.probe import ProbeFinding
from kassay.report.evidence import Report
from kassay.report.words import listed, number, percent


def probe_line(report: Report) -> str:
    """What the screen, the layers and pre-bias say, model by model."""
    found = report.of(ProbeFinding)
    said = []
    for model in dict.fromkeys(one.model for one in found):
        own = [one for one in found if one.model == model]
        parts = [
            f"{one.label} by the screen ({number(one.value)})"
            for one in own
            if one.quantity == "error_ratio" and one.value is not None
        ]
        parts += [
            f"{percent(one.value, 0)} of what 8-bit keys cost lies in {one.label}"
            for one in own
            if one.quantity == "concentration" and one.value is not None
        ]
        repairs = [one for one in own if one.quantity == "retrieval_recovery" and one.value is not None]
        if repairs:
            least = min(one.value for one in repairs if one.value is not None)
            parts.append(f"pre-bias repairs at least {percent(least, 0)} of lost retrieval")
        if parts:
            said.append(f"{model}: {listed(parts)}")
    return "; ".join(said) + "." if said else "No probe found anything that can be computed."
