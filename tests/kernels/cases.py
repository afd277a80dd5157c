"""A paged layer with ragged sequences in random pages, its queries, and the reference in float64.

Axes: B sequences, H query heads, G KV heads, T tokens, D head dim, X pages of a sequence.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from kassay.kernels.host import INTERPRETER
from kassay.kernels.launch import Decode, shape_of
from kassay.kernels.split import Cut, Tile
from kassay.kv.oracle import Component, Stored, reference_attention
from kassay.kv.paged import LayerScales, PagedLayer, PagedPlane, PagedShape, slots_of
from kassay.kv.plane import DTYPES
from kassay.kv.prebias import drawn as drawn_bias
from kassay.kv.recipe import recipe_named

CPU = torch.device("cpu")
SMALL = Tile(tokens=32, warps=4, stages=2)
PAIRS = Tile(tokens=32, warps=4, stages=2, heads=2)
SCALES = LayerScales(keys=0.01, values=0.012)
NORM = {"fp16": 5e-4, "bf16": 5e-3}  # of the output: weights and outputs are rounded to 11 and 8 bits
LSE = 2e-4  # largest error of the log-normalizer: FP32 sums of exact products


@dataclass(kw_only=True)
class Case:
    """What one call reads."""

    layer: PagedLayer
    table_BX: torch.Tensor
    lengths_B: torch.Tensor
    q_BHD: torch.Tensor

    def decode(self, splits: int, tile: Tile = SMALL) -> Decode:
        """The kernels for this case."""
        shape = shape_of(self.layer, self.q_BHD.shape[1])
        longest = self.table_BX.shape[1] * self.layer.shape.page_tokens
        return Decode(shape, INTERPRETER, CPU, len(self.q_BHD), longest, Cut(tile=tile, splits=splits))

    def run(self, splits: int = 1, tile: Tile = SMALL) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and log-normalizer, into poisoned memory."""
        out, lse = torch.full_like(self.q_BHD, float("nan")), torch.full(self.q_BHD.shape[:2], float("nan"))
        decode = self.decode(splits, tile)
        decode.part.fill_(float("nan"))
        decode.part_lse.fill_(float("nan"))
        return decode(self.q_BHD, self.layer, self.table_BX, self.lengths_B, out, lse)

    def errors(self, got: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, float]:
        """Worst relative norm of a sequence's output, and largest error of a log-normalizer."""
        k_BGTD, v_BGTD = self.layer.gather(self.table_BX, self.lengths_B, torch.float64)
        norms, differences = [0.0], [0.0]
        for b, length in enumerate(self.lengths_B.tolist()):
            if length == 0:
                norms.append(float(got[0][b].abs().max()))
                differences.append(0.0 if bool((got[1][b] == -torch.inf).all()) else np.inf)
                continue
            q, k, v = self.q_BHD[b : b + 1, :, None], k_BGTD[b : b + 1, :, :length], v_BGTD[b : b + 1, :, :length]
            out, lse = reference_attention(q.double().numpy(), k.numpy(), v.numpy())
            norms.append(norm(got[0][b].double().numpy() - out[0, :, 0], out))
            differences.append(float(np.abs(got[1][b].numpy() - lse[0, :, 0]).max()))
        return float(np.max(norms)), float(np.max(differences))


def norm(error: npt.NDArray[np.float64], of: npt.NDArray[np.float64]) -> float:
    """Relative Euclidean norm."""
    return float(np.linalg.norm(error) / np.linalg.norm(of))


def case_of(
    recipe: str, heads: tuple[int, int], head_dim: int, page_tokens: int, lengths: list[int], sixteen: str = "fp16"
) -> Case:
    """`heads`: query heads and KV heads. Slots that hold no token are NaN, or the code 0x7F, which is NaN in E4M3."""
    generator = torch.Generator().manual_seed(1)
    longest = max(lengths)
    x, b = max(1, -(-longest // page_tokens)), len(lengths)
    pool = PagedShape(pages=b * x + 3, page_tokens=page_tokens, kv_heads=heads[1], head_dim=head_dim)
    offset = drawn_bias(heads[1], head_dim, 1.1) if recipe_named(recipe).prebias else None
    layer = PagedLayer(recipe_named(recipe, sixteen), pool, scales=SCALES, key_offset=offset)
    for plane in (layer.keys, layer.values):
        plane.data_PSHW.fill_(float("nan") if plane.sixteen_bit else 0x7F)
        if plane.scale_PHSG is not None:
            plane.scale_PHSG.fill_(float("nan"))
    table = torch.randperm(pool.pages, generator=generator)[: b * x].view(b, x)
    lengths_B = torch.tensor(lengths, dtype=torch.int32)
    slots = slots_of(table, lengths_B, pool)
    positions = torch.arange(slots.shape[1]).expand_as(slots)[slots >= 0]
    slots = slots[slots >= 0]
    drawn = torch.randn((2, len(slots), heads[1], head_dim), generator=generator).to(DTYPES[sixteen])
    if offset is not None:  # keys as a projection with a large bias makes them
        drawn[0] = (drawn[0].float() + offset.at(positions).transpose(0, 1)).to(DTYPES[sixteen])
    layer.write(drawn[0], drawn[1], slots, positions)
    q_BHD = torch.randn((b, heads[0], head_dim), generator=generator).to(DTYPES[sixteen])
    return Case(layer=layer, table_BX=table.int(), lengths_B=lengths_B, q_BHD=q_BHD)


def packed(case: Case, queries: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q_THD, k_TGD and v_TGD of so many new tokens of each sequence: what a model brings of them, packed."""
    generator = torch.Generator().manual_seed(2)
    shape, kind = case.layer.shape, case.q_BHD.dtype
    heads = (case.q_BHD.shape[1], shape.kv_heads, shape.kv_heads)
    q, k, v = (torch.randn((sum(queries), count, shape.head_dim), generator=generator).to(kind) for count in heads)
    return q, k, v


def component_of(plane: PagedPlane, slots_BT: torch.Tensor) -> Component:
    """What a plane holds in these slots."""
    data_BHTW, scale = plane.stored(slots_BT)
    data = data_BHTW.float() if plane.sixteen_bit else data_BHTW
    return Component(
        data_BGSD=data.numpy().copy(), scale=None if scale is None else scale.numpy().copy(), other_scale=None,
        decoded_as=plane.rule.stored,
    )  # fmt: skip


def stored_of(case: Case, q_BHTD: torch.Tensor) -> Stored:
    """What sequences of equal lengths hold."""
    length = int(case.lengths_B[0])
    slots_BT = slots_of(case.table_BX, case.lengths_B, case.layer.shape)
    return Stored(
        keys=component_of(case.layer.keys, slots_BT), values=component_of(case.layer.values, slots_BT),
        q_BHTD=q_BHTD.float().numpy(), first_query=length - q_BHTD.shape[2], causal=True,
    )  # fmt: skip


def plant(case: Case, stored: Stored) -> None:
    """Put what a fault left into the pages, its length too: what the code under test then reads."""
    tokens = stored.keys.data_BGSD.shape[2]
    case.lengths_B = torch.full_like(case.lengths_B, tokens)
    slots_BT = slots_of(case.table_BX, case.lengths_B, case.layer.shape)
    for plane, part in ((case.layer.keys, stored.keys), (case.layer.values, stored.values)):
        data_SHW = plane.data_PSHW.view(case.layer.shape.slots, *plane.data_PSHW.shape[2:])
        data_SHW[slots_BT] = torch.from_numpy(part.data_BGSD.copy()).to(data_SHW.dtype).transpose(1, 2)
        if plane.scale_PHSG is not None:
            assert part.scale is not None
            pages_BT, places_BT = slots_BT // case.layer.shape.page_tokens, slots_BT % case.layer.shape.page_tokens
            plane.scale_PHSG[pages_BT, :, places_BT] = torch.from_numpy(part.scale.copy()).transpose(1, 2)
        elif plane.scale is not None and part.scale is not None:
            plane.scale.fill_(float(part.scale))
