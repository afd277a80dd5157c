"""The small server's decoding: requests wait in a bounded queue, and are served in cohorts, one after the other.

A cohort is the oldest waiting request and those behind it with as many prompt tokens, up to a fixed number; 1 is one at
a time. It is prefilled at once, natively, and decoded greedily through one RecipeCache until its last request has all
its tokens; what arrives meanwhile waits. There is no continuous batching and no prefix cache: a time to first token
under load is mostly waiting, and no rate here is a claim of speed. Axes: B requests of the cohort, T tokens.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from kassay.backend import reference
from kassay.backend.checkpoint import Checkpoint
from kassay.backend.completion import LEAST_PROMPT_TOKENS, Asked, BadRequest, Job, Piece, alike
from kassay.backend.structure import text_config
from kassay.backend.text import Tokens
from kassay.kinds.serving import ServerRequest
from kassay.kv.cache import Scales
from kassay.kv.recipe import Recipe
from kassay.kv.tasks import vocabulary

WAKE_S = 0.1  # how soon a stop is noticed while nothing waits
UNFINISHED = "\ufffd"  # what a tokenizer gives for bytes that are no whole character yet


@dataclass(frozen=True, kw_only=True)
class Served:
    """What is served, and within which bounds."""

    name: str  # of the model, as requests call it
    checkpoint: Checkpoint
    recipe: Recipe
    scales: Scales | None
    largest_cohort: int  # 1: one at a time
    most_waiting: int  # requests that wait; one more is answered with 503
    most_tokens: int  # of one output

    def encoded(self, asked: Asked) -> tuple[int, ...]:
        """Prompt tokens. Raises BadRequest for a prompt that the model cannot have."""
        words = self.checkpoint.text
        try:
            if isinstance(asked.prompt, tuple):
                ids = asked.prompt
            elif isinstance(words, Tokens):
                ids = (*words.begin, *words.ids(asked.prompt))
            else:
                ids = tuple(vocabulary.encode_context(asked.prompt))
        except UnicodeEncodeError as error:
            raise BadRequest(f"`prompt` holds {error.object[error.start]!r}, and this model reads ASCII") from None
        config = text_config(self.checkpoint.model)
        most = getattr(config, "max_position_embeddings", None)
        if len(ids) < LEAST_PROMPT_TOKENS:
            raise BadRequest(f"the prompt has {len(ids)} tokens, allowed are {LEAST_PROMPT_TOKENS} or more")
        if most is not None and len(ids) + asked.max_tokens > most:
            raise BadRequest(f"{len(ids)} prompt and {asked.max_tokens} output tokens exceed the {most} positions")
        if not all(0 <= token < config.vocab_size for token in ids):
            raise BadRequest(f"a token id is outside 0 to {config.vocab_size - 1}")
        return ids

    def decoded(self, row: list[int]) -> str:
        """The text of output tokens, the newline that ends an answer included."""
        words = self.checkpoint.text
        if isinstance(words, Tokens):
            return str(words.tokenizer.decode(row, skip_special_tokens=True))
        return vocabulary.decode(row)


@dataclass(kw_only=True)
class Waiting:
    """The bounded queue between the threads that answer and the one that decodes."""

    most: int
    jobs: list[Job] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def put(self, job: Job) -> bool:
        """Take a request in; False if the queue is full."""
        with self.changed:
            if len(self.jobs) >= self.most:
                return False
            self.jobs.append(job)
            self.changed.notify()
            return True

    def take(self, most: int) -> list[Job]:
        """The next cohort, empty if nothing arrives within WAKE_S; requests that nobody reads any more are dropped."""
        with self.changed:
            if not self.jobs:
                self.changed.wait(WAKE_S)
            self.jobs = [job for job in self.jobs if not job.gone]
            cohort = alike(self.jobs, most)
            self.jobs = [job for job in self.jobs if not any(job is taken for taken in cohort)]
            return cohort


class Decoder:
    """Serves cohort after cohort until it is told to stop."""

    def __init__(self, served: Served, told: Callable[[ServerRequest], None]) -> None:
        self.served = served
        self.waiting = Waiting(most=served.most_waiting)
        self.stopping = threading.Event()
        self.told = told
        self.cohorts = 0

    def run(self) -> None:
        """The decode loop, in the thread that calls it; what still waits at its end is told so."""
        while not self.stopping.is_set():
            if cohort := self.waiting.take(self.served.largest_cohort):
                self.serve(cohort)
        for job in self.waiting.jobs:
            finish(job, "error")

    def serve(self, cohort: list[Job]) -> None:
        """All tokens of one cohort; rows that have ended stay in it, and their further tokens are dropped."""
        checkpoint, served = self.served.checkpoint, self.served
        for job in cohort:
            job.admitted_ns = time.monotonic_ns()
        longest = max(job.max_tokens for job in cohort)
        ids_BT = checkpoint.rows(job.prompt for job in cohort)
        context = reference.prefill(checkpoint.model, ids_BT[:, :-1], served.recipe.sixteen)
        cache = reference.filled(checkpoint.model, served.recipe, served.scales, context, longest)
        last_B1 = ids_BT[:, -1:]
        for _ in range(longest):
            last_B1 = reference.forced(checkpoint.model, cache, last_B1, 1)
            self.hand_out(cohort, last_B1)
            if self.stopping.is_set() or all(job.finish_reason or job.gone for job in cohort):
                break
        for job in cohort:
            if job.finish_reason is None:
                finish(job, "error")
            self.told(self.record(job, len(cohort)))
        self.cohorts += 1

    def hand_out(self, cohort: list[Job], last_B1: torch.Tensor) -> None:
        """Give every request of the cohort its token of this step."""
        for job, token in zip(cohort, last_B1[:, 0].tolist(), strict=True):
            if job.finish_reason is not None:
                continue
            job.row.append(token)
            stopped = token in job.stops
            job.finish_reason = "stop" if stopped else "length" if len(job.row) == job.max_tokens else None
            text = self.served.decoded(job.row)
            if text.endswith(UNFINISHED) and job.finish_reason is None:
                text = job.shown  # of a character that is not whole nothing is shown
            piece = Piece(text=text[len(job.shown) :], finish_reason=job.finish_reason, output_tokens=len(job.row))
            job.shown = text
            job.pieces.put(piece)

    def record(self, job: Job, size: int) -> ServerRequest:
        """What this server knows of a request that it is done with."""
        return ServerRequest(
            request_id=job.request_id,
            received_ns=job.received_ns,
            admitted_ns=job.admitted_ns,
            finished_ns=time.monotonic_ns(),
            cohort=self.cohorts,
            cohort_size=size,
            prompt_tokens=len(job.prompt),
            output_tokens=len(job.row),
            ended="left" if job.gone else str(job.finish_reason),
        )


def finish(job: Job, reason: str) -> None:
    """End a request that gets no more tokens."""
    job.finish_reason = reason
    job.pieces.put(Piece(text="", finish_reason=reason, output_tokens=len(job.row)))
