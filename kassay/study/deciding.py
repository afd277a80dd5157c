"""The sections of a study that decide: endpoints with their data, and the gates that read them.

An endpoint's form follows from its `measure`, a gate's from its `statistic`; both have their words in
kassay.study.vocabulary.
"""

from dataclasses import dataclass

from kassay.study.reading import said
from kassay.study.vocabulary import ANSWERS, CHECKS, LOSSES, MEASURED


class Endpoint:
    """What is measured, by `measure`."""


@dataclass(frozen=True, kw_only=True)
class LossEndpoint(Endpoint):
    """Losses on documents."""

    measure: str = said("What is measured.", among=LOSSES)
    documents: int = said("Documents, the unit that is resampled.", least=1)
    context_tokens: int = said("Prefix of each document (tokens).", least=1)
    targets: int = said("Scored targets of each document.", least=1)
    data: str | None = said("Input of the stage that is the file of documents; left out: generated.", optional=True)


@dataclass(frozen=True, kw_only=True)
class AnswerEndpoint(Endpoint):
    """Questions with one right answer, the same items for every arm."""

    measure: str = said("What is measured.", among=ANSWERS)
    items: int = said("Items; all stay in the denominator.", least=1)
    context_tokens: int | None = said("Prefix of each item (tokens); null where items have their own.", least=1)
    data: str | None = said("Input of the stage that is the file of items; left out: generated.", optional=True)
    keys: int | None = said("Records that one item of retrieval asks for; left out: one.", least=1, optional=True)
    answer_cap_tokens: int | None = said(
        "Longest answer here (tokens); left out: that of the study.", least=1, optional=True
    )


@dataclass(frozen=True, kw_only=True)
class CheckEndpoint(Endpoint):
    """Cases that hold or do not."""

    measure: str = said("What is checked.", among=CHECKS)
    cases: int | None = said("Cases; null where their number is the build's.", least=1)


@dataclass(frozen=True, kw_only=True)
class MeasuredEndpoint(Endpoint):
    """A quantity that is measured."""

    measure: str = said("What is measured.", among=MEASURED)
    unit: str = said("Its unit.")
    summary: str = said("What is told of repeated values: median, p95, count, mean.")


ENDPOINTS: dict[str, type[Endpoint]] = {
    **dict.fromkeys(LOSSES, LossEndpoint),
    **dict.fromkeys(ANSWERS, AnswerEndpoint),
    **dict.fromkeys(CHECKS, CheckEndpoint),
    **dict.fromkeys(MEASURED, MeasuredEndpoint),
}


class Gate:
    """A limit that decides, by `statistic`."""

    statistic: str
    endpoint: str


@dataclass(frozen=True, kw_only=True)
class GrossLossGate(Gate):
    """An upper bound of the gross loss rate."""

    statistic: str = said("The statistic.", among=("gross-loss",))
    endpoint: str = said("Endpoint of answers.")
    limit: float = said("Largest upper bound that passes, a share.", above=0, below=1)
    native_floor: float | dict[str, float] | None = said(
        "Least share that the control must answer, of all models or of each.", above=0, below=1
    )
    true_rate: float | None = said("Loss rate at which the power is stated, a share.", least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class NetChangeGate(Gate):
    """A lower bound of the net change."""

    statistic: str = said("The statistic.", among=("net-change",))
    endpoint: str = said("Endpoint of answers.")
    limit: float = said("Least lower bound that passes, a share.", above=-1, most=0)
    native_floor: float | dict[str, float] | None = said(
        "Least share that the control must answer, of all models or of each.", above=0, below=1
    )
    true_rate: float | None = said(
        "Rate of losses, and of as many gains, at which the power is stated, a share.", least=0, below=0.5
    )


@dataclass(frozen=True, kw_only=True)
class LossGate(Gate):
    """An upper bound of how much prediction loss rises."""

    statistic: str = said("The statistic.", among=("relative-nll", "nll-difference"))
    endpoint: str = said("Endpoint of losses.")
    limit: float = said("Largest upper bound that passes, a share or in nats.", above=0, below=1)
    draws: int = said("Bootstrap resamples of the documents.", least=1)
    generator: str = said("How the resamples are drawn from the seed: the generator and how it is made.")


@dataclass(frozen=True, kw_only=True)
class PointGate(Gate):
    """A measured point against fixed limits."""

    statistic: str = said("The statistic.", among=("ratio", "value"))
    endpoint: str = said("Measured endpoint.")
    at_least: float | None = said("Least value that passes.")
    at_most: float | None = said("Largest value that passes.")


@dataclass(frozen=True, kw_only=True)
class CaseGate(Gate):
    """All cases, or none."""

    statistic: str = said("The statistic.", among=("all-pass",))
    endpoint: str = said("Endpoint of checks.")


GATES: dict[str, type[Gate]] = {
    "gross-loss": GrossLossGate,
    "net-change": NetChangeGate,
    "relative-nll": LossGate,
    "nll-difference": LossGate,
    "ratio": PointGate,
    "value": PointGate,
    "all-pass": CaseGate,
}
