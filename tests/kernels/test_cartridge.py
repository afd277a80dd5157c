"""A shared prefix with each sequence's own pages under the interpreter, against float64 over all tokens of both."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from kassay.errors import KassayError
from kassay.kernels.cartridge import Cartridge, PrefixCut, Shared, prefix_cut_of, prefix_shared_bytes
from kassay.kernels.host import H200, Host
from kassay.kernels.launch import Decode, shape_of
from kassay.kernels.split import Cut, Tile
from kassay.kv.mutation import MUTATIONS, inert
from kassay.kv.oracle import reference_attention
from kassay.kv.paged import PagedLayer
from kassay.kv.recipe import recipe_named
from tests.kernels.cases import CPU, INTERPRETER, LSE, NORM, SMALL, Case, case_of, norm, plant, stored_of

OWN = [33, 0, 70, 1]
PARTED = PrefixCut(rows=16, tile=Tile(tokens=64, warps=4, stages=2), parts=3)


class Both:
    """Own pages of a few sequences, and a prefix at random pages of planes of its own."""

    def __init__(
        self, own: str, prefix: str, positions: int, *, heads: tuple[int, int] = (4, 2), page: int = 16,
        sixteen: str = "fp16", cut: PrefixCut | None = None, dim: int = 64,
    ) -> None:  # fmt: skip
        self.own = case_of(own, heads, dim, page, OWN, sixteen)
        self.frozen = case_of(prefix, heads, dim, page, [positions], sixteen)
        self.cut = cut
        pages = self.frozen.table_BX[0, : positions // page].tolist()
        self.cartridge = Cartridge(self.frozen.layer, pages, positions)
        self.positions = positions

    def shared(self, splits: int = 2) -> Shared:
        """The kernels, into poisoned workspace."""
        heads = self.own.q_BHD.shape[1]
        longest = self.own.table_BX.shape[1] * self.own.layer.shape.page_tokens
        made = Shared(
            shape_of(self.own.layer, heads), shape_of(self.frozen.layer, heads), INTERPRETER, CPU, len(OWN), longest,
            self.positions, Cut(tile=SMALL, splits=splits), prefix_cut=self.cut,
        )  # fmt: skip
        made.own.part.fill_(float("nan"))
        made.own.part_lse.fill_(float("nan"))
        return made

    def run(self, splits: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and log-normalizer, into poisoned memory."""
        out, lse = torch.full_like(self.own.q_BHD, float("nan")), torch.full(self.own.q_BHD.shape[:2], float("nan"))
        own = self.own
        return self.shared(splits)(own.q_BHD, self.cartridge, own.layer, own.table_BX, own.lengths_B, out, lse)

    def errors(self, got: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, float]:
        """Worst relative norm of a sequence's output, and largest error of a log-normalizer."""
        own, frozen = self.own, self.frozen
        before = frozen.layer.gather(frozen.table_BX, frozen.lengths_B, torch.float64)
        after = own.layer.gather(own.table_BX, own.lengths_B, torch.float64)
        norms, differences = [], []
        for b, length in enumerate(own.lengths_B.tolist()):
            k, v = (
                torch.cat([x[:, :, : self.positions], y[b : b + 1, :, :length]], 2).numpy()
                for x, y in zip(before, after, strict=True)
            )
            out, lse = reference_attention(own.q_BHD[b : b + 1, :, None].double().numpy(), k, v)
            norms.append(norm(got[0][b].double().numpy() - out[0, :, 0], out))
            differences.append(float(np.abs(got[1][b].numpy() - lse[0, :, 0]).max()))
        return float(np.max(norms)), float(np.max(differences))

    def right(self, got: tuple[torch.Tensor, torch.Tensor]) -> bool:
        """Within the tolerances; NaN is not."""
        error, lse = self.errors(got)
        return error < NORM[self.own.layer.recipe.sixteen] and lse < LSE


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(
    ("own", "prefix"),
    [("native", "k16v8-f"), ("native", "k16v8-d"), ("k16v8-d", "k16v8-d"), ("k8v8-d", "k16v8-f"), ("k4v4-d", "k4v4-d")],
)
def test_one_softmax_over_the_prefix_and_the_own_tokens(own: str, prefix: str, splits: int) -> None:
    both = Both(own, prefix, 160, cut=PARTED)
    assert both.shared(splits).parts == 3
    first = both.run(splits)
    assert both.right(first)
    again = both.run(splits)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])


@pytest.mark.parametrize(
    ("heads", "page", "positions"), [((3, 3), 8, 40), ((14, 2), 1, 33), ((71, 1), 32, 64), ((40, 2), 16, 16)]
)
def test_any_group_and_page_and_any_number_of_rows(heads: tuple[int, int], page: int, positions: int) -> None:
    assert (both := Both("k16v8-d", "k16v8-d", positions, heads=heads, page=page)).right(both.run())


def test_bf16() -> None:
    assert (both := Both("k16v8-d", "k16v8-f", 48, sixteen="bf16")).right(both.run())


def test_the_published_cartridge_is_79_pages_of_8_and_no_whole_pages_of_16() -> None:
    x_NHD = torch.randn(632, 1, 64, generator=torch.Generator().manual_seed(1)).half()
    assert Cartridge.of(recipe_named("k16v8-d"), x_NHD, x_NHD, 8, None).pages == tuple(range(79))
    for page, boundary in ((16, 632), (8, 631), (16, 0)):
        with pytest.raises(KassayError, match=f"{boundary} positions does not end at a boundary of pages of {page}"):
            Cartridge.of(recipe_named("k16v8-d"), x_NHD[:boundary], x_NHD[:boundary], page, None)


@pytest.mark.parametrize(
    ("recipe", "batch", "positions", "picked"),
    [
        ("native", 64, 632, (64, 4)),
        ("native", 64, 8192, (64, 4)),
        ("native", 16, 8192, (64, 16)),
        ("k16v8-d", 64, 632, (16, 1)),
        ("k16v8-d", 64, 8192, (32, 4)),
        ("k16v8-d", 16, 8192, (16, 4)),
        ("k16v8-d", 1, 632, (16, 16)),
        ("k4v4-d", 64, 8192, (16, 4)),
    ],
)
def test_the_cut_of_a_prefix_fills_one_wave(recipe: str, batch: int, positions: int, picked: tuple[int, int]) -> None:
    shape = replace(shape_of(case_of("native", (4, 1), 128, 8, [1]).layer, 4), recipe=recipe_named(recipe))
    shape = replace(shape, query_heads=32, kv_heads=8)
    cut = prefix_cut_of(shape, H200, batch, positions)
    assert (cut.rows, cut.parts, cut.tile.tokens) == (*picked, 128)
    less = Host(**{**H200.__dict__, "name": "a small one", "shared_bytes": 100 * 1024})
    smaller = prefix_cut_of(shape, less, batch, positions)
    assert (smaller.tile.tokens < 128) == (recipe != "k4v4-d")
    assert prefix_shared_bytes(shape, smaller.rows, smaller.tile) <= 100 * 1024
    with pytest.raises(KassayError, match="a small one has 1024 bytes of shared memory"):
        prefix_cut_of(shape, Host(**{**less.__dict__, "shared_bytes": 1024}), batch, positions)


def counted_twice(both: Both) -> tuple[torch.Tensor, torch.Tensor]:
    """The prefix in the own pages too: its tokens have twice the weight."""
    own, pages = both.own, both.positions // both.own.layer.shape.page_tokens
    spare = [page for page in range(own.layer.shape.pages) if page not in own.table_BX.flatten().tolist()][:pages]
    for mine, theirs in ((own.layer.keys, both.frozen.layer.keys), (own.layer.values, both.frozen.layer.values)):
        mine.data_PSHW[spare] = theirs.data_PSHW[list(both.cartridge.pages)]
        if mine.scale_PHSG is not None and theirs.scale_PHSG is not None:
            mine.scale_PHSG[spare] = theirs.scale_PHSG[list(both.cartridge.pages)]
    table = torch.cat([torch.tensor(spare, dtype=torch.int32).expand(len(OWN), -1), own.table_BX], 1)
    both.own = replace(own, table_BX=table, lengths_B=own.lengths_B + both.positions)
    return both.run()


def of_another_layer(both: Both) -> tuple[torch.Tensor, torch.Tensor]:
    """Planes that another layer's prefix lies in, at the same pages."""
    other = case_of(both.frozen.layer.recipe.name, (4, 2), 64, 16, [both.positions])
    for plane in (other.layer.keys, other.layer.values):
        plane.data_PSHW.copy_(plane.data_PSHW.roll(1, dims=2))
    both.cartridge = Cartridge(other.layer, both.cartridge.pages, both.positions)
    return both.run()


def normalizers_swapped(both: Both) -> tuple[torch.Tensor, torch.Tensor]:
    """The part of the prefix merged by the normalizer of the first split, and that by the prefix's."""
    return merged(both, lambda lse_RC: lse_RC[:, [2, 1, 0]])


def without_the_prefix(both: Both) -> tuple[torch.Tensor, torch.Tensor]:
    """The merge leaves the part of the prefix out."""
    return merged(both, lambda lse_RC: torch.cat([lse_RC[:, :2], torch.full_like(lse_RC[:, 2:], -torch.inf)], 1))


def parts_averaged(both: Both) -> tuple[torch.Tensor, torch.Tensor]:
    """Parts put together without their normalizers."""
    return merged(both, lambda lse_RC: torch.where(lse_RC > -torch.inf, lse_RC.mean(), lse_RC))


def merged(both: Both, change: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The merge after a change of the parts' normalizers: two splits and the prefix."""
    own, made = both.own, both.shared()
    assert made.own.parts == 3
    out, lse = made(own.q_BHD, both.cartridge, own.layer, own.table_BX, own.lengths_B)
    made.own.part_lse.copy_(change(made.own.part_lse.view(-1, 3)).flatten())
    made.own.merge(out, lse)
    return out, lse


def own_tokens_alone(both: Both) -> tuple[torch.Tensor, torch.Tensor]:
    """No merge: the own pages as if there were no prefix."""
    own = both.own
    decode = Decode(shape_of(own.layer, 4), INTERPRETER, CPU, 4, 80, Cut(tile=SMALL, splits=2))
    return decode(own.q_BHD, own.layer, own.table_BX, own.lengths_B)


def a_page_short(both: Both) -> tuple[torch.Tensor, torch.Tensor]:
    """The last page of the prefix is not read."""
    both.cartridge = Cartridge(both.frozen.layer, both.cartridge.pages[:-1], both.positions - 16)
    both.positions -= 16
    got = both.run()
    both.positions += 16
    return got


FAULTS = (counted_twice, of_another_layer, normalizers_swapped, without_the_prefix, parts_averaged, own_tokens_alone,
          a_page_short)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
def test_a_fault_of_sharing_is_caught(fault: Callable[[Both], tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Each alone, against a reference that stays as it was."""
    clean, broken = (Both("k16v8-d", "k16v8-d", 48) for _ in range(2))
    assert clean.right(clean.run())
    assert not clean.right(fault(broken))


def test_every_fault_of_the_oracle_in_the_prefix_is_caught() -> None:
    for mutation in MUTATIONS:
        causal = mutation.name in ("causal_mask_missing", "slot_off_by_one")  # no order: one query sees all keys
        if not mutation.applies(recipe_named("k8v8-d")) or causal or mutation.name in LEFT_OUT:
            continue
        clean, broken = (Both("native", "k8v8-d", 48) for _ in range(2))
        stored = stored_of(clean.frozen, clean.frozen.q_BHD[:, :, None])
        faulty = mutation.inject(stored)
        assert not inert(stored, faulty), mutation.name
        plant(broken.frozen, faulty)
        if mutation.name == "tail_truncated":
            broken.cartridge = Cartridge(broken.frozen.layer, broken.cartridge.pages[:-1], 32)
            broken.positions = 32
        assert not clean.right(broken.run()), mutation.name


# A stale page comes from another request, of which a prefix has none; the decoder's and the writer's faults are caught
# where these are tested (test_unpack, test_gather).
LEFT_OUT = ("stale_page", "e4m3fnuz_decoding", "double_rounding")


def test_a_prefix_is_frozen_and_apart() -> None:
    both = Both("k16v8-d", "k16v8-d", 48)
    digest = both.cartridge.digest()
    both.run()
    assert both.cartridge.digest() == digest
    both.frozen.layer.values.data_PSHW[both.cartridge.pages[1], 3, 0, 0] ^= 1
    assert both.cartridge.digest() != digest
    both.cartridge.check_apart(both.own.layer, both.own.table_BX, both.own.lengths_B)
    one = both.frozen
    with pytest.raises(KassayError, match=r"pages \[.*\] belong to the shared prefix and to a request"):
        both.cartridge.check_apart(one.layer, one.table_BX, one.lengths_B)


def test_what_does_not_fit_is_refused_by_name() -> None:
    both = Both("k16v8-d", "k16v8-d", 48)
    own, made = both.own, both.shared()

    def call(cartridge: Cartridge) -> None:
        made(own.q_BHD, cartridge, own.layer, own.table_BX, own.lengths_B)

    with pytest.raises(KassayError, match="a prefix of 32 positions, planned were 48"):
        call(Cartridge(both.frozen.layer, both.cartridge.pages[:2], 32))
    with pytest.raises(KassayError, match="the cartridge is another"):
        call(Both("native", "native", 48).cartridge)
    for pages in ([0, 1], [0, 1, 1], [0, 1, 99]):
        with pytest.raises(KassayError, match="a prefix of 48 positions is 3 pages of 16, each once"):
            Cartridge(both.frozen.layer, pages, 48)
    shape = shape_of(own.layer, 4)
    other = replace(shape, kv_heads=4, page_tokens=8, recipe=recipe_named("k16v8-d", "bf16"))
    with pytest.raises(KassayError, match=r"KV heads 4, the own pages have 2; tokens of a page 8.*16-bit format bf16"):
        Shared(shape, other, INTERPRETER, CPU, 4, 80, 48)
    with pytest.raises(KassayError, match="632 positions does not end at a boundary of pages of 16"):
        Shared(shape, shape, INTERPRETER, CPU, 4, 80, 632)


def test_the_layer_that_a_prefix_lies_in_may_be_the_own_one() -> None:
    case: Case = case_of("k16v8-d", (4, 2), 64, 16, [33, 48])
    layer: PagedLayer = case.layer
    shape = shape_of(layer, 4)
    cartridge = Cartridge(layer, case.table_BX[1].tolist(), 48)
    made = Shared(shape, shape, INTERPRETER, CPU, 1, 48, 48, Cut(tile=SMALL, splits=1))
    got = made(case.q_BHD[:1], cartridge, layer, case.table_BX[:1], case.lengths_B[:1])
    through_table = torch.cat([case.table_BX[1:], case.table_BX[:1]], 1)
    decode = Decode(shape, INTERPRETER, CPU, 1, 96, Cut(tile=SMALL, splits=1))
    wanted = decode(case.q_BHD[:1], layer, through_table, torch.tensor([81], dtype=torch.int32))
    assert norm((got[0] - wanted[0]).double().numpy(), wanted[0].double().numpy()) < NORM["fp16"]
    assert float((got[1] - wanted[1]).abs().max()) < LSE
