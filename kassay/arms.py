"""The arms of one endpoint from raw quality records, as kassay.stats takes them: one value an item, ids and digests."""

from collections import defaultdict
from collections.abc import Iterable

from kassay.kinds.quality import Answer, DocumentLoss
from kassay.stats import InvalidData, require_finite
from kassay.stats.paired import ArmAnswers, ArmLosses


def answer_arms(records: Iterable[Answer], endpoint: str) -> dict[str, ArmAnswers]:
    """The answers of each recipe at one endpoint."""
    by_recipe: dict[str, list[Answer]] = defaultdict(list)
    for record in records:
        if record.task == endpoint:
            by_recipe[record.recipe].append(record)
    return {
        recipe: ArmAnswers(
            arm=recipe,
            item_ids=tuple(record.item_id for record in found),
            digests=tuple(record.item_digest for record in found),
            outcomes=tuple(record.outcome for record in found),
        )
        for recipe, found in by_recipe.items()
    }


def loss_arms(records: Iterable[DocumentLoss], context_tokens: int, targets: int) -> dict[str, ArmLosses]:
    """The mean loss of each document at one context under each recipe.

    Raises InvalidData for a document with another number of targets than planned, or a loss that is no number.
    """
    by_recipe: dict[str, list[DocumentLoss]] = defaultdict(list)
    for record in records:
        if record.context_tokens == context_tokens:
            by_recipe[record.recipe].append(record)
    return {
        recipe: ArmLosses(
            arm=recipe,
            item_ids=tuple(record.item_id for record in found),
            digests=tuple(record.item_digest for record in found),
            nll_nats=tuple(mean_nats(record, targets) for record in found),
        )
        for recipe, found in by_recipe.items()
    }


def mean_nats(record: DocumentLoss, targets: int) -> float:
    """The mean loss of one document in nats per target."""
    where = f"document `{record.item_id}` under `{record.recipe}`"
    if len(record.loss_nats) != targets:
        raise InvalidData(f"{where} has {len(record.loss_nats)} targets, planned are {targets}")
    for place, loss_nats in enumerate(record.loss_nats):
        require_finite(loss_nats, f"loss_nats[{place}] of {where}")  # NaN is written as null
    return sum(record.loss_nats) / len(record.loss_nats)
