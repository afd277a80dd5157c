"""The oracle inside a vLLM worker: what the plug-in's pool holds, and what its kernels made of it, against numpy.

Axes: N tokens of a write, B sequences, H query heads, G KV heads, D head dim, X pages of a sequence, T tokens.

Operands are those that the layer worked on: it copies them beside itself, inside captured graphs too
(`observe` of the plug-in). Bytes are read out of the live pool at the slots of the write, and codes and scales are
compared with kassay.kv.formats bit by bit. Outputs are compared with float64 attention on what the pages hold, a
fresh prompt's with that on its own operands. Then faults are planted: each must be found, or no check is worth much.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kassay.kinds.vllm import VllmCheck
from kassay.kv import float8, formats
from kassay.kv.float8 import E4M3FN
from kassay.kv.oracle import reference_attention
from kassay.kv.recipe import BITS

LIMIT = {"fp16": 5e-4, "bf16": 5e-3}  # relative norm of a row: weights and outputs are rounded to 11 and 8 bits
LAST_ROWS = 4  # of a fresh prompt: each costs a pass over all its tokens
SIGN = 0x80

Array = npt.NDArray[Any]
Undo = Callable[[], None]
Plant = Callable[[torch.Tensor, torch.Tensor], Undo]  # into a table and lengths, or into the pool


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """The checks of one layer's cache after one kind of traffic."""

    arm: str
    traffic: str
    layer: int
    cache: Any  # kassay_vllm.attend.Cache
    plans: Any  # kassay_vllm.attend.Plans

    @property
    def limit(self) -> float:
        """Largest relative error of an output's row."""
        return LIMIT[self.cache.format.recipe.sixteen]

    def record(self, what: str, count: int, differing: int, error: float, *, planted: bool = False) -> VllmCheck:
        """A check's record. A fault is found where bytes differ or an output is off; NaN is never right."""
        clean = differing == 0 and error <= self.limit
        return VllmCheck(
            arm=self.arm, traffic=self.traffic, layer=self.layer, what=what, planted=planted, count=count,
            differing=differing, error=error, limit=self.limit, passed=clean != planted,
        )  # fmt: skip

    def kept(self, what: str, count: int, name: str) -> torch.Tensor:
        """Operands of the last call of that many tokens."""
        found: torch.Tensor = self.cache.kept[f"{what} {count} {name}"]
        return found

    def written(self, count: int) -> list[VllmCheck]:
        """Codes and scales of the last write of that many tokens."""
        slots = self.kept("write", count, "slots").cpu()
        stored = slots >= 0
        found = []
        for side in ("keys", "values"):
            plane = getattr(self.cache.layer, side)
            operand = array(self.kept("write", count, "k" if side == "keys" else "v"))[stored.numpy()]
            codes, scales = expected(plane, operand)
            got_codes, got_scales = held(plane, slots[stored])
            found.append(self.record(f"{side}: codes", codes.size, int((codes != got_codes).sum()), 0.0))
            if scales is not None and got_scales is not None:
                differing = int((scales.view(np.uint32) != got_scales.view(np.uint32)).sum())
                found.append(self.record(f"{side}: scales", scales.size, differing, 0.0))
        return found

    def decoded(self, count: int) -> list[VllmCheck]:
        """Outputs of the last decode of that many sequences, over what their pages hold."""
        wanted, lengths = self.reference(count)
        got = array(self.kept("decode", count, "out"))
        return [self.record("output", got.size, 0, row_error(got[lengths > 0], wanted[lengths > 0]))]

    def fresh(self, count: int) -> list[VllmCheck]:
        """Last rows of each prompt of the last fresh prefill of that many tokens, over its own operands."""
        q, k, v, got = (array(self.kept("fresh", count, name)) for name in ("q", "k", "v", "out"))
        bounds = self.kept("fresh", count, "starts").tolist()
        errors = [0.0]
        for first, last in pairwise(bounds):
            rows = slice(max(first, last - LAST_ROWS), last)
            out = attention(q[rows], k[first:last], v[first:last])
            errors.append(row_error(got[rows], out))
        return [self.record("output", got.size, 0, float(np.max(errors)))]

    def reference(self, count: int) -> tuple[Array, Array]:
        """Float64 outputs BHD of the last decode, and its lengths; rows without a token stay 0."""
        q, table = array(self.kept("decode", count, "q")), self.kept("decode", count, "table").cpu()
        lengths = self.kept("decode", count, "lengths").cpu().numpy()
        out = np.zeros(q.shape)
        for b, length in enumerate(lengths.tolist()):
            if length:
                k, v = self.sequence(table[b], length)
                out[b] = attention(q[b : b + 1], k, v)[0]
        return out, lengths

    def sequence(self, table_X: torch.Tensor, length: int) -> tuple[Array, Array]:
        """Keys and values TGD of a sequence in float64, from the bytes of its pages."""
        at = torch.arange(length)
        slots = table_X.long()[at // 16] * 16 + at % 16
        found = [values_of(getattr(self.cache.layer, side), *held(getattr(self.cache.layer, side), slots))
                 for side in ("keys", "values")]  # fmt: skip
        return found[0], found[1]

    def planted(self, count: int) -> list[VllmCheck]:
        """Faults in the last decode of that many sequences: in its pages, its table, its lengths and its slots.

        Each is made on the live pool or operands, the kernel runs again, and what was there before is put back.
        """
        wanted, lengths = self.reference(count)
        found = []
        for name, plant in self.faults(count):
            table, ends = (self.kept("decode", count, one).clone() for one in ("table", "lengths"))
            undo = plant(table, ends)
            q = self.kept("decode", count, "q")
            kernels, lse = self.plans.of(count)
            got = array(kernels(q, self.cache.layer, table, ends, torch.empty_like(q), lse[:count])[0])
            undo()
            error = row_error(got[lengths > 0], wanted[lengths > 0])
            found.append(self.record(name, got.size, 0, error, planted=True))
        before = self.kept("write", count, "slots").cpu()
        if int((before >= 0).sum()):
            found.append(self.byte_fault(count, before))
        return found

    def byte_fault(self, count: int, slots: torch.Tensor) -> VllmCheck:
        """One byte of a stored value changed: the comparison of codes must count it."""
        slot = int(slots[slots >= 0][0])
        data = self.cache.layer.values.data_PSHW[slot // 16, slot % 16, 0].view(torch.uint8)
        data[0] ^= SIGN
        checks = [one for one in self.written(count) if one.what == "values: codes"]
        data[0] ^= SIGN
        return self.record("a byte of a value", checks[0].count, checks[0].differing, 0.0, planted=True)

    def faults(self, count: int) -> Iterator[tuple[str, Plant]]:
        """Name and what plants it in a table and lengths or in the pool, giving back what undoes it."""
        layer = self.cache.layer
        lengths = self.kept("decode", count, "lengths").cpu()
        b = int(lengths.argmax())
        table = self.kept("decode", count, "table").cpu()
        at = self.heaviest(count, b, table[b], int(lengths[b]))
        page, place = int(table[b, at // 16]), at % 16
        others = [int(table[row, 0]) for row in range(count) if row != b and lengths[row] > 0]
        other = others[0] if others else 0  # vLLM's null block

        def one_less(_table: torch.Tensor, ends: torch.Tensor) -> Undo:
            ends[b] -= 1
            return lambda: None

        def other_page(table: torch.Tensor, _ends: torch.Tensor) -> Undo:
            table[b, at // 16] = other
            return lambda: None

        yield "signs of a value", lambda _table, _ends: flipped(layer.values.data_PSHW[page, place])
        yield "signs of a key", lambda _table, _ends: flipped(layer.keys.data_PSHW[page, place])
        if BITS[self.cache.format.recipe.value_format] < 16:
            yield "a value scale", lambda _table, _ends: scaled(layer.values, page)
        yield "one token less", one_less
        yield "another page in the table", other_page

    def heaviest(self, count: int, b: int, table_X: torch.Tensor, length: int) -> int:
        """The token to which head 0 of a sequence gives most weight: a fault there shows, whatever the text."""
        k, _ = self.sequence(table_X, length)
        q = array(self.kept("decode", count, "q"))[b, 0]
        return int(np.argmax(k[:, 0] @ q))


def flipped(row: torch.Tensor) -> Undo:
    """Turn the signs of a row of a pool; what turns them back."""
    before = row.clone()
    if row.dtype == torch.uint8:
        row ^= SIGN
    else:
        row.neg_()
    return lambda: restore(row, before)


def scaled(plane: Any, page: int) -> Undo:
    """Stretch the scales of a page, or the fixed one; what undoes it."""
    scale = plane.scale if plane.scale_PHSG is None else plane.scale_PHSG[page]
    before = scale.clone()
    scale.mul_(1.5)
    return lambda: restore(scale, before)


def restore(target: torch.Tensor, before: torch.Tensor) -> None:
    """Put back what was there."""
    target.copy_(before)


def array(x: torch.Tensor) -> Array:
    """A tensor in FP32 on the host: exact for 16-bit formats."""
    return x.detach().float().cpu().numpy()


def expected(plane: Any, x_NGD: Array) -> tuple[Array, Array | None]:
    """Bytes of codes N(G W) and scales NG (None where they are not dynamic) that operands must have been stored as."""
    if plane.sixteen_bit:
        stored = torch.from_numpy(x_NGD).to(plane.data_PSHW.dtype)
        return stored.contiguous().view(torch.uint8).flatten(1).numpy(), None
    if plane.scale_PHSG is None:
        scale, kept = np.float32(float(plane.scale)).reshape(1), None
    else:
        kept = formats.scale_of(E4M3FN, np.abs(x_NGD).max(axis=-1))
        scale = kept[..., None]
    return formats.encode(E4M3FN, x_NGD, scale, saturate=True).reshape(len(x_NGD), -1), kept


def held(plane: Any, slots_N: torch.Tensor) -> tuple[Array, Array | None]:
    """Bytes of codes N(G W) and scales NG of these slots, as the pool holds them."""
    slots = slots_N.to(plane.data_PSHW.device)
    codes = plane.data_PSHW[slots // 16, slots % 16].contiguous().view(torch.uint8).flatten(1).cpu().numpy()
    if plane.scale_PHSG is None:
        return codes, None
    return codes, plane.scale_PHSG[slots // 16, :, slots % 16, 0].cpu().numpy()


def values_of(plane: Any, codes: Array, scales_NG: Array | None) -> Array:
    """What stored bytes mean, NGD in float64."""
    heads = plane.shape.kv_heads
    if plane.sixteen_bit:
        bits = torch.from_numpy(codes).view(plane.data_PSHW.dtype)
        return bits.double().numpy().reshape(len(codes), heads, -1)
    rows = float8.table(E4M3FN)[codes].astype(np.float64).reshape(len(codes), heads, -1)
    scale = np.float64(float(plane.scale)) if scales_NG is None else scales_NG[..., None].astype(np.float64)
    return np.asarray(rows * scale)


def attention(q_NHD: Array, k_TGD: Array, v_TGD: Array) -> Array:
    """Float64 attention NHD of the last N tokens of a sequence over all T."""
    q, k, v = (x[None].transpose(0, 2, 1, 3) for x in (q_NHD, k_TGD, v_TGD))
    out: Array = reference_attention(q, k, v)[0][0].transpose(1, 0, 2)
    return out


def row_error(got_NHD: Array, wanted_NHD: Array) -> float:
    """Largest relative Euclidean error over tokens; NaN where anything is."""
    if not len(got_NHD):
        return 0.0
    off = np.linalg.norm((got_NHD - wanted_NHD).reshape(len(got_NHD), -1), axis=1)
    return float(np.max(off / np.linalg.norm(wanted_NHD.reshape(len(got_NHD), -1), axis=1)))
