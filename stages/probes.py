"""What the probes found: each number a pure function of their records, with the class that a stated threshold gives it.

Changes of every arm; the screen's ratio; per layer what demotion costs and repair takes back; what pre-bias repairs.
A number that cannot be computed is null with its reason. No verdict follows: probes are descriptive.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kassay.kinds.probe import ProbeArm, ProbeFinding, ProbeText
from kassay.kinds.quality import Answer
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main
from kassay.stats import InvalidData, probes, ranks
from kassay.stats.probes import Change

NATIVE = "native"


class Found:
    """The records of one probe on one model."""

    def __init__(self, model: str, probe: str) -> None:
        self.model = model
        self.probe = probe
        self.arms: dict[str, ProbeArm] = {}
        self.texts: dict[str, list[ProbeText]] = defaultdict(list)
        self.answers: dict[str, list[Answer]] = defaultdict(list)
        self.changes: dict[str, Change] = {}

    def finding(self, arm: str, quantity: str, value: float | None, label: str = "", reason: str = "") -> ProbeFinding:
        """One number as a record."""
        return ProbeFinding(
            model=self.model, probe=self.probe, arm=arm, quantity=quantity, value=value, reason=reason, label=label
        )

    def tried(self, arm: str, quantity: str, compute: Callable[[], tuple[float, str]]) -> ProbeFinding:
        """A number, or why it cannot be had."""
        try:
            value, label = compute()
        except (InvalidData, KeyError) as error:
            reason = f"arm {error} has no records" if isinstance(error, KeyError) else str(error)
            return self.finding(arm, quantity, None, reason=reason)
        return self.finding(arm, quantity, value, label)

    def loss_change(self, arm: str) -> float:
        """Relative loss change of an arm; KeyError if it has no records."""
        return self.changes[arm].relative_loss_change

    def missed(self, arm: str) -> float:
        """Share of questions that native answers and the arm does not; KeyError if the arm has no records."""
        if arm not in self.answers:
            raise KeyError(arm)
        right, own = ([one.outcome == "correct" for one in self.answers[name]] for name in (NATIVE, arm))
        return sum(native and not other for native, other in zip(right, own, strict=True)) / len(right)

    def errors(self, arm: str) -> list[float]:
        """Logit errors of an arm, text by text; KeyError if it has no records."""
        if arm not in self.texts:
            raise KeyError(arm)
        return [text.logit_error for text in self.texts[arm]]


def run(stage: Stage) -> Metrics:
    """Findings of all probes, and per model what each says first."""
    metrics: Metrics = {}
    for probe, program in PROBES.items():
        for model, path in stage.inputs_of(probe).items():
            found = read(model, probe, path)
            for finding in [*every_arm(found), *program(found, stage.params)]:
                stage.append(finding)
                if finding.quantity in HEADLINES:
                    said = finding.label or f"{finding.value:.3g}" if finding.value is not None else finding.reason
                    metrics[f"{model}: {finding.arm}"] = said
    return metrics


def read(model: str, probe: str, path: Path) -> Found:
    """The records of one probe."""
    found = Found(model, probe)
    for arm in read_kind(path, ProbeArm):
        found.arms[arm.arm] = arm
    for text in read_kind(path, ProbeText):
        found.texts[text.arm].append(text)
    for answer in read_kind(path, Answer):
        found.answers[answer.recipe].append(answer)
    native = found.texts[NATIVE]
    for name, texts in found.texts.items():
        if [text.item_digest for text in texts] != [text.item_digest for text in native]:
            raise InvalidData(f"probe `{probe}` on `{model}`: arm `{name}` did not see the texts that native saw")
        found.changes[name] = probes.change(
            [text.loss_nats for text in native],
            [text.loss_nats for text in texts],
            [text.agreed for text in texts],
            [text.logit_error for text in texts],
        )
    return found


def every_arm(found: Found) -> Iterator[ProbeFinding]:
    """Changes of each planned arm and its right answers; an ineligible one says why."""
    for name, arm in found.arms.items():
        if not arm.eligible:
            yield found.finding(name, "relative_loss_change", None, "ineligible", arm.reason)
            continue
        moved = found.changes[name]
        yield found.finding(name, "relative_loss_change", moved.relative_loss_change, moved.label)
        yield found.finding(name, "perplexity_ratio", moved.perplexity_ratio)
        yield found.finding(name, "agreement", moved.agreement)
        yield found.finding(name, "logit_error", moved.logit_error)
        if answers := found.answers.get(name):
            right = sum(answer.outcome == "correct" for answer in answers)
            yield found.finding(name, "retrieval_accuracy", right / len(answers))


def screen(found: Found, params: dict[str, Any]) -> Iterator[ProbeFinding]:
    """The ratio of logit errors with coarse and fine keys."""
    coarse, fine = params["screen"]["coarse"], params["screen"]["fine"]
    yield found.tried(
        f"{coarse} / {fine}",
        "error_ratio",
        lambda: probes.error_ratio(found.errors(coarse), found.errors(fine)),
    )


def asymmetry(found: Found, params: dict[str, Any]) -> Iterator[ProbeFinding]:
    """Nothing beyond the changes of every arm."""
    yield from ()


def layers(found: Found, params: dict[str, Any]) -> Iterator[ProbeFinding]:
    """Per layer what its demotion costs and its repair takes back; concentration and rank correlation with depth."""
    high, low = params["layers"]["high"], params["layers"]["low"]
    demoted = [name for name, arm in found.arms.items() if arm.layer is not None and arm.recipe == high]
    repaired = [name for name, arm in found.arms.items() if arm.layer is not None and arm.recipe == low]
    costs = [found.loss_change(name) - found.loss_change(high) for name in demoted]
    for name, cost in zip(demoted, costs, strict=True):
        yield found.finding(name, "cost_of_demotion", cost)
    broken = found.loss_change(low) - found.loss_change(high)
    for name in repaired:
        kept = found.loss_change(name) - found.loss_change(high)
        yield found.tried(name, "recovery", partial(probes.recovery, broken, kept))
    pair = f"{low} in {high}"
    yield found.tried(pair, "concentration", lambda: concentrated(costs))
    yield found.tried(pair, "depth_correlation", lambda: correlated(costs))


def concentrated(costs: list[float]) -> tuple[float, str]:
    """The largest share of one layer, and which it is."""
    share, layer = probes.concentration(costs)
    return share, f"layer {layer}"


def correlated(costs: list[float]) -> tuple[float, str]:
    """Spearman's rho of cost and depth with its p; no evidence of independence where p is large."""
    test = ranks.spearman(list(range(len(costs))), costs)
    return test.rho, f"p = {test.p:.3g}, smallest possible {test.smallest_p:.3g}"


def prebias(found: Found, params: dict[str, Any]) -> Iterator[ProbeFinding]:
    """What each pre-bias recipe takes back of the change of the recipe without."""
    for name in found.arms:
        plain = name.removeprefix("prebias-")
        if plain != name:
            pair = f"{name} / {plain}"
            yield found.tried(pair, "recovery", partial(recovered, found.loss_change, plain, name))
            yield found.tried(pair, "retrieval_recovery", partial(recovered, found.missed, plain, name))


def recovered(loss_of: Callable[[str], float], broken: str, repaired: str) -> tuple[float, str]:
    """The recovery of one arm's loss by another arm."""
    return probes.recovery(loss_of(broken), loss_of(repaired))


PROBES = {"screen": screen, "asymmetry": asymmetry, "layers": layers, "prebias": prebias}
HEADLINES = ("error_ratio", "retrieval_recovery", "concentration")

if __name__ == "__main__":
    main(run)
