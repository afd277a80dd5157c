"""What timed blocks of vLLM arms say: ratios within blocks, a sign test, capacity at equal bytes. Descriptive.

Two endpoints: tokens of complete requests a second, and decode steps a second, which are those steps of a repetition
that served every request, by the stamps of their tokens. Warm-ups and pilots are left out. No certificate is read, so
nothing here is a gain; rejected where an arm's pool holds fewer tokens than the arithmetic of its formats says, by more
than one block.
"""

import statistics
from pathlib import Path

from kassay.kinds.timing import NS_PER_S, TimingCell
from kassay.kinds.vllm import VllmEngine, VllmRatio, VllmRequest, VllmSpan
from kassay.record import read_kind
from kassay.stage import Metrics, Rejection, Stage, main
from kassay.stats import InvalidData
from kassay.stats.exact import sign_test

COMPLETE, DECODE = "complete request (tokens/s)", "decode step (1/s)"


def run(stage: Stage) -> Metrics | Rejection:
    """Every arm against the control."""
    control = stage.params["control"]
    records = stage.inputs["timing"]
    cells = [cell for cell in read_kind(records, TimingCell) if not cell.pilot]
    engines = {engine.arm: engine for engine in read_kind(records, VllmEngine)}
    rates = {COMPLETE: complete(cells), DECODE: decode(cells, records)}
    short, told = [], {}
    for arm in [name for name in engines if name != control]:
        for endpoint, found in rates.items():
            record = ratio(arm, control, endpoint, found, engines, cells[0].batch)
            stage.append(record)
            told[f"{arm}: {endpoint}"] = round(record.median, 4)
        told[f"{arm}: capacity"] = round(record.capacity_ratio, 4)
        short += lacking(engines[arm], engines[control])
    return stage.rejected("; ".join(short), **told) if short else told


def complete(cells: list[TimingCell]) -> dict[str, dict[int, float]]:
    """Arm -> block -> tokens a second over the measured repetitions."""
    found: dict[str, dict[int, float]] = {}
    for cell in cells:
        found.setdefault(cell.recipe, {})[cell.block] = cell.rate_per_s()
    return found


def decode(cells: list[TimingCell], records: Path) -> dict[str, dict[int, float]]:
    """Arm -> block -> decode steps a second, the median over the measured repetitions."""
    spans = list(read_kind(records, VllmSpan))
    requests = list(read_kind(records, VllmRequest))
    found: dict[str, dict[int, float]] = {}
    for cell in cells:
        own = [s for s in spans if s.arm == cell.recipe and s.started_ns in cell.started_ns[cell.warmups :]]
        if len(own) != len(cell.started_ns) - cell.warmups:
            raise InvalidData(f"block {cell.block}, arm `{cell.recipe}`: {len(own)} repetitions have stamps of steps")
        rates = [step_rate(span, [one for one in requests if belongs(one, span)]) for span in own]
        found.setdefault(cell.recipe, {})[cell.block] = statistics.median(rates)
    return found


def belongs(request: VllmRequest, span: VllmSpan) -> bool:
    """Whether a request was served in a repetition: cells of one host follow each other on one clock."""
    return request.arm == span.arm and span.started_ns <= request.submitted_ns <= span.ended_ns


def step_rate(span: VllmSpan, requests: list[VllmRequest]) -> float:
    """Decode steps a second while every request had its first token and none its last.

    Raises InvalidData where stamps lack, or are not as many steps as the scheduler counted.
    """
    if len(requests) != span.requests or any(not one.completion_steps for one in requests):
        raise InvalidData(f"arm `{span.arm}`: {len(requests)} of {span.requests} requests have stamps")
    first = max(one.completion_steps[0] for one in requests)
    last = min(one.completion_steps[-1] for one in requests)
    if last - first != span.full_steps or last <= first:
        raise InvalidData(f"arm `{span.arm}`: {last - first} full steps by stamps, {span.full_steps} by the scheduler")
    return (last - first) * NS_PER_S / (span.step_ns[last] - span.step_ns[first])


def ratio(
    arm: str,
    control: str,
    endpoint: str,
    rates: dict[str, dict[int, float]],
    engines: dict[str, VllmEngine],
    batch: int,
) -> VllmRatio:
    """One arm over the control; raises InvalidData unless both have every block."""
    ours, theirs = rates.get(arm, {}), rates.get(control, {})
    if sorted(ours) != sorted(theirs) or not ours:
        raise InvalidData(f"arm `{arm}` has blocks {sorted(ours)}, `{control}` has {sorted(theirs)}")
    ratios = [ours[block] / theirs[block] for block in sorted(ours)]
    wins = sum(one > 1 for one in ratios)
    return VllmRatio(
        arm=arm, control=control, endpoint=endpoint, batch=batch, ratios=ratios, median=statistics.median(ratios),
        wins=wins, sign_p=sign_test(wins, len(ratios)).p,
        capacity_ratio=per_byte(engines[arm]) / per_byte(engines[control]),
        capacity_limit=engines[control].token_layer_bytes / engines[arm].token_layer_bytes,
        dummy_weights=engines[arm].dummy_weights or engines[control].dummy_weights, verdict="descriptive",
    )  # fmt: skip


def per_byte(engine: VllmEngine) -> float:
    """Tokens that one byte of a pool holds."""
    return engine.blocks * engine.block_tokens / engine.pool_bytes


def lacking(arm: VllmEngine, control: VllmEngine) -> list[str]:
    """Whether an arm's pool holds less than its formats allow in the control's bytes, by more than a block."""
    block_bytes = arm.token_layer_bytes * arm.block_tokens * arm.layers
    wanted = int(control.pool_bytes // block_bytes)
    held = int(arm.blocks * control.pool_bytes / arm.pool_bytes)
    return (
        [] if held >= wanted - 1 else [f"arm `{arm.arm}` holds {held} blocks in equal bytes, {wanted} by its formats"]
    )


if __name__ == "__main__":
    main(run)
