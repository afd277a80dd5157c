"""Training sequences: shape, weights on answers only, determinism."""

import numpy as np
import pytest

from kassay.kv.tasks import arithmetic, training, vocabulary
from kassay.kv.tasks.splits import generator


def made(tokens, seed=3):
    return training.sequences(generator(task="test", split="train", seed=seed), 60, tokens)


@pytest.mark.parametrize("tokens", [128, 256, 1152])
def test_sequences_fill_their_length(tokens):
    ids_ST, weights_ST = made(tokens)
    assert ids_ST.shape == weights_ST.shape == (60, tokens)
    assert ids_ST.dtype == weights_ST.dtype == np.uint8
    assert (ids_ST[:, 0] == vocabulary.BEGIN).all()
    assert (ids_ST[:, 1:] != vocabulary.PAD).all()
    assert ids_ST.max() < vocabulary.SIZE


def test_answers_weigh_more_and_fill_weighs_nothing():
    ids_ST, weights_ST = made(1152)
    assert (weights_ST[ids_ST == ord(arithmetic.FILL)] == 0).all()
    assert (weights_ST[:, 0] == 0).all()
    assert (weights_ST[ids_ST == vocabulary.NEWLINE] == training.ANSWER_WEIGHT).all()
    assert set(np.unique(weights_ST)) == {0, training.TEXT_WEIGHT, training.ANSWER_WEIGHT}


def test_weighted_text_of_a_retrieval_sequence_is_its_answers():
    ids_ST, weights_ST = made(512)
    checked = 0
    for ids, weights in zip(ids_ST, weights_ST, strict=True):
        text = vocabulary.decode(ids.tolist())
        if "what is the code of" not in text:
            continue
        heavy = vocabulary.decode(ids[weights == training.ANSWER_WEIGHT].tolist())
        asked = [part.split("? ")[1] for part in text.split("what is the code of ")[1:]]
        assert heavy == "".join(asked)
        checked += 1
    assert checked > 15


def test_all_three_tasks_are_mixed():
    texts = [vocabulary.decode(row.tolist()) for row in made(512)[0]]
    retrieval_count = sum("what is the code of" in text for text in texts)
    arithmetic_count = sum(arithmetic.QUESTION in text for text in texts)
    assert min(retrieval_count, arithmetic_count, 60 - retrieval_count - arithmetic_count) >= 8


def test_same_seed_same_sequences():
    for one, two in zip(made(256), made(256), strict=True):
        assert np.array_equal(one, two)
    assert not np.array_equal(made(256)[0], made(256, seed=4)[0])
