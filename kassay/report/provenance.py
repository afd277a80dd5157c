"""The sections of the page on the run: failures, stages, what was asked, provenance, raw records."""

from typing import Any

from kassay import paths
from kassay.kinds.device import DeviceRecord
from kassay.kinds.source import PackageRecord, SourceRecord
from kassay.report.dag import dag
from kassay.report.evidence import Report
from kassay.report.findings import chosen_settings
from kassay.report.markup import Content, Markup, cell, definitions, link, numbers, prose, section, table, tag
from kassay.report.model import NOT_RUN, THIS_REPORT, RunView, StageView
from kassay.report.sections import CLASS_OF, scrolling, word
from kassay.report.words import ABSENT, counted, exit_meaning, frozen_words, one_line, seconds, size

SHOWN_DIRTY = 20  # changed files that are listed; the record has all
LONG_DIGEST = 12  # characters of a digest that are shown


def next_command(stage: StageView) -> str:
    """What a reader does about a stage that did not pass, or that is stale."""
    if stage.stale:
        return "`make` without KEEP runs it again, as it was asked"
    if stage.word == "rejected":
        return "a result, not an error: read its reason; `make` runs it again when code or settings change"
    if stage.word == "unmet":
        return "`make` on a host that has it; all that passed is kept"
    if stage.word == NOT_RUN:
        return "`make` runs it; all that passed is kept"
    if stage.word == "blocked":
        return "`make` when the stage that it needs has passed"
    return "`make` runs it again; all that passed is kept"


def failure_section(report: Report) -> Markup | None:
    """Every stage that did not pass: reason, last lines of its log, next command. First on the page if there is any."""
    bad = [stage for stage in report.run.judged if stage.word != "passed" or stage.stale]
    if not bad and not report.faults:
        return None
    faults = [tag("div", tag("p", tag("b", "records: "), prose(fault)), class_="fault bad") for fault in report.faults]
    return section("failures", "What did not pass", faults, [failure(stage, report.run.run) for stage in bad])


def told(stage: StageView, run: str) -> Markup:
    """The command that shows a stage's whole log."""
    return tag("code", f"make logs STAGE={stage.name} RUN={run}")


def failure(stage: StageView, run: str) -> Markup:
    """One stage: what it said last, and what to do about it."""
    log = next((file.file for file in stage.files if file.file == paths.STDERR and file.bytes), None)
    return tag(
        "div",
        tag("p", tag("b", stage.name), " ", word(stage.word), ": ", prose(stage.reason)),
        tag("p", "kept on demand, stale: ", prose(stage.stale)) if stage.stale else None,
        tag("pre", "\n".join(stage.stderr_tail), tabindex=0) if stage.stderr_tail else None,
        tag("p", "next: ", prose(next_command(stage)), class_="note"),
        tag("p", "log: ", link(stage.file(log), log), ", or ", told(stage, run), class_="note") if log else None,
        class_=f"fault {CLASS_OF.get(stage.word, '')}".strip(),
    )


def stage_section(report: Report) -> Markup:
    """The DAG, and each stage with what it needs, how it ended and what it took."""
    run = report.run
    executed = [stage for stage in run.judged if stage.word not in (NOT_RUN, "blocked") and not stage.reused]
    reused = sum(stage.reused for stage in run.judged)
    lead = (
        f"{counted(len(executed), 'stage')} executed in this run, "
        f"{seconds(sum(s.duration_s or 0 for s in executed))} of stage time in all; "
        f"{reused} taken from earlier runs; interrupted {counted(run.interruptions, 'time')}."
    )
    header = ["stage", "outcome", "time", "needs", "executed because", "results"]
    rows = [stage_row(stage) for stage in run.stages]
    return section(
        "stages",
        "Stages",
        tag("p", lead),
        tag("figure", scrolling(dag(run), "drawing of the DAG", "wide")),
        table("Every planned stage.", header, rows, right=(2,)),
    )


def stage_row(stage: StageView) -> list[Markup]:
    """One stage."""
    needs = "all others" if stage.word == THIS_REPORT else ", ".join(stage.needs) or ABSENT
    said = [f"{key} {short(value)}" for key, value in stage.metrics.items() if value is not None]
    metrics = "; ".join([*said, *(f"not finite: {one_line(text, 80)}" for text in stage.nonfinite)])
    return [
        tag("th", stage.name, scope="row"),
        cell([word(stage.word), tag("span", prose(stage.reason), class_="sub") if stage.reason else None]),
        *numbers(seconds(stage.duration_s)),
        cell(needs),
        cell(stage.origin or ABSENT),
        cell(one_line(metrics, 240) or ABSENT, kind="free"),
    ]


def short(value: object) -> str:
    """A metric on one line."""
    return f"{value:,.4g}" if isinstance(value, float) else one_line(value, 80)


def asked_section(report: Report) -> Markup:
    """The question, where it was asked, every setting that is not a default with its origin, and the overrides."""
    run = report.run
    overrides: Content = [tag("li", tag("code", override)) for override in run.overrides]
    pairs: list[tuple[Content, Content]] = [
        ("profile", f"{run.profile}, workflow {run.workflow}"),
        ("study", study_text(run.study) if run.study else ""),
        ("models", ", ".join(run.models)),
        ("host", host_text(run.host)),
        ("GPUs", "; ".join(gpus_of(report))),
        ("started", run.created_at),
        ("overrides", tag("ul", overrides) if run.overrides else "none"),
    ]
    told = [(name, text) for name, text in pairs if text != ""]
    return section("asked", "What was asked, and where it ran", definitions(told), setting_table(run))


def study_text(study: dict[str, Any]) -> str:
    """Its name, and the question that it asks."""
    return str(study.get("name", ABSENT)) + (f": {study['question']}" if study.get("question") else "")


def gpus_of(report: Report) -> list[str]:
    """Kinds of the GPUs by the stages' receipts, or their names by the records of a run that has no such receipt."""
    named = [f"{one.name}, driver {one.driver or ABSENT}" for one in report.of(DeviceRecord)]
    return report.run.gpus or list(dict.fromkeys(named))


def host_text(host: dict[str, Any]) -> str:
    """The host's facts, a number of GiB with its unit."""
    said = []
    for key, value in host.items():
        name, unit = (key.removesuffix("_gib"), " GiB") if key.endswith("_gib") else (key, "")
        said.append(f"{name.replace('_', ' ')} {one_line(value)}{unit}")
    return "; ".join(said)


def setting_table(run: RunView) -> Content:
    """Every changed setting with its origin; members of a choice that its other member sets to `n` in one line."""
    chosen, others = chosen_settings(run)
    rows = [
        [
            tag("th", tag("code", name), scope="row"),
            cell(tag("code", value_of(setting["value"]))),
            cell(setting["origin"]),
            cell(setting["where"] or ABSENT),
        ]
        for name, setting in sorted(chosen.items())
    ]
    defaults = len(run.settings) - len(rows) - len(others)
    if not rows:
        return tag("p", f"All {defaults} settings are at their defaults.")
    caption = f"Settings that are not at their default; {counted(defaults, 'other')} unchanged."
    quiet = counted(len(others), "member")
    return [
        table(caption, ["symbol", "value", "from", "place"], rows),
        tag(
            "details",
            tag("summary", f"{quiet} of these choices that were not chosen"),
            tag("p", tag("code", ", ".join(one_line(name, 80) for name in others)), class_="note"),
        )
        if others
        else None,
    ]


def value_of(value: object) -> str:
    """A Kconfig value as its file would say it."""
    return {True: "y", False: "n"}[value] if isinstance(value, bool) else one_line(value, 200) or '""'


def provenance_section(report: Report) -> Markup:
    """Plan, sources, stack, host and checkpoints: what a second person needs to compare."""
    run = report.run
    pairs: list[tuple[Content, Content]] = [
        ("run", run.run),
        ("plan", tag("code", run.plan_hash)),
        *protocol_pairs(run),
    ]
    pairs += [(f"source {record.name}", source_text(record)) for record in report.of(SourceRecord)]
    pairs.append(("stack", prose(stack_text(report))))
    pairs += [(f"model {name}", tag("code", digest)) for name, digest in model_digests(run).items()]
    return section("provenance", "Provenance", definitions(pairs), package_table(report))


def protocol_pairs(run: RunView) -> list[tuple[Content, Content]]:
    """The protocol of the run and the frozen one, with the dates that decide which came first."""
    if not run.protocol:
        return []
    return [
        ("protocol", [run.protocol["name"], " ", tag("code", run.protocol["sha256"])]),
        ("frozen protocol", prose(frozen_words(run.protocol))),
    ]


def source_text(record: SourceRecord) -> list[Content]:
    """What was asked, what it became, and its digest, of one frozen source."""
    if record.kind == "release":
        return [f"release {record.ref}, SHA-256 ", tag("code", record.sha256)]
    commit: Content = ["commit ", tag("code", record.commit)] if record.commit else "outside git"
    if record.kind == "git":
        asked = f" of {record.url}, asked for as {record.ref_kind} {record.ref}, {record.describe}"
        inner = f"; {counted(len(record.submodules), 'submodule')}" if record.submodules else ""
        note = tag("p", tag("b", record.note)) if record.note else None
        return [commit, f"{asked}{inner}; {counted(record.files, 'file')}, {size(record.bytes)}", note]
    dirty = f"{counted(len(record.dirty), 'file')} changed since" if record.dirty else "clean"
    names = ", ".join(record.dirty[:SHOWN_DIRTY]) + (" …" if len(record.dirty) > SHOWN_DIRTY else "")
    told = tag("details", tag("summary", "changed files"), tag("p", names, class_="note")) if record.dirty else None
    return [
        commit,
        f", {dirty}; {counted(record.files, 'file')}, SHA-256 ",
        tag("code", record.sha256[:LONG_DIGEST]),
        "…",
        told,
    ]


def stack_text(report: Report) -> str:
    """How many packages the stack holds, and its main versions as the build stage attested them."""
    packages = report.of(PackageRecord)
    built = report.run.program("build")
    if not packages:
        return report.run.why_absent("build")
    versions = ", ".join(
        f"{name} {one_line(version, 40)}" for stage in built for name, version in stage.metrics.items()
    )
    return f"{counted(len(packages), 'package')} locked; {versions}"


def package_table(report: Report) -> Markup | None:
    """The lock of the stack."""
    packages = report.of(PackageRecord)
    if not packages:
        return None
    lock = ", ".join(f"{package.name}=={package.version}" for package in packages)
    return tag("details", tag("summary", f"all {len(packages)} packages"), tag("p", tag("code", lock), class_="note"))


def model_digests(run: RunView) -> dict[str, str]:
    """Digest of each checkpoint as the stages were given it."""
    found: dict[str, str] = {}
    for stage in run.stages:
        if "model" in stage.input_sha256 and "model" in stage.params:
            found.setdefault(one_line(stage.params["model"], 60), stage.input_sha256["model"])
    return found


def raw_section(report: Report) -> Markup:
    """Links to every file of every stage, relative to the run directory."""
    rows: list[list[Markup]] = []
    for stage in report.run.stages:
        if not stage.files:
            continue
        links = [[link(stage.file(file.file), file.file), f" ({size(file.bytes)}) "] for file in stage.files]
        count = report.counts.get(stage.name)
        rows.append(
            [
                tag("th", stage.name, scope="row"),
                *numbers(ABSENT if count is None else f"{count:,}"),
                cell(links),
            ]
        )
    own = [
        link(name, name)
        for name in ("plan.json", "manifest.json", "events.jsonl", "report.json", "report.md", "junit.xml")
    ]
    return section(
        "raw",
        "Raw records",
        tag("p", "Every number above is read from these files. Of the run: ", [[item, " "] for item in own]),
        table(
            "Files of each stage, and how many records it wrote.",
            ["stage", "records", "files"],
            rows,
            right=(1,),
        ),
    )


def exit_line(run: RunView) -> Markup:
    """The exit code and what it means."""
    if run.exit_code is None:
        missing = sum(stage.word == NOT_RUN for stage in run.judged)
        return tag(
            "p",
            tag("b", "Unfinished"),
            f": {counted(missing, 'stage')} not run; ",
            tag("code", "make"),
            " resumes.",
            class_="exit",
        )
    return tag("p", tag("b", f"Exit code {run.exit_code}"), f": {exit_meaning(run.exit_code)}.", class_="exit")
