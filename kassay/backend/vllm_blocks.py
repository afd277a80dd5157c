"""Blocks of complete requests whose cells are forks of one process: a cell, and what blocks say.

    <folder>/<session>/block-<block>-<position>-<arm>.jsonl     a cell that ended well: the records of a timed cell

A session is one start of a host: its cells follow each other on one clock, and a block counts only if it is whole in
one, has its evidence and broke none of LIMITS (kassay.validity). Blocks of several sessions are put together as ratios,
never as times, and only where all cells served one load on engines that attest the same. Ratios are those of
stages/vllm_ratio.py; test, screen and verdict those of kassay.stats.blocks, where no certificate of quality means
`descriptive`. For trials: the cells of a study are processes from the start (kassay.cell).
"""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kassay import conditions, digest, paths, validity
from kassay.backend import vllm_prompts, workload
from kassay.backend.vllm import Engine, Served
from kassay.backend.vllm_arguments import Asked
from kassay.backend.vllm_passes import passes
from kassay.errors import KassayError
from kassay.kinds.timing import AFTER, BEFORE, TIMED, GpuState, HostState, TimingCell
from kassay.kinds.vllm import VllmEngine, VllmRatio, VllmRequest
from kassay.record import Writer, read_kind
from kassay.stage import Unmet
from kassay.stats.blocks import PlannedContrast, contrast_verdicts
from kassay.stats.orders import Order, balance_report

NAMED = re.compile(r"block-(\d+)-(\d+)-(.+)\.jsonl")
WARM_TOKENS, WARM_PROMPT_TOKENS = 4, 300  # of the warm-up, which has one prompt of the whole length
ALPHA, SCREEN_RATIO = 0.05, 1.01
UNCERTIFIED = "the weights are drawn: no quality is known, so there is no certificate"
RATIO = "vllm_ratio"
LIMITS: validity.Limits = {  # as in study decode-native: power holds clocks down in every large prefill of both arms
    "cached_tokens": 0, "power_capped_percent": 100, "slowdown_percent": 0, "foreign_gpu_processes": 0,
    "foreign_cpu_percent": None, "drift_percent": None,
}  # fmt: skip

Place = tuple[int, int, str]  # block, position, arm


@dataclass(frozen=True, kw_only=True)
class Load:
    """What each cell serves."""

    model: str  # name of the geometry
    batch: int
    context_tokens: int
    output_tokens: int
    seed: int

    def prompts(self) -> list[list[int]]:
        """The same rows in every cell."""
        return vllm_prompts.drawn(self.batch, self.context_tokens, self.seed)

    def warm(self) -> list[list[int]]:
        """One prompt as long, the others short: every shape of the load has run once, in a small part of its time."""
        long = vllm_prompts.drawn(1, self.context_tokens, self.seed + 1)
        return long + vllm_prompts.drawn(self.batch - 1, WARM_PROMPT_TOKENS, self.seed + 2)


def file_of(folder: Path, place: Place) -> Path:
    """Where the records of a cell lie once it has ended well."""
    return folder / "block-{}-{}-{}.jsonl".format(*place)


def measure(folder: Path, place: Place, asked: Asked, load: Load) -> None:
    """A cell: a fresh engine, a short warm-up, one complete batch, the conditions before and after. For a fork.

    Raises Unmet where the GPU's conditions cannot be recorded.
    """
    block, position, arm = place
    around = {"load": TIMED, "block": block, "pilot": False, "position": position, "recipe": arm}
    gpus = conditions.Gpus()
    if gpus.lack:
        raise Unmet(f"the conditions of the GPU cannot be recorded: {gpus.lack}")
    untouched, rows = gpus.states(around, BEFORE), load.prompts()
    engine = Engine(asked, arm)
    warmed = engine.serve(load.warm(), WARM_TOKENS, repetition=0, warmup=True, forced=True)
    before = conditions.host_state(around, BEFORE)
    served = engine.serve(rows, load.output_tokens, repetition=1, warmup=False, forced=True)
    after = [conditions.host_state(around, AFTER), *gpus.states(around, AFTER)]
    partial = file_of(folder, place).with_suffix(".partial")
    partial.unlink(missing_ok=True)
    writer = Writer(partial)
    found = [before, *untouched, engine.attest(), timing(around, load, served, rows), *after]
    for record in [*found, warmed.span, served.span, *served.requests]:
        writer.append(record)
    writer.close()
    partial.rename(file_of(folder, place))


def timing(around: Mapping[str, Any], load: Load, served: Served, rows: list[list[int]]) -> TimingCell:
    """The measured repetition as every judge of timing reads it; the warm-up, another load, stands in its span."""
    import torch

    span, prompts_BT = served.span, torch.tensor(rows)
    steps, full = passes(served.requests)
    return TimingCell(
        **around, model=load.model, batch=load.batch, context_tokens=load.context_tokens,
        output_tokens=load.output_tokens, warmups=0, started_ns=[span.started_ns], ended_ns=[span.ended_ns],
        request_tokens=[[request.output_tokens for request in served.requests]],
        prefilled_tokens=[span.prefilled_tokens], decode_steps=[steps], full_steps=[full],
        preemptions=[span.preemptions], prompts_sha256=workload.rows_digest(prompts_BT),
        prompt_sha256s=[workload.rows_digest(row) for row in prompts_BT],
        output_sha256s=[digest.of_value(served.outputs)], pid=os.getpid(),
    )  # fmt: skip


def whole(session: Path, orders: Sequence[Order]) -> dict[int, list[Path]]:
    """Block -> its cells' files in order, of the blocks that are whole. Raises KassayError for a cell of no plan."""
    found: dict[int, dict[int, Path]] = {}
    for path in sorted(session.glob("block-*.jsonl")):
        named = NAMED.fullmatch(path.name)
        block, position, arm = (int(named[1]), int(named[2]), named[3]) if named else (-1, -1, "")
        if not 0 <= block < len(orders) or orders[block][position : position + 1] != (arm,):
            raise KassayError(f"{path}: the plan of {len(orders)} blocks has no such cell")
        found.setdefault(block, {})[position] = path
    return {
        block: [cells[position] for position in sorted(cells)]
        for block, cells in sorted(found.items())
        if len(cells) == len(orders[block])
    }


def invalid(blocks: Mapping[int, Sequence[Path]]) -> list[validity.Fault]:
    """Why blocks of a session do not count: cells that lack evidence, and conditions beyond LIMITS."""
    files = [path for cells in blocks.values() for path in cells]
    found = validity.Evidence(
        cells=tuple(one for path in files for one in read_kind(path, TimingCell)),
        hosts=tuple(one for path in files for one in read_kind(path, HostState)),
        gpus=tuple(one for path in files for one in read_kind(path, GpuState)),
    )
    return validity.faults(found, LIMITS)


def require_alike(files: Iterable[Path]) -> None:
    """Raise KassayError unless all cells served one load, and the engines of each arm attest the same on one device."""
    loads: dict[tuple[Any, ...], Path] = {}
    engines: dict[str, tuple[dict[str, Any], Path]] = {}
    for path in files:
        for cell in read_kind(path, TimingCell):
            sizes = (cell.model, cell.batch, cell.context_tokens, cell.output_tokens, cell.prompts_sha256)
            loads.setdefault(sizes, path)
        for engine in read_kind(path, VllmEngine):
            told = asdict(engine) | {"events": []}  # their order is no property of it
            first, where = engines.setdefault(engine.arm, (told, path))
            if unlike := [name for name in told if told[name] != first[name]]:
                raise KassayError(f"{path}: `{engine.arm}` has another {', '.join(unlike)} than in {where}")
    if len(loads) > 1:
        first_file, other, *_ = loads.values()
        raise KassayError(f"{other}: another load than in {first_file}: their blocks are not put together")


def ratios(session: Path, blocks: Mapping[int, Sequence[Path]], control: str) -> list[VllmRatio]:
    """What stages/vllm_ratio.py says of a session's whole blocks. Raises KassayError with its words if it failed."""
    directory = session / RATIO
    directory.mkdir(exist_ok=True)
    gathered = directory / "timing.jsonl"
    gathered.write_bytes(b"".join(path.read_bytes() for cells in blocks.values() for path in cells))
    (directory / paths.RECORDS).unlink(missing_ok=True)
    given = {"path": str(gathered), "sha256": digest.of_path(gathered)}
    request = {
        "schema": "kassay.request/2", "run": "by-hand", "run_dir": str(session), "stage": RATIO,
        "params": {"control": control}, "inputs": {"timing": given}, "attempt": 1, "roots": [str(paths.ROOT)],
        "grant": {"cpus": 1, "memory_gib": 1, "gpus": 0, "gpu_ids": [], "exclusive": False},
    }  # fmt: skip
    digest.write_json(directory / paths.REQUEST, request)
    argv = [sys.executable, str(paths.program(RATIO)), str(directory)]
    around = {**os.environ, "PYTHONPATH": os.pathsep.join([str(paths.ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(argv, capture_output=True, text=True, env=around, check=False)
    if done.returncode not in (0, 3):  # 3: a pool that holds too little, which its records say
        raise KassayError(f"{session}: {RATIO} ended with {done.returncode}: {done.stderr[-400:]}")
    return read_kind(directory / paths.RECORDS, VllmRatio)


def said(folder: Path, orders: Sequence[Order], control: str) -> dict[str, Any]:
    """What all sessions under a folder say together. Raises KassayError without one, and for a block that two have.

    The same for cells of different loads or engines (`require_alike`).
    """
    if not folder.is_dir():
        raise KassayError(f"{folder}: no blocks were run here", hint="scripts/vllm-trial.py blocks")
    by_block: dict[tuple[str, str], dict[int, float]] = {}
    capacity: dict[str, float] = {}
    faults: list[validity.Fault] = []
    found = {path: whole(path, orders) for path in sorted(folder.iterdir()) if path.is_dir()}
    files = [path for blocks in found.values() for cells in blocks.values() for path in cells]
    require_alike(files)
    there = Counter(block for blocks in found.values() for block in blocks)
    if twice := [block for block, count in there.items() if count > 1]:
        raise KassayError(f"{folder}: block {min(twice)} is in several sessions")
    for session, blocks in found.items():
        own = invalid(blocks)
        faults += own
        counted = {block: blocks[block] for block in blocks if block not in {one.block for one in own}}
        for one in ratios(session, counted, control) if counted else []:
            capacity[one.arm] = one.capacity_ratio
            by_block.setdefault((one.endpoint, one.arm), {}).update(zip(counted, one.ratios, strict=True))
    run = sorted({block for made in by_block.values() for block in made})
    return {
        "planned_blocks": len(orders),
        "blocks": run,
        "faults": [asdict(one) for one in faults],
        "control": control,
        "balance": asdict(balance_report([orders[block] for block in run])) if run else None,
        "contrasts": contrasts(by_block, control, len(orders)),
        "capacity": capacity,
        "tokens": tokens(files),
    }


def contrasts(
    by_block: Mapping[tuple[str, str], Mapping[int, float]], control: str, planned: int
) -> list[dict[str, Any]]:
    """Each endpoint's family: median, interval, exact sign test, Holm over its arms, screen, verdict."""
    told = []
    for endpoint in sorted({endpoint for endpoint, _ in by_block}):
        found = {arm: [each[block] for block in sorted(each)] for (at, arm), each in by_block.items() if at == endpoint}
        family = [
            PlannedContrast(contrast=arm, candidate=arm, control=control, certificate="unestablished",
                            ratios=tuple(values) if len(values) > 1 else None, reason=UNCERTIFIED)
            for arm, values in found.items()
        ]  # fmt: skip
        count = len(next(iter(found.values())))
        verdicts = contrast_verdicts(
            family, planned_blocks=count, alpha=ALPHA, interval_alpha=ALPHA, screen_ratio=SCREEN_RATIO,
            invalid="" if count == planned else f"{count} of {planned} planned blocks count",
        )  # fmt: skip
        for one in verdicts:
            figures = one.figures()
            median = figures["median"]
            told.append(
                {"endpoint": endpoint, "candidate": one.candidate, **figures,
                 "screen_reached": None if median is None else bool(median >= SCREEN_RATIO),
                 "verdict": one.verdict, "reason": one.reason}
            )  # fmt: skip
    return told


def tokens(files: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Arm -> whether its cells, each a process of its own, gave the same tokens, and which requests did not."""
    outputs: dict[str, list[dict[int, str]]] = {}
    for path in files:
        kept = [one for one in read_kind(path, VllmRequest) if not one.warmup]
        outputs.setdefault(kept[0].arm, []).append({one.request: one.output_sha256 for one in kept})
    told = {}
    for arm, cells in sorted(outputs.items()):
        differ = sorted({request for cell in cells for request in cell if cell[request] != cells[0].get(request)})
        told[arm] = {"cells": len(cells), "requests": len(cells[0]), "same": not differ, "requests_that_differ": differ}
    return told


def lines(found: Mapping[str, Any]) -> list[str]:
    """What `said` found, for a reader."""
    made = [f"blocks {found['blocks']} of {found['planned_blocks']}, capacity {found['capacity']}"]
    for one in found["faults"]:
        made.append(
            f"block {one['block']} does not count: {one['rule']}, {one['recipe'] or 'the block'}: {one['said']}"
        )
    for one in found["contrasts"]:
        blocks = len(one["ratios"] or [])
        made.append(
            f"{one['candidate']} / {found['control']}, {one['endpoint']}: median {one['median']}, {one['wins']} of "
            f"{blocks} won, p {one['p']}, screen reached: {one['screen_reached']}; {one['verdict']}: {one['reason']}"
        )
    for arm, told in found["tokens"].items():
        same = "the same tokens" if told["same"] else f"requests {told['requests_that_differ']} differ"
        made.append(f"{arm}: {same} in {told['cells']} cells of {told['requests']} requests")
    return made
