"""How a decode step is cut: tokens of a step, warps and pipeline stages of a program, splits of a sequence.

A program reads one KV head of one sequence, so a batch has `units` = B * programs of them. S splits make S * units
programs of ceil(T / S) tokens; the device holds `slots` = processors * residents at once, its waves being
w = S * units / slots. Two things bound the time, in microseconds, and the larger of them is nearly it:

    stream = bytes / bandwidth * (floor(w) + max(w - floor(w), 0.9)) / w, without the quotient up to one wave
    alone  = ceil(w) * (1 + steps of a program * (0.36 + 0.01 * tokens of a step / warps + 0.2 if warps > 1))
    time   = (stream^7 + alone^7)^(1/7) + (0.5 + 4.1 * bytes of the parts / bandwidth, if there are several splits)

The numbers are fitted to 3,000 timings on one H200: docs/findings/2026-11-29-kernels.md, which says how far from the
best cut its picks are. The formula knows no lengths: where they are uneven, splits of at most 2,048 tokens keep a long
sequence from being waited for (more of them where these begin a second wave and leave it empty), and the tile is the
first of the list. Plain Python.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kassay.errors import KassayError
from kassay.kernels.host import Host
from kassay.kernels.shape import LANES, DecodeShape

ENOUGH = 0.9  # of a wave: what a shorter last one costs
REACHED = 0.935  # of the memory's own bandwidth, by the best kernel
UNEVEN_TOKENS = 2048  # of a split where lengths are uneven
ONE_WARP = 1.012  # what else a program of one warp costs
MOST_SPLITS = 64
QUARTERS = 4  # of a multiprocessor
ASSUMED_REGISTERS = 168  # of a thread: 96 to 200 as compiled


@dataclass(frozen=True, kw_only=True)
class Tile:
    """How one program is compiled."""

    tokens: int  # of one step of the loop
    warps: int
    stages: int


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How one call is launched."""

    tile: Tile
    splits: int


# On sm_90: the best of each shape in a search over 25 tiles.
TILES = tuple(
    Tile(tokens=tokens, warps=warps, stages=stages)
    for tokens, warps, stages in (
        (128, 4, 3), (64, 4, 3), (64, 2, 3), (32, 1, 3), (32, 1, 2), (64, 1, 2), (32, 2, 3), (16, 1, 3),
    )
)  # fmt: skip


def residents(host: Host, registers: int, shared_bytes: int, warps: int) -> int:
    """Programs that one processor holds: by its registers, its shared memory and its 64 warps.

    A warp lives in one quarter of a processor with its quarter of the registers, in steps of 256; each program takes
    1 KB of shared memory for the system. Equals what ncu counted for six kernels on an H200.
    """
    of_warp = 256 * -(-32 * max(1, registers) // 256)
    by_registers = QUARTERS * (host.registers_each // QUARTERS // of_warp) // warps
    by_shared = host.shared_bytes_each // (shared_bytes + 1024)
    return max(1, min(by_registers, by_shared, 64 // warps, 32))


def assumed_residents(host: Host, shape: DecodeShape, tile: Tile) -> int:
    """The same before anything is compiled: with what such tiles took of sm_90, which shared memory limits."""
    return residents(host, ASSUMED_REGISTERS, assumed_shared_bytes(shape, tile), tile.warps)


def assumed_shared_bytes(shape: DecodeShape, tile: Tile) -> int:
    """Shared memory of a program: stages - 1 tiles of keys and values, the queries, the weights, 1 KB of the rest."""
    token = 2 * shape.head_dim // LANES[shape.key_number] + 2 * shape.head_dim // LANES[shape.value_number]
    beside = 2 * shape.rows * (shape.head_dim + tile.tokens) + 1024
    return max(1, tile.stages - 1) * tile.tokens * token + beside


def filling(units: int, tokens: int, step: int, slots: int) -> list[int]:
    """Numbers of splits to choose from: up to four on a full device, else what fills one wave, or twice or half of it.

    More on a full device cost more than they fill: five were once 1.66 times the time of one.
    """
    most = max(1, min(MOST_SPLITS, -(-tokens // step)))
    one = slots // units
    found = [1, 2, 3, 4] if one <= 1 else [1, max(1, one // 2), one, 2 * one]
    return sorted({min(splits, most) for splits in found})


def quantization(waves: float) -> float:
    """Time of that many waves over the time at full bandwidth."""
    whole = math.floor(waves)
    if waves <= 1:
        return max(waves, ENOUGH) / waves
    return (whole + (max(waves - whole, ENOUGH) if waves > whole else 0.0)) / waves


def candidates(
    shape: DecodeShape, host: Host, batch: int, tokens: int, tiles: Sequence[Tile] | None = None
) -> list[Cut]:
    """Cuts to choose from: each tile that fits, of TILES unless others are given, with splits that fill the device."""
    found = []
    for tile in TILES if tiles is None else tiles:
        if assumed_shared_bytes(shape, tile) <= host.shared_bytes:
            slots = host.processors * assumed_residents(host, shape, tile)
            numbers = filling(batch * shape.programs, tokens, tile.tokens, slots)
            found += [Cut(tile=tile, splits=splits) for splits in numbers]
    return found


def estimate_us(shape: DecodeShape, host: Host, batch: int, tokens: int, cut: Cut) -> float:
    """The time of a call by the formula above."""
    tile, bandwidth = cut.tile, REACHED * host.bytes_per_us
    chunk = chunk_of(tokens, cut.splits, tile.tokens)
    used = -(-tokens // chunk)
    waves = used * batch * shape.programs / (host.processors * assumed_residents(host, shape, tile))
    stream = batch * tokens * token_bytes(shape) / bandwidth * (quantization(waves) if waves > 1 else 1.0)
    step = 0.36 + 0.01 * tile.tokens / tile.warps + (0.2 if tile.warps > 1 else 0.0)
    alone = math.ceil(waves) * (1.0 + chunk / tile.tokens * step)
    time = float((stream**7 + alone**7) ** (1 / 7))
    if used > 1:
        parts = 8 * used * batch * shape.query_heads * shape.head_dim  # written and read, FP32
        time += 0.5 + 4.1 * parts / bandwidth
    return time * (ONE_WARP if tile.warps == 1 else 1.0)


def token_bytes(shape: DecodeShape) -> int:
    """Bytes of codes that one token of one sequence has in all KV heads."""
    words = shape.head_dim // LANES[shape.key_number] + shape.head_dim // LANES[shape.value_number]
    return 2 * words * shape.kv_heads


def cut_of(shape: DecodeShape, host: Host, batch: int, tokens: int, *, uneven: bool) -> Cut:
    """The cut without tuning. Raises KassayError where no tile fits."""
    cuts = candidates(shape, host, batch, tokens)
    if not cuts:
        raise KassayError(f"{host.name} has {host.shared_bytes} bytes of shared memory: no tile of ours fits")
    if not uneven:
        return min(cuts, key=lambda cut: estimate_us(shape, host, batch, tokens, cut))
    same = [cut for cut in cuts if cut.tile == cuts[0].tile]
    fastest = min(same, key=lambda cut: estimate_us(shape, host, batch, tokens, cut))
    least = min(MOST_SPLITS, max(fastest.splits, -(-tokens // UNEVEN_TOKENS)))
    slots = host.processors * assumed_residents(host, shape, fastest.tile)
    if least * batch * shape.programs >= 2 * slots:  # so many waves that uneven lengths fill them anyhow
        return replace(fastest, splits=least)
    numbers = range(least, min(MOST_SPLITS, 2 * least) + 1)
    return min(
        (replace(fastest, splits=splits) for splits in numbers),
        key=lambda cut: estimate_us(shape, host, batch, tokens, cut),
    )


def chunk_of(tokens: int, splits: int, step: int) -> int:
    """Tokens of a split, whole steps."""
    return -(-max(1, tokens) // (splits * step)) * step
