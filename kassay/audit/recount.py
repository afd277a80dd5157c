"""The judgement counted once more, by plain code that shares nothing with kassay.stats or the stages.

Answers are read and scored again from their text; losses and gains counted by dictionary; a gross-loss bound U checked
by what it means, P(X <= losses | n, U) = alpha, with sums of logarithms; a net bound d by Tango's score at d; means of
losses summed exactly; verdicts taken from bounds and margins, certificates from gates, qualifications from
certificates. Resampled bounds are not drawn again here (kassay.audit.rederive does), only held against their estimate.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

from kassay import paths
from kassay.audit import Audited, Difference, blocks, compare, composed, drafted, held, installed, matrix, served
from kassay.audit.checks import Body, bodies, check, close
from kassay.audit.files import Run
from kassay.audit.gates import verdict_of, worst
from kassay.entry import Stage
from kassay.errors import RecordError
from kassay.kv.tasks import gsm8k
from kassay.kv.tasks.arithmetic import last_labelled_answer
from kassay.record import read_lines

READERS: dict[str, Callable[[str, bool], str | None]] = {  # of a text and whether the cap cut it
    "retrieval": lambda text, cut: text or None,
    "arithmetic": lambda text, cut: last_labelled_answer(text),
    "gsm8k": lambda text, cut: number(text, cut),
}
TAIL = 1e-6  # relative error of a tail of a few thousand terms in logarithms, far above what one more loss would change
MEANS = 1e-12  # relative error of a mean of a few thousand losses
SCORE = 1e-6  # absolute error of Tango's score at a bound that was solved to 1e-15


def run(run: Run) -> tuple[list[Audited], list[Difference]]:
    """Every stage of COUNTED, scored or counted again."""
    audited: list[Audited] = []
    found: list[Difference] = []
    for stage in run.plan.stages:
        if stage.program not in COUNTED or run.open(stage):
            continue
        told = compare.Compared(stage=stage.name)
        try:
            COUNTED[stage.program](run, stage, told)
        except (RecordError, OSError, LookupError, TypeError, ValueError, ZeroDivisionError) as error:
            told.add(
                paths.RECORDS,
                "content",
                f"{type(error).__name__}: {str(error).rpartition('/')[2]}",
                "countable records",
            )
        audited.append(Audited(stage=stage.name, how="recounted", values=told.values, loose=told.loose, note=""))
        found += told.differences
    return audited, found


def rescore(run: Run, stage: Stage, told: compare.Compared) -> None:
    """Every answer, read from its text and held against what was expected."""
    endpoints = stage.params.get("endpoints", {})
    for body in bodies(run.folder(stage.name) / paths.RECORDS, "answer"):
        measure = endpoints.get(body["task"], {}).get("measure", body["task"])
        name = f"answer {body['item_id']} under {body['recipe']}"
        if (reader := READERS.get(measure)) is not None:
            check(told, name, "parsed", body["parsed"], reader(body["text"], body["outcome"] == "truncated"))
        right = body["parsed"] is not None and body["parsed"] == body["expected"]
        check(told, name, "correct", body["outcome"] == "correct", right)
        if body["outcome"] == "wrong":
            check(told, name, "outcome", "wrong", "wrong" if body["parsed"] is not None else "unreadable")
    count_endings(run.folder(stage.name) / paths.RECORDS, told)


def count_endings(made: Path, told: compare.Compared) -> None:
    """The counts of how answers to problems of a file ended, from the answers."""
    ended: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for body in bodies(made, "answer"):
        unmarked = body["parsed"] is not None and gsm8k.LABEL not in body["text"]
        ended[body["task"], body["recipe"]].update(["items", body["outcome"], *["no_marker"] * unmarked])
    for body in bodies(made, "answer_counts"):
        derived = ended[body["task"], body["recipe"]]
        for field in ("items", "correct", "wrong", "unreadable", "truncated", "no_marker"):
            check(told, f"answers to {body['task']} under {body['recipe']}", field, body[field], derived[field])


def number(text: str, cut: bool) -> str | None:
    """The strict answer to a problem, as records have it."""
    value = gsm8k.read(text, "length" if cut else "stop").value
    return None if value is None else gsm8k.shown(value)


def recount(run: Run, stage: Stage, told: compare.Compared) -> None:
    """Every gate, certificate and qualification of a stage."""
    made = run.folder(stage.name) / paths.RECORDS
    study = stage.params["study"]
    measured = {}
    for name, reference in stage.inputs.items():
        path = run.artifact(reference)
        if name.startswith("quality.") and path is not None:
            measured[name.removeprefix("quality.")] = by_item(path, study)
    gates: dict[tuple[str, str, str, str], Body] = {}
    for gate in bodies(made, "gate"):
        gates[gate["model"], gate["candidate"], gate["control"], gate["gate"]] = gate
        values = measured[gate["model"]][gate["endpoint"]]
        count = count_answers if gate["losses"] is not None else mean_losses
        count(told, label(gate), gate, values[gate["control"]], values[gate["candidate"]])
        check(told, label(gate), "verdict", gate["verdict"], verdict_of(gate))
    certificates = list(bodies(made, "certificate"))
    for one in certificates:
        own = [gates[one["model"], one["candidate"], one["control"], gate] for gate in one["gates"]]
        check(told, label(one), "gates", one["gates"], study["certificates"]["objectives"][one["objective"]])
        check(told, label(one), "verdict", one["verdict"], worst(gate["verdict"] for gate in own))
        check(
            told, label(one), "failed_gates", one["failed_gates"], [g["gate"] for g in own if g["verdict"] == "fails"]
        )
    for one in bodies(made, "qualification"):
        same = [c for c in certificates if all(c[key] == one[key] for key in ("model", "candidate", "objective"))]
        check(told, label(one), "controls", one["controls"], [c["control"] for c in same])
        check(told, label(one), "verdict", one["verdict"], worst(c["verdict"] for c in same))


def label(body: Body) -> str:
    """A record by what identifies it."""
    said = [str(body[key]) for key in ("model", "candidate", "control", "objective", "gate") if key in body]
    return f"{body['schema']} ({', '.join(said)})"


def by_item(path: Path, study: Body) -> dict[str, dict[str, dict[str, Any]]]:
    """Endpoint -> recipe -> item -> how the answer ended, or the mean loss in nats."""
    values: dict[str, dict[str, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    at = {planned["context_tokens"]: name for name, planned in study["endpoints"].items() if "documents" in planned}
    for body in read_lines(path):
        kind = str(body["schema"]).rpartition("/")[0]
        if kind == "kassay.answer":
            values[body["task"]][body["recipe"]][body["item_id"]] = body["outcome"]
        elif kind == "kassay.document_loss" and body["context_tokens"] in at:
            mean = math.fsum(body["loss_nats"]) / len(body["loss_nats"])
            values[at[body["context_tokens"]]][body["recipe"]][body["item_id"]] = mean
    return values


def count_answers(told: compare.Compared, name: str, gate: Body, was: Body, now: Body) -> None:
    """Losses, gains and scores of answers, and the bounds by their definition."""
    check(told, name, "items", sorted(was), sorted(now))
    for field, words in (("control_outcomes", was), ("candidate_outcomes", now)):
        check(told, name, field, gate[field], {word: list(words.values()).count(word) for word in gate[field]})
        check(told, name, field, sum(gate[field].values()), gate["n"])
    control, candidate = ({item: word == "correct" for item, word in arm.items()} for arm in (was, now))
    check(told, name, "n", gate["n"], len(control))
    losses = sum(right and not candidate.get(item, False) for item, right in control.items())
    gains = sum(candidate.get(item, False) and not right for item, right in control.items())
    check(told, name, "losses", gate["losses"], losses)
    check(told, name, "gains", gate["gains"], gains)
    check(told, name, "native_score", gate["native_score"], sum(control.values()) / len(control))
    n, alpha = len(control), gate["alpha"]
    if gate["decides"] == "upper":
        check(told, name, "estimate", gate["estimate"], losses / n)
        if losses < n:
            close(told, name, "upper", tail(losses, n, gate["upper"]), alpha, TAIL * alpha)
        if losses > 0:
            close(told, name, "lower", 1 - tail(losses - 1, n, gate["lower"]), alpha, TAIL)
    else:
        check(told, name, "estimate", gate["estimate"], (gains - losses) / n)
        z = NormalDist().inv_cdf(1 - alpha)
        for bound, wanted in (("lower", z), ("upper", -z)):
            if -1 < gate[bound] < 1:
                close(told, name, bound, score(gains, losses, n, gate[bound]), wanted, SCORE)


def tail(events: int, n: int, rate: float) -> float:
    """P(X <= events), X binomial over n at a rate strictly between 0 and 1."""
    whole = math.lgamma(n + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(rate) + (n - k) * math.log1p(-rate))
        for k in range(events + 1)
    )


def score(gains: int, losses: int, n: int, d: float) -> float:
    """Tango's score of a difference d: the root q of 2 n q^2 + B q + C = 0 is the restricted share of losses."""
    b = (2 * n - gains + losses) * d - gains - losses
    c = -losses * d * (1 - d)
    q = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
    return (gains - losses - n * d) / math.sqrt(n * (2 * q + d * (1 - d)))


def mean_losses(told: compare.Compared, name: str, gate: Body, control: Body, candidate: Body) -> None:
    """The estimate of a gate on prediction loss."""
    check(told, name, "items", sorted(control), sorted(candidate))
    check(told, name, "n", gate["n"], len(control))
    means = [math.fsum(values.values()) / len(values) for values in (control, candidate)]
    derived = means[1] - means[0] if "difference" in gate["statistic"] else means[1] / means[0] - 1
    close(told, name, "estimate", gate["estimate"], derived, MEANS * max(1.0, *map(abs, means)))


COUNTED: dict[str, Callable[[Run, Stage, compare.Compared], None]] = {
    "quality": rescore,
    "vllm_quality": rescore,
    "certify": recount,
    "contrast": blocks.recount,
    "matrix": matrix.recount,
    "composition": composed.recount,
    "acceptance": drafted.recount_acceptance,
    "serving": served.recount_loads,
    "serving_verdict": served.recount_verdicts,
    "memory": held.recount,
    "vllm_smoke": installed.recount,
    "vllm_check": installed.recount,
}
