"""Scores of lm-evaluation-harness for one recipe: its own tasks, prompts and metrics, which decide nothing here."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import one_of, rule
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class HarnessScore(Record):
    """One metric of one task, as the harness tells it."""

    schema: ClassVar[str] = "kassay.harness_score/1"

    model_sha256: str = doc("Digest of the checkpoint's folder, which is its identity.")
    recipe: str = doc("Name of the recipe.")
    scales_sha256: str | None = doc("Digest of the scales that were loaded, null for recipes without fixed scales.")
    compute_dtype: str = doc("dtype of the loaded weights, in which the model computes.")
    harness: str = doc("Version of lm-evaluation-harness.")
    task: str = doc("The harness' name of the task.")
    task_version: str = doc("The harness' version of the task.")
    metric: str = doc("The harness' name of the metric, its filter included.")
    value: float = doc("The metric, in the harness' unit.")
    items: int | None = doc("Items that it is over, 1 or more; null for a group of tasks.")
    standing: str = doc("Always `descriptive`: no family and no decision.")

    combinations = (
        one_of("standing", ("descriptive",)),
        rule("`items` are 1 or more where they are there", lambda score: score.items is None or score.items >= 1),
    )
