"""A complete run of a family of loads: gates and cells are made up, matrix and composition are the real stages'.

    load        model    what comes of it
    alpha-b8    alpha    K16/V8 wins all eight blocks by 5 %, K8/V8 by 0.5 %: a gain, and one below the screen
    alpha-b32   alpha    another batch of the same model; block 2 was power-capped, and seven of eight are needed
    beta-b8     beta     K8/V8 failed its gate, so only K16/V8 is timed; blocks 1 and 5 were capped: invalidated
    gamma-b8    gamma    its checks failed, and nothing else ran

Holm counts ten comparisons, of which eight are listed.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

from kassay import digest, paths
from kassay.entry import Stage
from kassay.kinds.matrix import CaseGateRecord
from kassay.kinds.timing import TimingCell
from kassay.kinds.verdict import GateRecord
from kassay.outcome import Outcome
from kassay.plan import Plan
from kassay.record import Record, Writer
from tests import timed
from tests.audit.fabricated import artifact, ask, judge, planned

NS = 1_000_000_000
ARMS = ["native", "k16v8", "k8v8", "both"]
SPEED = {"native": 1.0, "k16v8": 1.05, "k8v8": 1.005, "both": 1.02}
BLOCKS, NEEDED = 8, 7
SIZES = {"alpha-b8": ("alpha", 8), "alpha-b32": ("alpha", 32), "beta-b8": ("beta", 8), "gamma-b8": ("gamma", 8)}
TIMED = {"alpha-b8": ARMS, "alpha-b32": ARMS, "beta-b8": ARMS[:2]}  # load -> arms
CAPPED = {"alpha-b8": set[int](), "alpha-b32": {2}, "beta-b8": {1, 5}}  # load -> blocks
ROLES = {"plain": "native", "quantized": "k16v8", "speculative": "k8v8", "combined": "both"}
STUDY: dict[str, Any] = {
    "name": "family",
    "models": {"alpha": {}, "beta": {}, "gamma": {}},
    "arms": {arm: {} for arm in ARMS},
    "comparisons": {
        "k16v8": {"candidate": "k16v8", "control": "native"},
        "k8v8": {"candidate": "k8v8", "control": "native"},
    },
    "workloads": {load: {"model": model, "requests": batch} for load, (model, batch) in SIZES.items()},
    "stages": ["production", "kept", "timing"],
    "stops": [
        {"after": "production", "when": ["fails"], "gates_off": ["kept", "timing"], "verdict": "not run"},
        {"after": "kept", "when": ["fails", "unestablished"], "gates_off": ["timing"], "verdict": "gated off"},
    ],
    "timing": {
        "workloads": list(SIZES), "blocks": BLOCKS, "family_size": 10, "alpha": 0.05, "interval_alpha": 0.05,
        "screen_ratio": 1.01,
        "conditions": {
            "cached_tokens": 0, "power_capped_percent": 0, "slowdown_percent": 0, "foreign_gpu_processes": 0,
            "foreign_cpu_percent": 30, "drift_percent": 5, "valid_blocks": NEEDED,
        },
    },
    "expected": {"alpha-b8": {"k16v8": "gain confirmed", "k8v8": "no confirmed gain"}},
}  # fmt: skip
VERDICTS = {
    ("alpha-b8", "k16v8"): "gain confirmed",
    ("alpha-b8", "k8v8"): "no confirmed gain",
    ("alpha-b32", "k16v8"): "no confirmed gain",  # seven of seven wins are not enough among ten
    ("alpha-b32", "k8v8"): "no confirmed gain",
    ("beta-b8", "k16v8"): "invalidated",
    ("beta-b8", "k8v8"): "gated off",
    ("gamma-b8", "k16v8"): "not run",
    ("gamma-b8", "k8v8"): "not run",
}


def stages() -> tuple[Stage, ...]:
    """The plan."""
    cells = {f"timing.{load}": f"timing.{load}.records" for load in TIMED}
    orders = {f"orders.{load}": f"timing.{load}.orders" for load in TIMED}
    gates = {"gates.production": "production.records", "gates.panel": "panel.records"}
    whole = {name: reference for name, reference in (cells | orders).items() if "beta" not in name}
    return (
        planned("production", {}),
        planned("panel", {}),
        *(planned(f"timing.{load}", {}, load=load) for load in TIMED),
        planned("matrix", gates | cells | orders, study=STUDY),
        planned("composition", whole, study=STUDY, arms=ROLES),
    )


def production() -> list[Record]:
    """Checks of three models, which one fails."""
    return [
        CaseGateRecord(
            model=model, gate="production", endpoint="production", cases=40, passed=passed,
            verdict="pass" if passed == 40 else "fails", reason=f"{passed} of 40",
        )
        for model, passed in (("alpha", 40), ("beta", 40), ("gamma", 39))
    ]  # fmt: skip


def panel() -> list[Record]:
    """Losses of two models under both recipes; K8/V8 loses too much on beta."""
    found: list[Record] = []
    for model, recipe, lower, upper in (
        ("alpha", "k16v8", 0.0, 0.01), ("alpha", "k8v8", 0.0, 0.02), ("beta", "k16v8", 0.0, 0.01),
        ("beta", "k8v8", 0.06, 0.15),
    ):  # fmt: skip
        verdict = "pass" if upper <= 0.05 else "fails"
        told: dict[str, Any] = dict.fromkeys(field.name for field in fields(GateRecord))
        told |= {
            "model": model, "gate": "kept", "endpoint": "sums", "statistic": "gross loss rate", "method": "exact",
            "decides": "upper", "control": "native", "candidate": recipe, "n": 200, "items_sha256": "x",
            "estimate": (lower + upper) / 2, "lower": lower, "upper": upper, "alpha": 0.05, "margin": 0.05,
            "native_floor": 0.5, "native_score": 0.9, "losses": 0, "gains": 0, "control_outcomes": {"correct": 180},
            "candidate_outcomes": {"correct": 180}, "remark": "", "unchanged": False, "verdict": verdict,
            "reason": f"at most {upper}",
        }  # fmt: skip
        found.append(GateRecord(**told))
    return found


def orders(load: str) -> list[list[str]]:
    """Arms forwards and backwards in turn."""
    return [TIMED[load][:: 1 if block % 2 == 0 else -1] for block in range(BLOCKS)]


def cell(load: str, block: int, position: int, arm: str) -> TimingCell:
    """A cell; a block that was capped took three times as long."""
    model, batch = SIZES[load]
    took = round(NS * (3 if block in CAPPED[load] else 1) * (1 + 0.01 * block) / SPEED[arm])
    return timed.cell(
        load=load,
        model=model,
        batch=batch,
        block=block,
        position=position,
        recipe=arm,
        ended_ns=[9 * NS, 10 * NS + took],
    )


def timing(load: str) -> list[Record]:
    """Cells, hosts and a GPU that the power cap held down in some blocks; a pilot that counts nowhere."""
    cells = [
        cell(load, block, position, arm)
        for block, order in enumerate(orders(load))
        for position, arm in enumerate(order)
    ]
    found: list[Record] = [*cells, *timed.around(cells)]
    for one in cells:
        held = {"power": NS if one.block in CAPPED[load] and one.position == 1 else 7, "thermal": 7}
        found += [timed.gpu(one, "before"), timed.gpu(one, "after", slowed_ns=held)]
    pilot = timed.cell(load=load, pilot=True, model=SIZES[load][0], batch=SIZES[load][1])
    return [pilot, *timed.around([pilot]), *found]


def raw(name: str) -> list[Record]:
    """What a stage measured."""
    group, _, load = name.partition(".")
    return timing(load) if group == "timing" else production() if group == "production" else panel()


def fabricate(root: Path) -> Path:
    """The run directory: what judges is run, everything else is written."""
    run_dir = root / "family-20261130T000000Z-00000000"
    (run_dir / "stages").mkdir(parents=True)
    plan = Plan(profile="family", workflow="family", stages=stages(), config={"study": STUDY})
    (run_dir / paths.PLAN).write_text(plan.text(), encoding="utf-8")
    told = {"run": run_dir.name, "created_at": "2026-11-30T00:00:00.000Z", "host": {}, "settings": {}, "overrides": []}
    digest.write_json(run_dir / paths.MANIFEST, {"schema": "kassay.manifest/1", "plan_hash": plan.hash(), **told})
    for stage in plan.stages:
        directory = run_dir / "stages" / stage.name
        directory.mkdir()
        ask(run_dir, plan, stage)
        if stage.program in ("matrix", "composition"):
            judge(directory, stage.program)
        else:
            write_raw(directory, stage.name)
    return run_dir


def write_raw(directory: Path, name: str) -> None:
    """A stage that measured."""
    writer = Writer(directory / paths.RECORDS)
    for record in raw(name):
        writer.append(record)
    writer.close()
    files = {"records": directory / paths.RECORDS}
    if name.startswith("timing."):
        files["orders"] = directory / "orders.json"
        digest.write_json(files["orders"], {"orders": orders(name.partition(".")[2]), "guards": {}})
    Outcome(
        stage=name, run=directory.parents[1].name, word="passed", reason="", metrics={},
        artifacts={key: artifact(path) for key, path in files.items()}, started_at="2026-11-30T00:00:00.000Z",
        duration_s=1.0, attempt=1, grant=None,
    ).save(directory)  # fmt: skip
