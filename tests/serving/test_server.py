"""The in-tree server with the shipped model: what it decodes, what it refuses, what it counts, and how it ends."""

import asyncio
import http.client
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kassay import digest, outcome, paths
from kassay.kinds.serving import ServerRequest
from kassay.kv import calibrate
from kassay.record import read_kind
from kassay.serving import arrivals, metrics, process, prompts
from kassay.serving.client import closed_loop, open_loop
from tests.serving.test_client import target_of

MODEL = paths.ROOT / "data" / "models" / "robust"
CONTEXT, OUTPUT = 128, 8
SCALES = {"k": [0.0105, 0.0173, 0.0175, 0.0199], "v": [0.0219, 0.02, 0.02, 0.02]}  # about those of a calibration


def scales_at(path: Path) -> Path:
    """A file of scales as a calibration leaves it."""
    made = {"schema": calibrate.SCHEMA, "model": "robust", "model_sha256": digest.of_path(MODEL), "sixteen": "fp16"}
    digest.write_json(path, {**made, "scales": SCALES, "contents": {}})
    return path


def written(directory: Path, recipe: str, port: int, **changes: Any) -> Path:
    """A directory with the request of stages/serving_server.py."""
    directory.mkdir()
    params = {"model": "robust", "recipe": recipe, "sixteen": "fp16", "largest_cohort": 3, "most_waiting": 12}
    params |= {"port": port, "output_tokens": 64, **changes}
    inputs = {"model": MODEL, "scales": scales_at(directory / "scales.json")}
    request = {
        "schema": "kassay.request/2",
        "run": "test",
        "run_dir": str(directory),
        "stage": "server",
        "params": params,
        "inputs": {name: {"path": str(path), "sha256": digest.of_path(path)} for name, path in inputs.items()},
        "attempt": 1,
        "grant": {"cpus": 1, "memory_gib": 1, "gpus": 0, "gpu_ids": [], "exclusive": False},
        "roots": [str(paths.ROOT)],
    }
    digest.write_json(directory / paths.REQUEST, request)
    return directory


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A running server; what it left is checked when all tests are over."""
    found = process.free_port()
    directory = written(tmp_path_factory.mktemp("served") / "server", "k16v8-f", found)
    argv = [sys.executable, str(paths.program("serving_server")), str(directory)]
    around = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
    log = directory / "server.log"
    with process.running(argv, port=found, log=log, ready_timeout_s=60, grace_s=30, environment=around) as server:
        receipt = json.loads((directory / paths.RECEIPT).read_text())
        assert {"kassay/backend/server.py", "kassay/kv/cache.py"} <= set(receipt["code"]), "a killed one has it too"
        yield found
    ended = outcome.load(directory)
    assert (server.died, server.stopped_by, server.process.returncode) == (False, "TERM", 0)
    assert ended is not None and ended.word == "passed"
    kept = read_kind(directory / paths.RECORDS, ServerRequest)
    assert max(one.cohort_size for one in kept) == 3, "three of four waiting requests are decoded together"
    assert all(one.received_ns <= (one.admitted_ns or 0) <= one.finished_ns for one in kept)
    counted = {one.request_id: (one.prompt_tokens, one.output_tokens) for one in kept}
    assert {counted[name] for name in counted if name.startswith("block-0-closed")} == {(CONTEXT, OUTPUT)}
    assert "Traceback" not in log.read_text()


def asked(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, None if body is None else json.dumps(body).encode())
    response = connection.getresponse()
    found = response.status, json.loads(response.read())
    connection.close()
    return found


def completion(**changes: Any) -> dict[str, Any]:
    """A small request."""
    return {"model": "robust", "prompt": "ada the baker of oslo has 12 coins", "max_tokens": 6, **changes}


def test_health_and_models(port: int) -> None:
    assert asked(port, "GET", "/health") == (200, {"status": "ok"})
    assert asked(port, "GET", "/v1/models")[1]["data"][0]["id"] == "robust"
    assert asked(port, "GET", "/metrics")[0] == 404 and asked(port, "POST", "/v1/embeddings", {})[0] == 404


def test_it_decodes_what_the_reference_backend_does(port: int) -> None:
    from kassay.backend import reference, workload
    from kassay.kv.recipe import recipe_named

    text = "ada the baker of oslo has 12 coins and a goat. ada fed the "
    status, body = asked(port, "POST", "/v1/completions", completion(prompt=text, max_tokens=12, ignore_eos=True))
    model = reference.load(MODEL, 1)
    ids_BT = workload.context_rows([text])
    context = reference.prefill(model, ids_BT[:, :-1])
    cache = reference.filled(model, recipe_named("k16v8-f"), SCALES, context, 12)
    wanted = reference.forced(model, cache, ids_BT[:, -1:], 12)[0].tolist()
    assert (status, body["choices"][0]["text"]) == (200, bytes(wanted).decode())
    assert body["usage"] == {
        "prompt_tokens": ids_BT.shape[1],
        "completion_tokens": 12,
        "total_tokens": 12 + len(text) + 1,
    }


def test_a_prompt_of_ids_is_the_text_and_a_chat_its_contents(port: int) -> None:
    text = "ada the baker of oslo has 12 coins"
    _, plain = asked(port, "POST", "/v1/completions", completion(ignore_eos=True))
    ids = [1, *text.encode()]
    _, by_ids = asked(port, "POST", "/v1/completions", completion(prompt=ids, ignore_eos=True))
    messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    chat = {"model": "robust", "messages": messages, "max_completion_tokens": 6, "ignore_eos": True}
    _, spoken = asked(port, "POST", "/v1/chat/completions", chat)
    assert plain["choices"][0]["text"] == by_ids["choices"][0]["text"] == spoken["choices"][0]["message"]["content"]


def test_a_newline_ends_an_output_unless_it_is_forced(port: int) -> None:
    question = "2 + 3 = \n"
    _, free = asked(port, "POST", "/v1/completions", completion(prompt=question, max_tokens=60))
    _, forced = asked(port, "POST", "/v1/completions", completion(prompt=question, max_tokens=60, ignore_eos=True))
    assert forced["usage"]["completion_tokens"] == 60 and forced["choices"][0]["finish_reason"] == "length"
    free_tokens, reason = free["usage"]["completion_tokens"], free["choices"][0]["finish_reason"]
    text = forced["choices"][0]["text"]
    stop = text.find("\n")
    assert (free_tokens, reason) == ((stop + 1, "stop") if stop >= 0 else (60, "length"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"temperature": 0.7}, "`temperature` is 0.7"),
        ({"n": 2}, "`n` is 2"),
        ({"model": "gpt"}, "served is `robust`"),
        ({"max_tokens": 65}, "allowed is 1 to 64"),
        ({"max_tokens": True}, "`max_tokens` is True"),
        ({"prompt": 7}, "`prompt` is neither"),
        ({"prompt": "é"}, "reads ASCII"),
        ({"prompt": ""}, "allowed are 2 or more"),
        ({"prompt": "a" * 2048}, "exceed the 2048 positions"),
        ({"prompt": [1, 500]}, "outside 0 to 127"),
        ({"best_off": 1}, "`best_off` is not known"),
    ],
)
def test_what_it_does_not_do_is_refused_by_name(port: int, changes: dict[str, Any], said: str) -> None:
    status, body = asked(port, "POST", "/v1/completions", completion(**changes))
    assert status == 400 and said in body["error"]["message"]


def test_a_body_that_is_no_json(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/v1/completions", b"{broken")
    assert connection.getresponse().status == 400
    connection.close()


def test_closed_and_open_loop_over_http_with_the_servers_counts(port: int) -> None:
    target = target_of(port, model="robust", output_tokens=OUTPUT, stall_s=20, request_s=60)
    given = {"seed": 1, "block": "block-0", "phase": "requests", "context_tokens": CONTEXT}
    sent = prompts.planned(load="closed", count=8, **given)
    answers = asyncio.run(closed_loop(target, sent, 4, lambda ended: None))
    assert {(one.status, one.prompt_tokens, one.output_tokens) for one in answers} == {("ok", CONTEXT, OUTPUT)}
    assert metrics.most_in_flight(answers) == 4 and all(len(one.token_ns) == OUTPUT for one in answers)
    offsets = arrivals.offsets("poisson", per_s=20, count=6, seed=2)
    sent = prompts.planned(load="open", count=6, **given)
    chat = target_of(port, model="robust", output_tokens=OUTPUT, stall_s=20, request_s=60, chat=True)
    answers = asyncio.run(open_loop(chat, sent, offsets, lambda ended: None))
    assert {(one.status, one.output_tokens) for one in answers} == {("ok", OUTPUT)}


def test_a_full_queue_is_503_and_every_refusal_is_counted(port: int) -> None:
    """Three are decoded, twelve wait; of thirty at once some are refused, and none is lost."""
    target = target_of(port, model="robust", output_tokens=32, stall_s=30, request_s=60)
    sent = prompts.planned(seed=2, block="block-0", load="burst", phase="requests", count=30, context_tokens=CONTEXT)
    answers = asyncio.run(closed_loop(target, sent, 30, lambda ended: None))
    good, refused = (sum(one.status == status for one in answers) for status in ("ok", "failed"))
    assert good + refused == 30 and good >= 12 and refused >= 1
    assert {one.error for one in answers if one.status == "failed"} == {"http_503"}


def test_a_client_that_goes_away_costs_nobody_else(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/v1/completions", json.dumps(completion(stream=True, max_tokens=64, ignore_eos=True)))
    connection.sock.close()
    assert asked(port, "POST", "/v1/completions", completion())[0] == 200
