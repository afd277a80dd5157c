"""Prompts of a measurement of speed: length, difference, prefixes; and those that the sweep really uses."""

import itertools
import random

import pytest

from kassay.backend import workload
from kassay.backend.prompts import PAGE_TOKENS, check_prompts, shared_prefix
from kassay.errors import KassayError


def test_the_longest_shared_prefix_is_that_of_all_pairs() -> None:
    draw = random.Random(3)
    for _ in range(200):
        rows = [[draw.randrange(2) for _ in range(draw.randrange(1, 9))] for _ in range(draw.randrange(2, 7))]
        pairs = [
            sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
            for one, other in itertools.combinations(rows, 2)
        ]
        assert shared_prefix(rows) == max(pairs)


def rows(shared: int, length: int = 40) -> list[list[int]]:
    """Three rows of which two share a prefix."""
    return [[0] * length, [7] * shared + [1] * (length - shared), [7] * shared + [2] * (length - shared)]


def test_a_page_is_a_shared_prefix_and_less_is_none() -> None:
    assert check_prompts(rows(PAGE_TOKENS - 1), 40) == PAGE_TOKENS - 1
    with pytest.raises(KassayError, match="share their first 16 tokens"):
        check_prompts(rows(PAGE_TOKENS), 40)


def test_another_length_and_equal_prompts_are_refused() -> None:
    with pytest.raises(KassayError, match="has 40 tokens after tokenization, planned are 41"):
        check_prompts(rows(3), 41)
    with pytest.raises(KassayError, match="has 39 tokens"):
        check_prompts([*rows(3), [9] * 39], 40)
    with pytest.raises(KassayError, match="not all different"):
        check_prompts([*rows(3), rows(3)[0]], 40)


@pytest.mark.parametrize("context_tokens", [64, 512])
def test_the_sweeps_prompts_are_real_and_share_nothing(context_tokens: int) -> None:
    ids_BT = workload.speed_prompts(32, context_tokens, 20261202)
    assert 0 < check_prompts(ids_BT.tolist(), context_tokens) < PAGE_TOKENS
    assert len(set(ids_BT[0].tolist())) > 10, "text, no filler"
