"""No fact of one split ever appears in another: by the classes, and in what is really generated."""

import re

import numpy as np
import pytest

from kassay.kv.tasks import arithmetic, document, retrieval, training, vocabulary
from kassay.kv.tasks.splits import CLASSES, OWNED_CLASSES, digest_of, fact_class, generator, owns, pick_distinct

EVALUATION_SPLITS = ("calibration", "development", "confirmation")
RECORD = re.compile(r"the code of ([a-z]{3}) is ([0-9]{3})\.")
PERSON = re.compile(r"\b([a-z]+) the ([a-z]+) of ([a-z]+) has ([0-9]+) coins and a ([a-z]+)\.")
PROBLEM = re.compile(r"[a-z]+ has ([0-9]+) [a-z]+, ([a-z]+) ([0-9]+) and ([a-z]+) ([0-9]+)\. ")


def facts_in(text):
    """The facts that stand in a text, read back from its words and not from the generator."""
    facts = {("record", key, int(value)) for key, value in RECORD.findall(text)}
    for name, trade, place, number, animal in PERSON.findall(text):
        if name in document.NAMES:  # a context's front may cut a name
            facts.add(("person", name, place, trade, animal, int(number)))
    for start, first_verb, first, second_verb, second in PROBLEM.findall(text):
        signs = [1 if verb in arithmetic.GAINS else -1 for verb in (first_verb, second_verb)]
        facts.add(("problem", int(start), signs[0] * int(first), signs[1] * int(second)))
    return facts


def texts_of(split):
    """Every text that is generated for a split, a few hundred of each kind."""
    if split == "train":
        texts = []
        for tokens in (128, 512, 1152):
            ids_ST, _ = training.sequences(generator(task="test", split="train", seed=5), 300, tokens)
            texts += [vocabulary.decode(row.tolist()) for row in ids_ST]
        return texts
    asked = {"split": split, "seed": 5, "count": 100}
    texts = [i.context + i.question for i in retrieval.items(**asked, context_tokens=1000)]
    texts += [i.context + i.question for i in arithmetic.items(**asked, context_tokens=96)]
    documents = document.documents(**asked, context_tokens=1000, targets=128)
    return texts + [d.context + d.continuation for d in documents]


@pytest.fixture(scope="module")
def facts():
    """Facts by split, of all generated texts."""
    return {split: set().union(*map(facts_in, texts_of(split))) for split in OWNED_CLASSES}


def test_every_class_has_exactly_one_owner():
    owned = [number for classes in OWNED_CLASSES.values() for number in classes]
    assert sorted(owned) == list(range(CLASSES))


def test_classes_are_about_equally_large():
    counts = np.bincount([fact_class(("record", "kef", value)) for value in range(8000)], minlength=CLASSES)
    assert counts.sum() == 8000
    assert counts.min() > 850 and counts.max() < 1150


def test_class_of_a_known_fact_never_changes():
    assert [fact_class(("record", "kef", value)) for value in (472, 473, 474, 475)] == [2, 5, 6, 0]


def test_every_fact_belongs_to_the_split_that_uses_it(facts):
    for split, found in facts.items():
        assert len(found) > 300
        assert {fact[0] for fact in found} == {"record", "person", "problem"}
        assert all(owns(split, fact) for fact in found)


def test_no_two_splits_share_a_fact(facts):
    splits = list(facts)
    for at, one in enumerate(splits):
        for other in splits[at + 1 :]:
            assert not facts[one] & facts[other]


def test_reader_of_facts_sees_a_planted_leak():
    leak = next(v for v in range(100, 1000) if fact_class(("record", "kef", v)) in OWNED_CLASSES["confirmation"])
    found = facts_in(f"the code of kef is {leak}. ")
    assert found and not any(owns("train", fact) for fact in found)


def test_digests_and_contents_of_evaluation_splits_are_disjoint():
    digests, contents = [], []
    for split in EVALUATION_SPLITS:
        asked = {"split": split, "seed": 5, "count": 50}
        for made in (
            retrieval.items(**asked, context_tokens=300),
            arithmetic.items(**asked, context_tokens=96),
            document.documents(**asked, context_tokens=300, targets=32),
        ):
            digests += [one.digest for one in made]
            contents += [one.context for one in made]
    assert len(set(digests)) == len(digests) == 450
    assert len(set(contents)) == len(contents)


def test_an_unknown_split_is_an_error():
    with pytest.raises(KeyError):
        owns("test", ("record", "kef", 472))


def test_streams_differ_by_task_split_and_seed():
    asked = [("a", "train", 1), ("b", "train", 1), ("a", "development", 1), ("a", "train", 2)]
    draws = {generator(task=task, split=split, seed=seed).random() for task, split, seed in asked}
    assert len(draws) == 4


def test_distinct_draws_are_distinct():
    drawn = pick_distinct(np.random.default_rng(0), "abcdef", 6)
    assert sorted(drawn) == list("abcdef")


def test_digest_ignores_the_order_of_fields():
    assert digest_of({"a": 1, "b": "x"}) == digest_of({"b": "x", "a": 1})
