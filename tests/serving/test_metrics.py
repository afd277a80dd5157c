"""Bug case O20, number by number, and the properties that hold for any requests."""

import math
from typing import Any

import numpy as np
import pytest

from kassay.kinds.serving import ServedLoad
from kassay.serving import metrics
from kassay.serving.client import Answer
from kassay.stats import InvalidData

NS = 1_000_000_000
PLACE: dict[str, Any] = {"arm": "native", "block": 0, "pilot": False}
CLOSED: dict[str, Any] = {"name": "closed", "concurrency": 2, "output_tokens": 11}


def answer(name: str, ttft_s: float | None, e2e_s: float, tokens: int, **changes: Any) -> Answer:
    """A request that started at 0; its last piece came with its end."""
    pieces = [] if ttft_s is None else [round(ttft_s * NS), *([round(e2e_s * NS)] if tokens > 1 else [])]
    fields: dict[str, Any] = {
        "request_id": name,
        "prompt_sha256": name,
        "scheduled_ns": None,
        "started_ns": 0,
        "token_ns": pieces,
        "ended_ns": round(e2e_s * NS),
        "status": "ok",
        "http_status": 200,
        "prompt_tokens": 5,
        "output_tokens": tokens,
        "empty": ttft_s is None,
    }
    return Answer(**(fields | changes))


def o20() -> list[Answer]:
    """r1 to r5 of the table."""
    return [
        answer("r1", 0.40, 1.40, 11),
        answer("r2", 0.60, 0.60, 1),
        answer("r3", None, 0.0, 0, status="failed", error="refused", http_status=None, output_tokens=None),
        answer("r4", 0.50, 2.50, 21),
        answer("r5", None, 0.05, 0, status="empty"),
    ]


def load_of(answers: list[Answer], **changes: Any) -> ServedLoad:
    """The record of a load."""
    given: dict[str, Any] = {"place": PLACE, "load": CLOSED, "prompt_tokens": None, "lag_limit_s": 0.1}
    return metrics.served_load(answers, **(given | changes))


def test_o20_table_exactly() -> None:
    made = load_of(o20(), seconds=4.0)
    assert (made.completed, made.failed, made.empty, made.requests) == (3, 1, 1, 5)
    assert made.errors == {"refused": 1}
    assert made.ttft_s["n"] == 3 and math.isclose(made.ttft_s["mean"], 0.5) and math.isclose(made.ttft_s["p50"], 0.5)
    assert made.tpot_s["n"] == 2 and math.isclose(made.tpot_s["mean"], 0.1)
    assert [metrics.tpot_s(one) for one in o20()] == [0.1, None, None, 0.1, None]
    assert (made.output_tokens, made.tokens_per_s, made.completed_per_s) == (33, 8.25, 0.75)


def test_o20_is_not_the_naive_answer() -> None:
    """Zeros of failed requests made the naive means better: 0.30, 0.40 and 1.25 a second."""
    made = load_of(o20(), seconds=4.0)
    assert made.ttft_s["mean"] > 0.4 and made.ttft_s["p50"] > 0.45 and made.completed_per_s < 1


def test_a_wall_of_all_requests_is_the_window() -> None:
    late = answer("r6", None, 4.0, 0, status="failed", error="stalled")
    assert load_of([*o20(), late]).window_s == 4.0


def test_tokens_in_one_piece_have_no_time_between_them() -> None:
    assert metrics.tpot_s(answer("x", 0.5, 2.0, 8, token_ns=[NS // 2])) is None


def test_a_load_without_success_has_no_times_and_no_zeros() -> None:
    made = load_of([o20()[2]], seconds=1.0)
    assert made.ttft_s == {"n": 0, "mean": None, "p50": None, "p90": None, "p95": None, "p99": None, "largest": None}
    assert (made.tokens_per_s, made.completed) == (0.0, 0)


def test_counts_that_are_not_what_was_asked_for_make_a_load_invalid() -> None:
    made = load_of([answer("a", 0.1, 0.2, 11), answer("b", 0.1, 0.2, 10, prompt_tokens=6)], prompt_tokens=5)
    assert made.faults == [
        "1 outputs are not the 11 tokens that were asked for",
        "1 prompts are not 5 tokens by the server's count",
    ]


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.95, 0.99, 1.0])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 101])
def test_percentiles_are_numpys(count: int, share: float) -> None:
    values = np.random.default_rng(count).exponential(size=count)
    assert math.isclose(metrics.percentile(list(values), share), float(np.quantile(values, share)), rel_tol=1e-12)


def test_no_percentile_of_nothing() -> None:
    with pytest.raises(InvalidData):
        metrics.percentile([], 0.5)


def test_most_in_flight() -> None:
    spans = [(0, 4), (1, 2), (2, 3), (5, 6)]
    answers = [answer(str(at), 0.1, 0, 11, started_ns=start, ended_ns=end) for at, (start, end) in enumerate(spans)]
    assert metrics.most_in_flight(answers) == 2
