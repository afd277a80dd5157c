"""Several needles at once: all stand in the context, all are asked for, and one key is retrieval as it was."""

import numpy as np
import pytest

from kassay.backend import text
from kassay.backend.text import Characters
from kassay.kv.tasks import needles, retrieval
from kassay.kv.tasks.item import Item

ASKED = {"split": "development", "seed": 3, "count": 30, "context_tokens": 1000}


def made(**changes: object) -> list[Item]:
    return needles.items(**{**ASKED, "keys": 3, **changes})


def keys_of(question: str) -> list[str]:
    named = question.removeprefix("what are the codes of ").rstrip().removesuffix("?")
    return named.replace(" and ", ", ").split(", ")


def test_one_key_is_retrieval_bit_for_bit() -> None:
    assert made(keys=1) == retrieval.items(**ASKED)
    plain = Characters().questions("retrieval", **ASKED)
    assert plain == Characters().questions("retrieval", **ASKED, keys=1)
    assert [one.item for one in plain] == retrieval.items(**ASKED)


@pytest.mark.parametrize("keys", [2, 3, 5])
def test_every_record_that_is_asked_for_stands_once_and_the_answer_has_all_in_order(keys: int) -> None:
    for item in made(keys=keys):
        asked, values = keys_of(item.question), item.expected.split(" ")
        assert len(item.context) == 999 and len(set(asked)) == len(set(values)) == len(asked) == keys
        for key, value in zip(asked, values, strict=True):
            assert item.context.count(f"the code of {key} is {value}. ") == item.context.count(f"of {key} is ") == 1
        assert item.context.index(f"the code of {asked[0]} is ") + 1 == round(item.depth * 1000)
        assert item.context.count("the code of ") == max(8, 4 * keys), "there are distractors"
    assert len({len(item.question) for item in made(keys=keys)}) == 1


def test_depths_are_drawn_one_by_one_and_cover_the_context() -> None:
    items = made(count=100)
    places = np.array([[item.context.index(f"of {key} is ") for key in keys_of(item.question)] for item in items])
    assert all(np.histogram(places[:, at], bins=4, range=(0, 1000))[0].min() > 8 for at in range(3))
    assert abs(np.corrcoef(places[:, 0], places[:, 1])[0, 1]) < 0.3
    assert any(list(row) != sorted(row) for row in places)


def test_same_seed_same_items_fewer_are_a_prefix_and_no_record_is_asked_twice() -> None:
    assert made() == made() and made(count=7) == made()[:7] and made(seed=4) != made()
    pairs = [pair for item in made() for pair in zip(keys_of(item.question), item.expected.split(), strict=True)]
    assert len(set(pairs)) == len(pairs)
    assert not {item.item_id for item in made()} & {item.item_id for item in made(keys=2)}


def test_what_is_shown_has_the_form_and_never_the_answer() -> None:
    for item in needles.made(**{**ASKED, "context_tokens": 2000}, keys=3, solved=2):
        body, *lines = item.context.split("\n")
        assert len(lines) == 3 and lines[-1] == "" and len(item.context) <= 2000
        for line in lines[:2]:
            question, _, answer = line.partition("? ")
            for key, value in zip(keys_of(question + "?"), answer.split(" "), strict=True):
                assert f"the code of {key} is {value}." in body
            assert not set(item.expected.split()) & set(answer.split())
            assert not set(keys_of(item.question)) & set(keys_of(question + "?"))
        assert not item.question.endswith(" ")


def test_what_cannot_be_asked_is_an_error() -> None:
    with pytest.raises(ValueError, match="leave no room"):
        made(context_tokens=250)
    with pytest.raises(ValueError, match="2 keys and 4 solved questions"):
        needles.made(**ASKED, keys=2, solved=4)
    with pytest.raises(ValueError, match="`arithmetic` asks for one fact, not for 2"):
        text.maker(text.ITEMS, "arithmetic", 2, 0)
