"""How the tasks' texts become a model's tokens: characters for the shipped models, a checkpoint's own tokenizer else.

A context is prefilled, what follows (continuation, question) is fed behind it; each is a row of token ids of its own,
and rows of a batch are equally long, for a token's index in the cache is its position: nothing is padded.

With a tokenizer a document is exactly `context_tokens` + `targets` tokens of the tasks' text. A context of questions
is made as long as its characters allow to come near `context_tokens`; how long it is, is recorded. Such a model was not
trained on the tasks: a context ends with solved questions about other facts of the same split, which show the form of
an answer, and where the shipped models read fill, it reads solved problems. Chat templates are not used: a context
is text, and the model goes on with it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kassay.kv.tasks import arithmetic, document, needles, retrieval, vocabulary
from kassay.kv.tasks.document import Document
from kassay.kv.tasks.item import Item, make_item
from kassay.kv.tasks.splits import digest_of, generator
from kassay.stage import Unmet

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
FITTING_ROUNDS = 6  # of making a context of another number of characters; the length is near after two or three
SAMPLE = 4  # items whose mean length is fitted
CHARACTERS_A_TOKEN = 4  # where a search for enough text begins
SHOWN_QUESTIONS = 2  # solved ones at the end of a context of records

NUMBERS = re.compile(r"[0-9]+")

Ids = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A document as tokens."""

    document: Document
    context: Ids
    continuation: Ids


@dataclass(frozen=True, kw_only=True)
class Question:
    """An item as tokens."""

    item: Item
    context: Ids
    question: Ids


Row = TypeVar("Row", Passage, Question)


class Text(Protocol):
    """What turns the tasks into tokens and answers into text."""

    name: str  # for records
    stops: frozenset[int]  # tokens that end an answer
    exact: bool  # whether contexts of questions are exactly as long as was asked for

    def passages(self, *, split: str, seed: int, count: int, context_tokens: int, targets: int) -> list[Passage]:
        """Documents of exactly these lengths."""

    def questions(
        self, measure: str, *, split: str, seed: int, count: int, context_tokens: int, keys: int = 1
    ) -> list[Question]:
        """Items of `retrieval`, each asking for `keys` records, or of `arithmetic`."""

    def answer(self, row: Sequence[int]) -> str:
        """The text of a generated row, without what ended it."""


class Characters:
    """The shipped models' vocabulary: a token a character."""

    name = "characters"
    stops = frozenset({vocabulary.NEWLINE})
    exact = True

    def passages(self, *, split: str, seed: int, count: int, context_tokens: int, targets: int) -> list[Passage]:
        """Documents of exactly these lengths."""
        made = document.documents(split=split, seed=seed, count=count, context_tokens=context_tokens, targets=targets)
        return [
            Passage(
                document=found,
                context=tuple(vocabulary.encode_context(found.context)),
                continuation=tuple(vocabulary.encode(found.continuation)),
            )
            for found in made
        ]

    def questions(
        self, measure: str, *, split: str, seed: int, count: int, context_tokens: int, keys: int = 1
    ) -> list[Question]:
        """Items whose contexts have exactly `context_tokens` tokens."""
        return [
            Question(
                item=item,
                context=tuple(vocabulary.encode_context(item.context)),
                question=tuple(vocabulary.encode(item.question)),
            )
            for item in maker(ITEMS, measure, keys, 0)(
                split=split, seed=seed, count=count, context_tokens=context_tokens
            )
        ]

    def answer(self, row: Sequence[int]) -> str:
        """The characters, without the newline that ended them."""
        return vocabulary.decode([token for token in row if token != vocabulary.NEWLINE])


class Tokens:
    """A checkpoint's own tokenizer, begin-of-text included where it puts one."""

    exact = False

    def __init__(self, tokenizer: Any, ends: Iterable[int]) -> None:
        self.tokenizer = tokenizer
        self.name = type(tokenizer).__name__
        alone = tokenizer("")["input_ids"]
        self.begin: Ids = tuple(alone[:1]) if alone and alone[0] == tokenizer.bos_token_id else ()
        self.ends = frozenset(set(ends) | ({tokenizer.eos_token_id} - {None}))  # of a text, not of a line
        self.stops = ends_of_line(tokenizer) | self.ends

    def ids(self, text: str) -> Ids:
        """Tokens of a text, nothing put around them."""
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def passages(self, *, split: str, seed: int, count: int, context_tokens: int, targets: int) -> list[Passage]:
        """Documents of exactly these lengths; what they say is the text of their tokens."""
        wanted = context_tokens + targets
        characters = CHARACTERS_A_TOKEN * wanted
        while True:
            texts = document.documents(split=split, seed=seed, count=count, context_tokens=characters, targets=0)
            rows = [self.begin + self.ids(found.context) for found in texts]
            if min(map(len, rows), default=wanted) >= wanted:
                break
            characters *= 2
        cut = [(row[:context_tokens], row[context_tokens:wanted]) for row in rows]
        return [self.passage(found.item_id, split, *parts) for found, parts in zip(texts, cut, strict=True)]

    def passage(self, item_id: str, split: str, context: Ids, continuation: Ids) -> Passage:
        """A document of these tokens."""
        fields = {
            "item_id": item_id,
            "split": split,
            "context": self.tokenizer.decode(context[len(self.begin) :]),
            "continuation": self.tokenizer.decode(continuation),
        }
        made = Document(**fields, digest=digest_of(dict(fields)))
        return Passage(document=made, context=context, continuation=continuation)

    def questions(
        self, measure: str, *, split: str, seed: int, count: int, context_tokens: int, keys: int = 1
    ) -> list[Question]:
        """Items whose contexts have about `context_tokens` tokens."""

        def made(number: int, characters: int) -> list[Item]:
            return maker(SHOWN, measure, keys, SHOWN_QUESTIONS)(
                split=split, seed=seed, count=number, context_tokens=characters
            )

        characters = self.fitted(lambda size: made(min(SAMPLE, count), size), context_tokens)
        return [
            Question(item=item, context=self.begin + self.ids(item.context), question=self.ids(item.question))
            for item in made(count, characters)
        ]

    def fitted(self, made: Callable[[int], list[Item]], context_tokens: int) -> int:
        """Characters at which the items' contexts have about so many tokens in the mean."""
        characters = CHARACTERS_A_TOKEN * context_tokens
        for _ in range(FITTING_ROUNDS):
            lengths = [len(self.begin) + len(self.ids(item.context)) for item in made(characters)]
            characters = round(characters * context_tokens * len(lengths) / sum(lengths))
        return characters

    def answer(self, row: Sequence[int]) -> str:
        """The first line of the row's text, white space around it left out."""
        return self.whole(row).partition("\n")[0].strip()

    def whole(self, row: Sequence[int]) -> str:
        """All of the row's text, without special tokens."""
        text: str = self.tokenizer.decode(list(row), skip_special_tokens=True)
        return text


def ends_of_line(tokenizer: Any) -> frozenset[int]:
    """The tokens after which an answer is over: those with a line feed in them, and the tokenizer's end-of-text."""
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    found = {token for token, text in enumerate(texts) if "\n" in text}
    return frozenset(found | ({tokenizer.eos_token_id} - {None}))


def of_folder(directory: Path, ends: Iterable[int]) -> Tokens:
    """The tokenizer of a checkpoint's folder, from its own files only; `ends`: what the model ends a text with.

    Raises Unmet by name if there is none that can be read.
    """
    if not any((directory / name).is_file() for name in TOKENIZER_FILES):
        raise Unmet(f"{directory.name}: no tokenizer lies beside the weights, allowed are {', '.join(TOKENIZER_FILES)}")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise Unmet(f"{directory.name}: its tokenizer cannot be read: {type(error).__name__}: {error}") from error
    return Tokens(tokenizer, ends)


def shown_records(*, split: str, seed: int, count: int, context_tokens: int) -> list[Item]:
    """Retrieval items whose context ends with solved questions about other records of it, each on a line."""
    rng = generator(task="retrieval", split=split, seed=seed)
    exchange = SHOWN_QUESTIONS * (retrieval.QUESTION_CHARACTERS + retrieval.ANSWER_CHARACTERS)
    asked: set[object] = set()
    made: list[Item] = []
    while len(made) < count:
        filled = retrieval.haystack(
            rng,
            split=split,
            context_tokens=context_tokens - exchange,
            records=retrieval.EVALUATION_RECORDS,
            depth=rng.random(),
        )
        target, *others = filled.records
        if target.fact() in asked:
            continue
        asked.add(target.fact())
        solved = "".join(f"{other.question()}{other.value}\n" for other in others[:SHOWN_QUESTIONS])
        made.append(
            make_item(
                item_id=f"retrieval-{split}-{seed}-{len(made):05d}",
                task="retrieval",
                split=split,
                context=f"{filled.context.rstrip()}\n{solved}",
                question=target.question().rstrip(),
                expected=str(target.value),
                depth=round(filled.starts[0] / context_tokens, 6),
            )
        )
    return made


def solved_problems(*, split: str, seed: int, count: int, context_tokens: int) -> list[Item]:
    """Arithmetic items behind solved problems of the split, each on a line; at least one is shown."""
    rng = generator(task="solved arithmetic", split=split, seed=seed)
    least = arithmetic.STORY_CHARACTERS + 1
    items = arithmetic.items(split=split, seed=seed, count=count, context_tokens=least)
    made = []
    for item in items:
        story = item.context.lstrip(arithmetic.FILL)
        shown: list[str] = []
        while not shown or sum(map(len, shown)) + len(story) < context_tokens:
            problem = arithmetic.draw_problem(rng, split)
            if NUMBERS.findall(problem.story) != NUMBERS.findall(story):
                shown.append(f"{problem.story}{arithmetic.QUESTION}{problem.solution()}\n")
        context = "".join(shown) + story.rstrip()
        bare = {name: value for name, value in vars(item).items() if name != "digest"}
        changed = {"context": context, "question": f" {arithmetic.QUESTION.rstrip()}"}
        depth = round(1 - len(story) / len(context), 6)
        made.append(make_item(**{**bare, **changed, "depth": depth}))
    return made


ITEMS: dict[str, Callable[..., list[Item]]] = {"retrieval": retrieval.items, "arithmetic": arithmetic.items}
SHOWN: dict[str, Callable[..., list[Item]]] = {"retrieval": shown_records, "arithmetic": solved_problems}


def maker(one: dict[str, Callable[..., list[Item]]], measure: str, keys: int, solved: int) -> Callable[..., list[Item]]:
    """What makes items that ask for `keys` facts; for several of them behind so many solved questions."""
    if keys == 1:
        return one[measure]
    if measure != "retrieval":
        raise ValueError(f"`{measure}` asks for one fact, not for {keys}")
    return partial(needles.made, keys=keys, solved=solved)


def batches(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    """Batches of at most `size` rows of equal lengths, in the order of the first row of each length."""
    alike: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        follows = row.continuation if isinstance(row, Passage) else row.question
        alike.setdefault((len(row.context), len(follows)), []).append(row)
    for same in alike.values():
        for at in range(0, len(same), size):
            yield same[at : at + size]
