"""The quality stage on files of tasks: records of every item, counts of every way to end, and what is unmet."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import paths
from kassay.audit import compare, recount
from kassay.backend import text
from kassay.backend.endpoints import Endpoints, size_of
from kassay.errors import KassayError, RecordError
from kassay.kv.tasks import document
from kassay.stage import Unmet
from tests import given
from tests.stages.conftest import runner
from tests.stages.test_given_model import CALIBRATE, QUALITY

ENDPOINTS: dict[str, Any] = {
    "keys": {"measure": "retrieval", "items": 2, "context_tokens": 400, "keys": 2},
    "gsm8k": {"measure": "gsm8k", "items": 4, "context_tokens": None, "data": "problems", "answer_cap_tokens": 9},
    "nll": {"measure": "nll", "documents": 3, "context_tokens": 60, "targets": 8, "data": "documents"},
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    tmp_path = tmp_path_factory.mktemp("given")
    model = given.save(tmp_path / "snapshot", begin=True)
    ran = runner(tmp_path)("calibrate", CALIBRATE, {"model": model})
    assert ran.code == 0, ran.stderr
    made = document.documents(split="train", seed=1, count=4, context_tokens=600, targets=0)
    texts, problems = tmp_path / "documents.jsonl", tmp_path / "problems.jsonl"
    texts.write_text("".join(json.dumps({"text": one.context}) + "\n" for one in made))
    lines = [{"question": f"what is {n} + {n}?", "answer": f"#### {2 * n}"} for n in range(7)]
    problems.write_text("".join(json.dumps(line) + "\n" for line in lines))
    scales = ran.directory / "scales.json"
    return {"model": model, "scales": scales, "problems": problems, "documents": texts}


def test_files_are_answered_counted_and_audited(run_stage: Callable[..., Any], inputs: dict[str, Path]) -> None:
    params = {**QUALITY, "endpoints": ENDPOINTS}
    ran = run_stage("quality", params, inputs)
    assert ran.code == 0, ran.stderr
    answers, counts = ran.records("answer"), ran.records("answer_counts")
    several = [body for body in answers if body["task"] == "keys"]
    assert len(several) == 2 * 3 and all(len(body["expected"].split()) == 2 for body in several)
    answers = [body for body in answers if body["task"] == "gsm8k"]
    items = [[body["item_digest"] for body in answers if body["recipe"] == name] for name in QUALITY["recipes"]]
    assert len(items[0]) == 4 and items.count(items[0]) == 3, "the same items for every arm"
    assert all(body["tokens"] <= 9 for body in answers)
    assert {body["recipe"] for body in counts} == set(QUALITY["recipes"])
    for body in counts:
        ended = Counter(one["outcome"] for one in answers if one["recipe"] == body["recipe"])
        words = ("correct", "wrong", "unreadable", "truncated")
        assert body["items"] == sum(body[word] for word in words) == 4
        assert {word: body[word] for word in words} == {word: ended[word] for word in words}
        assert (
            body["data_sha256"]
            == json.loads((ran.directory / "request.json").read_text())["inputs"]["problems"]["sha256"]
        )
    losses = ran.records("document_loss")
    assert len(losses) == 3 * 3 and {len(body["loss_nats"]) for body in losses} == {8}
    planned = {(body["task"], body["planned_tokens"]) for body in ran.records("item_length")}
    assert planned == {("gsm8k", None), ("keys", 400)}
    assert audited(ran.directory) == []
    records = ran.directory / paths.RECORDS
    sound = records.read_text()
    records.write_text(sound.replace(f'"truncated": {counts[0]["truncated"]}', '"truncated": 5', 1))
    assert [one.field for one in audited(ran.directory)] == ["truncated"]
    body = next(body for body in answers if body["outcome"] in ("wrong", "truncated"))
    lines = [json.loads(line) for line in sound.splitlines()]
    changed = [{**line, "parsed": line["expected"], "outcome": "correct"} if line == body else line for line in lines]
    records.write_text("".join(json.dumps(line) + "\n" for line in changed))
    told = {one.field for one in audited(ran.directory)}
    assert "parsed" in told and "correct" in told, "an answer that was made right is found, and so is the count"


def audited(directory: Path) -> list[Any]:
    """What the audit finds in the stage's records."""
    told = compare.Compared(stage="quality")
    stage = SimpleNamespace(name="quality", params={"endpoints": ENDPOINTS})
    recount.rescore(SimpleNamespace(folder=lambda name: directory), stage, told)
    return list(told.differences)


def test_what_files_lack_is_unmet_and_what_they_hold_wrong_is_an_error(
    run_stage: Callable[..., Any], inputs: dict[str, Path]
) -> None:
    endpoints = {**ENDPOINTS, "gsm8k": {**ENDPOINTS["gsm8k"], "items": 8}}
    ran = run_stage("quality", {**QUALITY, "endpoints": endpoints}, inputs)
    assert ran.code == 4 and "problems.jsonl: 8 entries are asked for, and 7 can be used" in ran.outcome.reason
    assert not (ran.directory / "records.jsonl").exists() or not ran.records("answer")
    words = text.of_folder(inputs["model"], ())
    params = {"split": "confirmation", "seed": 1, "answer_cap_tokens": 9}

    def rows(name: str, **changes: Any) -> Any:
        asked = {**params, "endpoints": {name: {**ENDPOINTS[name], **changes}}}
        stage: Any = SimpleNamespace(inputs=inputs, params=asked)
        return Endpoints(stage, words, lambda tokens: None).rows(name)

    with pytest.raises(Unmet, match=r"documents\.jsonl: 5 documents of 68 tokens"):
        rows("nll", documents=5)
    with pytest.raises(RecordError, match=r"problems\.jsonl:1: is keys answer, question"):
        rows("nll", data="problems")
    with pytest.raises(KassayError, match="`nowhere`, which is no input of this stage"):
        rows("nll", data="nowhere")
    with pytest.raises(KassayError, match="`gsm8k` takes its items from a file"):
        size_of({**ENDPOINTS["gsm8k"], "data": None})
