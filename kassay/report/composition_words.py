"""What is said of compositions in a sentence, and how a load of them is called."""

from kassay.kinds.composition import CompositionRecord
from kassay.kinds.timing import TIMED
from kassay.report.evidence import Report
from kassay.report.words import fixed, one_line, sentence


def composition_line(report: Report) -> str:
    """The sentence of the findings: rho and class of every load, or that too few of its blocks count."""
    made = report.of(CompositionRecord)
    if not made:
        return f"Not compared: {one_line(report.run.why_absent('composition'))}"
    said = [
        f"{load_name(record)}: {record.interval_class}" + (f" (rho {fixed(record.median, 3)})" if record.rhos else "")
        for record in made
    ]
    return sentence(f"on {'; on '.join(said)}")


def load_name(record: CompositionRecord) -> str:
    """What was served."""
    name = "" if record.load == TIMED else f", {one_line(record.load, 60)}"
    return f"{one_line(record.model, 60)}{name}, batch {record.batch}, {record.context_tokens:,} tokens"
