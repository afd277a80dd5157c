"""What the loads say: whether requests failed, and whether one arm serves better than another, block by block.

Gate: of an arm under a load no request may fail or be empty, over all blocks that count. Comparison: the ratio of a
block is above 1 where the candidate is better; for a rate candidate / control, for a time control / candidate. A gain
is confirmed as in kassay.stats.blocks, and only if neither arm has a failed request, no load of either is invalid, and
the candidate has a quality certificate that passed. Without one a comparison is descriptive.

Sources: the field's rule that request failures disqualify a gain; bug cases O20 and O21.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kassay.kinds.serving import ServedLoad, ServerRun, ServingContrast, ServingGate
from kassay.stats import InvalidData
from kassay.stats.blocks import BlockCell, ContrastVerdict, PlannedContrast, block_ratios, contrast_verdicts
from kassay.stats.orders import Order

RATES = ("tokens_per_s", "completed_per_s")
NO_CERTIFICATE = "none"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The records of one serving stage, pilots left out, and the order of the arms in each block."""

    loads: tuple[ServedLoad, ...]
    servers: tuple[ServerRun, ...]
    orders: tuple[Order, ...]

    def of(self, load: str, *arms: str) -> list[ServedLoad]:
        """The records of one load of these arms."""
        return [one for one in self.loads if one.load == load and one.arm in arms]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One member of the family."""

    load: str
    quantity: str  # one of RATES, or a time and its statistic as `latency_s.p95`
    candidate: str
    control: str

    @property
    def name(self) -> str:
        """Its name in the family."""
        return f"{self.candidate} / {self.control}: {self.quantity}, {self.load}"


def gates(found: Evidence) -> list[ServingGate]:
    """One gate for each arm and load, in the order in which they first appear."""
    pairs = list(dict.fromkeys((one.arm, one.load) for one in found.loads))
    return [gate(arm, load, found.of(load, arm)) for arm, load in pairs]


def gate(arm: str, load: str, own: Sequence[ServedLoad]) -> ServingGate:
    """No request may fail or be empty."""
    errors: Counter[str] = Counter()
    for one in own:
        errors.update(one.errors)
    failed, empty = sum(one.failed for one in own), sum(one.empty for one in own)
    return ServingGate(
        arm=arm,
        load=load,
        requests=sum(one.requests for one in own),
        failed=failed,
        empty=empty,
        errors=dict(sorted(errors.items())),
        verdict="fails" if failed or empty else "pass",
    )


def value_of(load: ServedLoad, quantity: str) -> float | None:
    """A quantity as a rate, so that more is better: itself, or one over a time. None where no request succeeded."""
    if quantity in RATES:
        rate = float(getattr(load, quantity))
        return rate if rate > 0 else None
    name, _, statistic = quantity.partition(".")
    times = getattr(load, name, None)
    if not isinstance(times, dict) or statistic not in times or statistic == "n":
        raise InvalidData(f"`{quantity}` is no quantity of a load, allowed are {', '.join(RATES)} and `latency_s.p95`")
    return 1 / times[statistic] if times[statistic] else None


def ratios(found: Evidence, one: Comparison) -> tuple[float, ...] | None:
    """Within-block ratios; None where a cell has no successful request. Raises InvalidData for an unbalanced design."""
    cells = []
    for load in found.of(one.load, *found.orders[0]):
        rate = value_of(load, one.quantity)
        if rate is None:
            return None
        position = found.orders[load.block].index(load.arm) if load.block < len(found.orders) else 0
        cells.append(BlockCell(block=load.block, position=position, arm=load.arm, rate_per_s=rate))
    return block_ratios(cells, orders=found.orders, candidate=one.candidate, control=one.control)


def faults(found: Evidence, one: Comparison) -> list[str]:
    """Why the blocks of a comparison are invalid; empty if they are not."""
    own = found.of(one.load, one.candidate, one.control)
    said = [f"{load.arm} in block {load.block}: {fault}" for load in own for fault in load.faults]
    prompts: dict[int, set[str]] = {}
    for load in own:
        prompts.setdefault(load.block, set()).add(load.prompts_sha256)
    said += [f"the arms of block {block} got different prompts" for block, seen in prompts.items() if len(seen) > 1]
    every = [sha256 for seen in prompts.values() for sha256 in seen]
    said += ["two blocks got the same prompts"] if len(set(every)) != len(every) else []
    arms = (one.candidate, one.control)
    said += [
        f"the server of {run.arm} died in block {run.block}" for run in found.servers if run.died and run.arm in arms
    ]
    return said


def contrasts(
    found: Evidence, family: Sequence[Comparison], certificates: dict[str, str], rules: dict[str, Any]
) -> list[ServingContrast]:
    """The verdicts of the whole family; `rules` are blocks, alpha, interval_alpha and screen_ratio."""
    planned = [planned_contrast(found, one, certificates.get(one.candidate, NO_CERTIFICATE)) for one in family]
    decided = contrast_verdicts(
        planned,
        planned_blocks=rules["blocks"],
        alpha=rules["alpha"],
        interval_alpha=rules["interval_alpha"],
        screen_ratio=rules["screen_ratio"],
    )
    return [
        record(found, one, certificates.get(one.candidate, NO_CERTIFICATE), verdict)
        for one, verdict in zip(family, decided, strict=True)
    ]


def failures(found: Evidence, one: Comparison) -> dict[str, int]:
    """Failed and empty requests of both arms."""
    arms = (one.candidate, one.control)
    return {arm: sum(load.failed + load.empty for load in found.of(one.load, arm)) for arm in arms}


def planned_contrast(found: Evidence, one: Comparison, certificate: str) -> PlannedContrast:
    """A comparison with what was measured; what does not qualify enters Holm with p = 1."""
    invalid, failed = faults(found, one), failures(found, one)
    reason = ""
    if certificate == NO_CERTIFICATE:
        reason = "this run judges no quality, and without a certificate no gain can be confirmed"
    elif certificate != "pass":
        reason = f"its quality certificate is `{certificate}`"
    if any(failed.values()):
        told = ", ".join(f"{count} of {arm}" for arm, count in failed.items())
        reason = f"failed or empty requests disqualify a gain: {told}"
    if invalid:
        reason = "; ".join(invalid)
    qualified = "pass" if not reason else "ineligible" if certificate == "ineligible" else "unestablished"
    return PlannedContrast(
        contrast=one.name,
        candidate=one.candidate,
        control=one.control,
        certificate=qualified,
        ratios=None if invalid else ratios(found, one),
        reason=reason or "",
    )


def record(found: Evidence, one: Comparison, certificate: str, decided: ContrastVerdict) -> ServingContrast:
    """A verdict as a record; failures and invalid loads give it their own word."""
    failed = failures(found, one)
    verdict = decided.verdict
    if any(failed.values()):
        verdict = "no confirmed gain"
    if faults(found, one):
        verdict = "invalidated"
    return ServingContrast(
        contrast=one.name,
        load=one.load,
        quantity=one.quantity,
        candidate=one.candidate,
        control=one.control,
        failed=failed,
        **decided.figures(),
        certificate=certificate,
        verdict=verdict,
        reason=decided.reason,
    )
