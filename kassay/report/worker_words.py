"""What is said of a vLLM worker in a sentence: what the check of its engine found, and ratios of its timed blocks."""

from kassay.kinds.vllm import VllmFinding, VllmRatio
from kassay.report.evidence import Report
from kassay.report.words import counted, fixed, listed, one_line, title


def check_line(report: Report) -> str:
    """The sentence of the findings: what was seen, or what was not."""
    made = report.of(VllmFinding)
    if not made:
        return f"Not checked: {one_line(report.run.why_absent(program_of(report)))}"
    lacking = [f"{one.finding} ({one_line(one.said, 200)})" for one in made if not one.passed]
    holds = f"{len(made) - len(lacking)} of {counted(len(made), 'finding')}"
    if lacking:
        return f"{holds} hold; not so: {listed(lacking)}."
    return f"{holds} hold: {one_line(made[0].said, 200)}."


def headline(report: Report) -> str:
    """The verdict line of a run whose only question is the check; empty where there was none."""
    made = report.of(VllmFinding)
    if not made:
        return ""
    return f"The engine's check {'passes' if all(one.passed for one in made) else 'fails'}: {check_line(report)}"


def program_of(report: Report) -> str:
    """The stage program that checks in this workflow."""
    return next((name for name in ("vllm_smoke", "vllm_check") if report.run.program(name)), "vllm_smoke")


def ratio_line(report: Report) -> str:
    """The sentence of the findings: the medians of complete requests."""
    made = [one for one in report.of(VllmRatio) if one.endpoint.startswith("complete")]
    if not made:
        return f"Not compared: {one_line(report.run.why_absent('vllm_ratio'))}"
    said = listed([f"{title(one.arm)} {fixed(one.median, 3)}" for one in made])
    return f"Complete requests beside {title(made[0].control)}, median ratios, descriptive: {said}."
