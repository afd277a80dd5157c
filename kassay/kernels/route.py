"""Which kernel attends each request of a mixed batch: a rule on query lengths and contexts, every decision by name.

    fresh      a whole prompt that is asked at once, nothing before it: the native prefill kernel on the model's own
               operands. Nothing is read back from pages.
    decode     one new token: the fused decode kernel on pages.
    gather     any other prefill: pages are gathered into a bounded 16-bit workspace for the native kernel.
    by token   the fallback of `gather`: the decode kernel, each query as a sequence of its own.

By the published mixed route a prompt is fresh only as a whole: the first chunk of a longer one is not, as its later
chunks read pages, and a prompt would then be attended in two ways. What falls back is counted: a study that claims the
fresh route has none (`fallbacks`). Plain Python.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kassay.errors import KassayError
from kassay.kernels.shape import DecodeShape
from kassay.kernels.split import token_bytes

Route = Literal["fresh", "decode", "gather", "by token"]
Reason = Literal[
    "whole fresh prompt",
    "one new token",
    "prompt too long",  # for the native route
    "prefix hit",
    "chunked prefill",
    "tokens after the prompt",
]
Lack = Literal["", "no workspace", "too many pages", "few queries"]  # why nothing is gathered


@dataclass(frozen=True, kw_only=True)
class Request:
    """What one request asks of a step, its new tokens in the pages already."""

    queries: int  # new tokens, the last of the context
    context: int  # tokens of the sequence, the queries included
    prompt: int  # tokens of its whole prompt
    reused: int  # first tokens of the context that another request wrote: a prefix hit


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the routes of prefill may take. Published: 8,192 tokens of a fresh prompt, 4,096 gathered pages."""

    fresh_tokens: int
    gather_pages: int  # of one request
    workspace_tokens: int  # 0: nothing is gathered


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One request's route."""

    request: int  # its place in the batch
    route: Route
    reason: Reason
    lack: Lack


def decide(requests: Sequence[Request], limits: Limits, shape: DecodeShape) -> tuple[Decision, ...]:
    """The route of each request. Raises KassayError for a request whose numbers contradict each other."""
    return tuple(_decided(at, request, limits, shape) for at, request in enumerate(requests))


def _decided(at: int, request: Request, limits: Limits, shape: DecodeShape) -> Decision:
    check(at, request)
    reason = reason_of(request, limits)
    if reason == "whole fresh prompt":
        return Decision(request=at, route="fresh", reason=reason, lack="")
    if reason == "one new token":
        return Decision(request=at, route="decode", reason=reason, lack="")
    lack = lack_of(request, limits, shape)
    return Decision(request=at, route="by token" if lack else "gather", reason=reason, lack=lack)


def check(at: int, request: Request) -> None:
    """Raise KassayError for numbers that no request has."""
    before = request.context - request.queries
    if request.queries < 1 or before < 0 or request.prompt < 1 or not 0 <= request.reused <= before:
        raise KassayError(
            f"request {at} of a batch asks {request.queries} queries in a context of {request.context} tokens, "
            f"{request.reused} reused, prompt {request.prompt}: no such request"
        )


def reason_of(request: Request, limits: Limits) -> Reason:
    """What kind of asking this is."""
    if request.queries == request.context == request.prompt:
        return "whole fresh prompt" if request.queries <= limits.fresh_tokens else "prompt too long"
    if request.queries == 1:
        return "one new token"
    if request.reused:
        return "prefix hit"
    return "chunked prefill" if request.context - request.queries < request.prompt else "tokens after the prompt"


def lack_of(request: Request, limits: Limits, shape: DecodeShape) -> Lack:
    """Why a request is not gathered, empty if it is."""
    if limits.workspace_tokens < 1:
        return "no workspace"
    if -(-request.context // shape.page_tokens) > limits.gather_pages:
        return "too many pages"
    return "few queries" if request.queries <= few_queries(shape) else ""


def few_queries(shape: DecodeShape) -> int:
    """Up to how many queries the decode kernel moves no more bytes, though it reads the pages for each of them.

    A gather moves the stored bytes once, writes 16 bits and reads them: queries * stored <= stored + 2 * native.
    """
    native = 4 * shape.head_dim * shape.kv_heads
    return 1 + 2 * native // token_bytes(shape)


def counted(decisions: Sequence[Decision]) -> dict[Route, int]:
    """Requests of each route."""
    found = Counter(decision.route for decision in decisions)
    return {route: found[route] for route in ("fresh", "decode", "gather", "by token")}


def fallbacks(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Whole fresh prompts that the native route did not take: none where a study claims that route."""
    return tuple(decision for decision in decisions if decision.reason == "prompt too long")
