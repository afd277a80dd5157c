"""The reference backend where some arms of a study draft: each of them is another arm's cache, decoded with drafts.

    speculation: {arms: {<arm that drafts>: <arm of the same cache>}, draft_tokens, longest_ngram, shortest_ngram}

Arms that are not named there decode plainly. What a cell with drafts must say of itself is a record of its own beside
its timing cell (kassay.kinds.speculation).
"""

from typing import Any

import torch

from kassay.backend import speculation
from kassay.backend.ngram import Drafting
from kassay.backend.passes import Pass, Schedule, decode_passes, schedule_of
from kassay.backend.speculation import Speculated
from kassay.backend.speed import ReferenceServed
from kassay.kinds.speculation import SpeculationCell
from kassay.kinds.timing import TimingCell
from kassay.record import Record
from kassay.stage import Stage


def drafting_of(section: dict[str, Any], draft_tokens: int | None = None) -> Drafting:
    """How a study's `speculation` drafts; `draft_tokens` in place of its own."""
    return Drafting(
        draft_tokens=section["draft_tokens"] if draft_tokens is None else draft_tokens,
        longest=section["longest_ngram"],
        shortest=section["shortest_ngram"],
    )


class SpeculativeServed(ReferenceServed):
    """Complete requests, plain or with drafts, as the arm says."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        section = stage.params["speculation"]
        self.bases: dict[str, str] = section["arms"]
        self.drafting = drafting_of(section)
        self._last: Speculated | None = None
        self._told: list[tuple[Speculated, list[Pass]]] = []  # of each repetition that was asked for

    def complete(self, recipe: str, context_BT: torch.Tensor, output_tokens: int) -> torch.Tensor:
        """Prefill, fill, decode, with drafts if the arm has them."""
        self._last = None
        if recipe not in self.bases:
            return super().complete(recipe, context_BT, output_tokens)
        cache = self.cached(self.bases[recipe], context_BT, output_tokens)
        self._last = speculation.speculate(self.model, cache, context_BT, output_tokens, self.drafting)
        return self._last.output_BT

    def schedule(self, batch: int) -> Schedule:
        """Counted at the model's own door; a step of drafts owes a token to every request that is not done."""
        taken, last = self.passes.taken(), self._last
        if last is None:
            return schedule_of(taken, batch)
        self._told.append((last, decode_passes(taken)))
        due = [sum(passes > step for passes in last.passes) for step in range(max(last.passes))]
        return schedule_of(taken, batch, due)

    def evidence(self, cell: TimingCell) -> list[Record]:
        """Drafts and passes of every repetition of a cell that drafts."""
        if cell.recipe not in self.bases:
            return []
        return [
            SpeculationCell(
                **{name: getattr(cell, name) for name in ("load", "block", "pilot", "position", "recipe")},
                base=self.bases[cell.recipe],
                batch=cell.batch,
                output_tokens=cell.output_tokens,
                draft_tokens=self.drafting.draft_tokens,
                longest_ngram=self.drafting.longest,
                shortest_ngram=self.drafting.shortest,
                passes=[one.passes for one, _ in self._told],
                drafted=[one.drafted for one, _ in self._told],
                accepted=[one.accepted for one, _ in self._told],
                pass_requests=[[one.requests for one in passes] for _, passes in self._told],
                pass_tokens=[[one.tokens for one in passes] for _, passes in self._told],
            )
        ]
