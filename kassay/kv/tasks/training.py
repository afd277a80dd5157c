"""What the small models are trained on: seeded sequences of the three tasks, with a weight a target.

A sequence is one document, one haystack with several questions at its end, or arithmetic problems one after another,
cut to exactly the asked length. Every fact in it belongs to the split `train`. Targets that answer a question weigh
ANSWER_WEIGHT times a target of running text, because they are few and they are what the studies judge.
"""

import numpy as np

from kassay.kv.tasks import arithmetic, document, retrieval, vocabulary
from kassay.kv.tasks.splits import pick

SPLIT = "train"
TEXT_WEIGHT = 1
ANSWER_WEIGHT = 10
DOCUMENT_SHARE = 0.25
RETRIEVAL_SHARE = 0.45
LARGEST_RECORDS = 14
LARGEST_QUESTIONS = 6
LONG_FILL_RATE = 0.15

Part = tuple[str, int]  # text and the weight of its characters as targets


def document_parts(rng: np.random.Generator, tokens: int) -> list[Part]:
    """One document that fills the sequence."""
    return [(document.passage(rng, SPLIT, tokens - 1), TEXT_WEIGHT)]


def retrieval_parts(rng: np.random.Generator, tokens: int) -> list[Part]:
    """A haystack and questions about different records of it, in the very form of an evaluation item."""
    exchange = retrieval.QUESTION_CHARACTERS + retrieval.ANSWER_CHARACTERS
    room = (tokens - 40) // (retrieval.RECORD_CHARACTERS + exchange)
    questions = 1 + int(rng.random() * min(LARGEST_QUESTIONS, room))
    most = min(LARGEST_RECORDS, (tokens - 40 - questions * exchange) // retrieval.RECORD_CHARACTERS)
    records = questions + int(rng.random() * (most - questions + 1))
    filled = retrieval.haystack(
        rng, split=SPLIT, context_tokens=tokens - questions * exchange, records=records, depth=rng.random()
    )
    parts = [(filled.context, TEXT_WEIGHT)]
    for record in filled.records[:questions]:
        parts += [(record.question(), TEXT_WEIGHT), (f"{record.value}\n", ANSWER_WEIGHT)]
    return parts


def arithmetic_parts(rng: np.random.Generator, tokens: int) -> list[Part]:
    """Problems one after another, each behind a fill of random length; sometimes the first fill is very long."""
    parts: list[Part] = []
    length = 0
    reach = tokens - 100 if rng.random() < LONG_FILL_RATE else 60
    while length < tokens:
        problem = arithmetic.draw_problem(rng, SPLIT)
        fill = arithmetic.FILL * int(rng.random() * reach)
        parts += [(fill + problem.story + arithmetic.QUESTION, TEXT_WEIGHT), (problem.solution() + "\n", ANSWER_WEIGHT)]
        length += sum(len(text) for text, _ in parts[-2:])
        reach = pick(rng, (1, 30, 60))
    return parts


def sequences(rng: np.random.Generator, count: int, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and target weights of `count` sequences, both uint8 of shape (count, tokens).

    `weights[s, t]` is the weight of predicting `ids[s, t]` from what stands before it; begin-of-text and the fill of
    arithmetic weigh 0. `tokens` is at least 128.
    """
    ids = np.full((count, tokens), vocabulary.PAD, dtype=np.uint8)
    weights = np.zeros((count, tokens), dtype=np.uint8)
    for row in range(count):
        draw = rng.random()
        if draw < DOCUMENT_SHARE:
            parts = document_parts(rng, tokens)
        elif draw < DOCUMENT_SHARE + RETRIEVAL_SHARE:
            parts = retrieval_parts(rng, tokens)
        else:
            parts = arithmetic_parts(rng, tokens)
        text = "".join(text for text, _ in parts)[: tokens - 1]
        ids[row] = np.array(vocabulary.encode_context(text), dtype=np.uint8)
        weight = np.concatenate([np.full(len(text), weight, dtype=np.uint8) for text, weight in parts])[: tokens - 1]
        weights[row, 1:] = weight
        weights[row][ids[row] == ord(arithmetic.FILL)] = 0
    return ids, weights
