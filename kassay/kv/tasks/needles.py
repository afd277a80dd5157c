"""Can several values be found again in one filled context? Retrieval that asks for `keys` records at once.

The question "what are the codes of kef, bav and dol? " has a constant length for a number of keys; the answer is the
values in the order of the question, "472 118 930", and counts only if all of them are right. The asked records stand at
depths drawn one by one, in any order, among RECORDS_A_KEY times as many and never fewer than retrieval's. An item's
depth is that of the record that is asked for first. With one key the items are those of kassay.kv.tasks.retrieval.
"""

from collections.abc import Sequence

from kassay.kv.tasks import retrieval
from kassay.kv.tasks.item import Item, make_item
from kassay.kv.tasks.retrieval import Haystack, Record
from kassay.kv.tasks.splits import Fact, generator

RECORDS_A_KEY = 4  # records of a context for each one that is asked for


def question(asked: Sequence[Record]) -> str:
    """The question that asks for the values of two records or more."""
    *first, last = (record.key for record in asked)
    return f"what are the codes of {', '.join(first)} and {last}? "


def answer(asked: Sequence[Record]) -> str:
    """The values in the order of the question."""
    return " ".join(str(record.value) for record in asked)


def items(*, split: str, seed: int, count: int, context_tokens: int, keys: int) -> list[Item]:
    """`count` items of `split`, each of which asks for `keys` records; no record is asked for twice."""
    if keys == 1:
        return retrieval.items(split=split, seed=seed, count=count, context_tokens=context_tokens)
    return made(split=split, seed=seed, count=count, context_tokens=context_tokens, keys=keys, solved=0)


def made(*, split: str, seed: int, count: int, context_tokens: int, keys: int, solved: int) -> list[Item]:
    """`count` items; with `solved` a context ends with so many solved questions about other records of it."""
    if keys < 2 or solved >= RECORDS_A_KEY:
        raise ValueError(f"{keys} keys and {solved} solved questions, allowed are 2 or more and {RECORDS_A_KEY - 1}")
    rng = generator(task=f"retrieval of {keys}", split=split, seed=seed)
    asked: set[Fact] = set()
    found: list[Item] = []
    while len(found) < count:
        filled = retrieval.haystack(
            rng,
            split=split,
            context_tokens=context_tokens - solved * exchange_characters(keys),
            records=max(retrieval.EVALUATION_RECORDS, RECORDS_A_KEY * keys),
            depth=rng.random(),
        )
        facts = {record.fact() for record in filled.records[:keys]}
        if not facts & asked:
            asked |= facts
            name = f"retrieval-of-{keys}-{split}-{seed}-{len(found):05d}"
            found.append(item(name, split, filled, context_tokens, keys, solved))
    return found


def item(name: str, split: str, filled: Haystack, context_tokens: int, keys: int, solved: int) -> Item:
    """One item; where solved questions are shown, no blank stands at its end, which tokenizers join to what follows."""
    groups = [filled.records[at * keys : (at + 1) * keys] for at in range(1 + solved)]
    shown = "".join(f"{question(group)}{answer(group)}\n" for group in groups[1:])
    return make_item(
        item_id=name,
        task="retrieval",
        split=split,
        context=f"{filled.context.rstrip()}\n{shown}" if solved else filled.context,
        question=question(groups[0]).rstrip() if solved else question(groups[0]),
        expected=answer(groups[0]),
        depth=round(filled.starts[0] / context_tokens, 6),
    )


def exchange_characters(keys: int) -> int:
    """Length of a solved question, its line feed included."""
    record = Record(key="kef", value=472)
    return len(question([record] * keys)) + len(answer([record] * keys)) + 1
