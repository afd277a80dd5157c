"""The bias of the key projection, rotated: what a pre-bias recipe takes off a key before it quantizes.

Axes: L attention layers, H KV heads, T tokens, D head dim.

RoPE is linear in the key, so a key after RoPE is R(t) W x + R(t) b with the projection's bias b. Where b is large, it
takes the range of an 8-bit format and leaves few codes for W x, which is what attention tells tokens apart by. A
pre-bias recipe quantizes k - R(t) b and reconstructs with R(t) b added: the softmax sees the bias in full precision.
R(t) b is made again from b and the position whenever a layer is reconstructed; nothing of it is persisted but b itself,
which is a weight.

    R(t) b = b cos(t f) + (-b[D/2:], b[:D/2]) sin(t f)        f: the model's inverse frequencies, each twice

Cosines and sines are rounded to FP16, the rest is FP32. That is no error of a key: what is taken off is what is added.
The key that is quantized is off by at most WAVE_ERROR of its bias, and the kernels multiply the waves in the tensor
cores as they are. A token's position is its index in the cache: rows are neither padded nor shifted.
Source: the study `prebias-gate`; the same idea before RoPE is known from pre-RoPE key quantization (Hooper et al. 2024,
KVQuant, arXiv:2401.18079).
"""

from dataclasses import dataclass, field

import torch

WAVE_ERROR = 2.0**-11  # of R(t) b over the largest bias, at most: an element has two waves, each to the nearest FP16


@dataclass(frozen=True, kw_only=True)
class KeyBias:
    """The key bias of a model and how its RoPE turns it."""

    bias_LHD: torch.Tensor  # FP32
    frequencies: torch.Tensor  # FP32, D/2: radians a token
    scaling: float  # of cosine and sine, as some RoPE variants have it
    made: dict[tuple[int, torch.device], torch.Tensor] = field(default_factory=dict, repr=False)  # `waves` made once

    def waves_at(self, positions_T: torch.Tensor) -> torch.Tensor:
        """Cosines of the D/2 angles at these positions, then their sines, FP16 TD, without `scaling`."""
        angles_TW = torch.outer(positions_T.float(), self.frequencies.to(positions_T.device))
        return torch.cat((angles_TW.cos(), angles_TW.sin()), dim=1).half()

    def waves(self, tokens: int, device: torch.device) -> torch.Tensor:
        """Those from 0 on: the same memory for all layers and calls of that length, so that a graph may hold it."""
        key = (tokens, device)
        if key not in self.made:
            self.made[key] = self.waves_at(torch.arange(tokens, device=device))
        return self.made[key]

    def tensors(self) -> list[torch.Tensor]:
        """What is held for all layers: the biases, the frequencies, and waves that were made."""
        return [self.bias_LHD, self.frequencies, *self.made.values()]

    def offset(self, layer: int) -> "RotatedBias":
        """The rotated bias of one layer, for tokens from and up to a position."""
        return RotatedBias(of=self, bias_HD=self.bias_LHD[layer] * self.scaling)


@dataclass(frozen=True, kw_only=True, eq=False)
class RotatedBias:
    """An offset (kassay.kv.plane.Offset) that says what it is made of: the kernels make it again themselves."""

    of: KeyBias
    bias_HD: torch.Tensor  # FP32, times `scaling`
    held: dict[torch.device, torch.Tensor] = field(default_factory=dict, repr=False)  # `bias_on` made once

    def bias_on(self, device: torch.device) -> torch.Tensor:
        """The bias there: the same memory for all calls, so that a graph may hold it."""
        if device not in self.held:
            self.held[device] = self.bias_HD.to(device).contiguous()
        return self.held[device]

    def __call__(self, start: int, stop: int, device: torch.device) -> torch.Tensor:
        """R(t) b for t = start … stop - 1, FP32 1HTD."""
        return self.at(torch.arange(start, stop, device=device))[None]

    def at(self, positions_T: torch.Tensor) -> torch.Tensor:
        """R(t) b of these positions, FP32 HTD."""
        return rotate(self.bias_on(positions_T.device), self.of.waves_at(positions_T))


def drawn(kv_heads: int, head_dim: int, scaling: float = 1.0) -> RotatedBias:
    """A bias ten times as large as keys of a normal distribution, for checks on drawn operands."""
    bias_LHD = 10 * torch.randn((1, kv_heads, head_dim), generator=torch.Generator().manual_seed(11))
    frequencies = 10000.0 ** (-torch.arange(head_dim // 2) / (head_dim // 2))
    return KeyBias(bias_LHD=bias_LHD, frequencies=frequencies, scaling=scaling).offset(0)


def rotate(bias_HD: torch.Tensor, waves_TD: torch.Tensor) -> torch.Tensor:
    """R(t) b by the cosines and sines of positions, FP32 HTD."""
    first, second = bias_HD.chunk(2, dim=-1)
    turned_HD = torch.cat((-second, first), dim=-1)
    cos_TD, sin_TD = (half_TW.float().repeat(1, 2) for half_TW in waves_TD.chunk(2, dim=1))
    return bias_HD[:, None] * cos_TD + turned_HD[:, None] * sin_TD
