"""A verdict as nightly.md, and as junit.xml: the run's own cases, and one for each thing that was compared."""

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from kassay.nightly.judging import ESTABLISHED, Finding
from kassay.report.junit import case, junit_xml, suite
from kassay.report.words import one_line

if TYPE_CHECKING:
    from kassay.nightly.verdict import Verdict

ORDER = ("crashed", "differs", "regressed", "changed", "refused", "no baseline", "cancelled")
WHOLE = "the comparison"


def markdown(made: "Verdict") -> str:
    """The verdict for people: what is red first, then everything that was compared."""
    red = sorted((one for one in made.findings if one.red), key=rank)
    rest = [one for one in made.findings if not one.red]
    lines = [
        f"# Night of {made.subject.profile}",
        "",
        made.headline,
        "",
        f"Run `{made.subject.run}`; {made.against}.",
        "",
    ]
    lines += ["## Red", "", *(table(red) if red else ["Nothing."]), ""]
    lines += ["## Not red", "", *(table(rest) if rest else ["Nothing was compared."])]
    return "\n".join(lines) + "\n"


def rank(one: Finding) -> int:
    """Worst first."""
    return ORDER.index(one.word) if one.word in ORDER else len(ORDER)


def table(found: list[Finding]) -> list[str]:
    """A row for each finding."""
    rows = [f"| {cell(one.metric or WHOLE)} | {one.word} | {cell(one.text)} |" for one in found]
    return ["| metric | word | baseline -> this run |", "|---|---|---|", *rows]


def cell(text: str) -> str:
    """Text that cannot leave its cell."""
    return one_line(text).replace("|", "\\|").replace("<", "&lt;")


def junit(made: "Verdict") -> bytes:
    """The run's own document with a suite more: failure where something is worse, error where nothing could be said."""
    from kassay.report.evidence import load_report

    root = ElementTree.fromstring(junit_xml(load_report(made.run_dir)))  # our own bytes of a moment ago
    cases = []
    for one in made.findings:
        told = case("nightly", one.metric or WHOLE)
        if one.red:
            kind = "failure" if one.word in ESTABLISHED else "error"
            ElementTree.SubElement(told, kind, message=one_line(f"{one.word}: {one.text}"))
        cases.append(told)
    suite(root, f"{made.subject.run} against its baseline", cases)
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"
