"""What each recipe answered and how well it predicted, item by item; the raw material of every certificate."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import absent, given, one_of, ordered, rule
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class DocumentLoss(Record):
    """Prediction loss of one recipe on one document's continuation, decoded through its cache."""

    schema: ClassVar[str] = "kassay.document_loss/1"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    split: str = doc("Split of the document: development or confirmation.")
    item_id: str = doc("Id of the document in its split.")
    item_digest: str = doc("SHA-256 of the document.")
    context_tokens: int = doc("Tokens before the first target.")
    loss_nats: list[float] = doc("Negative log-likelihood of each target token in nats, in order, 0 or more.")


@dataclass(frozen=True, kw_only=True)
class Answer(Record):
    """What one recipe answered to one item."""

    schema: ClassVar[str] = "kassay.answer/1"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    task: str = doc("Name of the endpoint in the study, such as `retrieval` or `arithmetic`.")
    split: str = doc("Split of the item: development or confirmation.")
    item_id: str = doc("Id of the item in its split.")
    item_digest: str = doc("SHA-256 of the item.")
    expected: str = doc("The one right answer.")
    text: str = doc("What was generated, without the newline that ended it.")
    parsed: str | None = doc("The answer found in the text, null if none could be read.")
    outcome: str = doc("`correct`, `wrong`, `unreadable` or `truncated`; all but the first count as wrong.")
    tokens: int = doc("Number of generated tokens, the ending newline included.")

    combinations = (
        one_of("outcome", ("correct", "wrong", "unreadable", "truncated")),
        given("outcome", ("correct", "wrong"), "parsed"),
        absent("outcome", ("unreadable",), "parsed"),
    )


@dataclass(frozen=True, kw_only=True)
class ItemLength(Record):
    """How long an item is in tokens, where a tokenizer decides and the planned length is only come near to."""

    schema: ClassVar[str] = "kassay.item_length/1"

    model: str = doc("Name of the model.")
    task: str = doc("Name of the endpoint in the study.")
    item_id: str = doc("Id of the item in its split.")
    item_digest: str = doc("SHA-256 of the item.")
    planned_tokens: int | None = doc("Tokens of the context that the study asks for, null where items have their own.")
    context_tokens: int = doc("Tokens of the context, begin-of-text included where there is one.")
    question_tokens: int = doc("Tokens of the question.")


@dataclass(frozen=True, kw_only=True)
class AnswerCounts(Record):
    """How the answers of one recipe to problems of a file ended; the counts but for `no_marker` add up to `items`."""

    schema: ClassVar[str] = "kassay.answer_counts/1"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    task: str = doc("Name of the endpoint in the study.")
    data_sha256: str = doc("SHA-256 of the file that the items are of.")
    items: int = doc("Items, all of which stay in the denominator.")
    correct: int = doc("Right answers, among them labelled ones at the cap.")
    wrong: int = doc("Answers with another number.")
    unreadable: int = doc("Answers that ended by themselves without a number.")
    truncated: int = doc("Answers that the cap cut before a labelled number; they are wrong.")
    no_marker: int = doc("Answers without a label that were read by their last number.")

    combinations = (
        rule(
            "`correct`, `wrong`, `unreadable` and `truncated` add up to `items`",
            lambda made: made.correct + made.wrong + made.unreadable + made.truncated == made.items,
        ),
        ordered("no_marker", "items"),
    )


@dataclass(frozen=True, kw_only=True)
class ArmStorage(Record):
    """What a recipe's cache really held in a quality run: requested is not effective."""

    schema: ClassVar[str] = "kassay.arm_storage/1"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    key_dtype: str = doc("dtype of the stored keys as the tensors report it.")
    value_dtype: str = doc("dtype of the stored values as the tensors report it.")
    scales_sha256: str | None = doc(
        "Digest of the scales artifact that was loaded, null for recipes without fixed scales."
    )
