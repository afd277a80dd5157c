"""What does fused INT4 attention gain over 16-bit baselines that expand the heads or do not, split or whole?

One record an arm, head layout, batch and context. All arms of a cell are captured in CUDA graphs and replayed once in
each round, in turns (kassay.kernels.timing); every call reads pages that lie 128 MB or more of K16/V16 before their
next reader. Nothing is tuned: cuts are the rule's, so that no arm is favoured by a search.

Rejected where an output is wrong. A grid that the time was too short for is no result: it ends as crashed, with what
it measured kept.
"""

import multiprocessing
import time
from typing import Any

from kassay.errors import KassayError
from kassay.kinds.fusion import FusionCell
from kassay.stage import Metrics, Rejection, Stage, Unmet, main

COLD_BYTES = 128e6  # of K16/V16 that a graph reads: twice an H200's L2
GRAPH_US = 1200.0  # of the whole-context K16/V16 arm: a graph's own launch is 6 us
WORST = 5e-4  # relative error of an output in FP16


def run(stage: Stage) -> Metrics | Rejection:
    """The grid, layout by layout."""
    import torch

    if not torch.cuda.is_available():
        raise Unmet(f"torch {torch.__version__} of the stack sees no GPU")
    from kassay.kernels.ceiling import copy_ceiling
    from kassay.kernels.launch import host_of

    device = torch.device("cuda")
    with torch.no_grad():
        copies = [copy_ceiling(device)]
        measured = Measured(stage, host_of(device), device)
        measured.compile()
        measured.go()
        copies.append(copy_ceiling(device))
    metrics: Metrics = {
        "cells": measured.cells,
        "arms that did not run": measured.failed,
        "largest error": measured.largest_error,
        "copy before and after (TB/s)": [round(rate, 3) for rate in copies],
    }
    if measured.wrong:
        return stage.rejected(f"{len(measured.wrong)} outputs are wrong ({measured.wrong[0]})", **metrics)
    return metrics


class Measured:
    """The grid as far as it is measured."""

    def __init__(self, stage: Stage, host: Any, device: Any) -> None:
        from kassay.kernels.workload import Heads

        self.stage, self.host, self.device, grid = stage, host, device, stage.params["grid"]
        self.layouts = [
            Heads(
                query_heads=query, kv_heads=kv, head_dim=grid["head_dim"], page_tokens=grid["page_tokens"]
            )
            for query, kv in grid["layouts"]
        ]  # fmt: skip
        sizes = [(batch, tokens) for tokens in grid["contexts_tokens"] for batch in grid["batches"]]
        self.sizes = [(batch, tokens) for batch, tokens in sizes if batch * tokens <= grid["largest_tokens"]]
        self.rounds: int = grid["rounds"]
        self.cells = self.failed = 0
        self.largest_error = 0.0
        self.wrong: list[str] = []

    def compile(self) -> None:
        """Everything that will run, side by side. Raises KassayError for a kernel that does not compile."""
        from kassay.kernels.fusion import ORDER, TORCH, cut_of_arm, precompile
        from kassay.kernels.split import Cut

        jobs = {
            (heads, name.replace("expanding", "expanded"), Cut(tile=cut.tile, splits=min(2, cut.splits)))
            for heads in self.layouts
            for name in ORDER
            if name != TORCH
            for batch, tokens in self.sizes
            for cut in (cut_of_arm(heads, name, self.host, batch, tokens),)
        }
        with multiprocessing.get_context("spawn").Pool(self.stage.cpus) as workers:
            told = list(workers.imap_unordered(precompile, sorted(jobs, key=str)))
        if failed := [one for one in told if one]:
            raise KassayError(f"{len(failed)} kernels do not compile: {failed[0]}")

    def go(self) -> None:
        """Every cell. Raises KassayError where time is up before the last."""
        from kassay.kernels.fusion import Grid

        total, began = len(self.layouts) * len(self.sizes), time.monotonic()
        for heads in self.layouts:
            grid = Grid(heads, max(batch * tokens for batch, tokens in self.sizes), self.host, self.device)
            for batch, tokens in self.sizes:
                if time.monotonic() - began > 60 * self.stage.params["grid"]["minutes"]:
                    raise KassayError(f"{total - self.cells} of {total} cells were not measured: time is up")
                self.measure(grid, batch, tokens)
                self.cells += 1
                self.stage.progress(self.cells, total, f"{heads.query_heads}/{heads.kv_heads} B {batch} T {tokens}")
            del grid

    def measure(self, grid: Any, batch: int, tokens: int) -> None:
        """One cell: check every arm, time all in turns, a record each."""
        import torch

        from kassay.kernels.fusion import ORDER, call_bytes
        from kassay.kernels.timing import captured, interleaved
        from kassay.kernels.workload import Calls

        calls = Calls(grid.pool, [tokens] * batch)
        count = calls_of(grid, calls, call_bytes(grid.heads, "grouped", batch, calls.total))
        graphs, facts = {}, {}
        for name in ORDER:
            body = cell_body(grid.heads, batch, tokens, name) | {"calls": count}
            try:
                arm = grid.arm(calls, name)
                body |= arm_body(arm) | {"error": self.checked(calls, arm)}
                graphs[name] = captured(arm.call, count)
            except (RuntimeError, KassayError) as error:  # out of memory, or a launch that the device refuses
                body |= {"failed": str(error).splitlines()[0][:300], "error": None}
                self.failed += 1
                torch.cuda.empty_cache()
            facts[name] = body
        times = interleaved(graphs, count, self.rounds)
        for name, body in facts.items():
            self.stage.append(FusionCell(**body | {"rounds_us": times.get(name)}))

    def checked(self, calls: Any, arm: Any) -> float | None:
        """Error of the last sequence, into poisoned memory; None for torch's arm."""
        if not arm.recipe:
            return None
        calls.poison()
        arm.call(0)
        error = float(calls.error(arm.recipe, calls.batch - 1)[0])
        self.largest_error = max(self.largest_error, error)
        if not error < WORST:
            heads = calls.pool.heads
            self.wrong.append(
                f"{arm.name}, {heads.query_heads}/{heads.kv_heads}, batch {calls.batch}, context {calls.tokens}: "
                f"{error:.1e}"
            )
        return error


def calls_of(grid: Any, calls: Any, one: int) -> int:
    """Calls of a graph: cold, and long beside its own launch, by the time of whole-context K16/V16."""
    from kassay.kernels.timing import captured, microseconds

    few = min(4, calls.calls)
    took_us = min(microseconds(captured(grid.arm(calls, "grouped").call, few), few, 3)[1:])
    return int(min(calls.calls, max(-(-COLD_BYTES // one), -(-GRAPH_US // took_us), 1)))


def cell_body(heads: Any, batch: int, tokens: int, name: str) -> dict[str, Any]:
    """What a record says of an arm before it ran."""
    from kassay.kernels.fusion import call_bytes

    return {
        "query_heads": heads.query_heads,
        "kv_heads": heads.kv_heads,
        "head_dim": heads.head_dim,
        "page_tokens": heads.page_tokens,
        "batch": batch,
        "context_tokens": tokens,
        "arm": name,
        "splits": None,
        "programs": None,
        "tile": "",
        "call_bytes": call_bytes(heads, name, batch, batch * tokens),
        "failed": "",
    }


def arm_body(arm: Any) -> dict[str, Any]:
    """How it is launched."""
    if arm.cut is None:
        return {}
    tile = arm.cut.tile
    return {
        "splits": arm.cut.splits,
        "programs": arm.programs,
        "tile": f"{tile.tokens}x{tile.warps}x{tile.stages}",
    }


if __name__ == "__main__":
    main(run)
