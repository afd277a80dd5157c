"""What a generated row says and how it ended, by the measure of its endpoint.

Retrieval and arithmetic are answered on one line. A problem of GSM8K is answered at length: its row ends with the text
or where the model goes on with a problem of its own, and what follows is not read. A right labelled answer at the cap
counts as correct; whatever else the cap cut is truncated where no labelled number can be read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from kassay.backend.files import NEXT
from kassay.backend.text import Text, Tokens
from kassay.kinds.quality import Answer
from kassay.kv.tasks import arithmetic, gsm8k
from kassay.kv.tasks.item import Item

GSM8K = "gsm8k"
READERS: dict[str, Callable[[str], str | None]] = {
    "retrieval": lambda said: said or None,
    "arithmetic": arithmetic.last_labelled_answer,
}


@dataclass(frozen=True, kw_only=True)
class Said:
    """One answer, read."""

    text: str  # without what ended it
    parsed: str | None  # the answer in it, None if there is none
    outcome: str  # correct, wrong, unreadable or truncated
    marked: bool  # whether it was read by its label, where the measure has one


def stops(measure: str, text: Text) -> frozenset[int]:
    """The tokens that end an answer."""
    return text.ends if measure == GSM8K and isinstance(text, Tokens) else text.stops


def read(measure: str, text: Text, row: Sequence[int], expected: str) -> Said:
    """One generated row, held against the right answer."""
    ended = bool(row) and row[-1] in stops(measure, text)
    if measure == GSM8K and isinstance(text, Tokens):
        return problem(text.whole(row), ended, expected)
    said = text.answer(row)
    parsed = READERS[measure](said)
    if parsed == expected:
        outcome = "correct"
    elif not ended:
        outcome = "truncated"
    else:
        outcome = "unreadable" if parsed is None else "wrong"
    return Said(text=said, parsed=parsed, outcome=outcome, marked=True)


def record(model: str, arm: str, task: str, item: Item, said: Said, tokens: int) -> Answer:
    """One answer as a record; `arm` is the recipe, or what a probe calls it."""
    return Answer(
        model=model,
        recipe=arm,
        task=task,
        split=item.split,
        item_id=item.item_id,
        item_digest=item.digest,
        expected=item.expected,
        text=said.text,
        parsed=said.parsed,
        outcome=said.outcome,
        tokens=tokens,
    )


def problem(whole: str, ended: bool, expected: str) -> Said:
    """An answer to a problem of GSM8K."""
    said, goes_on, _ = whole.partition(NEXT)
    reading = gsm8k.read(said, "stop" if ended or goes_on else "length")
    return Said(
        text=said.strip(),
        parsed=None if reading.value is None else gsm8k.shown(reading.value),
        outcome=gsm8k.outcome(reading, Decimal(expected)),
        marked=reading.how != "no marker",
    )
