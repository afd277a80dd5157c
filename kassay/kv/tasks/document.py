"""Text whose next character depends on the whole context: documents about a cast of persons.

Each person has a place, a trade, an animal and a number. A sentence introduces them once; every later sentence refers
back to them, so that predicting it needs attention to the introduction, up to a thousand characters away. A document
measures prediction loss: context, then `targets` characters that are scored. What it does not do: it is no natural
language, and its loss says nothing about one.
"""

from dataclasses import dataclass

import numpy as np

from kassay.kv.tasks.splits import Fact, digest_of, generator, owns, pick, pick_distinct

NAMES = (
    "ada ben cleo dan edith finn gwen hugo ines jonas kira leo mira nils olga piet quinn rosa sven tara "
    "ulf vera walt xenia yves zoe alma boris carla dirk elsa frida greta hans iris jakob karl lena max nora"
).split()
PLACES = (
    "oslo rome kiel bern lyon graz ulm bonn riga turku malmo gent porto siena delft split varna tartu lodz brno "
    "cork bath york leeds hull genoa parma nice metz tours lille arles basel chur zug bergen moss visby lund ystad"
).split()
TRADES = (
    "baker smith tailor weaver miller cooper potter mason tanner glazier joiner sailor farmer hunter fisher painter "
    "singer piper drummer actor doctor nurse teacher clerk judge baron monk pilot porter butler cook brewer"
).split()
ANIMALS = (
    "goat horse mule sheep goose duck swan hen cat dog fox hare otter badger mole weasel raven crow owl falcon "
    "turtle frog newt toad pony donkey ox ram lamb calf pig rabbit"
).split()
CAST_SIZES = (3, 4, 5)
INTRODUCTION_RATE = 0.5


@dataclass(frozen=True, kw_only=True)
class Person:
    """One member of a cast; all five fields together are a fact."""

    name: str  # from NAMES
    place: str  # from PLACES
    trade: str  # from TRADES
    animal: str  # from ANIMALS
    number: int  # coins, 10..99

    def fact(self) -> Fact:
        """The fact that decides which split may write of this person."""
        return ("person", self.name, self.place, self.trade, self.animal, self.number)


@dataclass(frozen=True, kw_only=True)
class Document:
    """A context and the characters that follow it."""

    item_id: str  # unique among the documents of one split and seed
    split: str  # owner of the persons: train, calibration, development or confirmation
    context: str  # text without begin-of-text: context_tokens - 1 characters
    continuation: str  # the characters that are scored, `targets` of them
    digest: str  # SHA-256 of the other fields' canonical JSON

    @property
    def content_digest(self) -> str:
        """SHA-256 of what it says, whatever it is called."""
        return digest_of({"text": self.context + self.continuation})


def cast(rng: np.random.Generator, split: str) -> list[Person]:
    """Three to five persons who share no attribute, each a fact that `split` owns."""
    size = pick(rng, CAST_SIZES)
    columns = [pick_distinct(rng, words, size) for words in (NAMES, PLACES, TRADES, ANIMALS)]
    persons = []
    for name, place, trade, animal in zip(*columns, strict=True):
        while True:
            number = 10 + int(rng.random() * 90)
            person = Person(name=name, place=place, trade=trade, animal=animal, number=number)
            if owns(split, person.fact()):
                break
        persons.append(person)
    return persons


def introduction(person: Person) -> str:
    """The one sentence that says everything about a person."""
    return f"{person.name} the {person.trade} of {person.place} has {person.number} coins and a {person.animal}."


def reference(rng: np.random.Generator, persons: list[Person]) -> str:
    """A sentence that can be predicted from the introductions of `persons`, but for the choice of whom and how."""
    one = pick(rng, persons)
    two = pick(rng, persons)
    forms = (
        f"{one.name} fed the {one.animal} in {one.place}.",
        f"the {one.trade} counted {one.number} coins.",
        f"{one.name} is a {one.trade} and {two.name} is a {two.trade}.",
        f"the {one.animal} ran home to {one.place}.",
        f"in {one.place} the {one.trade} called {one.name} for the {one.animal}.",
        f"{one.name} hid the {one.number} coins from {two.name} of {two.place}.",
        f"the {one.animal} of the {one.trade} saw the {two.animal} of the {two.trade}.",
        f"who owns the {one.animal}? {one.name} of {one.place}.",
    )
    return pick(rng, forms)


def sentences(rng: np.random.Generator, split: str, characters: int) -> list[str]:
    """Sentences about one cast, at least `characters` long when each is followed by a space."""
    waiting = cast(rng, split)
    known: list[Person] = []
    written: list[str] = []
    length = 0
    while length < characters:
        if waiting and (not known or rng.random() < INTRODUCTION_RATE):
            known.append(waiting.pop())
            sentence = introduction(known[-1])
        else:
            sentence = reference(rng, known)
        written.append(sentence)
        length += len(sentence) + 1
    return written


def passage(rng: np.random.Generator, split: str, characters: int) -> str:
    """Text about one cast, cut to exactly `characters`."""
    return " ".join(sentences(rng, split, characters + 1))[:characters]


def documents(*, split: str, seed: int, count: int, context_tokens: int, targets: int) -> list[Document]:
    """`count` documents of `split`: context_tokens tokens (begin-of-text included), then `targets` characters."""
    rng = generator(task="document", split=split, seed=seed)
    made = []
    for index in range(count):
        text = passage(rng, split, context_tokens - 1 + targets)
        fields = {
            "item_id": f"document-{split}-{seed}-{index:05d}",
            "split": split,
            "context": text[: context_tokens - 1],
            "continuation": text[context_tokens - 1 :],
        }
        made.append(Document(**fields, digest=digest_of(dict(fields))))
    return made
