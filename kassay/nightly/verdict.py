"""What a night comes to: how its stages ended, its audit, what may be compared, every metric; and one exit code."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kassay import digest, paths
from kassay.compare.refusals import baseline_refusals
from kassay.compare.subject import Subject, subject_of
from kassay.errors import EXIT_CRASHED
from kassay.nightly import baseline, judging, nights, telling
from kassay.nightly.judging import Finding
from kassay.nightly.watched import watched

MARKDOWN, JUNIT = "nightly.md", "junit.xml"
RESULTS = ("passed", "rejected")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A run beside its baseline."""

    run_dir: Path
    subject: Subject
    against: str  # which baseline, in words
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """1 for a crash, else as kassay.nightly.judging says."""
        if any(one.word == "crashed" for one in self.findings):
            return EXIT_CRASHED
        return judging.exit_code(list(self.findings))

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        counts = Counter(one.word for one in self.findings)
        said = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
        return f"{'red' if self.exit_code else 'green'} (exit code {self.exit_code}): {said or 'nothing was compared'}"

    def lines(self) -> list[str]:
        """What a reader must see first: all that is red or otherwise not `pass`, then the counts."""
        return [*(one.line() for one in self.findings if one.word != "pass"), self.against, self.headline]

    def save(self, night: Path) -> None:
        """Leave the verdict beside the run, for people and for machines that read test results."""
        digest.write_bytes(night / MARKDOWN, telling.markdown(self).encode())
        digest.write_bytes(night / JUNIT, telling.junit(self))


def judged(run_dir: Path, given: str | None, previous: nights.Mark | None) -> Verdict:
    """The verdict on a run. Raises RunError if it is none, ConfigError for a baseline that cannot be read."""
    subject = subject_of(run_dir)
    place = baseline.place(subject.profile, given)
    held = baseline.load(place)
    findings = [*of_stages(run_dir, subject), *of_audit(run_dir), *of_previous(previous)]
    if held is None:
        told = f"{paths.shown(place)} does not exist: nothing was compared"
        hint = f'make baseline RUN={nights.asked_as(run_dir)} REASON="…" accepts this run'
        return Verdict(
            run_dir=run_dir,
            subject=subject,
            against="there is no baseline yet",
            findings=(*findings, Finding(metric="", word="no baseline", text=f"{told}; {hint}")),
        )
    refused = [Finding(metric="", word="refused", text=one.reason) for one in baseline_refusals(held.subject, subject)]
    if not refused:
        findings += of_metrics(held, run_dir, subject)
    return Verdict(run_dir=run_dir, subject=subject, against=f"baseline: {held.words}", findings=(*findings, *refused))


def of_metrics(held: baseline.Baseline, run_dir: Path, subject: Subject) -> list[Finding]:
    """Every metric of the two; a stage that left no result is told of once, by `of_stages`."""
    gone = {f"{name}: outcome" for name, word in subject.words.items() if word not in RESULTS}
    found = judging.judge(held.metrics, watched(run_dir), held.alpha)
    return [one for one in found if one.metric not in gone]


def of_stages(run_dir: Path, subject: Subject) -> list[Finding]:
    """Stages that left no result, but for those that the plan gates off."""
    words = baseline.unmeasured(run_dir, subject).items()
    return [
        Finding(metric=name, word="crashed" if word == "crashed" else "not measured", text=f"the stage was {word}")
        for name, word in words
    ]


def of_audit(run_dir: Path) -> list[Finding]:
    """What the audit found; that it found nothing is told too."""
    from kassay.audit import audit

    found = audit(run_dir)
    values = sum(one.values for one in found.audited)
    if found.differences:
        return [Finding(metric="audit", word="differs", text=one.line()) for one in found.differences]
    if found.open:
        return [Finding(metric="audit", word="not measured", text=one) for one in found.open]
    said = f"{values} values derived again" if found.audited else "no stage judges: there is nothing to derive"
    return [Finding(metric="audit", word="pass", text=said)]


def of_previous(previous: nights.Mark | None) -> list[Finding]:
    """The night before, if it left no verdict: whatever went wrong in it, nobody has been told."""
    if previous is None or previous.exit_code is not None:
        return []
    text = f"the night before {previous.fate} and left no verdict"
    return [Finding(metric=previous.night, word="cancelled", text=text)]
