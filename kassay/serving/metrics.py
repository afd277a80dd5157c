"""What the requests of one load say: times of the successful ones, failures beside every number.

    ttft      first piece with text - start                             of successful requests
    tpot      (last - first piece with text) / (output tokens - 1)      of those with two tokens, in two pieces, or more
    latency   end - start                                               of successful requests
    rates     output tokens, or successful requests, / window           window: first start to last end of *all*

Output tokens are the server's counts. A failed or empty request has no time: a zero in its place would make a broken
server look faster (vllm-project/vllm#5895). Nor has a request of one token a tpot: neither 0 nor infinity is one. A
high percentile over few requests is their largest value, so `n` is always beside it.

Percentiles: linear interpolation between order statistics, Hyndman and Fan 1996 (Am Stat 50:361), type 7, numpy's
default.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kassay import digest
from kassay.kinds.serving import EMPTY, FAILED, OK, ServedLoad
from kassay.serving.arrivals import off_offer, off_schedule, pace
from kassay.serving.client import NS_PER_S, Answer
from kassay.stats import InvalidData

METHOD = "linear interpolation of order statistics (Hyndman and Fan type 7), successful requests only"
SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def percentile(values: Sequence[float], share: float) -> float:
    """The quantile of type 7 at `share`, 0 to 1. Raises InvalidData without values."""
    if not values or not 0 <= share <= 1:
        raise InvalidData(f"the {share} quantile of {len(values)} values is asked for")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def spread(values: Sequence[float]) -> dict[str, Any]:
    """n, mean, percentiles and largest; null but n where there is nothing."""
    if not values:
        return {"n": 0, "mean": None, **dict.fromkeys(SHARES), "largest": None}
    shares = {name: percentile(values, share) for name, share in SHARES.items()}
    return {"n": len(values), "mean": math.fsum(values) / len(values), **shares, "largest": max(values)}


def ttft_s(answer: Answer) -> float | None:
    """Time to first token in seconds; None unless the request succeeded."""
    return (answer.token_ns[0] - answer.started_ns) / NS_PER_S if answer.status == OK else None


def tpot_s(answer: Answer) -> float | None:
    """Time per output token after the first in seconds; None for one token, and where all tokens came in one piece.

    Raises InvalidData for a last token before the first: a negative time is averaged with nothing (bug case O21).
    """
    if answer.status != OK or answer.output_tokens is None or answer.output_tokens < 2 or len(answer.token_ns) < 2:
        return None
    if answer.token_ns[-1] < answer.token_ns[0]:
        raise InvalidData(f"the last token of `{answer.request_id}` came before its first: its stamps are no times")
    return (answer.token_ns[-1] - answer.token_ns[0]) / NS_PER_S / (answer.output_tokens - 1)


def latency_s(answer: Answer) -> float | None:
    """From start to end in seconds; None unless the request succeeded."""
    return (answer.ended_ns - answer.started_ns) / NS_PER_S if answer.status == OK else None


def window_s(answers: Sequence[Answer]) -> float:
    """From the first start to the last end of all requests, in seconds. Raises InvalidData without requests."""
    if not answers:
        raise InvalidData("a load without requests has no window")
    return (max(one.ended_ns for one in answers) - min(one.started_ns for one in answers)) / NS_PER_S


def most_in_flight(answers: Sequence[Answer]) -> int:
    """Most requests in flight at once; one that ends as another starts is not counted with it."""
    changes = sorted([(one.ended_ns, -1) for one in answers] + [(one.started_ns, 1) for one in answers])
    flying, most = 0, 0
    for _, change in changes:
        flying += change
        most = max(most, flying)
    return most


def served_load(
    answers: Sequence[Answer],
    *,
    place: dict[str, Any],
    load: dict[str, Any],
    prompt_tokens: int | None,
    lag_limit_s: float,
    seconds: float | None = None,
) -> ServedLoad:
    """The record of one load; `place` is arm, block and pilot, `seconds` a window that was defined otherwise.

    `prompt_tokens` is what the server must have counted for every prompt; None where only the server can know.
    """
    window = window_s(answers) if seconds is None else seconds
    good = [one for one in answers if one.status == OK]
    tokens = sum(one.output_tokens or 0 for one in good)
    times: dict[str, Any] = {
        name: spread([value for one in answers if (value := of(one)) is not None])
        for name, of in (("ttft_s", ttft_s), ("tpot_s", tpot_s), ("latency_s", latency_s))
    }
    kept = rates(answers, load, lag_limit_s)
    faults = [*kept.pop("off"), *count_faults(good, load, prompt_tokens)]
    return ServedLoad(
        **place,
        load=load["name"],
        concurrency=load.get("concurrency"),
        offered_per_s=load.get("per_s"),
        arrivals=load.get("arrivals"),
        **counts(answers),
        prompts_sha256=digest.of_value([one.prompt_sha256 for one in answers]),
        window_s=window,
        output_tokens=tokens,
        tokens_per_s=tokens / window,
        completed_per_s=len(good) / window,
        most_in_flight=most_in_flight(answers),
        method=METHOD,
        **times,
        **kept,
        faults=faults,
    )


def counts(answers: Sequence[Answer]) -> dict[str, Any]:
    """How many requests there were, and what became of them."""
    errors = Counter(one.error for one in answers if one.status == FAILED)
    return {
        "requests": len(answers),
        "completed": sum(one.status == OK for one in answers),
        "failed": errors.total(),
        "empty": sum(one.status == EMPTY for one in answers),
        "errors": dict(sorted(errors.items())),
    }


def with_faults(made: ServedLoad, more: Sequence[str]) -> ServedLoad:
    """The record of a load with further reasons why it is invalid."""
    return replace(made, faults=[*made.faults, *more])


def rates(answers: Sequence[Answer], load: dict[str, Any], lag_limit_s: float) -> dict[str, Any]:
    """Offered and achieved pace of an open loop, and under `off` where they differ; null for a closed loop."""
    scheduled = [one.scheduled_ns / NS_PER_S for one in answers if one.scheduled_ns is not None]
    if not scheduled:
        names = ("schedule_per_s", "achieved_per_s", "schedule_gap_cv", "achieved_gap_cv", "largest_lag_s")
        return {**dict.fromkeys(names), "off": []}
    starts = [one.started_ns / NS_PER_S for one in answers]
    lag = max(start - at for start, at in zip(starts, scheduled, strict=True))
    planned, achieved = pace(scheduled), pace(starts)
    off = off_offer(planned, pattern=load["arrivals"], per_s=load["per_s"], count=len(answers))
    off += off_schedule(planned, achieved, largest_lag_s=lag, lag_limit_s=lag_limit_s)
    return {
        "schedule_per_s": planned.per_s,
        "achieved_per_s": achieved.per_s,
        "schedule_gap_cv": planned.gap_cv,
        "achieved_gap_cv": achieved.gap_cv,
        "largest_lag_s": lag,
        "off": off,
    }


def count_faults(good: Sequence[Answer], load: dict[str, Any], prompt_tokens: int | None) -> list[str]:
    """Where the server's counts are not what was asked for: then the arms did not do the same work."""
    short = sum(one.output_tokens != load["output_tokens"] for one in good)
    other = sum(one.prompt_tokens != prompt_tokens for one in good) if prompt_tokens is not None else 0
    faults = [f"{short} outputs are not the {load['output_tokens']} tokens that were asked for"] if short else []
    return faults + ([f"{other} prompts are not {prompt_tokens} tokens by the server's count"] if other else [])
