"""The sections on a vLLM worker: what the check of its engine found, and what its timed blocks say beside a control."""

from kassay.kinds.vllm import VllmFinding, VllmRatio
from kassay.report.evidence import Report
from kassay.report.markup import Markup, cell, numbers, section, table, tag
from kassay.report.sections import absent, word
from kassay.report.words import fixed, probability, title
from kassay.report.worker_words import program_of

FOUND = ["arm", "finding", "result", "what was seen"]
BESIDE = [
    "arm / control",
    "endpoint",
    "batch",
    "median ratio",
    "wins / n",
    "sign test p",
    "capacity",
    "limit",
    "verdict",
]
PASS, FAILS = "pass", "fails"
DRAWN = "Weights were drawn: a rate and no quality. "
BOUND = (
    "Ratios within blocks of fresh engine processes, above 1 the arm is faster; capacity is tokens for equal bytes of "
    "the pool. No certificate is read here, so nothing is a gain."
)


def check_section(report: Report) -> Markup:
    """Every finding of the check, in the order of the receipt."""
    made = report.of(VllmFinding)
    anchor, heading = "install", "Check of the engine"
    if not made:
        return section(anchor, heading, absent(report, program_of(report), "findings"))
    rows = [
        [tag("th", title(arm), scope="row"), cell(finding), cell(word(result)), cell(said, kind="free")]
        for arm, finding, result, said in finding_rows(report)
    ]
    return section(anchor, heading, table("The check passes if every finding holds.", FOUND, rows, right=()))


def finding_rows(report: Report) -> list[list[str]]:
    """Every finding as texts, in the order of FOUND."""
    return [[one.arm, one.finding, PASS if one.passed else FAILS, one.said] for one in report.of(VllmFinding)]


def ratio_section(report: Report) -> Markup:
    """Every arm beside the control, complete requests and decode steps."""
    made = report.of(VllmRatio)
    anchor, heading = "ratios", "Ratios in the worker"
    if not made:
        return section(anchor, heading, absent(report, "vllm_ratio", "ratios"))
    rows = [
        [tag("th", pair, scope="row"), cell(endpoint), *numbers(*figures), cell(word(verdict))]
        for pair, endpoint, *figures, verdict in ratio_rows(report)
    ]
    drawn = DRAWN if any(one.dummy_weights for one in made) else ""
    return section(anchor, heading, table(drawn + BOUND, BESIDE, rows, right=range(2, 8)))


def ratio_rows(report: Report) -> list[list[str]]:
    """Every ratio as texts, in the order of BESIDE."""
    return [
        [
            f"{title(one.arm)} / {title(one.control)}",
            one.endpoint,
            str(one.batch),
            fixed(one.median, 4),
            f"{one.wins} / {len(one.ratios)}",
            probability(one.sign_p),
            fixed(one.capacity_ratio, 4),
            fixed(one.capacity_limit, 4),
            one.verdict,
        ]
        for one in report.of(VllmRatio)
    ]
