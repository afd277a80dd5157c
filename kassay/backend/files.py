"""Entries of files of tasks as a checkpoint's tokens: windows of documents, problems behind two solved ones.

A window is the first `context_tokens` + `targets` tokens of a document, begin-of-text included; a document that has
fewer is passed over, and there is one window a document, for documents are what is resampled. A problem stands behind
two solved ones of our own, which show what a worked answer with its label looks like; its context is as long as it is.
The same entries are drawn for every recipe. The shipped models read characters of ASCII and take no files.
"""

from pathlib import Path

from kassay.backend.text import Passage, Question, Text, Tokens
from kassay.errors import KassayError
from kassay.kv.tasks import external, gsm8k
from kassay.kv.tasks.item import make_item
from kassay.stage import Unmet

ASKS, ANSWERS = "Question: ", "\nAnswer:"
NEXT = f"\n{ASKS.strip()}"  # what a model writes that has answered and goes on with a problem of its own
SHOWN = (
    (
        "A shelf holds 4 boxes with 6 cups each. 5 cups break. How many cups are whole?",
        "The boxes hold 4 * 6 = 24 cups. After 5 break, 24 - 5 = 19 cups are whole.\n#### 19",
    ),
    (
        "A ticket costs $3 and a programme half as much. What do 2 tickets and 2 programmes cost in dollars?",
        "A programme costs 3 / 2 = 1.50 dollars. Together 2 * 3 + 2 * 1.50 = 9 dollars.\n#### 9",
    ),
)
PREAMBLE = "".join(f"{ASKS}{question}{ANSWERS} {solution}\n\n" for question, solution in SHOWN)


def of_tokenizer(text: Text, path: Path) -> Tokens:
    """The text as a tokenizer's. Raises KassayError for characters."""
    if not isinstance(text, Tokens):
        raise KassayError(f"{path.name}: files of tasks need a checkpoint with a tokenizer, not `{text.name}`")
    return text


def problems(text: Text, path: Path, *, split: str, seed: int, count: int) -> list[Question]:
    """`count` problems of a file. Raises Unmet if it is not there or has fewer."""
    tokens, found = of_tokenizer(text, path), external.problems(path)
    made = []
    for entry in external.selected(found.name, found.entries, seed=seed, count=count):
        item = make_item(
            item_id=f"{path.stem}-{entry.line:05d}",
            task="gsm8k",
            split=split,
            context=f"{PREAMBLE}{ASKS}{entry.question.strip()}",
            question=ANSWERS,
            expected=gsm8k.shown(entry.answer),
            depth=1.0,
        )
        made.append(Question(item=item, context=tokens.begin + tokens.ids(item.context), question=tokens.ids(ANSWERS)))
    return made


def windows(
    text: Text, path: Path, *, split: str, seed: int, count: int, context_tokens: int, targets: int
) -> list[Passage]:
    """Windows of `count` documents of a file. Raises Unmet if it is not there or has fewer that are long enough."""
    tokens, found = of_tokenizer(text, path), external.texts(path)
    wanted = context_tokens + targets
    rows = {}
    for entry in external.drawn(found.entries, seed):
        row = tokens.begin + tokens.ids(entry.text)
        if len(row) >= wanted:
            rows[entry.line] = row
        if len(rows) == count:
            break
    else:
        have = f"{len(rows)} of {len(found.entries)} are that long"
        raise Unmet(f"{found.name}: {count} documents of {wanted} tokens are asked for, and {have}")
    return [
        tokens.passage(f"{path.stem}-{line:05d}", split, row[:context_tokens], row[context_tokens:wanted])
        for line, row in sorted(rows.items())
    ]
