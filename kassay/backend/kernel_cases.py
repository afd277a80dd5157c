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
from kassay.backend.paged_cases import LENGTHS, SPARE_PAGES, Batch, component, faults_in
from kassay.errors import KassayError
from kassay.kernels import store
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode, host_of, shape_of
from kassay.kernels.shape import refusals
from kassay.kernels.split import Cut, Tile
from kassay.kv import oracle
from kassay.kv.expected import quantized
from kassay.kv.mutation import MUTATIONS, inert
from kassay.kv.oracle import Comparison, Component, Stored
from kassay.kv.paged import PagedLayer, PagedPlane, PagedShape, slots_of
from kassay.kv.plane import as_numpy
from kassay.kv.recipe import Recipe

DECODED = 3  # last tokens of a sequence that are written one by one
CUTS = (Cut(tile=Tile(tokens=64, warps=4, stages=3), splits=1), Cut(tile=Tile(tokens=32, warps=1, stages=3), splits=4))
PAIRS = Cut(tile=Tile(tokens=32, warps=1, stages=3, heads=2), splits=2)
NOT_OF_DECODE = ("causal_mask_missing", "e4m3fnuz_decoding", "bias_forgotten", "bias_late")


class KernelPool:
    """A pool on the device that the kernel wrote, and its reading."""

    def __init__(
        self, recipe: Recipe, given: Given, host: Host, page_tokens: int, seed: int, lengths: tuple[int, ...]
    ) -> None:
        self.given, self.host, self.lengths = given, host, lengths
        requests, kv_heads, _, head_dim = given.k_BGSD.shape
        pages = [-(-length // page_tokens) for length in lengths]
        self.shape = PagedShape(
            pages=sum(pages) + SPARE_PAGES, page_tokens=page_tokens, kv_heads=kv_heads, head_dim=head_dim
        )  # fmt: skip
        self.device = given.k_BGSD.device
        self.layer = PagedLayer(recipe, self.shape, self.device, given.scales)
        free = iter(torch.randperm(self.shape.pages, generator=torch.Generator().manual_seed(seed)).tolist())
        table_RX = torch.zeros((len(pages), max(pages)), dtype=torch.int32)
        for row, count in enumerate(pages):
            table_RX[row, :count] = torch.tensor([next(free) for _ in range(count)], dtype=torch.int32)
        self.table_RX = table_RX
        self._leave_old_tokens()
        slots_RT = slots_of(table_RX, torch.tensor(lengths), self.shape).to(self.device)
        rows = range(len(lengths))
        for row in rows if seed % 2 else reversed(rows):
            prompt = max(1, lengths[row] - DECODED)
            for start, stop in ((0, prompt), *((at, at + 1) for at in range(prompt, lengths[row]))):
                self._write(row % requests, slice(start, stop), slots_RT[row, start:stop].contiguous())

    def _write(self, request: int, tokens: slice, slots_N: torch.Tensor) -> None:
        k_NGD, v_NGD = (
            laid_out(x_BGSD[request, :, tokens].transpose(0, 1)) for x_BGSD in (self.given.k_BGSD, self.given.v_BGSD)
        )
        store.store(self.layer, self.host, k_NGD, v_NGD, slots_N, checked=True)

    def _leave_old_tokens(self) -> None:
        """What an earlier request left: real tokens, in every slot."""
        requests, _, tokens, _ = self.given.k_BGSD.shape
        slots_N = torch.arange(self.shape.slots, device=self.device)
        source = ((slots_N + 1) % requests, (7 * slots_N + 3) % tokens)
        k_NGD, v_NGD = (laid_out(x.transpose(1, 2)[source]) for x in (self.given.k_BGSD, self.given.v_BGSD))
        store.store(self.layer, self.host, k_NGD, v_NGD, slots_N, checked=False)

    def queries(self) -> torch.Tensor:
        """q_RHD of the last token of each sequence."""
        requests = self.given.q_BHSD.shape[0]
        rows = [self.given.q_BHSD[row % requests, :, length - 1] for row, length in enumerate(self.lengths)]
        return torch.stack(rows).contiguous()

    def batch(self) -> Batch:
        """A decode step over all sequences."""
        return Batch(
            table_RX=self.table_RX, lengths_R=torch.tensor(self.lengths), queries_R=(1,) * len(self.lengths)
        )  # fmt: skip

    def attended(self, batch: Batch, cut: Cut, layer: PagedLayer | None = None) -> tuple[np.ndarray, np.ndarray]:
        """out_RHD and lse_RH of the kernel, into memory full of NaN."""
        q_RHD, read = self.queries(), layer or self.layer
        width = batch.table_RX.shape[1] * self.shape.page_tokens
        kernel = Decode(shape_of(read, q_RHD.shape[1]), self.host, self.device, len(q_RHD), width, cut)
        kernel.part.fill_(float("nan"))
        kernel.part_lse.fill_(float("nan"))
        out, lse = torch.full_like(q_RHD, float("nan")), torch.full(q_RHD.shape[:2], float("nan"), device=self.device)
        lengths = batch.lengths_R.to(dtype=torch.int32, device=self.device)
        kernel(q_RHD, read, batch.table_RX.to(self.device), lengths, out, lse)
        return out.float().cpu().numpy(), lse.cpu().numpy()

    def held(self, row: int) -> tuple[Component, Component]:
        """Keys and values of one sequence, read by page and place in numpy."""
        size = self.shape.page_tokens
        pages = [int(self.table_RX[row, at // size]) for at in range(self.lengths[row])]
        places = [at % size for at in range(self.lengths[row])]
        return component(on_host(self.layer.keys), pages, places), component(on_host(self.layer.values), pages, places)

    def expected(self, row: int) -> oracle.Reference:
        """Float64 attention of the last token on what is stored, with the roundings of 16 bits."""
        keys, values = self.held(row)
        q_1H1D = self.queries()[row].float().cpu().numpy()[None, :, None]
        k, v = oracle.decoded(keys), oracle.decoded(values)
        return oracle.reference_of_read(q_1H1D, k, v, self.layer.recipe.sixteen)


def laid_out(x_NGD: torch.Tensor) -> torch.Tensor:
    """The same numbers with heads as neighbours, also where there is one head, whose stride torch leaves as it was."""
    return x_NGD.clone(memory_format=torch.contiguous_format)


def on_host(plane: PagedPlane) -> PagedPlane:
    """The same plane in host memory."""
    found = object.__new__(PagedPlane)
    vars(found).update(vars(plane))
    found.data_PSHW = plane.data_PSHW.cpu()
    found.scale_PHSG = None if plane.scale_PHSG is None else plane.scale_PHSG.cpu()
    found.scale = None if plane.scale is None else plane.scale.cpu()
    return found


def judge_kernels(verdict: Verdict, recipe: Recipe, index: int, given: Given, page_tokens: int, case: str) -> None:
    """All cases of one layer of one recipe; `case` begins their names."""
    host = host_of(given.k_BGSD.device)
    lengths = tuple(one for one in LENGTHS if one < given.whole) + (given.whole,) * given.k_BGSD.shape[0]
    pool, other = (KernelPool(recipe, given, host, page_tokens, seed, lengths) for seed in (0, 1))
    if reasons := refusals(host, shape_of(pool.layer, given.q_BHSD.shape[1])):
        raise KassayError(f"the oracle was asked for what the kernels refuse: {'; '.join(reasons)}")
    wanted = [pool.expected(row) for row in range(len(lengths))]
    verdict.clean(recipe, index, f"{case}-stored", stored_bits(pool, given))
    for cut in (*CUTS, PAIRS) if shape_of(pool.layer, given.q_BHSD.shape[1]).pairs else CUTS:
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
    keys = replace(keys, operand_BGSD=wide(given.k_BGSD), other_scale=values.scale)
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
    layer = PagedLayer(pool.layer.recipe, pool.shape, pool.device, pool.given.scales)
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
            should = quantized(recipe, stored, operand, (length,), scale)
            holds = pool.held(row)[at]
            results["codes"].append(oracle.compare_bits(holds.data_BGSD, should.data_BGSD))
            if should.scale is not None and holds.scale is not None:
                results["scales"].append(
                    oracle.compare_bits(np.atleast_1d(holds.scale), np.atleast_1d(should.scale))
                )  # fmt: skip
    return {name: max(made, key=lambda one: one.max_abs_error) for name, made in results.items() if made}
