"""junit.xml for machines that read test results: one case a stage, one a planned certificate.

failure: a rejected stage, or a verdict that is not the expected one (where none is expected, one that is not
`pass`); error: a crashed stage; skipped: unmet, blocked or not run. A verdict `fails` that the study expects
is no failure.
"""

from xml.etree import ElementTree

from kassay.kinds.verdict import CertificateRecord
from kassay.report.certified import row_of
from kassay.report.evidence import Report
from kassay.report.findings import verdicts
from kassay.report.model import StageView
from kassay.report.words import clean, one_line

ELEMENT_OF = {
    "rejected": "failure",
    "crashed": "error",
    "unmet": "skipped",
    "blocked": "skipped",
    "not run": "skipped",
}


def junit_xml(report: Report) -> bytes:
    """The document."""
    root = ElementTree.Element("testsuites", name="kassay")
    suite(root, f"{report.run.run} stages", [stage_case(stage) for stage in report.run.judged])
    suite(root, f"{report.run.run} certificates", certificate_cases(report))
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def suite(root: ElementTree.Element, name: str, cases: list[ElementTree.Element]) -> None:
    """Append a suite with its counts."""
    ended = [child.tag for case in cases for child in case]
    counts = {
        "failures": ended.count("failure"),
        "errors": ended.count("error"),
        "skipped": ended.count("skipped"),
    }
    attributes = {
        "name": one_line(name),
        "tests": str(len(cases)),
        **{key: str(value) for key, value in counts.items()},
    }
    ElementTree.SubElement(root, "testsuite", attributes).extend(cases)


def case(group: str, name: str, duration_s: float | None = None) -> ElementTree.Element:
    """One test case."""
    attributes = {"classname": group, "name": one_line(name)}
    if duration_s is not None:
        attributes["time"] = f"{duration_s:.3f}"
    return ElementTree.Element("testcase", attributes)


def stage_case(stage: StageView) -> ElementTree.Element:
    """A stage."""
    made = case("stage", stage.name, stage.duration_s)
    if (element := ELEMENT_OF.get(stage.word)) is not None:
        told = ElementTree.SubElement(made, element, message=f"{stage.word}: {one_line(stage.reason)}")
        told.text = clean("\n".join(stage.stderr_tail)) or None
    return made


def certificate_cases(report: Report) -> list[ElementTree.Element]:
    """Every planned certificate."""
    records = {(row_of(report, made), made.model): made for made in report.of(CertificateRecord)}
    cases = []
    for (candidate, model), verdict in verdicts(report).items():
        made = case("certificate", f"{candidate} on {model}")
        record = records.get((candidate, model))
        if record is None:
            ElementTree.SubElement(made, "skipped", message=one_line(f"{verdict}: {report.run.why_absent('certify')}"))
        elif record.as_expected is False or (record.as_expected is None and record.verdict != "pass"):
            expected = f", expected {record.expected}" if record.expected is not None else ""
            ElementTree.SubElement(made, "failure", message=one_line(f"{record.verdict}{expected}"))
        cases.append(made)
    return cases
