"""Timing and serving counted again from raw cells and requests: clean runs agree, an edit is found where it stands."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import paths
from kassay.audit import blocks, compare, files, recount, served
from kassay.kinds.serving import ServedLoad, ServedRequest
from kassay.record import Record, Writer
from kassay.serving import metrics
from kassay.serving.client import Answer
from kassay.serving.verdicts import Comparison, Evidence, contrasts, gates
from tests.audit.fabricated import reseal, rewrite
from tests.serving.test_metrics import NS, answer
from tests.serving.test_verdicts import CERTIFIED, ORDERS, P95, RATE, RULES
from tests.test_validity import CELLS, LIMITS, evidence

OPEN_RATE = Comparison(load="open", quantity="ttft_s.p50", candidate="k16v8-f", control="native")
LOADS: list[dict[str, Any]] = [
    {"name": "closed", "concurrency": 2, "context_tokens": 5, "output_tokens": 11},
    {"name": "open", "per_minute": 60, "per_s": 1.0, "arrivals": "constant", "context_tokens": 5, "output_tokens": 11},
]
SERVED = {"served": {"loads": LOADS, "command": "any", "backend": {"checkpoint": "shipped"}}, "lag_limit_s": 1.0}
Bodies = list[dict[str, Any]]


def answers(arm: str, block: int, load: dict[str, Any]) -> list[Answer]:
    """Six requests, those of the candidate a fifth faster, later blocks a little slower."""
    factor = (0.8 if arm == "k16v8-f" else 1.0) * (1 + 0.01 * block)
    made = []
    for index in range(6):
        at = index * NS
        one = answer(f"{arm}-{block}-{load['name']}-{index}", 0.1 * factor, (0.3 + 0.01 * index) * factor, 11)
        shifted = {"started_ns": at, "ended_ns": one.ended_ns + at, "token_ns": [stamp + at for stamp in one.token_ns]}
        open_loop = {"scheduled_ns": at - 1000 * index} if "per_s" in load else {}
        prompts = {"prompt_sha256": f"{block}-{load['name']}-{index}"}
        made.append(replace(one, **shifted, **open_loop, **prompts))
    return made


def serve(folder: Path) -> Any:
    """A serving stage and what was concluded from it, in a folder; six blocks, two arms, two loads."""
    loads: list[ServedLoad] = []
    requests: list[ServedRequest] = []
    for block, order in enumerate(ORDERS):
        for arm in order:
            for load in LOADS:
                place = {"arm": arm, "block": block, "pilot": False}
                sent = answers(arm, block, load)
                loads.append(metrics.served_load(sent, place=place, load=load, prompt_tokens=None, lag_limit_s=1.0))
                requests += [ServedRequest(**place, load=load["name"], warmup=False, **asdict(one)) for one in sent]
    found = Evidence(loads=tuple(loads), servers=(), orders=ORDERS)
    decided = contrasts(found, [RATE, P95, OPEN_RATE], CERTIFIED, RULES)
    write(folder / "serving", [*requests, *loads])
    write(folder / "verdict", [*gates(found), *decided])
    stages = {
        "serving": SimpleNamespace(name="serving", params=SERVED, inputs={}),
        "verdict": SimpleNamespace(name="verdict", params={"study": RULES}, inputs={"serving": "serving.records"}),
    }
    return SimpleNamespace(folder=lambda name: folder / name, plan=SimpleNamespace(stage=stages.__getitem__))


def write(folder: Path, made: list[Record]) -> None:
    """Records of a stage."""
    folder.mkdir()
    writer = Writer(folder / paths.RECORDS)
    for record in made:
        writer.append(record)
    writer.close()


def counted(run: Any) -> list[str]:
    """What both recounts find: record and field."""
    told = compare.Compared(stage="serving")
    served.recount_loads(run, run.plan.stage("serving"), told)
    served.recount_verdicts(run, run.plan.stage("verdict"), told)
    assert told.values > 300
    return [f"{one.record}: {one.field}" for one in told.differences]


def test_served_loads_and_verdicts_follow_from_their_requests(tmp_path: Path) -> None:
    assert counted(serve(tmp_path)) == []


def of(kind: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Bodies], Bodies]:
    """Change the first record of a kind."""

    def apply(bodies: Bodies) -> Bodies:
        at = next(index for index, body in enumerate(bodies) if body["schema"].startswith(f"kassay.{kind}/"))
        return [*bodies[:at], bodies[at] | change(bodies[at]), *bodies[at + 1 :]]

    return apply


@pytest.mark.parametrize(
    ("stage", "change", "said"),
    [
        ("serving", of("served_request", lambda one: {"ended_ns": one["ended_ns"] + 9}), "native in block 0: latency"),
        ("serving", of("served_request", lambda one: {"status": "failed", "error": "reset"}), "closed: failed"),
        ("serving", of("served_request", lambda one: {"output_tokens": 10}), "native in block 0: faults"),
        ("serving", of("served_request", lambda one: {"token_ns": [one["token_ns"][0] + 5000]}), "block 0: ttft_s"),
        ("serving", of("served_request", lambda one: {"prompt_sha256": "other"}), "block 0: prompts_sha256"),
        ("serving", lambda bodies: bodies[1:], "native in block 0: requests"),
        ("serving", of("served_load", lambda one: {"tokens_per_s": one["tokens_per_s"] * 1.01}), "tokens_per_s"),
        ("serving", of("served_load", lambda one: {"faults": ["invented"]}), "faults"),
        ("serving", of("served_load", lambda one: {"block": 9}), "loads: presence"),
        ("verdict", of("serving_gate", lambda one: {"failed": 1}), "gate of native under closed: failed"),
        ("verdict", of("serving_contrast", lambda one: {"ratios": [1.3, *one["ratios"][1:]]}), "ratios.0"),
        ("verdict", of("serving_contrast", lambda one: {"verdict": "no confirmed gain"}), "closed: verdict"),
        ("verdict", of("serving_contrast", lambda one: {"holm_p": 0.01}), "holm_p"),
        ("verdict", of("serving_contrast", lambda one: {"wins": 5}), "wins"),
    ],
)
def test_an_edit_of_requests_loads_or_verdicts_is_found(
    stage: str, change: Callable[[Bodies], Bodies], said: str, tmp_path: Path
) -> None:
    run = serve(tmp_path)
    rewrite(tmp_path / stage / paths.RECORDS, change)
    assert any(said in one for one in counted(run))


# --- timing


def test_both_codes_agree_on_every_rule_that_invalidates() -> None:
    """The cases of tests/test_validity.py, judged by the audit's own code; a rule that it lacks would show here."""
    from tests import test_validity as cases

    for mark in cases.test_a_condition_beyond_its_frozen_limit_invalidates_by_name.pytestmark:
        for rule, made, _ in mark.args[1]:
            assert recounted(made, LIMITS) == {rule}, rule
    for mark in cases.test_a_cell_that_lacks_evidence_is_invalid_whatever_the_study_says.pytestmark:
        for rule, changes in mark.args[1]:
            made = evidence(cell=lambda one, changes=changes: replace(one, **changes))
            assert recounted(made, None) == {rule}, (rule, changes)
    assert recounted(evidence(gpu=lambda one: one), LIMITS) == set() and len(CELLS) == 4


def recounted(made: Any, limits: dict[str, Any] | None) -> set[str]:
    """The rules that block 1 breaks, by plain code."""
    around = blocks.conditions(map(asdict, made.hosts), map(asdict, made.gpus))
    return blocks.broken([asdict(cell) for cell in made.cells if cell.block == 1], around, limits)


def test_a_cell_in_another_place_than_planned_is_found(run_dir: Path) -> None:
    """Two cells of a block that change places: their rates are the same, the order was another one."""
    path = run_dir / "stages" / "timing" / paths.RECORDS

    def swapped(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        other = {0: 1, 1: 0}
        return [one | {"position": other.get(one["position"], 2)} if one["block"] == 0 else one for one in bodies]

    rewrite(path, swapped)
    reseal(run_dir)
    told = [f"{one.record}: {one.field}" for one in recount.run(files.load(run_dir))[1] if one.stage == "contrast"]
    assert told == ["cells of timed: presence"]


def test_an_edited_cell_and_an_edited_block_are_both_found(run_dir: Path) -> None:
    """A preemption written into a cell afterwards, digests made to fit: the block that counts should not have."""
    path = run_dir / "stages" / "timing" / paths.RECORDS
    rewrite(path, lambda bodies: [bodies[0] | {"preemptions": [0, 1]}, *bodies[1:]])
    reseal(run_dir)
    run = files.load(run_dir)
    told = {f"{one.record}: {one.field}" for one in recount.run(run)[1] if one.stage == "contrast"}
    assert {"block 0 of timed: valid", "block 0 of timed: rules", "contrast k16v8-f / native: verdict"} <= told
