"""The items of a quality study on a vLLM engine: what is prefilled, what goes through the cache, and its evidence.

A prompt's own tokens attend to 16-bit keys and values, so what is measured must not be part of it:

    loss       the context but for its last token is the prompt; that token and the targets are a script, and the loss
               of each target is of a decode that read everything before it from the pages
    answers    `decoded` questions: the context is the prompt, the question is a script, as the reference feeds both
               `prefilled` questions: context and question are the prompt, as a server is asked; an answer's first token
               is then the prefill's, and only the later ones feel the cache

Losses by prompt log-probabilities are refused by name, and so is whatever else would not feel the cache, or would feel
it by another route than the recipe's. A cohort is so many items in their order, submitted together; one that was
preempted, cached or continued is no evidence: a preempted request is computed anew by a prefill in 16 bits.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kassay.backend import text
from kassay.backend.endpoints import NLL, Endpoints
from kassay.backend.text import Passage, Question
from kassay.backend.vllm_arguments import require_real
from kassay.errors import KassayError
from kassay.kinds.vllm import VllmCohort, VllmEngine
from kassay.stage import Stage

DECODED, PREFILLED = "decoded", "prefilled"
LEAST_ANSWER_TOKENS = 2  # of a prefilled question: the first is the prefill's

NO_CACHE = "prompt log-probabilities are of a prefill, which attends to its own 16-bit keys and values"


def require_felt(params: Mapping[str, Any], scales: Mapping[str, Any]) -> None:
    """Raise KassayError with every reason why what is asked for would not feel the arms' caches, or no model's text."""
    require_real(scales)
    engine, batch = params["engine"], params["batch"]
    found = []
    if params.get("geometry"):
        found.append(f"`{params['geometry']}` is a geometry with drawn weights, whose text says nothing")
    if not scales.get("contents"):
        found.append("the scales do not say over which texts they were folded: that others are new cannot be shown")
    if params["losses"] != DECODED:
        found.append(f"losses are `{params['losses']}`, allowed is {DECODED}: {NO_CACHE}")
    if params["questions"] not in (DECODED, PREFILLED):
        found.append(f"questions are `{params['questions']}`, allowed are {DECODED} and {PREFILLED}")
    if params["questions"] == PREFILLED and (short := short_answers(params)):
        found.append(f"answers to {', '.join(short)} have one token, which the prefill gives")
    if engine["prefix_caching"] or engine["chunked_prefill"]:
        found.append("a prompt behind stored tokens reads them by another route than a decode: no prefixes, no chunks")
    if engine["sequences"] < batch:
        found.append(f"cohorts of {batch} do not run together in an engine of {engine['sequences']} sequences")
    if found:
        raise KassayError("this measurement is refused: " + "; ".join(found))


def short_answers(params: Mapping[str, Any]) -> list[str]:
    """Endpoints whose answers are shorter than what feels the cache."""
    caps = {
        name: planned.get("answer_cap_tokens") or params["answer_cap_tokens"]
        for name, planned in params["endpoints"].items()
        if planned["measure"] != NLL
    }
    return [name for name, cap in caps.items() if cap < LEAST_ANSWER_TOKENS]


def cohorts(rows: Sequence[text.Row], size: int) -> Iterator[Sequence[text.Row]]:
    """The items in their order, `size` of them together."""
    for at in range(0, len(rows), size):
        yield rows[at : at + size]


def split(row: Passage | Question, questions: str) -> tuple[list[int], list[int]]:
    """The prompt and the script of one item."""
    if isinstance(row, Passage):
        return list(row.context[:-1]), [row.context[-1], *row.continuation]
    if questions == PREFILLED:
        return [*row.context, *row.question], []
    return list(row.context), list(row.question)


class Questioner:
    """One arm's engine that answers a study's endpoints. `engine` is a kassay.backend.vllm.Engine."""

    def __init__(self, stage: Stage, endpoints: Endpoints, engine: Any, arm: str) -> None:
        self.stage, self.params = stage, stage.params
        self.endpoints, self.engine, self.arm = endpoints, engine, arm
        self.longest: int = stage.params["engine"]["sequence_tokens"]

    def run(self) -> None:
        """Every endpoint, cohort by cohort."""
        for endpoint, planned in self.endpoints.planned.items():
            rows = self.endpoints.rows(endpoint)
            for number, batch in enumerate(cohorts(rows, self.params["batch"])):
                self.serve(endpoint, planned, number, batch)
        self.endpoints.append_counts()

    def serve(self, endpoint: str, planned: Mapping[str, Any], number: int, batch: Sequence[Any]) -> None:
        """One cohort: its records, if it is evidence."""
        losses = planned["measure"] == NLL
        cap = 0 if losses else self.endpoints.cap_tokens(dict(planned))
        parts = [split(row, self.params["questions"]) for row in batch]
        prompts, scripts = [prompt for prompt, _ in parts], [script for _, script in parts]
        self.require_room(endpoint, prompts, scripts, cap)
        served = self.engine.serve(
            prompts, cap, repetition=number, warmup=False, forced=losses, scripts=scripts, scored=losses,
            stops=() if losses else sorted(self.endpoints.stops(dict(planned))),
        )  # fmt: skip
        cohort = cohort_record(self.params["model"], endpoint, served.span, served.requests, scripts)
        self.stage.append(cohort)
        if found := lacks(cohort, served.requests, of_graphs(self.engine.attested)):
            raise KassayError(f"cohort {number} of `{endpoint}` is no evidence: {'; '.join(found)}")
        if losses:
            for row, loss_nats in zip(batch, served.losses, strict=True):
                self.endpoints.append_loss(self.arm, endpoint, row, scored(row, loss_nats))
        else:
            self.endpoints.append_lengths(endpoint, batch)
            for row, script, output in zip(batch, scripts, served.outputs, strict=True):
                self.endpoints.append_answer(self.arm, endpoint, row, output[len(script) :])
        self.endpoints.step(len(batch), f"{endpoint}, {self.arm}")

    def require_room(self, endpoint: str, prompts: Sequence[Any], scripts: Sequence[Any], cap: int) -> None:
        """Raise KassayError for an item that the engine would cut."""
        most = max(len(prompt) + len(script) for prompt, script in zip(prompts, scripts, strict=True)) + cap
        if most > self.longest:
            raise KassayError(f"an item of `{endpoint}` takes {most} tokens, the engine's sequences {self.longest}")


def scored(row: Passage, loss_nats: Sequence[float]) -> list[float]:
    """The losses of a passage's targets; the first of its script is the context's last token, which is no target.

    Raises KassayError for another number of losses than targets, and for one that is no loss.
    """
    found = [loss + 0.0 for loss in loss_nats[1:]]  # -0.0 becomes 0
    where = f"document `{row.document.item_id}`"
    if len(found) != len(row.continuation):
        raise KassayError(f"{where} has {len(found)} losses, {len(row.continuation)} targets were decoded")
    if bad := [loss for loss in found if not (math.isfinite(loss) and loss >= 0)]:
        raise KassayError(f"{where} has a loss of {bad[0]} nats, allowed is 0 and up")
    return found


def cohort_record(
    model: str, endpoint: str, span: Any, requests: Sequence[Any], scripts: Sequence[Sequence[int]]
) -> VllmCohort:
    """What became of a cohort, as a record."""
    return VllmCohort(
        model=model, arm=span.arm, endpoint=endpoint, cohort=span.repetition, requests=span.requests,
        prompt_tokens=sum(one.prompt_tokens for one in requests), script_tokens=sum(map(len, scripts)),
        output_tokens=sum(one.output_tokens for one in requests), prefilled_tokens=span.prefilled_tokens,
        decode_steps=span.decode_steps, mixed_steps=span.mixed_steps, preemptions=span.preemptions,
        replays=span.replays, fallbacks=span.fallbacks,
    )  # fmt: skip


def of_graphs(engine: VllmEngine) -> bool:
    """Whether an engine's decodes are counted as replays: those of the plug-in with captured graphs."""
    return bool(engine.graph_batches and engine.events)


def lacks(cohort: VllmCohort, requests: Sequence[Any], replayed: bool) -> list[str]:
    """Why a cohort is no evidence of what its arm's cache does; empty if it is."""
    found = []
    if cohort.preemptions:
        found.append(f"{cohort.preemptions} requests were preempted and computed anew in 16 bits: take a larger pool")
    if cohort.prefilled_tokens != cohort.prompt_tokens:
        found.append(f"{cohort.prefilled_tokens} of {cohort.prompt_tokens} prompt tokens were computed")
    if cohort.fallbacks:
        found.append(f"{cohort.fallbacks} prefills continued stored tokens")
    if replayed and (replays := sum(cohort.replays.values())) != cohort.decode_steps:
        found.append(f"{replays} of {cohort.decode_steps} decode steps replayed a graph")
    steps = [one.completion_steps for one in requests]
    if bad := [at for at, own in enumerate(steps) if not own or own != list(range(own[0], own[0] + len(own)))]:
        found.append(f"request {bad[0]} did not complete one token at every step")
    if len(steps) != cohort.requests:
        found.append(f"{len(steps)} of {cohort.requests} requests ended")
    return found


def require_alike(found: Sequence[VllmCohort]) -> None:
    """Raise KassayError unless every arm answered the same cohorts: as many items, prompts and scripts as long."""
    by_arm: dict[str, list[tuple[Any, ...]]] = {}
    for one in found:
        own = (one.endpoint, one.cohort, one.requests, one.prompt_tokens, one.script_tokens)
        by_arm.setdefault(one.arm, []).append(own)
    first = next(iter(by_arm), "")
    for arm, answered in by_arm.items():
        if answered != by_arm[first]:
            raise KassayError(f"arms `{first}` and `{arm}` answered different cohorts: this is a bug")
