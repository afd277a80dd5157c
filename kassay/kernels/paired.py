"""Two KV heads read as one of twice the width: an experiment, for scripts/kernel-paired-trial.py alone.

Axes: B sequences, H query heads, G KV heads, D head dim.

    columns of a program     q of the first head, 0 | 0, q of the second        2 D words by 2 H/G columns

A row of a token costs beside its bytes, and rows of 64 bytes crowd (docs/findings/2026-11-30-decode-kernel-bars.md).
The heads of a token are neighbours in a page, so two of them are one row of twice the bytes: half the rows. Groups of
up to four pad their columns to eight as it is; two such groups fill them, and a tile of the tensor cores does as much
as before, over zeros where it did padding. The halves of an output that no query asked for are dropped.

Queries are spread and outputs gathered by torch, outside of what is timed: a kernel that pays would do both itself.
"""

import copy
from dataclasses import replace
from typing import Any

import torch

from kassay.errors import KassayError
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode
from kassay.kernels.shape import LEAST_COLUMNS, DecodeShape, require
from kassay.kernels.split import Cut
from kassay.kv.paged import PagedLayer, PagedPlane


def paired_shape(shape: DecodeShape) -> DecodeShape:
    """The shape of the pairs. Raises KassayError for heads that make no pairs, or whose queries fill a tile alone."""
    if shape.kv_heads % 2 or 2 * shape.group > LEAST_COLUMNS:
        raise KassayError(
            f"{shape.query_heads} query heads on {shape.kv_heads} KV heads make no pairs: an even number of KV heads "
            f"is needed, with groups of up to {LEAST_COLUMNS // 2}"
        )
    return replace(shape, kv_heads=shape.kv_heads // 2, head_dim=2 * shape.head_dim)


def paired_layer(layer: PagedLayer) -> PagedLayer:
    """The same planes with pairs of heads as heads; scales stay those of single heads."""
    found = copy.copy(layer)
    found.shape = replace(layer.shape, kv_heads=layer.shape.kv_heads // 2, head_dim=2 * layer.shape.head_dim)
    found.keys, found.values = paired_plane(layer.keys), paired_plane(layer.values)
    return found


def paired_plane(plane: PagedPlane) -> PagedPlane:
    """A view of one plane."""
    found = copy.copy(plane)
    pages, slots, heads, width = plane.data_PSHW.shape
    found.data_PSHW = plane.data_PSHW.view(pages, slots, heads // 2, 2 * width)
    return found


class Paired(Decode):
    """Decode attention over pairs of KV heads; takes a `paired_layer`, and queries as `spread` gives them."""

    def __init__(
        self, shape: DecodeShape, host: Host, device: torch.device, batch: int, tokens: int, cut: Cut | None = None,
        **others: Any,
    ) -> None:  # fmt: skip
        """`shape` of the single heads."""
        require(host, shape)
        super().__init__(paired_shape(shape), host, device, batch, tokens, cut, **others)
        self.scale, self.second = shape.head_dim**-0.5, shape.group

    def require(self, host: Host, shape: DecodeShape) -> None:
        """Nothing: the single heads were asked for, and pairs have a width that no model's heads have."""


def spread(q_BHD: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """Queries of twice the width, 0 in the half of the other head of their pair."""
    b, heads, width = q_BHD.shape
    wide = torch.zeros(b, kv_heads // 2, 2, heads // kv_heads, 2, width, dtype=q_BHD.dtype, device=q_BHD.device)
    grouped = q_BHD.view(b, kv_heads // 2, 2, heads // kv_heads, width)
    for side in (0, 1):
        wide[:, :, side, :, side] = grouped[:, :, side]
    return wide.view(b, heads, 2 * width)


def own_half(out_BHD: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """Outputs of the single heads out of those of `spread` queries."""
    b, heads, wide = out_BHD.shape
    halves = out_BHD.view(b, kv_heads // 2, 2, heads // kv_heads, 2, wide // 2)
    return torch.stack([halves[:, :, side, :, side] for side in (0, 1)], dim=2).reshape(b, heads, wide // 2)
