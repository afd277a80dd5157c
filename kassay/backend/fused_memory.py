"""Memory of the fused backend: what a decoder holds of each arm while it prefills and while it decodes under graphs.

Two phases on the cache of the requests, `prefill` and `decode`, then the caches at equal blocks and at equal bytes
where these are asked for; one arm at a time, its memory given back before the next. A sequence has `context_tokens`
tokens at its end, `output_tokens` of them decoded and a shared prefix among them. At equal slots every arm has room for
the same tokens of the same sequences; a prefix that is stored once is counted for each of them, its bytes once. At
equal bytes an arm takes as many pages as fit, or, in a study of prefixes, as many whole sequences.

`allocated parts` asks the allocator whether anything is counted twice: the parts of an arm are tensors of its own, so
they sum to no more than what it says is in tensors.
"""

import gc
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from kassay.backend import fused, fused_arms, fused_holdings, holdings
from kassay.backend.fused_arms import Arm
from kassay.backend.fused_cache import PagedCache, Scales
from kassay.backend.fused_prefix import Operands, Prefix
from kassay.backend.fused_stage import prompts_of, scales_of, weights_of
from kassay.backend.fused_weights import Weights, key_bias_of
from kassay.errors import KassayError
from kassay.kernels.launch import host_of
from kassay.kv.accounting import accounted, cache_parts
from kassay.kv.audit import ArmMemory, MemoryFinding
from kassay.kv.budget import ALLOCATORS, Cartridge, Pool, pages_in, request_payload, requests_in
from kassay.kv.geometry import SCALE_BYTES, Geometry, fixed_scales, layout_of, token_bytes
from kassay.kv.paged import PagedShape
from kassay.memory_limits import Limits
from kassay.memory_records import (
    BLOCKS,
    BUDGET,
    FILL,
    GATES,
    answered,
    append_parts,
    audits,
    ceilings,
    parts_finding,
    watched,
)
from kassay.memory_sources import Found
from kassay.stage import Metrics, Rejection, Stage
from kassay.telemetry import Window

PREFILL, DECODE = "prefill", "decode"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many sequences of which lengths are held."""

    batch: int
    tokens: int  # of a sequence at its end, prefix and output included
    output_tokens: int
    positions: int  # of a prefix; 0: there is none
    page_tokens: int

    def own(self, arm: Arm) -> int:
        """Tokens of a sequence in its own pages at its end."""
        return self.tokens - (self.positions if arm.once else 0)

    def pages(self, arm: Arm) -> int:
        """Pages of its own."""
        return -(-self.own(arm) // self.page_tokens)


class Holder:
    """One decoder's weights, and everything that each arm is made from."""

    def __init__(self, stage: Stage, limits: Limits, found: Found) -> None:
        params = stage.params
        self.stage, self.limits, self.found = stage, limits, found
        self.section: Mapping[str, Any] | None = params["backend"].get("prefix")
        self.sizes = Sizes(
            batch=params["batch"], tokens=params["context_tokens"], output_tokens=params["output_tokens"],
            positions=0 if self.section is None else self.section["positions"], page_tokens=limits.page_tokens,
        )  # fmt: skip
        if self.section is not None and self.section["page_tokens"] != limits.page_tokens:
            raise KassayError(f"a prefix in pages of {self.section['page_tokens']}, pools of {limits.page_tokens}")
        self.arms = fused_arms.arms_of(params["recipes"], self.section, params["sixteen"])
        self.weights: Weights = weights_of(stage)
        self.device = self.weights.embedding.device
        asked = any(recipe.policy == "fixed" for arm in self.arms for recipe in arm.recipes())
        self.scales: Scales | None = scales_of(stage, self.weights) if asked else None
        self.ids_P = fused_arms.prefix_ids(self.weights, self.sizes.positions, params["seed"])
        self.operands: Operands = (
            fused_arms.operands_of(self.weights, self.ids_P, params["sixteen"]) if len(self.ids_P) else []
        )  # fmt: skip

    def prefix(self, arm: Arm) -> Prefix | None:
        """An arm's prefix, stored anew."""
        return fused_arms.prefix_of(arm, self.weights, self.operands, self.sizes.page_tokens, self.scales)

    def prefilled(self, arm: Arm, staged: fused_holdings.Staged) -> fused.Decoder:
        """A decoder that holds all prompts; of a copied prefix every prompt has its own. The device is idle."""
        sizes, seed = self.sizes, self.stage.params["seed"]
        plan = fused.Plan(
            batch=sizes.batch, row_tokens=sizes.own(arm), steps=sizes.output_tokens, page_tokens=sizes.page_tokens,
            uneven=False, sizes=(sizes.batch,),
        )  # fmt: skip
        decoder = fused.Decoder(self.weights, arm.own, plan, self.scales, self.prefix(arm))
        fresh = sizes.tokens - sizes.positions - sizes.output_tokens + 1  # the last one is decoded
        ids_BT = prompts_of(self.weights, sizes.batch, fresh, seed)
        if arm.copied:
            ids_BT = torch.cat([self.ids_P.expand(sizes.batch, -1), ids_BT], dim=1)
        decoder.step.staged = staged
        decoder.admit(ids_BT, sizes.output_tokens)
        decoder.step.staged = None
        idle(self.device)
        return decoder

    def filled(self, arm: Arm, count: int, whole: bool) -> tuple[PagedCache, Prefix | None]:
        """A cache of so many pages, or `whole` sequences, every slot in use, and the prefix beside it."""
        geometry, sizes = self.weights.geometry, self.sizes
        pages = count * sizes.pages(arm) if whole else count
        shape = PagedShape(
            pages=pages, page_tokens=sizes.page_tokens, kv_heads=geometry.kv_heads, head_dim=geometry.head_dim
        )  # fmt: skip
        own = self.scales if arm.own.policy == "fixed" else None
        rows, row_tokens = (count, sizes.own(arm)) if whole else (1, shape.slots)
        cache = PagedCache(
            arm.own, shape, geometry.layers, self.device, own, rows=rows, row_tokens=row_tokens,
            key_bias=key_bias_of(self.weights, arm.own),
        )  # fmt: skip
        cache.draw(host_of(self.device), self.stage.params["seed"])
        prefix = self.prefix(arm)
        idle(self.device)
        return cache, prefix

    def pool(self, arm: Arm) -> Pool:
        """The arithmetic of an arm's cache."""
        geometry = self.weights.geometry
        return Pool(
            layout=layout_of(
                Geometry(layers=geometry.layers, kv_heads=geometry.kv_heads, head_dim=geometry.head_dim)
            ),
            recipe=arm.own,
            page_tokens=self.sizes.page_tokens,
            cartridge=Cartridge(positions=self.sizes.positions, recipe=arm.once) if arm.once else None,
            allocator=ALLOCATORS[0],
        )  # fmt: skip

    def audited(self, arm: Arm, cache: PagedCache, prefix: Prefix | None, sequences: int) -> ArmMemory:
        """What the audits compare: the cache as it was allocated, all slots in use."""
        pool = self.pool(arm)
        parts = cache_parts(accounted(fused_holdings.cache_held(cache, prefix)))
        layout, own = pool.layout, token_bytes(pool.layout, arm.own)
        planned = own * cache.shape.slots + fixed_scales(layout, arm.own) * SCALE_BYTES
        shared = 0
        if arm.once is not None:
            planned += token_bytes(layout, arm.once) * self.sizes.positions
            planned += fixed_scales(layout, arm.once) * SCALE_BYTES
            shared = sequences * self.sizes.positions
        next_bytes = request_payload(pool, self.sizes.own(arm)) if self.section else own * self.sizes.page_tokens
        return ArmMemory(
            arm=arm.name,
            slots=cache.shape.slots + shared,
            planned_bytes=planned,
            payload_bytes=sum(part.payload_bytes for part in parts),
            backing_bytes=sum(part.backing_bytes for part in parts),
            page_bytes=next_bytes,
            tail_bytes=0,  # a storage is as large as its tensor; what an allocator rounds up is in its own numbers
        )

    def others(self, arm: Arm) -> dict[str, int]:
        """Phase -> pages, or whole sequences in a study of prefixes, of the caches at equal blocks and equal bytes."""
        found = {}
        if self.limits.equal_slots_blocks is not None:
            if self.section is not None:
                raise KassayError("equal blocks are asked for, and a shared prefix is in blocks of its own: null")
            found[BLOCKS] = self.limits.equal_slots_blocks
        if (budget := self.limits.budget_bytes) is not None:
            pool = self.pool(arm)
            fit = requests_in(pool, budget, self.sizes.own(arm)) if self.section else pages_in(pool, budget, 1)
            found[BUDGET] = fit.count
        return found


def run(stage: Stage, found: Found, limits: Limits) -> Metrics | Rejection:
    """Parts, windows and gates of every arm."""
    holder = Holder(stage, limits, found)
    arms: dict[str, list[ArmMemory]] = defaultdict(list)  # gate -> the arms' caches in their order
    windows: list[Window] = []
    peaks: list[int] = []
    doubled: list[MemoryFinding] = []
    for done, arm in enumerate(holder.arms, start=1):
        arms[GATES[FILL]].append(decoded(holder, arm, windows, peaks, doubled))
        release(holder.device)
        for phase, count in holder.others(arm).items():
            arms[GATES[phase]].append(filled(holder, arm, phase, count, windows, peaks))
            release(holder.device)
        stage.progress(done, len(holder.arms), arm.name)
    findings = [*audits(limits, arms), *doubled, *ceilings(limits, windows, peaks)]
    return answered(stage, findings, arms, windows, found)


def decoded(
    holder: Holder, arm: Arm, windows: list[Window], peaks: list[int], doubled: list[MemoryFinding]
) -> ArmMemory:
    """The requests' cache through prefill and decode; its parts are records."""
    stage, staged = holder.stage, fused_holdings.Staged()
    asked = (stage, arm.name)
    holdings.reset_peaks(holder.device)
    decoder, own = watched(*asked, PREFILL, holder.found, holder.limits, partial(holder.prefilled, arm, staged))
    windows += own
    peaks += holdings.reserved_peaks(*asked, PREFILL, holder.device)
    holdings.reset_peaks(holder.device)
    _, own = watched(*asked, DECODE, holder.found, holder.limits, partial(stepped, decoder, holder.sizes.output_tokens))
    windows += own
    peaks += holdings.reserved_peaks(*asked, DECODE, holder.device)
    weights = fused_holdings.weights_held(decoder)
    beside = [*fused_holdings.tables_held(decoder), *fused_holdings.scratch_held(decoder)]
    cache = fused_holdings.cache_held(decoder.cache, decoder.prefix, fused_holdings.used_tokens(decoder))
    doubled += allocated_parts(arm, sum(one.backing_bytes for one in accounted([*cache, *beside, *weights])), holder)
    append_parts(stage, arm.name, [*cache, *beside, *(weights if arm is holder.arms[0] else [])])
    append_parts(stage, arm.name, staged.held)  # gone by now: its place may be another tensor's
    return holder.audited(arm, decoder.cache, decoder.prefix, holder.sizes.batch)


def stepped(decoder: fused.Decoder, steps: int) -> None:
    """All decode steps, graph capture included. Waits for the device."""
    decoder.run(steps)
    decoder.collect()


def filled(holder: Holder, arm: Arm, phase: str, count: int, windows: list[Window], peaks: list[int]) -> ArmMemory:
    """A cache at equal blocks or at equal bytes."""
    holdings.reset_peaks(holder.device)
    work = partial(holder.filled, arm, count, whole=holder.section is not None)
    (cache, prefix), own = watched(holder.stage, arm.name, phase, holder.found, holder.limits, work)
    windows += own
    peaks += holdings.reserved_peaks(holder.stage, arm.name, phase, holder.device)
    return holder.audited(arm, cache, prefix, count)


def allocated_parts(arm: Arm, parts_bytes: int, holder: Holder) -> list[MemoryFinding]:
    """Whether the parts fit into what the allocator says is in tensors; nothing where there is none."""
    if holdings.absent_allocator(holder.device):
        return []
    allocated = holdings.allocator_state(holder.device).allocated_bytes
    return [parts_finding(arm.name, parts_bytes, allocated)]


def idle(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    """Give back what an arm that is gone had of the driver: the next one's numbers are then its own.

    cuBLAS keeps a workspace of 32 MiB for every stream that it met, that of a capture in the pool of its graph, which
    would outlive the graph (seen on an H200).
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
