"""A run directory made from the real record kinds and the real statistics, without running a model."""

import functools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from kassay import digest
from kassay.entry import Stage
from kassay.events import Event
from kassay.kinds.law import LawRecord
from kassay.kinds.memory import AllocatorRecord, MemoryGate, MemoryPart, MemoryWindow
from kassay.kinds.oracle import OracleCase
from kassay.kinds.quality import ArmStorage
from kassay.kinds.source import PackageRecord, SourceRecord
from kassay.kinds.timing import SweepCell
from kassay.kinds.verdict import CertificateRecord, ContrastRecord, GateRecord, SaturationRecord
from kassay.outcome import Artifact, Outcome, load
from kassay.plan import Plan
from kassay.record import Record
from kassay.report import rendered
from kassay.report.closing import closing_lines
from kassay.report.evidence import Report, load_report
from kassay.source.freeze import NOTHING
from kassay.stats.answer_gates import GrossLossPlan, gross_loss_gate
from kassay.stats.blocks import PlannedContrast, contrast_verdicts
from kassay.stats.certificate import certificate
from kassay.stats.hill import R2_OF
from kassay.stats.laws import AFFINE, compare_laws
from kassay.stats.loss_gates import LossPlan, relative_nll_gate
from kassay.stats.paired import ArmAnswers, ArmLosses
from kassay.stats.returns import batch_returns
from kassay.stats.saturation import diagnose_sweep
from kassay.stats.step_time import StepPoint
from tests import timed

RUN = "decode-cpu-20261129T101500Z-1a2b3c4d"
EARLIER = "decode-cpu-20261128T090000Z-99887766"
RECIPES = ["native", "k16v8-f", "k16v8-d", "k8v16-f", "k8v16-d", "k8v8-f", "k8v8-d"]
MODELS = ["robust", "fragile"]
SHA = "0123456789abcdef" * 4
PACKAGES = (("numpy", "2.4.6"), ("torch", "2.13.0"))
ITEMS, DOCUMENTS = 400, 64
KEPT = "preservation"
NO_ALLOCATOR: dict[str, Any] = {field.name: None for field in fields(AllocatorRecord) if field.name.endswith("_bytes")}
STUDY: dict[str, Any] = {
    "name": "small",
    "arms": {name: {} for name in RECIPES},
    "comparisons": {name: {"candidate": name, "control": "native"} for name in RECIPES if name != "native"},
    "alpha": 0.05,
    "timing": {"arms": ["native", "k16v8-f", "k8v8-f"], "family": ["k16v8-f", "k8v8-f"]},
    "sweep": {"arms": ["native", "k16v8-f"], "contexts_tokens": [128, 1000]},
}


GRANT = {"cpus": 1, "memory_gib": 1.0, "gpus": 0, "exclusive": False, "gpu_ids": []}


def wave(index: int, scale: float) -> float:
    """A fixed small disturbance in place of noise."""
    return 1 + scale * math.sin(12.9898 * index + 1.7)


def stage(name: str, inputs: dict[str, str], **params: Any) -> Stage:
    """A planned stage."""
    return Stage(
        name=name,
        program=name.partition(".")[0],
        argv=[],
        outputs={},
        params=params,
        inputs=inputs,
        cpus=1,
        memory_gib=1,
        gpus=0,
        disk_gib=0,
        exclusive=False,
        timeout_s=None,
        retries=0,
        after_all=name == "report",
        measures_host=False,
        host={},
        stop="",
    )


def planned_stages() -> tuple[Stage, ...]:
    """The stages of the decode workflow, as their plan has them."""
    first = [stage("freeze", {"tree": "tree:."}), stage("build", {"pins": "freeze.pins"})]
    per_model = []
    for kind, extra in (("calibrate", ()), ("oracle", ("calibrate", "scales")), ("quality", ("oracle", "verdict"))):
        for model in MODELS:
            inputs = {"stack": "build.stack", "model": f"tree:data/models/{model}"}
            inputs |= {extra[0]: f"{extra[0]}.{model}.{extra[1]}"} if extra else {}
            per_model.append(stage(f"{kind}.{model}", inputs, model=model))
    timed = {"stack": "build.stack", "model": "tree:data/models/robust", "scales": "calibrate.robust.scales"}
    rest = [
        stage("certify", {f"quality.{model}": f"quality.{model}.records" for model in MODELS}),
        stage("memory", timed, model="robust"),
        stage("timing", timed | {"certificates": "certify.certificates"}, model="robust"),
        stage("contrast", {"timing": "timing.records", "certificates": "certify.certificates"}),
        stage("sweep", timed | {"numerics": "oracle.robust.verdict"}, model="robust"),
        stage("saturation", {"sweep": "sweep.records"}),
        stage("report", {}),
    ]
    return (*first, *per_model, *rest)


def answers(arm: str, wrong: int) -> ArmAnswers:
    """An arm that answers all but the first `wrong` items."""
    outcomes = ["wrong" if index < wrong else "correct" for index in range(ITEMS)]
    ids = tuple(f"item-{index}" for index in range(ITEMS))
    return ArmAnswers(arm=arm, item_ids=ids, digests=ids, outcomes=tuple(outcomes))


def losses(arm: str, factor: float) -> ArmLosses:
    """An arm whose losses are the control's times a factor, a little disturbed."""
    ids = tuple(f"document-{index}" for index in range(DOCUMENTS))
    nll = tuple(
        0.13 * wave(index, 0.1) * (factor if arm == "native" else factor * wave(index + 7, 0.002))
        for index in range(DOCUMENTS)
    )
    return ArmLosses(arm=arm, item_ids=ids, digests=ids, nll_nats=nll)


def harm(model: str, recipe: str) -> tuple[int, float]:
    """Wrong answers and loss factor of a recipe on a model."""
    if recipe == "native" or recipe.startswith("k16"):
        return 0, 1.0
    return (211, 2.6) if model == "fragile" else (1 if recipe.endswith("f") else 0, 1.0005)


def judged(model: str, recipe: str, expected: str | None) -> list[Record]:
    """Gates and certificate of one recipe on one model."""
    wrong, factor = harm(model, recipe)
    arms = {"native": answers("native", 0), recipe: answers(recipe, wrong)}
    gates = [
        gross_loss_gate(
            arms,
            plan=GrossLossPlan(
                gate=endpoint,
                endpoint=endpoint,
                control="native",
                candidate=recipe,
                planned_n=ITEMS,
                margin=0.015,
                alpha=0.05,
                true_rate=0.001,
                native_floor=floor,
            ),
        )
        for endpoint, floor in (("retrieval", 0.95), ("arithmetic", 0.6))
    ]
    nll = {"native": losses("native", 1.0), recipe: losses(recipe, factor)}
    plan = LossPlan(
        gate="nll",
        endpoint="nll",
        control="native",
        candidate=recipe,
        planned_n=DOCUMENTS,
        margin=0.01,
        alpha=0.05,
        draws=500,
        seed=1,
    )
    gates.append(relative_nll_gate(nll, plan=plan))
    names = ["retrieval", "arithmetic", "nll"]
    made = certificate(gates, objective=KEPT, control="native", candidate=recipe, planned_gates=names)
    own = [field.name for field in fields(GateRecord) if field.name != "model"]
    records: list[Record] = [GateRecord(model=model, **{name: asdict(gate)[name] for name in own}) for gate in gates]
    records.append(
        CertificateRecord(
            study="small",
            model=model,
            comparison=recipe,
            objective=KEPT,
            control="native",
            candidate=recipe,
            gates=names,
            alpha=0.05,
            family_alpha=None,
            slots=1,
            quality_sha256=SHA,
            verdict=made.verdict,
            failed_gates=list(made.failed_gates),
            open_gates=list(made.open_gates),
            expected=expected,
            as_expected=None if expected is None else expected == made.verdict,
        )
    )
    return records


def certify_records() -> list[Record]:
    """All gates and certificates, every verdict expected."""
    found: list[Record] = []
    for model in MODELS:
        for recipe in RECIPES[1:]:
            bad = model == "fragile" and recipe.startswith("k8")
            found += judged(model, recipe, "fails" if bad else "pass")
    return found


def oracle_records(model: str) -> list[Record]:
    """Clean cases of four quantities and five faults, of every recipe."""
    found: list[Record] = []
    faults = ("stale_scale", "swapped_components", "shifted_page", "dropped_head", "wrong_fill")
    for rank, recipe in enumerate(RECIPES):
        for layer in range(2):
            for quantity in ("codes", "scales", "output", "log_normalizer", *faults):
                fault = quantity in faults
                tolerance = 0.0 if quantity in ("codes", "scales") else 2e-6
                error = 0.3 if fault else tolerance * wave(rank + layer, 0.4) / 2
                found.append(
                    OracleCase(
                        model=model,
                        recipe=recipe,
                        layer=layer,
                        case="replay" if fault else "chunk",
                        mutation=quantity if fault else None,
                        quantity="output" if fault else quantity,
                        max_abs_error=error,
                        relative_error=error,
                        tolerance=2e-6 if fault else tolerance,
                        peak_error=error,
                        peak_tolerance=8e-6 if fault else 4 * tolerance,
                        within=not fault,
                        caught=True if fault else None,
                    )
                )
    return found


def contrast_records(factors: dict[str, float], blocks: int = 12) -> list[Record]:
    """The decided comparisons of the timed family."""
    family = [
        PlannedContrast(
            contrast=f"{recipe} / native",
            candidate=recipe,
            control="native",
            certificate="pass",
            ratios=tuple(factor * wave(index, 0.012) for index in range(blocks)),
            reason="",
        )
        for recipe, factor in factors.items()
    ]
    decided = contrast_verdicts(family, planned_blocks=blocks, alpha=0.05, interval_alpha=0.05, screen_ratio=1.01)
    return [
        ContrastRecord(
            model="robust",
            contrast=made.contrast,
            candidate=made.candidate,
            control=made.control,
            blocks=blocks,
            valid_blocks=list(range(blocks)),
            needed_blocks=blocks,
            ratios=list(planned.ratios or ()),
            median=made.summary.median if made.summary else None,
            lower=made.summary.interval.lower if made.summary else None,
            upper=made.summary.interval.upper if made.summary else None,
            wins=made.summary.sign.wins if made.summary else None,
            p=made.summary.sign.p if made.summary else None,
            holm_p=made.holm_p,
            family_size=made.family_size,
            alpha=made.alpha,
            screen_ratio=made.screen_ratio,
            objective=KEPT,
            certificate=planned.certificate,
            certificates_sha256=SHA,
            verdict=made.verdict,
            reason=made.reason,
        )
        for planned, made in zip(family, decided, strict=True)
    ]


def timing_records(blocks: int = 12) -> list[Record]:
    """Raw cells, one pilot among them."""
    cells = [
        timed.cell(
            block=max(block, 0),
            pilot=block < 0,
            position=position,
            model="robust",
            recipe=recipe,
            batch=8,
            context_tokens=256,
            output_tokens=32,
            started_ns=[0, 10**9, 2 * 10**9],
            ended_ns=[9 * 10**8, 19 * 10**8, 29 * 10**8],
            prompts_sha256=SHA,
        )
        for block in range(-1, blocks)
        for position, recipe in enumerate(("native", "k16v8-f", "k8v8-f"))
    ]
    return [*cells, *timed.around(cells)]


def sweep_records(repetitions: int = 5) -> list[Record]:
    """Two recipes at two contexts, the long one with a ceiling that is reached."""
    found: list[Record] = []
    for context_tokens, half_batch, ceiling in ((128, 14.0, 1900.0), (1000, 2.0, 620.0)):
        for rank, recipe in enumerate(("native", "k16v8-f")):
            for batch in (1, 2, 4, 8, 16, 32):
                share = batch / (batch + half_batch)
                rates = [
                    ceiling * (1 - 0.12 * rank) * share * wave(batch * 7 + index, 0.012)
                    for index in range(repetitions + 1)
                ]
                elapsed = [round(batch * 16 * 1e9 / rate) for rate in rates]
                found.append(
                    SweepCell(
                        model="robust",
                        recipe=recipe,
                        batch=batch,
                        context_tokens=context_tokens,
                        output_tokens=16,
                        warmups=1,
                        elapsed_ns=[round(elapsed[0] * 1.2), *elapsed[1:]],
                        prompts_sha256=SHA,
                        shared_prefix_tokens=9,
                    )
                )
    return found


def saturation_records(cells: Iterable[Record]) -> list[Record]:
    """The fit of every sweep."""
    sweeps: dict[tuple[str, int], list[SweepCell]] = {}
    for cell in cells:
        assert isinstance(cell, SweepCell)
        sweeps.setdefault((cell.recipe, cell.context_tokens), []).append(cell)
    found: list[Record] = []
    for (recipe, context_tokens), own in sweeps.items():
        rates = [sorted(c.batch * 16 * 1e9 / ns for ns in c.elapsed_ns[1:])[2] for c in own]
        made = diagnose_sweep([c.batch for c in own], rates, value_unit="tok/s", alpha=0.05)
        found.append(
            SaturationRecord(
                model="robust",
                recipe=recipe,
                context_tokens=context_tokens,
                batches=[c.batch for c in own],
                rates_per_s=rates,
                residual_space="log",
                status=made.log_fit.status,
                starts=made.log_fit.starts,
                starts_agreed=made.log_fit.starts_agreed,
                degrees_of_freedom=made.degrees_of_freedom,
                r2=made.log_fit.r2,
                r2_definition=R2_OF["log"],
                ceiling_per_s=made.log_fit.ceiling,
                other_ceiling_per_s=made.linear_fit.ceiling,
                fitted_per_s=[each.fitted_per_s for each in batch_returns(made)],
                elasticities=[each.elasticity for each in batch_returns(made)],
                marginal_per_s=[each.marginal_per_s for each in batch_returns(made)],
                token_time_s=[each.token_time_s for each in batch_returns(made)],
                ceiling_lower_per_s=made.ceiling_lower,
                ceiling_upper_per_s=made.ceiling_upper,
                half_batch=made.log_fit.half_batch,
                gamma=made.log_fit.gamma,
                gamma_fixed=made.log_fit.gamma_fixed,
                reached=made.reached,
                rms_log_residual=made.rms_log_residual,
                flags=list(made.flags),
                state=made.state,
                statement=made.statement,
            )
        )
    return found


def law_records(cells: Iterable[Record]) -> list[Record]:
    """The laws over both contexts of every recipe."""
    points: dict[str, list[StepPoint]] = {}
    for cell in cells:
        assert isinstance(cell, SweepCell)
        step_s = sorted(cell.elapsed_ns[1:])[2] / 16 / 1e9
        point = StepPoint(batch=cell.batch, context_tokens=cell.context_tokens, step_s=step_s)
        points.setdefault(cell.recipe, []).append(point)
    found: list[Record] = []
    for recipe, own in points.items():
        made = compare_laws(own, space="log")
        for law in made.laws:
            found.append(
                LawRecord(
                    model="robust",
                    recipe=recipe,
                    law=law.law,
                    batches=[point.batch for point in own],
                    contexts_tokens=[point.context_tokens for point in own],
                    steps_s=[point.step_s for point in own],
                    residual_space="log",
                    parameters=law.parameters,
                    residuals=list(law.residuals),
                    rss=law.rss,
                    rms_log_residual=law.rms_log_residual,
                    aic=law.aic,
                    aicc=law.aicc,
                    best=law.law == made.best,
                    cached_shares=[0.5] * len(own) if law.law == AFFINE else None,
                    flags=list(law.flags),
                )
            )
    return found


def memory_records() -> list[Record]:
    """Parts of every recipe's cache, a gate, a window that is no evidence, and an allocator that is not there."""
    found: list[Record] = []
    for recipe in RECIPES:
        key_bits, value_bits = (8 if part in recipe else 16 for part in ("k8", "v8"))
        for part, bits in (("keys", key_bits), ("values", value_bits)):
            size = 16 * 1000 * 4 * 2 * 64 * bits // 8
            sizes = {part: size}
            if bits == 8:
                sizes[f"{part.removesuffix('s')}_scales"] = 16 * 1000 * 4 * 2 * 4 if recipe.endswith("d") else 32
            for name, payload in sizes.items():
                found.append(
                    MemoryPart(
                        model="robust", recipe=recipe, batch=16, tokens=1000, part=name, payload_bytes=payload,
                        backing_bytes=payload + 4096,
                    )
                )  # fmt: skip
    place: dict[str, Any] = {"model": "robust", "recipe": "native"}
    phase = {**place, "phase": "fill"}
    window = {"source": "resident", "device": "host", "opened_ns": 0, "closed_ns": 10**9, "queries": 51, "answered": 50}
    found += [
        MemoryGate(
            **place, gate="equal slots", verdict="pass", observed=16000, limit=16000, slots=16000, reason="as planned"
        ),
        MemoryWindow(
            **phase, **window, gap_ns=620_000_000, largest_bytes=900 * 2**20, sampler_cpu_ns=4_000_000,
            sampler_wall_ns=10**9, startup_cpu_ns=50_000_000, period_ns=20_000_000, longest_gap_ns=500_000_000,
            valid=False, fault="the gap is 620.0 ms, allowed are 500 ms",
        ),
        AllocatorRecord(**phase, device="cpu", absent="torch has no caching allocator on cpu", **NO_ALLOCATOR),
    ]  # fmt: skip
    return found


@functools.cache
def records_of(name: str) -> tuple[Record, ...]:
    """What a stage of the full run records."""
    program, _, model = name.partition(".")
    if program == "freeze":
        source = {"name": "kassay", "kind": "tree", "commit": "f" * 40, "dirty": ["kassay/run.py"], "files": 120}
        return (SourceRecord(**{**NOTHING, **source}, bytes=900_000, sha256=SHA),)  # type: ignore[arg-type]
    if program == "build":
        return tuple(PackageRecord(name=name, version=version, sha256=None, source=None) for name, version in PACKAGES)
    if program == "quality":
        return tuple(
            ArmStorage(
                model=model,
                recipe=recipe,
                key_dtype="torch.float8_e4m3fn" if "k8" in recipe else "torch.float16",
                value_dtype="torch.float8_e4m3fn" if "v8" in recipe else "torch.float16",
                scales_sha256=SHA if recipe.endswith("-f") else None,
            )
            for recipe in RECIPES
        )
    makers: dict[str, Callable[[], list[Record]]] = {
        "certify": certify_records,
        "oracle": lambda: oracle_records(model),
        "memory": memory_records,
        "timing": timing_records,
        "contrast": lambda: contrast_records({"k16v8-f": 0.93, "k8v8-f": 0.88}),
        "sweep": sweep_records,
        "saturation": lambda: [*saturation_records(sweep_records()), *law_records(sweep_records())],
    }
    return tuple(makers[program]()) if program in makers else ()


class FakeRun:
    """A run directory, complete unless told otherwise."""

    def __init__(self, root: Path) -> None:
        self.directory = root / RUN
        (self.directory / "stages").mkdir(parents=True)
        self.stages = planned_stages()
        plan = Plan(
            profile="decode-cpu",
            workflow="decode",
            stages=self.stages,
            config={"study": STUDY, "models": {"names": MODELS, "timed": "robust"}},
        )
        digest.write_json(self.directory / "plan.json", plan.to_json())
        self.write_manifest(
            {
                "TIMING_BLOCKS": {"value": 12, "origin": "command line", "where": "command line"},
                "STUDY_SMALL": {"value": True, "origin": "profile", "where": "defconfigs/decode-cpu:3"},
                "RESULTS": {"value": "results", "origin": "default", "where": ""},
            }
        )
        events = [Event(at="2026-11-29T10:15:00.000Z", event="run_started", stage=None, why="plan 1a2b3c4d")]
        events += [
            Event(at="2026-11-29T10:15:01.000Z", event="stage_started", stage=s.name, why="never ran")
            for s in self.stages
        ]
        self.write_events(events)

    def write_manifest(self, settings: dict[str, Any], overrides: tuple[str, ...] = ("study.alpha=0.05",)) -> None:
        """What was asked."""
        body = {
            "schema": "kassay.manifest/1",
            "run": RUN,
            "plan_hash": "1a2b3c4d" * 8,
            "created_at": "2026-11-29T10:15:00.000Z",
            "host": {
                "processor": "Example CPU",
                "cpus": 2,
                "memory_gib": 8,
                "machine": "x86_64",
                "system": "Linux 6",
                "python": "3.11.2",
            },
            "settings": settings,
            "overrides": list(overrides),
        }
        (self.directory / "manifest.json").write_text(json.dumps(body), encoding="ascii")

    def write_events(self, events: list[Event]) -> None:
        """The orchestrator's log."""
        text = "".join(event.to_json() + "\n" for event in events)
        (self.directory / "events.jsonl").write_text(text, encoding="utf-8")

    def full(self) -> "FakeRun":
        """Every stage but the report passed; `freeze` and `build` were reused from an earlier run."""
        for rank, planned in enumerate(self.stages[:-1]):
            self.end(planned.name, run=EARLIER if rank < 2 else RUN, duration_s=0.8 + 7.3 * rank)
        return self

    def end(
        self,
        name: str,
        word: str = "passed",
        reason: str = "",
        *,
        run: str = RUN,
        duration_s: float = 1.5,
        records: Sequence[Record] | None = None,
        stderr: str = "",
        metrics: dict[str, Any] | None = None,
    ) -> Path:
        """End a stage; its own run's directory is linked for a reused one."""
        directory = self.directory / "stages" / name
        if run != RUN:
            other = self.directory.parent / run / "stages" / name
            other.mkdir(parents=True, exist_ok=True)
            directory.symlink_to(f"../../{run}/stages/{name}", target_is_directory=True)
        directory.mkdir(exist_ok=True)
        (directory / "stderr.log").write_text(stderr, encoding="utf-8")
        written = records_of(name) if records is None else records
        artifacts = {}
        if written:
            text = "".join(record.to_json() + "\n" for record in written)
            (directory / "records.jsonl").write_text(text, encoding="utf-8")
            artifacts["records"] = Artifact(file="records.jsonl", sha256=SHA, bytes=len(text))
        model = name.partition(".")[2]
        digest.write_json(
            directory / "request.json", {"inputs": {"model": {"path": "x", "sha256": digest.of_value(model)}}}
        )
        digest.write_json(directory / "receipt.json", {"schema": "kassay.receipt/1"})
        Outcome(
            stage=name,
            run=run,
            word=word,  # type: ignore[arg-type]
            reason=reason,
            metrics={"records": len(written)} if metrics is None else metrics,
            artifacts=artifacts,
            started_at="2026-11-29T10:15:02.000Z",
            duration_s=duration_s,
            attempt=1,
            grant=GRANT,
        ).save(directory)
        return directory

    def rendered(self) -> dict[str, str]:
        """All reports by file name."""
        return {name: data.decode() for name, data in rendered(self.directory).items()}

    def report(self) -> Report:
        """What is rendered."""
        return load_report(self.directory)


def closing(directory: Path, code: int, idle: bool = False, stale: dict[str, str] | None = None) -> list[str]:
    """The last lines of a run whose driver has these outcomes in hand."""
    planned = Plan.from_json(json.loads((directory / "plan.json").read_bytes())).stages
    stages = [stage for stage in planned if not stage.after_all]
    outcomes = {stage.name: load(directory / "stages" / stage.name) for stage in stages}
    found = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
    return closing_lines(directory, code, stages, found, stale or {}, idle)
