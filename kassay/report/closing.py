"""The last lines that a run prints: what did not pass, the verdict, the report, the exit code.

The driver has the outcomes in hand; records are read only where a stage of the plan judges a study or printed figures.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kassay import paths
from kassay.entry import Stage
from kassay.outcome import Outcome
from kassay.report.words import counted, exit_meaning, one_line

REPORT_HTML = "report.html"
MOST = 20  # stages that are told one by one
# Programs whose records alone make the verdict line.
JUDGING = ("certify", "contrast", "fusion_law", "published", "serving_verdict", "vllm_smoke", "vllm_check")


def closing_lines(
    run_dir: Path,
    code: int,
    stages: Sequence[Stage],
    outcomes: Mapping[str, Outcome],
    stale: Mapping[str, str],
    idle: bool,
) -> list[str]:
    """What a run of these stages says that has ended; `idle` if it found nothing to do."""
    found = [f"nothing to do: all {counted(len(outcomes), 'stage')} are up to date"] if idle else []
    bad = [outcome for outcome in outcomes.values() if outcome.word != "passed"]
    found += [stage_line(run_dir, outcome) for outcome in bad[:MOST]]
    if len(bad) > MOST:
        found.append(f"and {counted(len(bad) - MOST, 'stage')} more; make status lists them")
    found += [f"{one_line(name, 80)} kept on demand, stale: {one_line(why)}" for name, why in stale.items()]
    if {stage.program for stage in stages} & set(JUDGING):
        found += verdict(run_dir)
    else:
        found.append(unjudged([outcomes[stage.name] for stage in stages if not stage.after_all]))
    page = run_dir / REPORT_HTML
    found.append(f"report: {paths.shown(page) if page.exists() else 'none was rendered'}")
    found.append(f"exit code {code}: {exit_meaning(code)}")
    return found


def verdict(run_dir: Path) -> list[str]:
    """The verdict line, below what of its records cannot be read."""
    from kassay.report.evidence import load_report
    from kassay.report.findings import verdict_line

    report = load_report(run_dir, JUDGING)
    return [*(f"records: {one_line(fault)}" for fault in report.faults), one_line(verdict_line(report), 600)]


def unjudged(outcomes: Sequence[Outcome]) -> str:
    """What takes the place of a verdict."""
    passed = sum(outcome.word == "passed" for outcome in outcomes)
    return f"No study is judged here; {passed} of {counted(len(outcomes), 'stage')} passed."


def stage_line(run_dir: Path, outcome: Outcome) -> str:
    """One stage that did not pass: word, reason, log."""
    log = paths.stage_dir(run_dir, outcome.stage) / paths.STDERR
    where = f" (log: {paths.shown(log)})" if log.is_file() and log.stat().st_size else ""
    return f"{one_line(outcome.stage, 80)} {outcome.word}: {one_line(outcome.reason)}{where}"
