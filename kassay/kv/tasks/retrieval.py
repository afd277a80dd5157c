"""Can a value be found again in a filled context? One record among several, at a seeded depth.

A record reads "the code of kef is 472."; the question "what is the code of kef? " has a constant length, and the
answer is the value. The rest of the context is filler: sentences of a document and records of other keys. Every record
of a context belongs to the context's split, the distractors too.
"""

from dataclasses import dataclass

import numpy as np

from kassay.kv.tasks.document import sentences
from kassay.kv.tasks.item import Item, make_item
from kassay.kv.tasks.splits import Fact, generator, owns, pick

CONSONANTS = "bcdfghjklmnpqrstvwxyz"
VOWELS = "aeiou"
EVALUATION_RECORDS = 8


@dataclass(frozen=True, kw_only=True)
class Record:
    """A key and its value; both together are a fact."""

    key: str  # consonant, vowel, consonant
    value: int  # 100..999

    def fact(self) -> Fact:
        """The fact that decides which split may use this record."""
        return ("record", self.key, self.value)

    def sentence(self) -> str:
        """The record as it stands in a context."""
        return f"the code of {self.key} is {self.value}."

    def question(self) -> str:
        """The question that asks for the value."""
        return f"what is the code of {self.key}? "


@dataclass(frozen=True, kw_only=True)
class Haystack:
    """A filled context and what can be asked about it."""

    context: str  # text without begin-of-text
    records: tuple[Record, ...]  # in the order drawn; the first is the one whose depth was asked for
    starts: tuple[int, ...]  # token position of each record, begin-of-text being 0


RECORD_CHARACTERS = len("the code of kef is 472. ")
QUESTION_CHARACTERS = len("what is the code of kef? ")
ANSWER_CHARACTERS = len("472\n")


def draw_records(rng: np.random.Generator, split: str, count: int) -> list[Record]:
    """`count` records that `split` owns, keys and values all different."""
    drawn: dict[str, Record] = {}
    values: set[int] = set()
    while len(drawn) < count:
        key = pick(rng, CONSONANTS) + pick(rng, VOWELS) + pick(rng, CONSONANTS)
        record = Record(key=key, value=100 + int(rng.random() * 900))
        if key not in drawn and record.value not in values and owns(split, record.fact()):
            drawn[key] = record
            values.add(record.value)
    return list(drawn.values())


def haystack(rng: np.random.Generator, *, split: str, context_tokens: int, records: int, depth: float) -> Haystack:
    """A context of exactly `context_tokens` tokens with `records` records, the first nearest to `depth` (0..1).

    The filler is cut at its front so that the length comes out; a record is never cut.
    """
    drawn = draw_records(rng, split, records)
    budget = context_tokens - 1 - records * RECORD_CHARACTERS
    if budget < 1:
        raise ValueError(f"{records} records leave no room for filler in {context_tokens} tokens")
    filler = [sentence + " " for sentence in sentences(rng, split, budget)]
    excess = sum(map(len, filler)) - budget
    while excess >= len(filler[0]):
        excess -= len(filler.pop(0))
    filler[0] = filler[0][excess:]
    ends = np.cumsum([len(sentence) for sentence in filler])
    slots = [int(np.argmin(np.abs(ends - depth * budget)))]
    slots += [int(rng.random() * len(filler)) for _ in drawn[1:]]
    order = sorted(range(records), key=lambda index: (slots[index], rng.random()))
    parts: list[str] = []
    starts = [0] * records
    position = 1
    for slot, sentence in enumerate(filler):
        parts.append(sentence)
        position += len(sentence)
        for index in (index for index in order if slots[index] == slot):
            starts[index] = position
            parts.append(drawn[index].sentence() + " ")
            position += RECORD_CHARACTERS
    return Haystack(context="".join(parts), records=tuple(drawn), starts=tuple(starts))


def items(*, split: str, seed: int, count: int, context_tokens: int) -> list[Item]:
    """`count` items of `split` with different facts, each at a depth drawn uniformly."""
    rng = generator(task="retrieval", split=split, seed=seed)
    asked: set[Fact] = set()
    made: list[Item] = []
    while len(made) < count:
        filled = haystack(
            rng, split=split, context_tokens=context_tokens, records=EVALUATION_RECORDS, depth=rng.random()
        )
        target = filled.records[0]
        if target.fact() in asked:
            continue
        asked.add(target.fact())
        made.append(
            make_item(
                item_id=f"retrieval-{split}-{seed}-{len(made):05d}",
                task="retrieval",
                split=split,
                context=filled.context,
                question=target.question(),
                expected=str(target.value),
                depth=round(filled.starts[0] / context_tokens, 6),
            )
        )
    return made
