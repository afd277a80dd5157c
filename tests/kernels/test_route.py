"""Which request takes which route, and why: a table of rules in plain Python."""

import pytest

from kassay.errors import KassayError
from kassay.kernels.route import Limits, Request, counted, decide, fallbacks, few_queries
from tests.kernels.test_split import shape

LIMITS = Limits(fresh_tokens=8192, gather_pages=4096, workspace_tokens=16384)


def request(queries: int, context: int, prompt: int, reused: int = 0) -> Request:
    return Request(queries=queries, context=context, prompt=prompt, reused=reused)


@pytest.mark.parametrize(
    ("asked", "limits", "told"),
    [
        (request(8192, 8192, 8192), {}, ("fresh", "whole fresh prompt", "")),
        (request(1, 1, 1), {}, ("fresh", "whole fresh prompt", "")),
        (request(8193, 8193, 8193), {}, ("gather", "prompt too long", "")),
        (request(1, 100, 99), {}, ("decode", "one new token", "")),
        (request(1, 100, 100), {}, ("decode", "one new token", "")),  # the last token of a prompt in chunks
        (request(512, 512, 600), {}, ("gather", "chunked prefill", "")),  # a first chunk is no whole prompt
        (request(88, 600, 600), {}, ("gather", "chunked prefill", "")),
        (request(88, 600, 600, reused=512), {}, ("gather", "prefix hit", "")),
        (request(5, 605, 600), {}, ("gather", "tokens after the prompt", "")),
        (request(3, 600, 600, reused=597), {}, ("by token", "prefix hit", "few queries")),
        (request(5, 605, 600), {"gather_pages": 37}, ("by token", "tokens after the prompt", "too many pages")),
        (request(88, 600, 600), {"workspace_tokens": 0}, ("by token", "chunked prefill", "no workspace")),
        (request(9, 9, 9), {"fresh_tokens": 0}, ("gather", "prompt too long", "")),
    ],
)
def test_each_kind_of_asking_has_its_route(asked: Request, limits: dict[str, int], told: tuple[str, ...]) -> None:
    (decision,) = decide([asked], Limits(**{**LIMITS.__dict__, **limits}), shape())
    assert (decision.route, decision.reason, decision.lack) == told


def test_routes_are_counted_and_a_prompt_that_falls_back_is_told() -> None:
    batch = [request(100, 100, 100), request(1, 9, 8), request(9000, 9000, 9000), request(2, 60, 60, reused=58)]
    decisions = decide(batch, LIMITS, shape())
    assert counted(decisions) == {"fresh": 1, "decode": 1, "gather": 1, "by token": 1}
    assert [decision.request for decision in fallbacks(decisions)] == [2]


@pytest.mark.parametrize(
    "wrong", [request(0, 5, 5), request(6, 5, 5), request(1, 1, 0), request(4, 9, 9, reused=6), request(4, 9, 9, -1)]
)
def test_a_request_that_contradicts_itself_is_refused(wrong: Request) -> None:
    with pytest.raises(KassayError, match=r"request 0 of a batch asks .*: no such request"):
        decide([wrong], LIMITS, shape())


@pytest.mark.parametrize(("recipe", "few"), [("native", 3), ("k16v8-d", 3), ("k8v8-d", 5), ("k4v4-d", 9)])
def test_few_queries_are_those_for_which_a_gather_moves_more(recipe: str, few: int) -> None:
    stored = {"native": 4, "k16v8-d": 3, "k8v8-d": 2, "k4v4-d": 1}[recipe]
    assert few_queries(shape(recipe)) == few
    assert few * stored <= stored + 8 < (few + 1) * stored
