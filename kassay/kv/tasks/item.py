"""One question about a context, as every generator of questions makes it and every evaluation reads it.

The context is prefilled natively and the cache is written from it; the question and then the answer run through that
cache as decode, one token at a time. Items of one call have equal context and question lengths, so that a batch needs
neither padding nor a mask.
"""

from dataclasses import dataclass

from kassay.kv.tasks.splits import digest_of


@dataclass(frozen=True, kw_only=True)
class Item:
    """A context, a question about it and the only right answer."""

    item_id: str  # unique among the items of one task, split and seed
    task: str  # `retrieval` or `arithmetic`
    split: str  # owner of the facts: train, calibration, development or confirmation
    context: str  # text without begin-of-text: context_tokens - 1 characters
    question: str  # text of constant length, fed after the context
    expected: str  # the answer that counts as right, without the newline that ends it
    depth: float  # where the fact starts in the context, 0 (first token) to 1 (its end)
    digest: str  # SHA-256 of the other fields' canonical JSON


def make_item(*, item_id: str, task: str, split: str, context: str, question: str, expected: str, depth: float) -> Item:
    """The item of these fields, with its digest."""
    digest = digest_of(
        {
            "item_id": item_id,
            "task": task,
            "split": split,
            "context": context,
            "question": question,
            "expected": expected,
            "depth": depth,
        }
    )
    return Item(
        item_id=item_id,
        task=task,
        split=split,
        context=context,
        question=question,
        expected=expected,
        depth=depth,
        digest=digest,
    )
