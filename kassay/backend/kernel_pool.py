"""A pool of pages that the writing kernel fills with operands under the oracle, and what decode attention reads of it.

Axes: R sequences, B requests, H query heads, G KV heads, S stored tokens, N rows of a write, D head dim, X pages.
"""

import numpy as np
import torch

from kassay.backend.kernel_operands import Given
from kassay.backend.paged_cases import SPARE_PAGES, Batch, component
from kassay.kernels import store
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode, shape_of
from kassay.kernels.split import Cut
from kassay.kv import oracle
from kassay.kv.oracle import Component
from kassay.kv.paged import PagedLayer, PagedPlane, PagedShape, slots_of
from kassay.kv.prebias import RotatedBias
from kassay.kv.recipe import Recipe

DECODED = 3  # last tokens of a sequence that are written one by one


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
        self.layer = self.empty(recipe)
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

    def empty(self, recipe: Recipe, bias: RotatedBias | None = None) -> PagedLayer:
        """A layer like the pool's, in which nothing lies; `bias` in place of the operands' own."""
        offset = (bias or self.given.bias) if recipe.prebias else None
        return PagedLayer(recipe, self.shape, self.device, self.given.scales, key_offset=offset)

    def rotated(self, length: int) -> np.ndarray | None:
        """What the writer takes off the keys of the first positions, GSD as this device computes it."""
        if not self.layer.recipe.prebias or self.given.bias is None:
            return None
        return self.given.bias.at(torch.arange(length, device=self.device)).cpu().numpy()

    def _write(self, request: int, tokens: slice, slots_N: torch.Tensor) -> None:
        k_NGD, v_NGD = (
            laid_out(x_BGSD[request, :, tokens].transpose(0, 1)) for x_BGSD in (self.given.k_BGSD, self.given.v_BGSD)
        )
        positions_N = torch.arange(tokens.start, tokens.stop, device=self.device)
        store.store(self.layer, self.host, k_NGD, v_NGD, slots_N, checked=True, positions_N=positions_N)

    def _leave_old_tokens(self) -> None:
        """What an earlier request left: real tokens, in every slot."""
        requests, _, tokens, _ = self.given.k_BGSD.shape
        slots_N = torch.arange(self.shape.slots, device=self.device)
        source = ((slots_N + 1) % requests, (7 * slots_N + 3) % tokens)
        k_NGD, v_NGD = (laid_out(x.transpose(1, 2)[source]) for x in (self.given.k_BGSD, self.given.v_BGSD))
        store.store(self.layer, self.host, k_NGD, v_NGD, slots_N, checked=False, positions_N=source[1])

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
