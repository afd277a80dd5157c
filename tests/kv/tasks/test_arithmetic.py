"""Arithmetic items: true solutions, exact lengths, and a parser that lets nothing else through."""

import re

import pytest

from kassay.kv.tasks import arithmetic
from kassay.kv.tasks.splits import generator


def made(**changes):
    return arithmetic.items(**{"split": "development", "seed": 3, "count": 60, "context_tokens": 96, **changes})


@pytest.mark.parametrize("context_tokens", [64, 96, 1000])
def test_lengths_are_exact(context_tokens):
    for item in made(context_tokens=context_tokens):
        assert len(item.context) == context_tokens - 1
        assert item.question == arithmetic.QUESTION


def test_the_fill_is_on_the_left_and_the_depth_is_where_it_ends():
    for item in made():
        story = item.context.lstrip(arithmetic.FILL)
        assert arithmetic.FILL not in story
        assert round(item.depth * 96) == 96 - len(story)


def test_expected_is_the_true_result_of_the_story():
    for item in made():
        start, first, second = map(int, re.findall(r"[0-9]+", item.context))
        verbs = re.findall(r"([a-z]+) [0-9]+", item.context)[-2:]
        signs = [1 if verb in arithmetic.GAINS else -1 for verb in verbs]
        assert int(item.expected) == start + signs[0] * first + signs[1] * second


def test_solutions_are_right_and_end_in_the_label():
    rng = generator(task="test", split="train", seed=1)
    for _ in range(200):
        problem = arithmetic.draw_problem(rng, "train")
        one, two, label = problem.solution().split(" ")
        for step in (one, two):
            left, right = step.split("=")
            assert sum(map(int, re.findall(r"[+-]?[0-9]+", left))) == int(right)
            assert 0 <= int(right) <= arithmetic.LARGEST
        assert label == f"#{problem.answer()}"
        assert arithmetic.last_labelled_answer(problem.solution() + "\n") == problem.answer()


def test_same_seed_same_items_and_fewer_are_a_prefix():
    assert made() == made()
    assert made(count=7) == made()[:7]


def test_facts_of_one_call_differ():
    assert len({item.context.lstrip(arithmetic.FILL) for item in made(count=300)}) == 300


def test_a_context_too_short_for_a_story_is_an_error():
    with pytest.raises(ValueError, match="and 20 were given"):
        made(context_tokens=20)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("14+7=21 21-3=18 #18\n", "18"),
        ("#18", "18"),
        ("#0\n", "0"),
        ("#-4\n", "-4"),
        ("#1 #2\n", "2"),
        ("#18 and more", "18"),
        ("14+7=21 21-3=18\n", None),  # no label
        ("18", None),
        ("", None),
        ("#\n", None),
        ("# 18\n", None),
        ("#018\n", None),
        ("#-0\n", None),
        ("#+18\n", None),
        ("#18.0\n", None),
        ("#18a\n", None),
        ("#1e3\n", None),
        ("#18#\n", None),
        ("#18 #x\n", None),  # a bad last label is not excused
        ("#18#19\n", "19"),
        ("#\u0661\n", None),  # a digit, but not ASCII
    ],
)
def test_last_labelled_answer(text, answer):
    assert arithmetic.last_labelled_answer(text) == answer
