"""One component of one layer of a cache, in torch: what is stored of an operand, and how it is reconstructed.

Axes: B sequences, H KV heads, T tokens, D head dim; G = D / 32 groups.

    stored     e4m3fn, int8   uint8 BHTD             int4, int4-g32   uint8 BHT(D/2), element 2i in the low nibble
    scales     fixed          one number             dynamic          FP32 BHT1
               tensor         FP32 B1T1              group            FP32 BHTG

The bits of codes and scales equal kassay.kv.formats (numpy), by test. A token is written once and never again.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy.typing as npt
import torch

from kassay.errors import KassayError
from kassay.kv import formats
from kassay.kv.formats import SCALE_FLOOR
from kassay.kv.recipe import BITS, GROUP, Format, Policy, Sixteen

Offset = Callable[[int, int, torch.device], torch.Tensor]  # tokens from, up to -> FP32 1HTD that is not quantized

Part = Literal["keys", "values", "key_scales", "value_scales"]

DTYPES: dict[str, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}

# An E4M3 code shifted into FP16's fields is its value times 2^-8, as FP16's bias is larger by 8. On one core
# this takes 0.6 ns an element, torch's own float8 conversion 3.1 and a table of 256 entries 4.0.
SHIFT = 7
CLEAR_DOUBLED_SIGN = -0x4001  # bit 14, where the sign extension of int8 left a copy of the sign
BIAS_DIFFERENCE = 256.0


def scale_of(amax: torch.Tensor, stored: Format = "e4m3fn") -> torch.Tensor:
    """FP32 scale of a largest absolute value, any shape."""
    reciprocal = float(formats.reciprocal(formats.format_named(stored)))
    return amax.float().clamp(min=SCALE_FLOOR) * torch.tensor(reciprocal, dtype=torch.float32, device=amax.device)


def encode(x: torch.Tensor, scale: torch.Tensor, stored: Format = "e4m3fn") -> torch.Tensor:
    """Codes (uint8, shape of x, or half of D if two share a byte); `scale` (FP32) broadcasts against x."""
    largest = formats.format_named(stored).largest
    clipped = (x.float() / scale).clamp(-largest, largest)
    if stored == "e4m3fn":
        return clipped.to(torch.float8_e4m3fn).view(torch.uint8)
    codes = clipped.round().to(torch.int8).view(torch.uint8)
    return codes if BITS[stored] == 8 else (codes[..., 0::2] & 0xF) | (codes[..., 1::2] << 4)


def decode(codes: torch.Tensor, scale: torch.Tensor, stored: Format = "e4m3fn") -> torch.Tensor:
    """FP32 values of finite codes; exact up to the one rounding of the product with the scale."""
    signed = codes.view(torch.int8)
    if stored == "e4m3fn":
        halves = signed.to(torch.int16).bitwise_left_shift_(SHIFT).bitwise_and_(CLEAR_DOUBLED_SIGN)
        return halves.view(torch.float16).float().mul_(scale * BIAS_DIFFERENCE)
    if BITS[stored] == 4:
        low, high = (signed << 4) >> 4, signed >> 4
        signed = torch.stack((low, high), dim=-1).flatten(-2)
    return signed.float().mul_(scale)


def operand_of(x: torch.Tensor, sixteen: Sixteen = "fp16") -> torch.Tensor:
    """A writer's operand in its 16-bit format. Raises KassayError for NaN and overflow, which the clip would hide."""
    operand = x.to(DTYPES[sixteen])
    ends = torch.stack(torch.aminmax(operand)).tolist()  # both at once: a GPU is waited for once
    if not all(map(math.isfinite, ends)):
        largest = torch.finfo(DTYPES[sixteen]).max
        raise KassayError(
            f"a key or value is not finite in {sixteen.upper()} (largest {largest:.5g}): these recipes cannot store it"
        )
    return operand


def as_numpy(x: torch.Tensor) -> npt.NDArray[Any]:
    """The same numbers; BF16 through its bits, as numpy has no such type of its own."""
    host = x.cpu()
    return host.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else host.numpy()


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How a plane stores its operand."""

    stored: Format
    policy: Policy
    sixteen: Sixteen
    scale: float | None = None  # of a fixed policy, FP32
    offset: Offset | None = None  # what is subtracted before quantizing and added when reconstructing


@dataclass(frozen=True, kw_only=True)
class Storage:
    """One tensor that a cache persists."""

    layer: int
    part: Part
    tensor: torch.Tensor  # the whole backing, capacity included
    tokens: int  # of it in use


class Plane:
    """One component of one layer: preallocated for `capacity` tokens, appended to, read as a whole."""

    def __init__(self, rule: Rule, capacity: int) -> None:
        self.rule = rule
        self.stored = rule.stored
        self.sixteen_bit = BITS[rule.stored] == 16
        self.scaled_by_token = not self.sixteen_bit and rule.policy != "fixed"
        self.capacity = capacity
        self.tokens = 0
        self.data_BHTD = torch.empty(0)
        self.scale_BHTG = torch.empty(0)
        self.scale = None if rule.scale is None else torch.tensor(rule.scale, dtype=torch.float32)

    def append(self, x_BHTD: torch.Tensor) -> None:
        """Store the operand's tokens behind those that are there. Raises KassayError beyond the capacity."""
        operand_BHTD = operand_of(x_BHTD, self.rule.sixteen)
        t = operand_BHTD.shape[2]
        if self.data_BHTD.numel() == 0:
            self._allocate(operand_BHTD)
        if self.tokens + t > self.capacity:
            raise KassayError(f"cache of {self.capacity} tokens cannot take {self.tokens} + {t}")
        place = slice(self.tokens, self.tokens + t)
        if self.sixteen_bit:
            self.data_BHTD[:, :, place] = operand_BHTD
        else:
            self._quantize(operand_BHTD.float(), place)
        self.tokens += t

    def scatter(self, x_NHD: torch.Tensor, rows_N: torch.Tensor, places_N: torch.Tensor) -> None:
        """Store one token in each named place of a sequence; `tokens` is the caller's (kassay.kv.ragged).

        A `tensor` policy scales what one write brings, and has none of these writes.
        """
        assert self.rule.policy != "tensor", "a bug: a scale for one write, and the writes are cut by acceptance"
        operand_NHD = operand_of(x_NHD, self.rule.sixteen)
        if self.sixteen_bit:
            self.data_BHTD[rows_N, :, places_N] = operand_NHD
            return
        wide_NHD = operand_NHD.float()
        if self.rule.offset is not None:
            offset_HTD = self.rule.offset(0, int(places_N.max()) + 1, wide_NHD.device)[0]
            wide_NHD = wide_NHD - offset_HTD[:, places_N].transpose(0, 1)
        scale = self.scale
        if self.scaled_by_token:
            scale_NHG = scale_of(self._amax(wide_NHD), self.stored)
            self.scale_BHTG[rows_N, :, places_N] = scale_NHG
            scale = self._spread(scale_NHG)
        assert scale is not None, "a bug: a fixed plane was made without its scale"
        self.data_BHTD[rows_N, :, places_N] = encode(wide_NHD, scale, self.stored)

    def erase(self, rows_N: torch.Tensor, places_N: torch.Tensor) -> None:
        """Make places what they were before anything was stored there: codes 0, scales 1."""
        self.data_BHTD[rows_N, :, places_N] = 0
        if self.scaled_by_token:
            self.scale_BHTG[rows_N, :, places_N] = 1.0

    def keep(self, rows_B: torch.Tensor) -> None:
        """Keep these sequences alone, in this order; what the others stored is freed."""
        self.data_BHTD = self.data_BHTD[rows_B]
        if self.scaled_by_token:
            self.scale_BHTG = self.scale_BHTG[rows_B]

    def _quantize(self, x_BHTD: torch.Tensor, place: slice) -> None:
        if self.rule.offset is not None:
            x_BHTD = x_BHTD - self.rule.offset(place.start, place.stop, x_BHTD.device)
        if self.scaled_by_token:
            self.scale_BHTG[:, :, place] = scale_of(self._amax(x_BHTD), self.stored)
        self.data_BHTD[:, :, place] = encode(x_BHTD, self._scale_at(place), self.stored)

    def _amax(self, x_BHTD: torch.Tensor) -> torch.Tensor:
        magnitude = x_BHTD.abs()
        if self.rule.policy == "tensor":
            return magnitude.amax(dim=(1, 2, 3), keepdim=True)
        if self.rule.policy == "group":
            return magnitude.view(*magnitude.shape[:-1], -1, GROUP).amax(dim=-1)
        return magnitude.amax(dim=-1, keepdim=True)

    def _allocate(self, x_BHTD: torch.Tensor) -> None:
        b, h, _, d = x_BHTD.shape
        check_width(self.rule, d)
        if self.sixteen_bit:
            self.data_BHTD = x_BHTD.new_zeros((b, h, self.capacity, d))
            return
        width = d * BITS[self.stored] // 8
        self.data_BHTD = torch.zeros((b, h, self.capacity, width), dtype=torch.uint8, device=x_BHTD.device)
        if self.scaled_by_token:
            heads = 1 if self.rule.policy == "tensor" else h
            groups = d // GROUP if self.rule.policy == "group" else 1
            self.scale_BHTG = torch.ones((b, heads, self.capacity, groups), device=x_BHTD.device)
        if self.scale is not None:
            # With a divisor on the CPU a GPU multiplies by its reciprocal: 2.7e-5 of the codes would differ.
            self.scale = self.scale.to(x_BHTD.device)

    def rebuilt(self, dtype: torch.dtype) -> torch.Tensor:
        """All stored tokens as k_BHTD or v_BHTD in `dtype`."""
        place = slice(0, self.tokens)
        if self.sixteen_bit:
            return self.data_BHTD[:, :, place].to(dtype)
        x_BHTD = decode(self.data_BHTD[:, :, place], self._scale_at(place), self.stored)
        if self.rule.offset is not None:
            x_BHTD += self.rule.offset(0, self.tokens, x_BHTD.device)
        return x_BHTD.to(dtype)

    def _scale_at(self, place: slice) -> torch.Tensor:
        if self.scaled_by_token:
            return self._spread(self.scale_BHTG[:, :, place])
        assert self.scale is not None, "a bug: a fixed plane was made without its scale"
        return self.scale

    def _spread(self, scale: torch.Tensor) -> torch.Tensor:
        return scale.repeat_interleave(GROUP, dim=-1) if self.rule.policy == "group" else scale

    def storages(self, layer: int, part: Literal["key", "value"]) -> list[Storage]:
        """What is persisted of it, the scalar of a fixed scale included."""
        data: Part = "keys" if part == "key" else "values"
        scales: Part = "key_scales" if part == "key" else "value_scales"
        found = [Storage(layer=layer, part=data, tensor=self.data_BHTD, tokens=self.tokens)]
        if self.scaled_by_token:
            found.append(Storage(layer=layer, part=scales, tensor=self.scale_BHTG, tokens=self.tokens))
        elif self.scale is not None:
            found.append(Storage(layer=layer, part=scales, tensor=self.scale, tokens=1))
        return found


def check_width(rule: Rule, head_dim: int) -> None:
    """Raise KassayError for a head dim that the format cannot pack or group."""
    if rule.policy == "group" and head_dim % GROUP:
        raise KassayError(f"format `{rule.stored}` has groups of {GROUP}: a head dim of {head_dim} has no whole ones")
    if head_dim * BITS[rule.stored] % 8:
        raise KassayError(f"format `{rule.stored}` has two elements a byte: a head dim of {head_dim} is odd")
