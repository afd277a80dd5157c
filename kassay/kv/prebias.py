"""The bias of the key projection, rotated: what a pre-bias recipe takes off a key before it quantizes.

Axes: L attention layers, H KV heads, T tokens, D head dim.

RoPE is linear in the key, so a key after RoPE is R(t) W x + R(t) b with the projection's bias b. Where b is large, it
takes the range of an 8-bit format and leaves few codes for W x, which is what attention tells tokens apart by. A
pre-bias recipe quantizes k - R(t) b and reconstructs with R(t) b added: the softmax sees the bias in full precision.
R(t) b is made again from b and the position, FP32, whenever a layer is reconstructed; nothing of it is persisted but
b itself, which is a weight.

    R(t) b = b cos(t f) + (-b[D/2:], b[:D/2]) sin(t f)        f: the model's inverse frequencies, each twice

A token's position is its index in the cache: rows are neither padded nor shifted.
Source: the study `prebias-gate`; the same idea before RoPE is known from pre-RoPE key quantization (Hooper et al. 2024,
KVQuant, arXiv:2401.18079).
"""

from dataclasses import dataclass

import torch

from kassay.kv.plane import Offset


@dataclass(frozen=True, kw_only=True)
class KeyBias:
    """The key bias of a model and how its RoPE turns it."""

    bias_LHD: torch.Tensor  # FP32
    frequencies: torch.Tensor  # FP32, D/2: radians a token
    scaling: float  # of cosine and sine, as some RoPE variants have it

    def offset(self, layer: int) -> Offset:
        """The rotated bias of one layer, for tokens from and up to a position."""

        def rotated(start: int, stop: int, device: torch.device) -> torch.Tensor:
            return rotate(self.bias_LHD[layer].to(device), self.frequencies.to(device), self.scaling, start, stop)

        return rotated


def rotate(bias_HD: torch.Tensor, frequencies: torch.Tensor, scaling: float, start: int, stop: int) -> torch.Tensor:
    """R(t) b for t = start … stop - 1, FP32 1HTD."""
    positions_T = torch.arange(start, stop, dtype=torch.float32, device=bias_HD.device)
    angles_TD = torch.outer(positions_T, frequencies).repeat(1, 2)
    first, second = bias_HD.chunk(2, dim=-1)
    turned_HD = torch.cat((-second, first), dim=-1)
    cos_TD, sin_TD = angles_TD.cos() * scaling, angles_TD.sin() * scaling
    return (bias_HD[:, None] * cos_TD + turned_HD[:, None] * sin_TD)[None]
