"""Our own load generator: a closed loop keeps so many requests in flight, an open loop sends them by a schedule.

Every planned request is sent once and leaves one record, whatever becomes of it; none is repeated. A time to first
token is that of the first piece with text: a first event that holds only a role is none (vllm-project/vllm#15106).
Token counts are the server's own; a stream without them has failed, since pieces are not tokens.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kassay.kinds.serving import EMPTY, FAILED, OK
from kassay.serving.stream import Limits, StreamError, post

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where requests go, and what each asks for beside its prompt."""

    host: str
    port: int
    model: str
    chat: bool
    output_tokens: int
    limits: Limits

    @property
    def path(self) -> str:
        """The endpoint."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def body(self, prompt: str) -> dict[str, Any]:
        """A greedy request of a forced length, its counts asked for."""
        asked: dict[str, Any] = {"model": self.model, "max_tokens": self.output_tokens, "temperature": 0}
        asked |= {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
        return asked | ({"messages": [{"role": "user", "content": prompt}]} if self.chat else {"prompt": prompt})


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A request that will be sent."""

    request_id: str
    prompt: str


@dataclass(kw_only=True)
class Answer:
    """What became of one request."""

    request_id: str
    prompt_sha256: str
    scheduled_ns: int | None
    started_ns: int
    token_ns: list[int] = field(default_factory=list)
    ended_ns: int = 0
    status: str = ""
    error: str = ""
    detail: str = ""
    http_status: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    text_sha256: str = ""
    empty: bool = True


async def answered(target: Target, planned: Planned, scheduled_ns: int | None) -> Answer:
    """Send one request and wait for its end; a failure is an answer too."""
    answer = Answer(
        request_id=planned.request_id,
        prompt_sha256=sha256(planned.prompt),
        scheduled_ns=scheduled_ns,
        started_ns=time.monotonic_ns(),
    )
    texts: list[str] = []
    limits = target.limits
    stream = post(target.host, target.port, target.path, target.body(planned.prompt), planned.request_id, limits)
    try:
        async with asyncio.timeout(limits.request_s):
            await read(stream, answer, texts)
        if answer.output_tokens is None or answer.prompt_tokens is None:
            raise StreamError("no_usage", "the stream ended without the server's token counts", 200)
        answer.status = OK if texts else EMPTY
    except TimeoutError:
        fail(answer, StreamError("timeout", f"no end within {limits.request_s:g} s", answer.http_status))
    except StreamError as error:
        fail(answer, error)
    answer.ended_ns = time.monotonic_ns()
    answer.text_sha256, answer.empty = sha256("".join(texts)), not texts
    return answer


async def read(stream: AsyncIterator[dict[str, Any]], answer: Answer, texts: list[str]) -> None:
    """Follow a stream to its end, with a stamp for each piece that holds text."""
    async for body in stream:
        now = time.monotonic_ns()
        answer.http_status = 200
        for choice in body.get("choices") or []:
            text = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
            answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
            if text:
                texts.append(text)
                answer.token_ns.append(now)
        if usage := body.get("usage"):
            answer.prompt_tokens, answer.output_tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
    answer.http_status = 200


def fail(answer: Answer, error: StreamError) -> None:
    """Note a failure."""
    answer.status, answer.error, answer.detail = FAILED, error.error, str(error)
    answer.http_status = error.http_status if error.http_status is not None else answer.http_status


def sha256(text: str) -> str:
    """Digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


Told = Callable[[int], None]  # hears how many requests have ended


async def closed_loop(target: Target, planned: Sequence[Planned], concurrency: int, told: Told) -> list[Answer]:
    """So many requests in flight until all were sent; the next one starts when one has ended."""
    waiting = iter(planned)
    ended: list[Answer] = []

    async def one_after_the_other() -> None:
        for request in waiting:
            ended.append(await answered(target, request, None))
            told(len(ended))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(planned))):
            group.create_task(one_after_the_other())
    return in_order(ended, planned)


async def open_loop(target: Target, planned: Sequence[Planned], offsets_s: Sequence[float], told: Told) -> list[Answer]:
    """Every request at its own moment, however many are in flight by then."""
    ended: list[Answer] = []

    async def one(request: Planned, scheduled_ns: int) -> None:
        ended.append(await answered(target, request, scheduled_ns))
        told(len(ended))

    zero_ns = time.monotonic_ns()
    async with asyncio.TaskGroup() as group:
        for request, offset_s in zip(planned, offsets_s, strict=True):
            at_ns = zero_ns + round(offset_s * NS_PER_S)
            await asyncio.sleep(max(0.0, (at_ns - time.monotonic_ns()) / NS_PER_S))
            group.create_task(one(request, at_ns))
    return in_order(ended, planned)


def in_order(ended: Sequence[Answer], planned: Sequence[Planned]) -> list[Answer]:
    """Answers in the order of the plan, one for each request."""
    by_id = {answer.request_id: answer for answer in ended}
    return [by_id[request.request_id] for request in planned]
