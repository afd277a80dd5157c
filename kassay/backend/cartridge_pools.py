"""A shared prefix beside sequences in their own pages, as the oracle makes and reads both, and faults of sharing.

Axes: R sequences, H query heads, N tokens, S stored tokens, D head dim, C parts.

The kernels write sequences of lengths around page boundaries, and two prefixes, of two requests, into pools of their
own; the first is the cartridge. A fault is a mistake in how it is shared; what is stored is right.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from kassay.backend.kernel_cases import CUTS
from kassay.backend.kernel_operands import Given
from kassay.backend.kernel_pool import KernelPool
from kassay.backend.paged_cases import LENGTHS
from kassay.kernels.cartridge import Cartridge, PrefixCut, Shared
from kassay.kernels.host import Host
from kassay.kernels.launch import shape_of
from kassay.kernels.split import Cut
from kassay.kv import oracle
from kassay.kv.recipe import Recipe

Attended = tuple[np.ndarray, np.ndarray]  # out_RHD, lse_RH


class Beside:
    """Sequences in their own pages and two prefixes in pages of theirs, all written by the kernel."""

    def __init__(
        self, recipes: tuple[Recipe, Recipe], given: Given, host: Host, page_tokens: int, positions: int, seed: int
    ) -> None:
        """`recipes`: of the own pages and of the prefix."""
        lengths = tuple(one for one in LENGTHS if one < given.whole)
        self.given, self.host, self.positions, self.page_tokens = given, host, positions, page_tokens
        self.own = KernelPool(recipes[0], given, host, page_tokens, seed, (*lengths, given.whole))
        self.before = first_tokens(given, positions)
        self.frozen = KernelPool(recipes[1], self.before, host, page_tokens, seed + 2, (positions, positions))
        self.cartridge = Cartridge(self.frozen.layer, self.pages(0), positions)

    def pages(self, row: int) -> list[int]:
        """Pages of one of the two prefixes."""
        return [int(page) for page in self.frozen.table_RX[row]]

    def kernels(
        self, cut: Cut, prefix_cut: PrefixCut | None, cartridge: Cartridge | None = None, own: KernelPool | None = None
    ) -> Shared:
        """The kernels, their workspace full of NaN."""
        pool, shared = own or self.own, cartridge or self.cartridge
        heads, width = self.given.q_BHSD.shape[1], pool.table_RX.shape[1] * self.page_tokens
        made = Shared(
            shape_of(pool.layer, heads), shape_of(shared.layer, heads), self.host, pool.device, len(pool.lengths),
            width, shared.positions, cut, prefix_cut=prefix_cut,
        )  # fmt: skip
        made.own.part.fill_(float("nan"))
        made.own.part_lse.fill_(float("nan"))
        return made

    def attended(
        self,
        cut: Cut = CUTS[0],
        prefix_cut: PrefixCut | None = None,
        cartridge: Cartridge | None = None,
        own: KernelPool | None = None,
        change: Callable[[torch.Tensor, Shared], torch.Tensor] | None = None,
    ) -> Attended:
        """out_RHD and lse_RH, into memory full of NaN; `change` gives parts other normalizers before the merge."""
        pool, shared = own or self.own, cartridge or self.cartridge
        made = self.kernels(cut, prefix_cut, shared, pool)
        q_RHD = pool.queries()
        out = torch.full_like(q_RHD, float("nan"))
        lse = torch.full(q_RHD.shape[:2], float("nan"), device=pool.device)
        lengths = torch.tensor(pool.lengths, dtype=torch.int32, device=pool.device)
        made(q_RHD, shared, pool.layer, pool.table_RX.to(pool.device), lengths, out, lse)
        if change is not None:
            parts_RC = made.own.part_lse.view(-1, made.own.parts)
            parts_RC.copy_(change(parts_RC, made))
            made.own.merge(out, lse)
        return out.float().cpu().numpy(), lse.cpu().numpy()

    def expected(self, row: int) -> oracle.Reference:
        """Float64 attention of the last token of a sequence over the prefix and its own tokens, as they are stored."""
        k, v = (
            np.concatenate([oracle.decoded(before), oracle.decoded(after)], axis=2)
            for before, after in zip(self.frozen.held(0), self.own.held(row), strict=True)
        )
        q_1H1D = self.own.queries()[row].float().cpu().numpy()[None, :, None]
        return oracle.reference_of_read(q_1H1D, k, v, self.own.layer.recipe.sixteen)


def first_tokens(given: Given, count: int) -> Given:
    """The first tokens of the first two requests, or of one twice where there is one."""
    rows = [0, min(1, len(given.k_BGSD) - 1)]
    return replace(
        given, k_BGSD=given.k_BGSD[rows, :, :count], v_BGSD=given.v_BGSD[rows, :, :count],
        q_BHSD=given.q_BHSD[rows, :, :count],
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SharingFault:
    """One mistake in how a prefix is shared."""

    name: str
    attended: Callable[[Beside], Attended]


def own_alone(beside: Beside) -> Attended:
    """No prefix is read."""
    return beside.own.attended(beside.own.batch(), CUTS[0])


def a_page_short(beside: Beside) -> Attended:
    """Its last page is not read."""
    left = beside.positions - beside.page_tokens
    return beside.attended(cartridge=Cartridge(beside.frozen.layer, beside.pages(0)[:-1], left))


def a_page_from_elsewhere(beside: Beside) -> Attended:
    """Its first page is one of the other prefix."""
    pages = [beside.pages(1)[-1], *beside.pages(0)[1:]]
    return beside.attended(cartridge=Cartridge(beside.frozen.layer, pages, beside.positions))


def of_another_request(beside: Beside) -> Attended:
    """The other prefix."""
    return beside.attended(cartridge=Cartridge(beside.frozen.layer, beside.pages(1), beside.positions))


def counted_twice(beside: Beside) -> Attended:
    """It is in the own pages, too."""
    given, before = beside.given, beside.before

    def behind(x_BHSD: torch.Tensor, before_BHSD: torch.Tensor) -> torch.Tensor:
        return torch.cat([before_BHSD[:1].expand(len(x_BHSD), -1, -1, -1), x_BHSD], dim=2)

    both = replace(
        given, k_BGSD=behind(given.k_BGSD, before.k_BGSD), v_BGSD=behind(given.v_BGSD, before.v_BGSD),
        q_BHSD=behind(given.q_BHSD, before.q_BHSD),
    )  # fmt: skip
    lengths = tuple(beside.positions + length for length in beside.own.lengths)
    pool = KernelPool(beside.own.layer.recipe, both, beside.host, beside.page_tokens, 0, lengths)
    return beside.attended(own=pool)


def normalizers_swapped(beside: Beside) -> Attended:
    """Every part is weighed by its neighbour's normalizer."""
    return beside.attended(change=lambda lse_RC, made: lse_RC.roll(1, dims=1))


def parts_averaged(beside: Beside) -> Attended:
    """Parts are put together as if they weighed the same."""
    return beside.attended(change=lambda lse_RC, made: lse_RC.masked_fill(lse_RC > -torch.inf, 0.0))


def part_lost(beside: Beside) -> Attended:
    """The merge leaves out what was read of the prefix."""

    def change(lse_RC: torch.Tensor, made: Shared) -> torch.Tensor:
        left = lse_RC.clone()
        left[:, made.own.cut.splits :] = -torch.inf
        return left

    return beside.attended(change=change)


SHARING_FAULTS = tuple(
    SharingFault(name=name, attended=attended)
    for name, attended in (
        ("prefix_not_read", own_alone), ("prefix_page_short", a_page_short),
        ("prefix_page_from_elsewhere", a_page_from_elsewhere), ("prefix_of_another_request", of_another_request),
        ("prefix_counted_twice", counted_twice), ("normalizers_swapped", normalizers_swapped),
        ("parts_averaged", parts_averaged), ("part_lost", part_lost),
    )
)  # fmt: skip
