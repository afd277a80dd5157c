"""Retrieval items: exact lengths, the record stands where the item says, and once only."""

import numpy as np
import pytest

from kassay.kv.tasks import retrieval
from kassay.kv.tasks.splits import generator


def made(**changes):
    return retrieval.items(**{"split": "development", "seed": 3, "count": 40, "context_tokens": 1000, **changes})


@pytest.mark.parametrize("context_tokens", [256, 999, 1000, 1150])
def test_lengths_are_exact(context_tokens):
    for item in made(context_tokens=context_tokens):
        assert len(item.context) == context_tokens - 1
        assert len(item.question) == retrieval.QUESTION_CHARACTERS
        assert len(item.expected) + 1 == retrieval.ANSWER_CHARACTERS


def test_the_record_stands_once_at_its_depth():
    for item in made():
        key = item.question.removeprefix("what is the code of ").removesuffix("? ")
        record = f"the code of {key} is {item.expected}. "
        assert item.context.count(f"the code of {key} is ") == 1
        assert item.context.index(record) + 1 == round(item.depth * 1000)


def test_there_are_distractors_with_other_keys_and_values():
    for item in made():
        records = [part[:10] for part in item.context.split("the code of ")[1:]]
        assert len(set(records)) == retrieval.EVALUATION_RECORDS
        assert sum(f" is {item.expected}" in record for record in records) == 1


def test_depths_cover_the_context():
    depths = np.array([item.depth for item in made(count=200)])
    assert np.histogram(depths, bins=4, range=(0, 1))[0].min() > 25


def test_a_context_ends_with_a_whole_sentence():
    assert all(item.context.endswith((". ", "? ")) for item in made())


def test_same_seed_same_items_and_fewer_are_a_prefix():
    assert made() == made()
    assert made(count=7) == made()[:7]


def test_facts_of_one_call_differ():
    items = made(count=300)
    assert len({(item.question, item.expected) for item in items}) == 300


def test_records_that_leave_no_room_are_an_error():
    with pytest.raises(ValueError, match="8 records leave no room for filler in 150 tokens"):
        made(context_tokens=150)


def test_starts_are_token_positions():
    rng = generator(task="test", split="train", seed=1)
    filled = retrieval.haystack(rng, split="train", context_tokens=600, records=5, depth=0.5)
    for record, start in zip(filled.records, filled.starts, strict=True):
        assert filled.context[start - 1 :].startswith(record.sentence())
