"""Every way in which a request can fail is one class, counted once, and none of them is a time."""

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from kassay.serving import metrics, process
from kassay.serving.client import Answer, Planned, Target, closed_loop, open_loop
from kassay.serving.stream import Limits
from tests.serving.fake import Fake

FAULTS = ("reset", "http_500", "http_503", "truncated", "malformed", "error_event", "no_usage", "stalled")
CLASS_OF = {"hang_up": "disconnected", "garbage": "malformed", "short_body": "truncated", "no_done": "truncated"}


@contextmanager
def faking(*faults: str, token_s: float = 0.0) -> Iterator[Fake]:
    """A fake server in a thread."""
    server = Fake(0, list(faults), token_s)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def target_of(port: int, **changes: Any) -> Target:
    """A target whose limits nothing reaches but what a test makes reach one."""
    limits = Limits(connect_s=30, stall_s=changes.pop("stall_s", 60), request_s=changes.pop("request_s", 60))
    fields = {"host": "127.0.0.1", "port": port, "model": "m", "chat": False, "output_tokens": 4, "limits": limits}
    return Target(**(fields | changes))


def planned(count: int) -> list[Planned]:
    """Requests."""
    return [Planned(request_id=f"r{index}", prompt=f"prompt {index}") for index in range(count)]


def closed(target: Target, count: int, concurrency: int = 1) -> list[Answer]:
    """A closed loop."""
    return asyncio.run(closed_loop(target, planned(count), concurrency, lambda ended: None))


@pytest.mark.parametrize("fault", [*FAULTS, *CLASS_OF])
def test_a_failure_is_its_class(fault: str) -> None:
    with faking("ok", fault, "ok") as server:
        answers = closed(target_of(server.server_address[1], stall_s=1.5 if fault == "stalled" else 60), 3)
    assert [one.status for one in answers] == ["ok", "failed", "ok"]
    assert answers[1].error == CLASS_OF.get(fault, fault) and answers[1].detail
    assert metrics.ttft_s(answers[1]) is metrics.latency_s(answers[1]) is metrics.tpot_s(answers[1]) is None


def test_an_empty_answer_and_one_of_one_token() -> None:
    with faking("empty", "one") as server:
        empty, one = closed(target_of(server.server_address[1]), 2)
    assert (empty.status, empty.empty, empty.output_tokens, empty.http_status) == ("empty", True, 0, 200)
    assert (one.status, one.empty, one.output_tokens) == ("ok", False, 1)
    assert metrics.ttft_s(empty) is None and metrics.ttft_s(one) is not None and metrics.tpot_s(one) is None


def test_nobody_listens_is_refused_for_every_request() -> None:
    answers = closed(target_of(process.free_port()), 7, concurrency=3)
    assert [one.error for one in answers] == ["refused"] * 7


def test_load_goes_to_this_machine_only() -> None:
    answers = closed(target_of(80, host="192.0.2.1"), 1)
    assert answers[0].error == "refused" and "loopback only" in answers[0].detail


def test_a_request_that_outlasts_its_limit() -> None:
    with faking(token_s=0.02) as server:
        (one,) = closed(target_of(server.server_address[1], request_s=1.5, output_tokens=1000), 1)
    assert (one.status, one.error) == ("failed", "timeout") and len(one.token_ns) >= 1


def test_the_first_event_of_a_chat_is_no_token() -> None:
    """O20, second input: a role and empty content at .10, tokens at .50, .52, .54."""
    with faking(token_s=0.05) as server:
        (one,) = closed(target_of(server.server_address[1], chat=True, output_tokens=3), 1)
    assert len(one.token_ns) == 3 and one.output_tokens == 3
    assert 0.05 <= (metrics.ttft_s(one) or 0) <= (one.token_ns[0] - one.started_ns) / 1e9


def test_o20_stream_as_stamps() -> None:
    """The same with exact stamps: a body without text leaves none."""
    stamps = iter([100, 500, 520, 540])
    bodies: list[dict[str, Any]] = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
    bodies += [{"choices": [{"delta": {"content": text}}]} for text in "abc"]
    one = Answer(request_id="r", prompt_sha256="", scheduled_ns=None, started_ns=0)
    followed(one, bodies, stamps)
    assert one.token_ns == [500, 520, 540]
    gaps = [later - earlier for earlier, later in zip(one.token_ns, one.token_ns[1:], strict=False)]
    assert (one.token_ns[0], gaps) == (500, [20, 20])


def followed(one: Answer, bodies: Sequence[dict[str, Any]], stamps: Iterator[int]) -> None:
    """Feed a stream to the reader of the client under a clock of our own."""
    from kassay.serving import client

    async def stream() -> Any:
        for body in bodies:
            yield body

    clock = pytest.MonkeyPatch()
    clock.setattr(client.time, "monotonic_ns", lambda: next(stamps))
    try:
        asyncio.run(client.read(stream(), one, []))
    finally:
        clock.undo()


def test_a_closed_loop_keeps_its_concurrency_and_sends_each_request_once() -> None:
    with faking(token_s=0.01) as server:
        answers = closed(target_of(server.server_address[1]), 12, concurrency=3)
        prompts = [body["prompt"] for _, body in server.posts]
    assert sorted(prompts) == sorted(one.prompt for one in planned(12))
    assert metrics.most_in_flight(answers) == 3 and [one.request_id for one in answers] == [f"r{n}" for n in range(12)]


def test_an_open_loop_does_not_wait_for_answers() -> None:
    offsets = [0.0, 0.02, 0.04, 0.06]
    with faking(token_s=0.4) as server:  # 1.6 s an answer
        begun = time.monotonic()
        answers = asyncio.run(open_loop(target_of(server.server_address[1]), planned(4), offsets, lambda ended: None))
        took = time.monotonic() - begun
    assert all(one.status == "ok" for one in answers) and metrics.most_in_flight(answers) == 4
    lags = [one.started_ns - (one.scheduled_ns or 0) for one in answers]
    assert min(lags) >= 0 and took < 4 * 1.6, "not one after the other"
    gaps = [later.scheduled_ns - earlier.scheduled_ns for earlier, later in itertools.pairwise(answers)]
    assert gaps == [20_000_000] * 3


def test_the_server_counts_what_the_client_reports() -> None:
    with faking() as server:
        (one,) = closed(target_of(server.server_address[1], output_tokens=9), 1)
    assert (one.output_tokens, one.prompt_tokens, one.finish_reason) == (9, len("prompt 0") + 1, "length")
    _, body = server.posts[0]
    assert body["stream_options"] == {"include_usage": True} and body["ignore_eos"] is True
