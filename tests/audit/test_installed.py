"""Receipts of a vLLM worker's checks concluded again: sound ones follow from their records, an edit is found."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import digest, paths
from kassay.audit import compare, installed
from kassay.backend import vllm_install
from kassay.backend.vllm_install import Evidence
from kassay.kinds.vllm import VllmOutput, VllmRequest, VllmRest
from kassay.kv.recipe import recipe_named
from kassay.record import Record, Writer
from tests.vllm.test_arguments import engine
from tests.vllm.test_install import GOOD

Bodies = list[dict[str, Any]]


def request(repetition: int, index: int, row: list[int]) -> VllmRequest:
    """One request of the traffic."""
    return VllmRequest(
        arm="a", repetition=repetition, warmup=False, request=index, prompt_tokens=40, prompt_sha256="p",
        submitted_ns=0, first_ns=1, ended_ns=2, output_tokens=len(row), completion_steps=list(range(len(row))),
        output_sha256=digest.of_value(row), finished_by="length",
    )  # fmt: skip


def records(seen: Evidence) -> list[Record]:
    """What a stage leaves of its evidence."""
    made: list[Record] = [*seen.spans]
    for repetition, rows in enumerate(seen.outputs):
        for index, row in enumerate(rows):
            made.append(request(repetition, index, list(row)))
            made.append(VllmOutput(arm="a", repetition=repetition, request=index, token_ids=list(row)))
        free, allocated = seen.free_blocks, seen.allocated_bytes[repetition]
        made.append(VllmRest(arm="a", repetition=repetition, free_blocks=free, allocated_bytes=allocated))
    return [*made, seen.engine, *seen.checks]


def run_of(folder: Path, seen: Evidence, fork: bool = False) -> Any:
    """A stage's directory and a run around it."""
    program, params = (
        ("vllm_check", {"recipe": "k16v8-f", "engine": {"sixteen": "fp16"}}) if fork else ("vllm_smoke", {})
    )
    found = vllm_install.findings_of_fork(seen, recipe_named("k16v8-f")) if fork else vllm_install.findings(seen)
    receipt = (vllm_install.receipt_of_fork if fork else vllm_install.receipt)(found, seen.engine)
    place = folder / installed.RECEIPTS[program]
    place.mkdir()
    (place / "receipt.json").write_text(json.dumps(receipt))
    (folder / "scales.json").write_text(json.dumps({"scales": seen.calibrated}))
    writer = Writer(folder / paths.RECORDS)
    for record in (*records(seen), *vllm_install.records(found, "a")):
        writer.append(record)
    writer.close()
    word = "passed" if receipt["passed"] else "rejected"
    ended = SimpleNamespace(word=word, metrics={one.name: one.said for one in found})
    return SimpleNamespace(
        folder=lambda name: folder, outcomes={"smoke": ended}, artifact=lambda reference: folder / "scales.json",
        stage=SimpleNamespace(name="smoke", program=program, params=params, inputs={"scales": "calibrate.scales"}),
    )  # fmt: skip


def differences(run: Any) -> list[tuple[str, str]]:
    """What the recount finds: record and field."""
    told = compare.Compared(stage="smoke")
    installed.recount(run, run.stage, told)
    return [(one.record, one.field) for one in told.differences]


def edit(folder: Path, kind: str, change: Callable[[dict[str, Any]], None], which: int = 0) -> None:
    """Change one record of a kind."""
    path = folder / paths.RECORDS
    bodies: Bodies = [json.loads(line) for line in path.read_text().splitlines()]
    own = [body for body in bodies if body["schema"].startswith(f"kassay.{kind}/")]
    change(own[which])
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))


EDITS: list[tuple[str, str, dict[str, Any], int]] = [  # what it decides, kind, change, which record
    ("physical", "vllm_engine", {"value_format": "fp16"}, 0),
    ("physical", "vllm_engine", {"key_format": "e4m3fn"}, 0),
    ("scales", "vllm_engine", {"value_scales": [0.5, 0.26]}, 0),
    ("scales", "vllm_engine", {"value_scales": None}, 0),
    ("scales", "vllm_engine", {"events": ["bound 0", "captured 8", "bound 1"]}, 0),
    ("scales", "vllm_engine", {"events": ["bound 0", "bound 1"]}, 0),
    ("route", "vllm_span", {"mixed_steps": 0}, 1),
    ("route", "vllm_span", {"fallbacks": 1}, 0),
    ("route", "vllm_span", {"fallbacks": None}, 0),
    ("graphs", "vllm_span", {"replays": {"2": 9}}, 1),
    ("memory", "vllm_rest", {"free_blocks": 98}, 1),
    ("memory", "vllm_rest", {"allocated_bytes": 1512}, 1),
    ("memory", "vllm_span", {"preemptions": 1}, 0),
    ("text", "vllm_output", {"token_ids": [5, 7]}, 0),
    ("text", "vllm_check", {"error": None}, 0),
    ("oracle", "vllm_check", {"error": 6e-4}, 1),
    ("oracle", "vllm_check", {"differing": 0}, 2),
    ("oracle", "vllm_check", {"traffic": "mixed"}, 1),
    ("passed", "vllm_engine", {"dummy_weights": True}, 0),
    ("device", "vllm_engine", {"device": "another"}, 0),
]


def test_a_sound_receipt_follows_from_its_records(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "fork").mkdir()
    assert differences(run_of(tmp_path / "one", GOOD)) == []
    assert differences(run_of(tmp_path / "fork", GOOD, fork=True)) == []


@pytest.mark.parametrize(("decides", "kind", "change", "which"), EDITS)
def test_an_edited_record_no_longer_gives_the_receipt(
    decides: str, kind: str, change: dict[str, Any], which: int, tmp_path: Path
) -> None:
    run = run_of(tmp_path, GOOD)
    edit(tmp_path, kind, lambda body: body.update(change), which)
    assert ("install/receipt.json", decides) in differences(run)


def test_a_finding_that_was_edited_or_is_another_is_found(tmp_path: Path) -> None:
    run = run_of(tmp_path, GOOD)
    edit(tmp_path, "vllm_finding", lambda body: body.update(passed=False), 2)
    edit(tmp_path, "vllm_finding", lambda body: body.update(finding="speed"), 0)
    assert differences(run) == [("finding physical", "passed"), ("finding route", "passed")]


def test_a_rejected_check_follows_too_and_a_receipt_made_to_pass_does_not(tmp_path: Path) -> None:
    run = run_of(tmp_path, replace(GOOD, free_blocks=98))
    assert differences(run) == []
    path = tmp_path / "install" / "receipt.json"
    receipt = json.loads(path.read_text())
    receipt["passed"] = receipt["findings"]["memory"]["passed"] = True
    path.write_text(json.dumps(receipt))
    run.outcomes["smoke"].word = "passed"
    found = differences(run)
    assert ("install/receipt.json", "memory") in found and ("outcome.json", "word") in found
    del receipt["findings"]["oracle"]
    path.write_text(json.dumps(receipt))
    assert ("install/receipt.json", "findings") in differences(run)


@pytest.mark.parametrize("fork", [False, True])
@pytest.mark.parametrize("rows", [[[5, 5], [5, 5]], [[5, 7], []]])
def test_text_of_one_token_and_of_none_is_no_text(rows: list[list[int]], fork: bool, tmp_path: Path) -> None:
    """The check says so, the audit does, and a receipt that says otherwise is found."""
    run = run_of(tmp_path, replace(GOOD, outputs=[rows, rows]), fork)
    assert differences(run) == []
    name = f"{installed.RECEIPTS[run.stage.program]}/receipt.json"
    receipt = json.loads((tmp_path / name).read_text())
    assert receipt["findings"]["text"]["passed"] is False and receipt["passed"] is False
    receipt["findings"]["text"]["passed"] = True
    (tmp_path / name).write_text(json.dumps(receipt))
    assert (name, "text") in differences(run)


@pytest.mark.parametrize(
    ("decides", "kind", "change"),
    [
        ("physical", "vllm_engine", {"value_format": "fp16"}),
        ("scales", "vllm_engine", {"key_scales": [1.0, 1.0]}),
        ("route", "vllm_span", {"mixed_steps": 0}),
        ("memory", "vllm_rest", {"free_blocks": 3}),
    ],
)
def test_a_fork_s_receipt(decides: str, kind: str, change: dict[str, Any], tmp_path: Path) -> None:
    run = run_of(tmp_path, GOOD, fork=True)
    edit(tmp_path, kind, lambda body: body.update(change), -1)
    assert ("check/receipt.json", decides) in differences(run)


def test_tokens_are_those_of_the_requests_and_a_dropped_one_is_missed(tmp_path: Path) -> None:
    run = run_of(tmp_path, GOOD)
    edit(tmp_path, "vllm_output", lambda body: body.update(token_ids=[5, 9]), 0)
    edit(tmp_path, "vllm_output", lambda body: body.update(token_ids=[5, 9]), 2)
    assert ("request 0 of repetition 0", "output_sha256") in differences(run), "the same in both repetitions"
    edit(tmp_path, "vllm_output", lambda body: body.update(schema="kassay.other/1"), 3)
    assert ("vllm_output", "presence") in differences(run)


def test_records_of_an_older_kassay_are_not_judged(tmp_path: Path) -> None:
    run = run_of(tmp_path, GOOD)
    for which in (0, 0):
        edit(tmp_path, "vllm_rest", lambda body: body.update(schema="kassay.other/1"), which)
    with pytest.raises(ValueError, match="its records lack vllm_rest: a run of an older kassay"):
        differences(run)


def test_formats_by_a_recipe_s_name() -> None:
    for name in ("native", "k16v8-f", "k8v16-d", "k8v8-f"):
        recipe = recipe_named(name, "bf16")
        assert installed.formats(name, "bf16") == (recipe.key_format, recipe.value_format)


def test_an_error_that_is_no_number_is_none_that_passes() -> None:
    made = {"differing": 0, "error": None, "limit": 5e-4, "planted": False}
    assert not installed.right(made) and installed.right({**made, "planted": True})
    assert installed.right({**made, "error": 5e-4}) and engine().layers == 2
