"""A complete run with invented raw records: quality and timing are made up, every judgement is the real stage's."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kassay import digest, outcome, paths
from kassay.entry import Stage
from kassay.kinds.quality import Answer, DocumentLoss
from kassay.kinds.timing import SweepCell
from kassay.outcome import Artifact, Outcome
from kassay.plan import Plan
from kassay.record import Record, Writer
from tests import timed

MODELS = ["robust", "fragile"]
ARMS = ["native", "k16v8-f", "k8v8-f"]
ORDERS = [ARMS, ARMS[::-1], [ARMS[1], ARMS[2], ARMS[0]], [ARMS[0], ARMS[2], ARMS[1]], ARMS[::-1], ARMS]
ITEMS, DOCUMENTS, TARGETS, CAP = 120, 16, 4, 8
NS = 1_000_000_000
OF_LOSSES = {"endpoint": "nll", "draws": 2000, "generator": "pcg64"}
STUDY: dict[str, Any] = {
    "name": "tiny",
    "models": {name: {} for name in MODELS},
    "arms": {name: {} for name in ARMS},
    "comparisons": {name: {"candidate": name, "control": "native"} for name in ARMS[1:]}
    | {"a-s": {"candidate": "k16v8-f", "control": "k8v8-f"}},
    "split": "confirmation",
    "seed": 7,
    "alpha": 0.0125,
    "endpoints": {
        "retrieval": {"measure": "retrieval", "items": ITEMS, "context_tokens": 100},
        "arithmetic": {"measure": "arithmetic", "items": ITEMS, "context_tokens": 100},
        "nll": {"measure": "nll", "documents": DOCUMENTS, "context_tokens": 100, "targets": TARGETS},
    },
    "gates": {
        "keys": {
            "statistic": "gross-loss", "endpoint": "retrieval", "limit": 0.08, "native_floor": 0.5, "true_rate": 0.004,
        },
        "kept": {
            "statistic": "gross-loss", "endpoint": "arithmetic", "limit": 0.08, "native_floor": 0.5, "true_rate": 0.004,
        },
        "net": {
            "statistic": "net-change", "endpoint": "arithmetic", "limit": -0.08, "native_floor": 0.5, "true_rate": 0.01,
        },
        "loss": {"statistic": "relative-nll", "limit": 0.02, **OF_LOSSES},
        "nats": {"statistic": "nll-difference", "limit": 0.03, **OF_LOSSES},
    },
    "certificates": {
        "comparisons": ARMS[1:],
        "objectives": {"preservation": ["keys", "kept", "loss"], "aggregate-math": ["keys", "net", "nats"]},
        "route": "preservation",
        "family_alpha": 0.05,
        "slots": 4,
    },
    "contrasts": {
        "arithmetic": {
            "endpoint": "arithmetic", "comparisons": ["a-s"], "test": "mcnemar-exact", "sidedness": "two-sided",
            "p_formula": None, "family_size": 2, "alpha": 0.05,
        },
        "nll": {
            "endpoint": "nll", "comparisons": ["a-s"], "test": "centered-bootstrap", "sidedness": "two-sided",
            "p_formula": "(k+1)/(B+1)", "family_size": 2, "alpha": 0.05,
        },
    },
    "timing": {
        "arms": ARMS, "family": ARMS[1:], "blocks": len(ORDERS), "alpha": 0.05, "interval_alpha": 0.05,
        "screen_ratio": 1.01,
    },
    "sweep": {"alpha": 0.05},
    "expected": {
        f"{model}:{objective}": {"k16v8-f": "pass", "k8v8-f": "pass" if model == "robust" else "fails"}
        for model in MODELS
        for objective in ("preservation", "aggregate-math")
    },
}  # fmt: skip


def planned(name: str, inputs: dict[str, str], **params: Any) -> Stage:
    """A planned stage."""
    return Stage(
        name=name, program=name.partition(".")[0], argv=[], outputs={}, params=params, inputs=inputs, cpus=1,
        memory_gib=1, gpus=0, disk_gib=0, exclusive=False, timeout_s=None, retries=0, after_all=False,
        measures_host=False, host={}, stop="",
    )  # fmt: skip


def stages(study: dict[str, Any]) -> tuple[Stage, ...]:
    """The plan: raw records of two models, of timing and of a sweep, and what judges them."""
    raw = {f"quality.{model}": f"quality.{model}.records" for model in MODELS}
    timed = {"timing": "timing.records", "orders": "timing.orders", "certificates": "certify.certificates"}
    return (
        *(planned(f"quality.{m}", {}, model=m, endpoints=study["endpoints"], seed=study["seed"]) for m in MODELS),
        planned("certify", raw, study=study),
        planned("direct", raw, study=study),
        planned("timing", {}, model="robust", seed=study["seed"]),
        planned("contrast", timed, model="robust", study=study),
        planned("sweep", {}, model="robust"),
        planned("saturation", {"sweep": "sweep.records"}, study=study, residuals="log"),
    )


def wrong_items(model: str, recipe: str) -> set[int]:
    """Items that an arm answers wrong: the control not all, K8/V8 on the fragile model most."""
    native = set(range(0, ITEMS, 5))
    return native | set(range(0, ITEMS, 2)) if (model, recipe) == ("fragile", "k8v8-f") else native


def answer(model: str, recipe: str, task: str, index: int) -> Answer:
    """One answer, whose text says what was read of it."""
    right = index not in wrong_items(model, recipe)
    said = "7" if right else "8"
    return Answer(
        model=model, recipe=recipe, task=task, split="confirmation", item_id=f"{task}-{index:03d}",
        item_digest=f"digest-{task}-{index}", expected="7", text=said if task == "retrieval" else f"3+4={said} #{said}",
        parsed=said, outcome="correct" if right else "wrong", tokens=3,
    )  # fmt: skip


def loss(model: str, recipe: str, index: int) -> DocumentLoss:
    """Documents differ much; K8/V8 doubles the fragile model's losses, everything else moves them by a thousandth."""
    factor = 2.0 if (model, recipe) == ("fragile", "k8v8-f") else {"native": 1.0}.get(recipe, 1.001 + 1e-5 * index)
    return DocumentLoss(
        model=model, recipe=recipe, split="confirmation", item_id=f"document-{index:03d}",
        item_digest=f"digest-document-{index}", context_tokens=100,
        loss_nats=[factor * (0.2 + 0.3 * (index % 7) + 0.05 * target) for target in range(TARGETS)],
    )  # fmt: skip


def quality(model: str) -> list[Record]:
    """Everything that one model answered and predicted."""
    tasks = ("retrieval", "arithmetic")
    answers = [answer(model, arm, task, index) for arm in ARMS for task in tasks for index in range(ITEMS)]
    return [*answers, *(loss(model, arm, index) for arm in ARMS for index in range(DOCUMENTS))]


def timing() -> list[Record]:
    """Six blocks, in which K16/V8 is a fifth faster than native and K8/V8 a tenth slower."""
    speed = {"native": 1.0, "k16v8-f": 1.2, "k8v8-f": 0.9}
    cells = [
        timed.cell(
            block=block, position=position, model="robust", recipe=arm,
            ended_ns=[9 * NS, 10 * NS + int(NS / speed[arm])],
        )
        for block, order in enumerate(ORDERS)
        for position, arm in enumerate(order)
    ]  # fmt: skip
    return [*cells, *timed.around(cells)]


def sweep() -> list[Record]:
    """A sweep that reaches its plateau."""
    return [
        SweepCell(
            model="robust", recipe="native", batch=batch, context_tokens=64, output_tokens=10, warmups=1,
            shared_prefix_tokens=0,
            elapsed_ns=[int(batch * 10 * NS * (2 + batch) / (1000 * batch))] * 3, prompts_sha256="x",
        )
        for batch in (1, 2, 4, 8, 16, 32)
    ]  # fmt: skip


RAW: dict[str, Callable[[], list[Record]]] = {
    "quality.robust": lambda: quality("robust"),
    "quality.fragile": lambda: quality("fragile"),
    "timing": timing,
    "sweep": sweep,
}


def fabricate(root: Path, study: dict[str, Any] = STUDY) -> Path:
    """The run directory: raw records are written, everything else is judged by the stages themselves."""
    run_dir = root / "tiny-20261130T000000Z-00000000"
    (run_dir / "stages").mkdir(parents=True)
    plan = Plan(profile="tiny", workflow="tiny", stages=stages(study), config={"study": study})
    (run_dir / paths.PLAN).write_text(plan.text(), encoding="utf-8")
    digest.write_json(run_dir / paths.MANIFEST, {"schema": "kassay.manifest/1", "plan_hash": plan.hash()})
    for stage in plan.stages:
        directory = run_dir / "stages" / stage.name
        directory.mkdir()
        ask(run_dir, plan, stage)
        if stage.name in RAW:
            write_raw(directory, stage.name, RAW[stage.name]())
        else:
            judge(directory, stage.program)
    return run_dir


def ask(run_dir: Path, plan: Plan, stage: Stage) -> None:
    """The request of a stage."""
    inputs = {}
    for name, reference in stage.inputs.items():
        owner, _, artifact = reference.rpartition(".")
        made = outcome.load(run_dir / "stages" / owner)
        assert made is not None
        left = made.artifacts[artifact]
        inputs[name] = {"path": str(run_dir / "stages" / owner / left.file), "sha256": left.sha256}
    request = {
        "schema": "kassay.request/2", "run": run_dir.name, "run_dir": str(run_dir), "stage": stage.name, "attempt": 1,
        "protocol": {"sha256": plan.protocol(), "frozen": None}, "params": stage.params, "inputs": inputs, "host": {},
        "grant": {"cpus": 1, "memory_gib": 1, "gpus": 0, "gpu_ids": [], "exclusive": False},
        "roots": [str(paths.ROOT)],
    }  # fmt: skip
    digest.write_json(run_dir / "stages" / stage.name / paths.REQUEST, request)


def write_raw(directory: Path, name: str, made: Iterable[Record]) -> None:
    """A stage that measured."""
    writer = Writer(directory / paths.RECORDS)
    for record in made:
        writer.append(record)
    writer.close()
    files = {"records": directory / paths.RECORDS}
    if name == "timing":
        files["orders"] = directory / "orders.json"
        digest.write_json(files["orders"], {"orders": ORDERS, "guards": {}})
    artifacts = {key: artifact(path) for key, path in files.items()}
    Outcome(
        stage=name, run=directory.parents[1].name, word="passed", reason="", metrics={}, artifacts=artifacts,
        started_at="2026-11-30T00:00:00.000Z", duration_s=1.0, attempt=1, grant=None,
    ).save(directory)  # fmt: skip


def artifact(path: Path) -> Artifact:
    """A file as an outcome states it."""
    return Artifact(file=path.name, sha256=digest.of_file(path), bytes=path.stat().st_size)


def judge(directory: Path, program: str) -> None:
    """Run the stage program on its request, as a run does."""
    argv = [sys.executable, str(paths.program(program)), str(directory)]
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def reseal(run_dir: Path) -> None:
    """Make the digests of outcomes and requests fit the files again, as whoever forges records would."""
    plan = Plan.from_json(json.loads((run_dir / paths.PLAN).read_bytes()))
    now: dict[str, dict[str, Any]] = {}
    for stage in plan.stages:
        directory = run_dir / "stages" / stage.name
        body = json.loads((directory / paths.OUTCOME).read_bytes())
        for left in body["artifacts"].values():
            path = directory / left["file"]
            left |= {"sha256": digest.of_file(path), "bytes": path.stat().st_size}
        digest.write_json(directory / paths.OUTCOME, body)
        now[stage.name] = body["artifacts"]
        request = json.loads((directory / paths.REQUEST).read_bytes())
        for name, reference in stage.inputs.items():
            owner, _, key = reference.rpartition(".")
            request["inputs"][name]["sha256"] = now[owner][key]["sha256"]
        digest.write_json(directory / paths.REQUEST, request)


def rewrite(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Change the records of a file."""
    bodies = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("".join(json.dumps(body) + "\n" for body in change(bodies)), encoding="utf-8")
