"""Documents: exact lengths, determinism, and a text that really refers back."""

import pytest

from kassay.kv.tasks import document
from kassay.kv.tasks.splits import generator


def made(**changes):
    return document.documents(
        **{"split": "development", "seed": 3, "count": 20, "context_tokens": 700, "targets": 64, **changes}
    )


@pytest.mark.parametrize(("context_tokens", "targets"), [(64, 1), (700, 64), (1150, 200)])
def test_lengths_are_exact(context_tokens, targets):
    for one in made(context_tokens=context_tokens, targets=targets):
        assert len(one.context) == context_tokens - 1
        assert len(one.continuation) == targets


def test_same_seed_same_documents():
    assert made() == made()


def test_another_seed_or_split_makes_other_documents():
    contexts = {one.context for one in made()}
    assert not contexts & {one.context for one in made(seed=4)}
    assert not contexts & {one.context for one in made(split="confirmation")}


def test_fewer_documents_are_a_prefix_of_more():
    assert made(count=5) == made(count=20)[:5]


def test_members_of_a_cast_share_no_attribute():
    rng = generator(task="test", split="train", seed=1)
    for _ in range(50):
        persons = document.cast(rng, "train")
        for field in ("name", "place", "trade", "animal"):
            assert len({getattr(person, field) for person in persons}) == len(persons)


def test_the_end_of_a_document_refers_to_its_beginning():
    names_seen = 0
    for one in made(context_tokens=1000, targets=150):
        early = {name for name in document.NAMES if f"{name} the " in one.context}
        late = {name for name in document.NAMES if f"{name} is a " in one.continuation}
        names_seen += len(late)
        assert late <= early
    assert names_seen > 5


def test_word_lists_have_no_duplicates_and_no_overlap():
    words = [*document.NAMES, *document.PLACES, *document.TRADES, *document.ANIMALS]
    assert len(set(words)) == len(words)
