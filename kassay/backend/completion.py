"""One completion as the small server takes it: what a request may ask for, and what is waiting to be answered.

The form is OpenAI's `/v1/completions` and `/v1/chat/completions`, with `ignore_eos` as vLLM has it. Decoding is greedy:
a field that asks for anything else is refused by name, never passed over. A chat has no template here: the contents of
its messages are joined by newlines.
"""

import json
import queue
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kassay.errors import KassayError

LEAST_PROMPT_TOKENS = 2  # the last one is decoded through the recipe's cache, the others are prefilled
TAKEN = {"model", "prompt", "messages", "max_tokens", "max_completion_tokens", "stream", "stream_options", "ignore_eos"}
PASSED_OVER = {"seed", "user"}  # greedy decoding has no use for them
NEUTRAL: dict[str, tuple[Any, ...]] = {  # fields that may be there as long as they ask for nothing
    "temperature": (None, 0),
    "top_p": (None, 1),
    "top_k": (None, -1, 0, 1),
    "n": (None, 1),
    "best_of": (None, 1),
    "echo": (None, False),
    "logprobs": (None, False),
    "suffix": (None, ""),
    "stop": (None, []),
    "min_tokens": (None, 0),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "logit_bias": (None, {}),
}


class BadRequest(KassayError):
    """What a client asked is not what this server answers; HTTP 400."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request that was understood."""

    chat: bool
    prompt: str | tuple[int, ...]  # text, or token ids
    max_tokens: int
    stream: bool
    usage: bool  # whether a stream ends with the counts
    ignore_eos: bool


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What one decode step gave one request."""

    text: str
    finish_reason: str | None  # `length`, `stop` or `error` with the last piece
    output_tokens: int  # so far


@dataclass(kw_only=True)
class Job:
    """One accepted request, shared by the thread that answers it and the one that decodes."""

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    stops: frozenset[int]  # tokens that end the output; empty with `ignore_eos`
    received_ns: int = field(default_factory=time.monotonic_ns)
    admitted_ns: int | None = None
    pieces: queue.SimpleQueue[Piece] = field(default_factory=queue.SimpleQueue)
    row: list[int] = field(default_factory=list)  # output tokens so far
    shown: str = ""  # text so far
    finish_reason: str | None = None
    gone: bool = False  # nobody reads the answer any more


def parse(body: bytes, *, model: str, chat: bool, most_tokens: int) -> Asked:
    """The request in a body. Raises BadRequest that says all that is wrong with it."""
    try:
        asked = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is no JSON: {error}") from None
    if not isinstance(asked, dict):
        raise BadRequest("the body is no JSON object")
    limit: Any = asked.get("max_completion_tokens", asked.get("max_tokens", 16))
    errors = wrong_fields(asked)
    if asked.get("model") != model:
        errors.append(f"`model` is {asked.get('model')!r}, served is `{model}`")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most_tokens:
        errors.append(f"`max_tokens` is {limit!r}, allowed is 1 to {most_tokens}")
    prompt = prompt_of(asked, chat, errors)
    if errors:
        raise BadRequest(*errors)
    options = asked.get("stream_options") or {}
    return Asked(
        chat=chat,
        prompt=prompt,
        max_tokens=limit,
        stream=bool(asked.get("stream")),
        usage=bool(options.get("include_usage")),
        ignore_eos=bool(asked.get("ignore_eos")),
    )


def wrong_fields(asked: dict[str, Any]) -> list[str]:
    """Fields that ask for what greedy decoding of one answer does not do."""
    unknown = sorted(set(asked) - TAKEN - PASSED_OVER - set(NEUTRAL))
    errors = [f"`{name}` is not known here" for name in unknown]
    errors += [
        f"`{name}` is {asked[name]!r}: decoding is greedy and gives one answer"
        for name in NEUTRAL
        if differs(asked, name)
    ]
    if not isinstance(asked.get("stream_options") or {}, dict):
        errors.append("`stream_options` is no object")
    return errors


def differs(asked: dict[str, Any], name: str) -> bool:
    """Whether a field is there and asks for something."""
    return name in asked and not any(asked[name] == value for value in NEUTRAL[name])


def prompt_of(asked: dict[str, Any], chat: bool, errors: list[str]) -> str | tuple[int, ...]:
    """The prompt of a completion, or the joined contents of a chat."""
    if not chat:
        prompt = asked.get("prompt")
        if isinstance(prompt, str):
            return prompt
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
            return str(prompt[0])
        if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
            return tuple(prompt)
        errors.append("`prompt` is neither a text nor a list of token ids")
        return ""
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        errors.append("`messages` is no list of messages")
        return ""
    contents = [text_of(one.get("content")) for one in messages]
    if None in contents:
        errors.append("a message's `content` is no text")
    return "\n".join(text for text in contents if text is not None)


def text_of(content: Any) -> str | None:
    """The text of a message's content, which may come in parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    return None


def alike(waiting: Sequence[Job], most: int) -> list[Job]:
    """The next cohort: the oldest request and those behind it with as many prompt tokens, at most `most`."""
    return [job for job in waiting if len(job.prompt) == len(waiting[0].prompt)][:most] if waiting else []
