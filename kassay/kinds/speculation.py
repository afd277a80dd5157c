"""Speculation: what timed cells with drafts must say of themselves, and how many draft tokens are accepted."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import as_long, ordered, rule
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class SpeculationCell(Record):
    """What a timed cell with drafts did beside its stamps: the evidence that its timing cell of the same place needs.

    What it lacks makes the cell invalid (kassay.validity); it is never a slow cell.
    """

    schema: ClassVar[str] = "kassay.speculation_cell/1"

    load: str = doc("Name of the cell's load.")
    block: int = doc("Number of the cell's block from 0; pilots have their own numbers.")
    pilot: bool = doc("Whether the block is a pilot.")
    position: int = doc("Place of the cell in its block from 0.")
    recipe: str = doc("Name of the cell's arm.")
    base: str = doc("Arm of the same cache without drafts, whose tokens its outputs must be.")
    batch: int = doc("Requests in the batch.")
    output_tokens: int = doc("Tokens generated for each request, by force.")
    draft_tokens: int = doc("Most tokens of a draft, at least 1.")
    longest_ngram: int = doc("Tokens of the longest n-gram that is looked up.")
    shortest_ngram: int = doc("Tokens of the shortest n-gram that is looked up, at least 1.")
    passes: list[list[int]] = doc(
        "Verify passes that served each request, repetition by repetition, as the decode loop counted them; a pass "
        "gives a request 1 token and its accepted ones."
    )
    drafted: list[list[int]] = doc("Draft tokens that were verified for each request, repetition by repetition.")
    accepted: list[list[int]] = doc("Those of them that were the target's own.")
    pass_requests: list[list[int]] = doc(
        "Requests in each decode pass of each repetition, counted at the model's own door."
    )
    pass_tokens: list[list[int]] = doc(
        "Tokens of each request in each of these passes, padding included: 1 and the longest draft of the pass."
    )


@dataclass(frozen=True, kw_only=True)
class AcceptanceRecord(Record):
    """Draft tokens that are accepted on one batch, context and draft length, and whether outputs are the plain ones."""

    schema: ClassVar[str] = "kassay.acceptance/1"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the cache's recipe.")
    batch: int = doc("Requests that are decoded together; `requests` are cut into batches of so many.")
    context_tokens: int = doc("Tokens of each prompt.")
    output_tokens: int = doc("Tokens generated for each request, by force.")
    draft_tokens: int = doc("Most tokens of a draft, at least 1.")
    longest_ngram: int = doc("Tokens of the longest n-gram that is looked up.")
    shortest_ngram: int = doc("Tokens of the shortest n-gram that is looked up, at least 1.")
    requests: int = doc("Requests, the same prompts at every batch.")
    prompts_sha256: str = doc("Digest of the token ids of all prompts.")
    passes: list[int] = doc("Verify passes that served each request.")
    drafted: list[int] = doc("Draft tokens that were verified for each request.")
    accepted: list[int] = doc("Those of them that were the target's own.")
    acceptance: float | None = doc("Accepted over drafted tokens of all requests; null if nothing was drafted.")
    tokens_per_pass: float = doc("Output tokens of all requests over their passes, 1 without speculation.")
    other_requests: int = doc("Requests whose output differs from plain decoding of the same recipe and batch.")
    largest_rounding: float = doc(
        "Largest difference between a logit of a verify pass and of plain decoding behind the same tokens, over the "
        "largest logit."
    )
    smallest_margin: float = doc(
        "Smallest difference between the two largest logits of plain decoding, over the largest logit: what rounding "
        "must reach twice to turn a token."
    )
    rounding_tolerance: float = doc("Largest such difference that the study tolerates.")

    combinations = (
        as_long("passes", "drafted", "accepted"),
        rule("`passes` are as many as `requests`", lambda made: len(made.passes) == made.requests),
        rule(
            "`accepted` are at most `drafted`, request by request",
            lambda made: all(took <= asked for took, asked in zip(made.accepted, made.drafted, strict=False)),
        ),
        rule(
            "`passes` and `accepted` add up to `output_tokens`, request by request",
            lambda made: all(
                passes + took == made.output_tokens for passes, took in zip(made.passes, made.accepted, strict=False)
            ),
        ),
        rule(
            "`acceptance` is there exactly where something was `drafted`",
            lambda made: (made.acceptance is not None) == (sum(made.drafted) > 0),
        ),
        ordered("other_requests", "requests"),
    )
