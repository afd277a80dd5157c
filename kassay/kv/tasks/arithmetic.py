"""Can the model still reckon through its cache? Word problems of two steps with a worked solution and a labelled end.

A story gives a number and two changes, the question is always the same, and the right answer is worked out and
labelled: "14+7=21 21-3=18 #18". Only the label counts. A context is filled on the left with FILL, which training uses
too, so that a batch of problems of different lengths needs no padding.
"""

import re
from dataclasses import dataclass

import numpy as np

from kassay.kv.tasks.document import NAMES
from kassay.kv.tasks.item import Item, make_item
from kassay.kv.tasks.splits import Fact, generator, owns, pick

FILL = "~"
QUESTION = "how many now? "
THINGS = ("apples", "shells", "coins", "books", "stones", "eggs", "nuts", "pens")
GAINS = ("gets", "finds", "buys", "wins")
LOSSES = ("loses", "sells", "drops", "eats")
LARGEST = 99
LABEL = re.compile(r"#(?:(0|-?[1-9][0-9]*)(?![^\s]))?")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A start and two signed changes; the three numbers are the fact."""

    start: int  # 10..89
    first: int  # -39..39, at least 2 in size
    second: int  # -39..39, at least 2 in size
    story: str  # the problem in words, ending in a space

    def fact(self) -> Fact:
        """The fact that decides which split may use this problem."""
        return ("problem", self.start, self.first, self.second)

    def answer(self) -> str:
        """The final number."""
        return str(self.start + self.first + self.second)

    def solution(self) -> str:
        """The worked solution that training teaches, without the newline that ends it."""
        middle = self.start + self.first
        return f"{self.start}{self.first:+d}={middle} {middle}{self.second:+d}={self.answer()} #{self.answer()}"


STORY_CHARACTERS = max(map(len, NAMES)) + len(" has 89 stones, finds 39 and finds 39. ")


def draw_problem(rng: np.random.Generator, split: str) -> Problem:
    """A problem that `split` owns; no step leaves 0..99."""
    while True:
        start = 10 + int(rng.random() * 80)
        first, second = ((2 + int(rng.random() * 38)) * (1 if rng.random() < 0.5 else -1) for _ in range(2))
        middle = start + first
        in_range = 0 <= middle <= LARGEST and 0 <= middle + second <= LARGEST
        if in_range and owns(split, ("problem", start, first, second)):
            break
    verbs = [pick(rng, GAINS if change > 0 else LOSSES) for change in (first, second)]
    story = (
        f"{pick(rng, NAMES)} has {start} {pick(rng, THINGS)}, {verbs[0]} {abs(first)} and {verbs[1]} {abs(second)}. "
    )
    return Problem(start=start, first=first, second=second, story=story)


def last_labelled_answer(text: str) -> str | None:
    """The number of the last label in `text`, None where that label is not an exact integer or there is none.

    A label is `#` directly followed by an integer in its shortest form and then by white space or the end. A number
    anywhere else does not count, and a bad last label is not excused by a good earlier one.
    """
    last = None
    for match in LABEL.finditer(text):
        last = match.group(1)
    return last


def items(*, split: str, seed: int, count: int, context_tokens: int) -> list[Item]:
    """`count` items of `split` with different facts, filled on the left to exactly `context_tokens` tokens."""
    if context_tokens < STORY_CHARACTERS + 1:
        raise ValueError(f"a story needs {STORY_CHARACTERS + 1} tokens, and {context_tokens} were given")
    rng = generator(task="arithmetic", split=split, seed=seed)
    asked: set[Fact] = set()
    made: list[Item] = []
    while len(made) < count:
        problem = draw_problem(rng, split)
        if problem.fact() in asked:
            continue
        asked.add(problem.fact())
        context = problem.story.rjust(context_tokens - 1, FILL)
        made.append(
            make_item(
                item_id=f"arithmetic-{split}-{seed}-{len(made):05d}",
                task="arithmetic",
                split=split,
                context=context,
                question=QUESTION,
                expected=problem.answer(),
                depth=round((context_tokens - len(problem.story)) / context_tokens, 6),
            )
        )
    return made
