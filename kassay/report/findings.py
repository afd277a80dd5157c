"""The first lines of every report: the verdict line, and one sentence for each question that the run asked.

Put together from certificates, contrasts, fits and outcomes. A negative or a missing result gets the same
sentence in the same place as a positive one.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from kassay.kinds.memory import MemoryPart
from kassay.kinds.oracle import OracleCase
from kassay.kinds.verdict import CertificateRecord, ContrastRecord, SaturationRecord
from kassay.kv.accounting import of_cache
from kassay.report.acceptance_words import acceptance_line
from kassay.report.answers import answers_line, published
from kassay.report.certified import planned_rows, row_of
from kassay.report.comparisons import direct_line, matrix_line
from kassay.report.composition_words import composition_line
from kassay.report.evidence import Report
from kassay.report.fusion_words import fusion_headline, fusion_line
from kassay.report.model import NOT_RUN, RunView
from kassay.report.probe_words import probe_line
from kassay.report.serving_words import serving_line
from kassay.report.unrun import coverage_line
from kassay.report.words import (
    counted,
    families,
    fixed,
    listed,
    number,
    one_line,
    percent,
    sentence,
    title,
    verdict_clause,
)
from kassay.report.worker_words import check_line, headline, program_of, ratio_line

PLURALS = {"fails": "fail"}  # of verdict words; `pass` is read as a noun for one and as a verb for many


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One sentence and the section that it sums up."""

    topic: str
    text: str
    anchor: str  # id of the section


def verdicts(report: Report) -> dict[tuple[str, str], str]:
    """(row, model) -> verdict for every planned pair and every recorded one; `not run` where there is none."""
    planned = {(name, model): NOT_RUN for name in planned_rows(report.run) for model in report.run.models}
    return planned | {(row_of(report, made), made.model): made.verdict for made in report.of(CertificateRecord)}


def verdict_line(report: Report) -> str:
    """The one sentence that answers the study."""
    found = verdicts(report)
    if not found and report.run.program("matrix"):
        return matrix_line(report)
    if not found and (
        answers := answers_line(report) or serving_line(report) or headline(report) or fusion_headline(report)
    ):
        return answers
    if not found:
        passed = sum(stage.word == "passed" for stage in report.run.judged)
        return f"No study is judged here; {passed} of {counted(len(report.run.judged), 'stage')} passed."
    made = report.of(CertificateRecord)
    if not made:
        reason = "; ".join(report.faults) or report.run.why_absent("certify")
        return f"No verdict on any recipe: {one_line(reason)}."
    patterns: dict[tuple[tuple[str, str], ...], list[str]] = {}
    names = list(dict.fromkeys(candidate for candidate, _ in found))
    for name in names:
        pattern = tuple((model, verdict) for (candidate, model), verdict in found.items() if candidate == name)
        patterns.setdefault(pattern, []).append(name)
    clauses = [verdict_clause(recipes, dict(pattern), names) for pattern, recipes in patterns.items()]
    return f"{expectation(report)}: {'; '.join(clauses)}."


def expectation(report: Report) -> str:
    """How many verdicts are the expected ones."""
    made = report.of(CertificateRecord)
    planned = len(verdicts(report))
    surprising = sum(record.as_expected is False for record in made)
    stated = sum(record.as_expected is not None for record in made)
    count = f"all {planned} verdicts" if len(made) == planned else f"{len(made)} of {planned} planned verdicts"
    if surprising:
        return f"{surprising} of {counted(len(made), 'verdict')} {'is' if surprising == 1 else 'are'} not as expected"
    if stated == len(made):
        return f"{count[:1].upper()}{count[1:]} are as expected"
    return f"{counted(len(made), 'verdict')}, of which {stated} had an expectation"


def findings(report: Report) -> list[Finding]:
    """One sentence for each question of the workflow, in the order of the sections."""
    asked = {stage.program for stage in report.run.stages}
    made = [
        ("certify", Finding(topic="Quality", text=quality(report), anchor="gates")),
        ("direct", Finding(topic="Direct comparisons", text=direct_line(report), anchor="direct")),
        ("matrix", Finding(topic="Matrix", text=matrix_line(report), anchor="matrix")),
        (program_of(report), Finding(topic="Engine", text=check_line(report), anchor="install")),
        ("oracle", Finding(topic="Numerics", text=numerics(report), anchor="oracle")),
        ("memory", Finding(topic="Memory", text=memory(report), anchor="memory")),
        ("contrast", Finding(topic="Speed", text=speed(report), anchor="timing")),
        ("vllm_ratio", Finding(topic="Ratios", text=ratio_line(report), anchor="ratios")),
        ("composition", Finding(topic="Composition", text=composition_line(report), anchor="composition")),
        ("acceptance", Finding(topic="Drafts", text=acceptance_line(report), anchor="acceptance")),
        ("serving", Finding(topic="Serving", text=serving_line(report), anchor="serving")),
        ("saturation", Finding(topic="Saturation", text=saturation(report), anchor="saturation")),
        ("fusion_law", Finding(topic="Fused INT4", text=fusion_line(report), anchor="fusion")),
        ("probes", Finding(topic="Probes", text=probe_line(report), anchor="probes")),
        ("published", Finding(topic="Published figures", text=published(report), anchor="published")),
    ]
    covered = coverage_line(report)
    coverage = [Finding(topic="Coverage", text=covered, anchor="not-run" if "without" in covered else "stages")]
    return [finding for program, finding in made if program in asked] + (coverage if covered else [])


def quality(report: Report) -> str:
    """How the certificates are spread."""
    made = report.of(CertificateRecord)
    if not made:
        return f"Not judged: {one_line(report.run.why_absent('certify'))}"
    spread = Counter(record.verdict for record in made)
    said = listed(
        [f"{count} {verdict if count == 1 else PLURALS.get(verdict, verdict)}" for verdict, count in spread.items()]
    )
    against = listed(sorted({title(record.control) for record in made}))
    return f"Of {counted(len(made), 'certificate')} against {against}: {said}."


def oracle_counts(cases: list[OracleCase]) -> tuple[int, int, int, int]:
    """Clean cases within, clean cases, faults caught, faults injected."""
    clean = [case for case in cases if case.mutation is None]
    faults = [case for case in cases if case.mutation is not None]
    return (
        sum(case.within for case in clean),
        len(clean),
        sum(case.caught is True for case in faults),
        len(faults),
    )


def numerics(report: Report) -> str:
    """What the oracle found."""
    cases = list(report.of(OracleCase))
    if not cases:
        return f"Not checked: {one_line(report.run.why_absent('oracle'))}"
    within, clean, caught, faults = oracle_counts(cases)
    return (
        f"{within:,} of {counted(clean, 'comparison')} with the float64 oracle within tolerance; "
        f"{caught:,} of {counted(faults, 'injected fault')} caught."
    )


def cache_bytes(report: Report) -> dict[str, int]:
    """Payload of each recipe's cache in bytes: keys, values, scales."""
    total: dict[str, int] = {}
    for part in report.of(MemoryPart):
        if of_cache(part.part):
            total[part.recipe] = total.get(part.recipe, 0) + part.payload_bytes
    return total


def memory(report: Report) -> str:
    """The smallest cache against the control's."""
    total = cache_bytes(report)
    control = total.get(report.run.control)
    if not total or not control:
        return f"Not measured: {one_line(report.run.why_absent('memory'))}"
    by_size: dict[str, list[str]] = {}
    for recipe, held in total.items():
        if held != control:
            by_size.setdefault(percent(held / control, 1), []).append(recipe)
    said = [f"{listed(families(recipes, total))} {share}" for share, recipes in by_size.items()]
    return f"Cache payload against {title(report.run.control)}: {', '.join(said) or 'no recipe differs'}."


def speed(report: Report) -> str:
    """The verdict of every planned comparison, with its ratio."""
    made = report.of(ContrastRecord)
    if not made:
        return f"Not measured: {one_line(report.run.why_absent('contrast'))}"
    return sentence("; ".join(contrast_words(record) for record in made))


def contrast_words(record: ContrastRecord) -> str:
    """`K16/V8 fixed: no confirmed gain (median ratio 0.912)`."""
    ratio = "" if record.median is None else f" (median ratio {fixed(record.median, 3)})"
    return f"{title(record.candidate)}: {one_line(record.verdict, 60)}{ratio}"


def saturation(report: Report) -> str:
    """Which sweeps show a ceiling that may be believed."""
    made = report.of(SaturationRecord)
    if not made:
        return f"Not fitted: {one_line(report.run.why_absent('saturation'))}"
    usable = [record for record in made if record.state == "usable"]
    if not usable:
        return (
            f"None of {counted(len(made), 'sweep')} determines a ceiling; the largest measured rate is a lower bound."
        )
    said = [
        f"{title(record.recipe)} at {record.context_tokens:,} tokens {number(record.ceiling_per_s)} tok/s"
        for record in usable
    ]
    return f"{len(usable)} of {counted(len(made), 'sweep')} with a usable ceiling: {', '.join(said)}."


def chosen_settings(run: RunView) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The changed settings that say something, and the members of their choices that are `n` with them.

    A choice that is set to one member sets all others to `n` at the same place: they repeat it.
    """
    changed = changed_settings(run)
    chosen = {(one["origin"], one["where"]) for one in changed.values() if one["value"] is True}
    others = [n for n, one in changed.items() if one["value"] is False and (one["origin"], one["where"]) in chosen]
    return {name: one for name, one in changed.items() if name not in others}, sorted(others)


def changed_settings(run: RunView) -> dict[str, dict[str, Any]]:
    """The settings that are not at their default, by symbol; each says itself what the command line gave."""
    asked = {name: setting for name, setting in run.settings.items() if name != "COMMAND_LINE"}
    return {name: setting for name, setting in asked.items() if setting["origin"] != "default"}
