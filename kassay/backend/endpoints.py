"""The endpoints of a quality study, whichever engine answers: which texts they ask for, and what becomes of an answer.

A study's endpoints say how many items at which context; a record carries the name of its endpoint. An endpoint with
`data` takes its items from the file that is the stage's input of that name, others are made from the seed. Answers are
read here and losses written here, so that the reference and a worker differ in their engine alone. No margin, no bound
and no verdict is known here.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kassay.backend import answers, files
from kassay.backend.answers import GSM8K
from kassay.backend.text import Passage, Question, Text
from kassay.errors import KassayError
from kassay.kinds.quality import AnswerCounts, DocumentLoss, ItemLength
from kassay.stage import Stage

NLL = "nll"
MEASURES = (*answers.READERS, GSM8K, NLL)
Planned = dict[str, Any]


def size_of(planned: Planned) -> str:
    """What an endpoint counts. Raises KassayError for one that no stage of quality measures."""
    if planned["measure"] not in MEASURES:
        raise KassayError(f"this stage measures {', '.join(MEASURES)}, not `{planned['measure']}`")
    if planned["measure"] == GSM8K and not planned.get("data"):
        raise KassayError(f"`{GSM8K}` takes its items from a file: the endpoint's `data` names an input of the stage")
    return "documents" if planned["measure"] == NLL else "items"


class Endpoints:
    """The endpoints of a stage's params, their texts, and where the records go.

    `check_length` raises for more tokens than the model has positions; it is asked before anything is answered.
    """

    def __init__(self, stage: Stage, text: Text, check_length: Callable[[int], None]) -> None:
        self.stage, self.text, self.check_length = stage, text, check_length
        self.planned: dict[str, Planned] = stage.params["endpoints"]
        self.total = sum(planned[size_of(planned)] for planned in self.planned.values())
        self.done = 0
        self.counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for planned in self.planned.values():
            more = planned["targets"] if planned["measure"] == NLL else self.cap_tokens(planned)
            check_length((planned["context_tokens"] or 0) + more)
        self._of_files = {name: self._of_file(one) for name, one in self.planned.items() if one.get("data")}

    def cap_tokens(self, planned: Planned) -> int:
        """Longest answer of an endpoint."""
        return int(planned.get("answer_cap_tokens") or self.stage.params["answer_cap_tokens"])

    def stops(self, planned: Planned) -> frozenset[int]:
        """The tokens that end an answer of an endpoint."""
        return answers.stops(planned["measure"], self.text)

    def rows(self, endpoint: str) -> Sequence[Any]:
        """The texts of an endpoint: passages of `nll`, questions of all others."""
        if endpoint in self._of_files:
            return self._of_files[endpoint]
        planned = self.planned[endpoint]
        asked = {**self._asked(planned), "context_tokens": planned["context_tokens"]}
        if planned["measure"] == NLL:
            return self.text.passages(**asked, targets=planned["targets"])
        return self.text.questions(planned["measure"], **asked, keys=planned.get("keys") or 1)

    def _asked(self, planned: Planned) -> dict[str, Any]:
        params = self.stage.params
        return {"split": params["split"], "seed": params["seed"], "count": planned[size_of(planned)]}

    def _of_file(self, planned: Planned) -> Sequence[Any]:
        if planned["data"] not in self.stage.inputs:
            raise KassayError(f"`data` names `{planned['data']}`, which is no input of this stage")
        path, asked = self.stage.inputs[planned["data"]], self._asked(planned)
        if planned["measure"] == NLL:
            lengths = {"context_tokens": planned["context_tokens"], "targets": planned["targets"]}
            return files.windows(self.text, path, **asked, **lengths)
        if planned["measure"] != GSM8K:
            raise KassayError(f"`data` goes with {GSM8K} and {NLL}, not `{planned['measure']}`")
        made = files.problems(self.text, path, **asked)
        longest = max(len(found.context) + len(found.question) for found in made)
        self.check_length(longest + self.cap_tokens(planned))
        return made

    def step(self, count: int, what: str) -> None:
        """Tell that `count` more items are done."""
        self.done += count
        self.stage.progress(self.done, self.total, what)

    def append_lengths(self, endpoint: str, batch: Sequence[Question]) -> None:
        """Record how long contexts are, where they only come near the planned length."""
        for found in () if self.text.exact else batch:
            self.stage.append(
                ItemLength(
                    model=self.stage.params["model"],
                    task=endpoint,
                    item_id=found.item.item_id,
                    item_digest=found.item.digest,
                    planned_tokens=self.planned[endpoint]["context_tokens"],
                    context_tokens=len(found.context),
                    question_tokens=len(found.question),
                )
            )

    def append_answer(self, arm: str, endpoint: str, found: Question, row: Sequence[int]) -> None:
        """Read one generated row and record what it says."""
        planned, item = self.planned[endpoint], found.item
        said = answers.read(planned["measure"], self.text, row, item.expected)
        self.stage.append(answers.record(self.stage.params["model"], arm, endpoint, item, said, len(row)))
        if planned.get("data"):
            self.counts[endpoint, arm].update([said.outcome, *([] if said.marked else ["no marker"])])

    def append_loss(self, arm: str, endpoint: str, found: Passage, loss_nats: Iterable[float]) -> None:
        """Record the losses of one document's targets."""
        self.stage.append(
            DocumentLoss(
                model=self.stage.params["model"],
                recipe=arm,
                split=found.document.split,
                item_id=found.document.item_id,
                item_digest=found.document.digest,
                context_tokens=self.planned[endpoint]["context_tokens"],
                loss_nats=list(loss_nats),
            )
        )

    def append_counts(self) -> None:
        """Record how the answers to problems of files ended."""
        for (endpoint, arm), counted in self.counts.items():
            planned = self.planned[endpoint]
            self.stage.append(
                AnswerCounts(
                    model=self.stage.params["model"],
                    recipe=arm,
                    task=endpoint,
                    data_sha256=self.stage.input_sha256(planned["data"]),
                    items=planned["items"],
                    correct=counted["correct"],
                    wrong=counted["wrong"],
                    unreadable=counted["unreadable"],
                    truncated=counted["truncated"],
                    no_marker=counted["no marker"],
                )
            )
