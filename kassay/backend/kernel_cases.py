"""Our kernels under the oracle: what the writing kernel stores, what decode attention makes of it, and faults.

Axes: R sequences, B requests, H query heads, G KV heads, S stored tokens, D head dim, X pages of a sequence.

Operands of a few requests, a model's own or drawn ones, are cut to lengths around page boundaries and written by the
kernel into a pool at random pages, prompts at once and last tokens one by one. Codes and scales are held bit for bit
against kassay.kv.formats; output and log-normalizer, at one split and at several, over single heads and pairs where
there are some, against float64 attention on what lies in the pages, within the rounding of a kernel that weighs in 16
bits (kassay.kv.oracle). Run twice, and from other pages written in another order, it returns the same bits.

Faults of kassay.kv.mutation are put into the pages of whole requests, those of a scheduler into table and lengths.
What a decode kernel cannot be given is not injected, and said: one query sees every token, and codes have one format.
"""

from dataclasses import replace

import numpy as np
import torch

from kassay.backend.judging import Found, Verdict
from kassay.backend.kernel_operands import Given
from kassay.backend.kernel_pool import KernelPool
from kassay.backend.paged_cases import LENGTHS, faults_in
from kassay.errors import KassayError
from kassay.kernels.launch import host_of, shape_of
from kassay.kernels.shape import refusals
from kassay.kernels.split import Cut, Tile
from kassay.kv import oracle
from kassay.kv.expected import quantized
from kassay.kv.mutation import MUTATIONS, inert
from kassay.kv.oracle import Comparison, Component, Stored
from kassay.kv.paged import PagedLayer
from kassay.kv.plane import as_numpy
from kassay.kv.prebias import KeyBias, RotatedBias
from kassay.kv.recipe import Recipe

CUTS = (Cut(tile=Tile(tokens=64, warps=4, stages=3), splits=1), Cut(tile=Tile(tokens=32, warps=1, stages=3), splits=4))
PAIRS = Cut(tile=Tile(tokens=32, warps=1, stages=3, heads=2), splits=2)
NOT_OF_DECODE = ("causal_mask_missing", "e4m3fnuz_decoding")


def judge_kernels(verdict: Verdict, recipe: Recipe, index: int, given: Given, page_tokens: int, case: str) -> None:
    """All cases of one layer of one recipe; `case` begins their names."""
    host = host_of(given.k_BGSD.device)
    lengths = tuple(one for one in LENGTHS if one < given.whole) + (given.whole,) * given.k_BGSD.shape[0]
    pool, other = (KernelPool(recipe, given, host, page_tokens, seed, lengths) for seed in (0, 1))
    shape = shape_of(pool.layer, given.q_BHSD.shape[1])
    if reasons := refusals(host, shape, prebias=True):
        raise KassayError(f"the oracle was asked for what the kernels refuse: {'; '.join(reasons)}")
    wanted = [pool.expected(row) for row in range(len(lengths))]
    verdict.clean(recipe, index, f"{case}-stored", stored_bits(pool, given))
    for cut in (*CUTS, PAIRS) if shape.pairs else CUTS:
        once, again = (pool.attended(pool.batch(), cut) for _ in range(2))
        moved = other.attended(other.batch(), cut)
        found = against(wanted, once)
        same = [oracle.compare_bits(a, b) for a, b in (*zip(once, again, strict=True), *zip(once, moved, strict=True))]
        found["storage"] = max(same, key=lambda one: one.max_abs_error)
        verdict.clean(recipe, index, f"{case}-{cut.splits}", found)
    clean = pool.batch()
    for fault in faults_in(page_tokens):
        faulty = fault.inject(clean, pool.shape)
        verdict.fault(
            recipe, index, f"{case}-page", fault.name, against(wanted, pool.attended(faulty, CUTS[0])),
            not faulty.same(clean),
        )  # fmt: skip
    judge_faults(verdict, recipe, index, given, page_tokens, case)


def judge_faults(verdict: Verdict, recipe: Recipe, index: int, given: Given, page_tokens: int, case: str) -> None:
    """Faults of what is stored, in the pages of whole requests."""
    host = host_of(given.k_BGSD.device)
    requests = given.k_BGSD.shape[0]
    pool = KernelPool(recipe, given, host, page_tokens, 0, (given.whole,) * requests)
    wanted = [pool.expected(row) for row in range(requests)]
    keys, values = (joined([pool.held(row)[at] for row in range(requests)]) for at in (0, 1))
    rotated_GSD = pool.rotated(given.whole)
    operand_BGSD = wide(given.k_BGSD) - (0 if rotated_GSD is None else rotated_GSD)
    keys = replace(keys, operand_BGSD=operand_BGSD, other_scale=values.scale)
    values = replace(values, operand_BGSD=wide(given.v_BGSD), other_scale=keys.scale)
    q = pool.queries().float().cpu().numpy()[:, :, None]
    stored = Stored(keys=keys, values=values, q_BHTD=q, first_query=given.whole - 1, causal=True)
    for mutation in MUTATIONS:
        if not mutation.applies(recipe) or mutation.name in NOT_OF_DECODE or not mutation.reaches(stored):
            continue
        faulty = mutation.inject(stored)
        if (layer := planted(pool, faulty)) is None:
            continue
        tokens = faulty.keys.data_BGSD.shape[2]
        batch = replace(pool.batch(), lengths_R=torch.full((requests,), tokens))
        found = against(wanted, pool.attended(batch, CUTS[0], layer)) | differing(stored, faulty)
        verdict.fault(recipe, index, f"{case}-fault", mutation.name, found, not inert(stored, faulty))


def wide(x: torch.Tensor) -> np.ndarray:
    """Operands in FP32 on the host."""
    return x.float().cpu().numpy()


def joined(parts: list[Component]) -> Component:
    """Components of single sequences as one batch."""
    first = parts[0]
    scale = first.scale
    if scale is not None and scale.ndim == 4:
        scale = np.concatenate([part.scale for part in parts if part.scale is not None])
    return replace(first, data_BGSD=np.concatenate([part.data_BGSD for part in parts]), scale=scale)


def planted(pool: KernelPool, faulty: Stored) -> PagedLayer | None:
    """The layer with the faulty numbers in its pages; None where its planes cannot hold them."""
    layer = pool.empty(pool.layer.recipe, faulty_bias(pool, faulty))
    sides = ((layer.keys, pool.layer.keys, faulty.keys), (layer.values, pool.layer.values, faulty.values))
    for plane, clean, part in sides:
        plane.data_PSHW.copy_(clean.data_PSHW)
        if plane.scale_PHSG is not None and clean.scale_PHSG is not None:
            plane.scale_PHSG.copy_(clean.scale_PHSG)
        data = torch.from_numpy(np.ascontiguousarray(part.data_BGSD.view(np.int16) if part.data_BGSD.dtype.itemsize == 2
                                                     else part.data_BGSD))  # fmt: skip
        if data.shape[-1] != plane.data_PSHW.shape[-1] or data.element_size() != plane.data_PSHW.element_size():
            return None
        if (part.scale is None) != (plane.scale is None and plane.scale_PHSG is None):
            return None
        size = pool.shape.page_tokens
        for row in range(data.shape[0]):
            at = np.arange(data.shape[2])
            pages = pool.table_RX[row, at // size].long().to(pool.device)
            places = torch.from_numpy(at % size).to(pool.device)
            target = plane.data_PSHW.view(torch.int16) if plane.sixteen_bit else plane.data_PSHW
            target[pages, places] = data[row].transpose(0, 1).to(pool.device)
            if plane.scale_PHSG is not None and part.scale is not None:
                scale_GSX = torch.from_numpy(np.array(part.scale[row])).to(pool.device)
                plane.scale_PHSG[pages, :, places] = scale_GSX.transpose(0, 1)
        if plane.scale is not None and part.scale is not None:
            plane.scale.fill_(float(part.scale))
    return layer


class LateBias(KeyBias):
    """A key bias whose positions are one behind."""

    def waves_at(self, positions_T: torch.Tensor) -> torch.Tensor:
        """Those of the position before."""
        return super().waves_at(positions_T - 1)


def faulty_bias(pool: KernelPool, faulty: Stored) -> RotatedBias | None:
    """The bias that attention adds where the fault is in it (none, or that of the position before), else None."""
    clean, found, bias = pool.rotated(pool.given.whole), faulty.keys.offset_GSD, pool.given.bias
    if clean is None or found is None or bias is None or np.array_equal(clean[:, : found.shape[1]], found):
        return None
    if not found.any():
        return replace(bias, bias_HD=0 * bias.bias_HD, held={})
    of = bias.of
    return replace(bias, of=LateBias(bias_LHD=of.bias_LHD, frequencies=of.frequencies, scaling=of.scaling))


def differing(clean: Stored, faulty: Stored) -> Found:
    """Codes and scales of the faulty pages against the clean ones, the worse component of each."""
    found: Found = {}
    for one, two in ((faulty.keys, clean.keys), (faulty.values, clean.values)):
        results = {"codes": oracle.compare_bits(one.data_BGSD, two.data_BGSD)}
        if one.scale is not None and two.scale is not None:
            results["scales"] = oracle.compare_bits(np.atleast_1d(one.scale), np.atleast_1d(two.scale))
        for quantity, result in results.items():
            if quantity not in found or result.max_abs_error > found[quantity].max_abs_error:
                found[quantity] = result
    return found


def against(wanted: list[oracle.Reference], got: tuple[np.ndarray, np.ndarray]) -> Found:
    """Output and log-normalizer of every sequence against its reference; the worst of each."""
    worst: Found = {}
    for row, one in enumerate(wanted):
        out = oracle.compare(
            got[0][row][None, :, None], one.out_BHTD, peak_tolerance=one.output_peak_tolerance,
            tolerance=one.output_tolerance,
        )  # fmt: skip
        lse = oracle.compare(got[1][row][None, :, None], one.lse_BHT, peak_tolerance=one.peak_tolerance)
        for quantity, result in (("output", out), ("log_normalizer", lse)):
            if quantity not in worst or result.worst_ratio > worst[quantity].worst_ratio:
                worst[quantity] = result
    return worst


def stored_bits(pool: KernelPool, given: Given) -> Found:
    """Codes and scales of all sequences against kassay.kv.formats on their operands."""
    results: dict[str, list[Comparison]] = {"codes": [], "scales": []}
    recipe = pool.layer.recipe
    sides = zip((given.k_BGSD, given.v_BGSD), (recipe.key_format, recipe.value_format), strict=True)
    fixed = [None if one is None else np.float32(one) for one in (given.scales.keys, given.scales.values)]
    for at, (x_BGSD, stored) in enumerate(sides):
        for row, length in enumerate(pool.lengths):
            operand = as_numpy(x_BGSD[row % len(x_BGSD)][None, :, :length])
            scale = None if fixed[at] is None else np.asarray(fixed[at])
            offset = pool.rotated(length) if at == 0 else None
            should = quantized(recipe, stored, operand, (length,), scale, offset)
            holds = pool.held(row)[at]
            results["codes"].append(oracle.compare_bits(holds.data_BGSD, should.data_BGSD))
            if should.scale is not None and holds.scale is not None:
                results["scales"].append(
                    oracle.compare_bits(np.atleast_1d(holds.scale), np.atleast_1d(should.scale))
                )  # fmt: skip
    return {name: max(made, key=lambda one: one.max_abs_error) for name, made in results.items() if made}
