"""How a decode step is cut: tokens of a step, warps and pipeline stages of a program, splits of a sequence.

A program reads one KV head of one sequence, or two as one (a pair: half as many rows, of twice the bytes), so a batch
has `units` = B * programs of them. S splits make S * units programs of ceil(T / S) tokens; the device holds `slots` =
processors * residents at once, its waves being w = S * units / slots. A processor that holds n programs has
n * (stages - 1) * tokens of a step on their way to it, a row of keys and a row of values each. Two things bound the
time, in microseconds, and the larger is nearly it:

    stream = (bytes / bandwidth + rows / 134,000) * (floor(w) + max(w - floor(w), 0.9)) / w, up to one wave without this
             * (1 + 0.35 * (64 / bytes of a row)^2, if more than 530 tokens are on their way to a processor)
    chain  = ceil(w) * (4 + steps of a program * (0.42 + 0.009 * tokens of a step / warps + 0.06, of 4 warps 0.38)),
             over pairs 7.4 and twice the 0.009, of 4 warps that share a processor 1.2 more; a
             row of pairs costs 1.5 / 134,000, a pre-biased one alone 2 / 134,000
    time   = (stream^4.3 + chain^4.3)^(1/4.3)
             + (2.5 + 4.2 * bytes of the parts / bandwidth, if there are several splits)

Few tokens on their way leave memory idle (chain); too many crowd it (stream): rows of 64 bytes then take 1.4 times as
long, rows of 128 bytes 1.09 times, which is what pairs are for. About 500 a processor do neither. In pages of one token
a scale is read by four bytes: where keys and values have one, a step's tokens of a warp add 0.4 / 64 each to the stream
(cause not known).

The numbers are fitted to 4,300 timings on H200s (docs/findings/2026-11-30-decode-kernel-bars.md, -pairs.md and
-prebias.md), which say how far from the best cut its picks are. The formula knows no lengths: where they are uneven and
the device is full of splits of 2,048 tokens, no split is longer, lest a long sequence is waited for (more of them where
these begin a second wave and leave it empty), and the tile is the first of the list that cannot crowd a processor, of
pairs where that is not much slower than single heads. Plain Python.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from kassay.errors import KassayError
from kassay.kernels.host import Host
from kassay.kernels.shape import LANES, DecodeShape

ENOUGH = 0.9  # of a wave: what a shorter last one costs
REACHED = 0.96  # of the memory's own bandwidth, by the bytes alone
ROW_US = {1: 1 / 134_000, 2: 1.5 / 134_000}  # what a row costs beside its bytes, by heads
ROWS_OF_A_BIAS = 2  # that a row of one head counts for where waves are read beside it; over pairs they cost nothing
CROWD = 530  # tokens on their way to a processor, from which rows of few bytes come slower
CROWDED = 0.35  # how much, rows of 64 bytes
UNCROWDED = 1.1  # that a tile may cost where lengths are uneven and a processor is full
PROGRAM = {1: 4.0, 2: 7.4}  # of a chain: its program, by heads
BESIDE = 1.2  # more where programs of four warps share a processor
STEP, TOKEN = 0.42, 0.009  # of a chain: each step, and each token of a warp
MEETING = {1: 0.0, 2: 0.06, 4: 0.38}  # what the warps of a step wait for each other
SHARP = 4.3  # how nearly the larger bound is the time
MERGE, PARTS = 2.5, 4.2
SCATTERED = 0.4 / 64  # what a token of a warp adds to the stream in pages of one token with two scales
ALIKE = 1.02  # of the least estimate: of those the fewest splits
LIVE = (1, 2, 4, 8)  # programs of a processor that splits are chosen for
UNEVEN_TOKENS = 2048  # of a split where lengths are uneven
UNEVEN_PAIRS = 1.06  # of the least estimate of single heads, that pairs are taken at there
MOST_SPLITS = 64
QUARTERS = 4  # of a multiprocessor
ASSUMED_REGISTERS = {1: 168, 2: 240}  # of a thread, by heads: 96 to 254, and 150 to 255, as compiled
NARROW = 128  # bytes of a row of keys or values that is worth a pair: two rows of 256 bytes gain nothing
LEAST_OF_PAIRS = 32  # tokens of a step
MOST_HELD = 80  # scores and accumulators of a thread, more of which spill on sm_90
UNEQUAL_INT8 = ((2, 0), (2, 3))  # INT8 keys over 16-bit and over INT4 values, as kernels know formats
MATRIX_ROWS = 16  # of a tensor-core tile: tokens of a score, words of values


@dataclass(frozen=True, kw_only=True)
class Tile:
    """How one program is compiled."""

    tokens: int  # of one step of the loop
    warps: int
    stages: int
    heads: int = 1  # KV heads that are read as one row: 1 or 2


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How one call is launched."""

    tile: Tile
    splits: int

    def numbers(self) -> dict[str, int]:
        """All of it by name, for records and books."""
        return {**asdict(self.tile), "splits": self.splits}


# On sm_90: of 14 tiles in a search those without which some shape is more than 2 % slower.
TILES = tuple(
    Tile(tokens=tokens, warps=warps, stages=stages)
    for tokens, warps, stages in ((128, 4, 3), (128, 2, 3), (64, 2, 3), (32, 1, 3), (16, 1, 3))
)
# Of pre-biased keys, whose queries have four factors more: of those that spill nothing the fastest.
PREBIASED = tuple(Tile(tokens=tokens, warps=warps, stages=3) for tokens, warps in ((128, 4), (64, 2), (16, 1)))


def tiles_of(shape: DecodeShape) -> list[Tile]:
    """Those of TILES that suit, over single heads, and over pairs where heads make some of rows that are narrow."""
    lanes = [LANES[shape.key_number], LANES[shape.value_number]]
    narrow = 2 * shape.head_dim // (min(lanes) if shape.recipe.prebias else max(lanes)) <= NARROW
    pairs = suiting(shape.read_as(2)) if shape.pairs and narrow else []
    return suiting(shape) + [replace(tile, heads=2) for tile in pairs if tile.tokens >= LEAST_OF_PAIRS]


def suiting(shape: DecodeShape) -> list[Tile]:
    """Of TILES: whole pages, a part of the values for every warp, and registers for all queries.

    Where none has all three (INT4 values under more than 16 queries), warps read each other's part of the values too.
    """
    words = shape.head_dim // LANES[shape.value_number]
    tiles = PREBIASED if shape.recipe.prebias else TILES
    found = [tile for tile in tiles if tile.tokens % shape.page_tokens == 0 and holds(shape, tile)]
    return [tile for tile in found if MATRIX_ROWS * tile.warps <= words] or found


def holds(shape: DecodeShape, tile: Tile) -> bool:
    """Whether a thread's registers take scores and accumulators of all queries of a program."""
    held = shape.rows * (tile.tokens + shape.head_dim) / (32 * tile.warps)
    wide = tile.tokens > 32 * tile.warps and (shape.rows > 8 or shape.value_number == 0 or shape.head_dim > 128)
    if (tile.tokens, tile.warps) == (32, 1) and shape.head_dim > 128 and shape.value_number == 0:
        return False  # of 8-bit keys 48 to 64 bytes spill on sm_90
    if (tile.tokens, tile.warps) == (64, 2):  # 8 to 16 bytes of these spill there, with Triton 3.6 or 3.7
        if (shape.key_number, shape.value_number) in UNEQUAL_INT8:
            return False
        if shape.recipe.prebias and shape.value_number == 0 and shape.rows > 8:
            return False
    return held <= MOST_HELD and not wide


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
    return residents(host, ASSUMED_REGISTERS[tile.heads], assumed_shared_bytes(shape, tile), tile.warps)


def assumed_shared_bytes(shape: DecodeShape, tile: Tile) -> int:
    """Shared memory of a program: keys, values, scales and waves on their way; queries, a bias's factors, weights.

    One stage less than the pipeline has, but where four warps multiply 16 queries and more (wgmma).
    """
    waves, factors = (2 * shape.head_dim, 4 * shape.head_dim) if shape.recipe.prebias else (0, 0)
    shape = shape.read_as(tile.heads)
    stages = tile.stages if tile.warps == 4 and shape.rows >= 16 else max(1, tile.stages - 1)
    coming = stages * tile.tokens * (2 * row_bytes(shape) + 4 * tile.heads * scales(shape) + waves)
    return coming + shape.rows * (2 * (shape.head_dim + tile.tokens) + factors)


def row_bytes(shape: DecodeShape) -> int:
    """Bytes of a head's keys or values of one token, their mean."""
    return shape.head_dim // LANES[shape.key_number] + shape.head_dim // LANES[shape.value_number]


def scales(shape: DecodeShape) -> int:
    """Planes that have a scale for each token and head."""
    return (shape.key_number != 0) + (shape.value_number != 0) if shape.recipe.policy == "dynamic" else 0


def filling(units: int, host: Host, held: int, most: int) -> list[int]:
    """Numbers of splits to choose from: what gives each processor 1 to 4 programs or all that it holds, and up to 3."""
    found = {1, 2, 3} if units >= host.processors else {1}
    found |= {host.processors * live // units for live in LIVE if live <= held}
    return sorted({max(1, min(splits, most)) for splits in found})


def crowding(shape: DecodeShape, tile: Tile, live: float) -> float:
    """Time over the time without it, where a processor has so many programs' tokens on their way to it."""
    if live * max(1, tile.stages - 1) * tile.tokens <= CROWD:
        return 1.0
    return 1.0 + CROWDED * float(min(1.0, (64 / row_bytes(shape.read_as(tile.heads))) ** 2))


def units_of(shape: DecodeShape, tile: Tile, batch: int) -> int:
    """Programs of a batch and one split."""
    return batch * shape.read_as(tile.heads).programs


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
    found: dict[tuple[Tile, int], Cut] = {}
    for tile in tiles_of(shape) if tiles is None else tiles:
        if assumed_shared_bytes(shape, tile) <= host.shared_bytes:
            most = max(1, min(MOST_SPLITS, -(-tokens // tile.tokens)))
            held = assumed_residents(host, shape, tile)
            for splits in filling(units_of(shape, tile, batch), host, held, most):
                found.setdefault((tile, chunk_of(tokens, splits, tile.tokens)), Cut(tile=tile, splits=splits))
    return list(found.values())


def estimate_us(shape: DecodeShape, host: Host, batch: int, tokens: int, cut: Cut) -> float:
    """The time of a call by the formula above."""
    tile, bandwidth = cut.tile, REACHED * host.bytes_per_us
    chunk = chunk_of(tokens, cut.splits, tile.tokens)
    used = -(-tokens // chunk)
    units, held = units_of(shape, tile, batch), assumed_residents(host, shape, tile)
    programs = used * units
    waves = programs / (host.processors * held)
    moved = batch * tokens * token_bytes(shape)
    row_us = ROW_US[tile.heads] * (ROWS_OF_A_BIAS if shape.recipe.prebias and tile.heads == 1 else 1)
    stream = moved / bandwidth + units * tokens * row_us
    stream *= crowding(shape, tile, min(programs / host.processors, held))
    if waves > 1:
        stream *= quantization(waves)
    if shape.page_tokens == 1 and scales(shape) == 2:
        stream *= 1 + SCATTERED * tile.tokens / tile.warps
    step = STEP + TOKEN * tile.heads * tile.tokens / tile.warps + MEETING.get(tile.warps, MEETING[4])
    program = PROGRAM[tile.heads] + (BESIDE if tile.warps == 4 and programs > host.processors else 0.0)
    chain = math.ceil(waves) * (program + chunk / tile.tokens * step)
    time = float((stream**SHARP + chain**SHARP) ** (1 / SHARP))
    if used > 1:
        parts = 8 * used * batch * shape.query_heads * shape.head_dim  # written and read, FP32
        time += MERGE + PARTS * parts / bandwidth
    return time


def token_bytes(shape: DecodeShape) -> int:
    """Bytes of codes that one token of one sequence has in all KV heads."""
    return 2 * row_bytes(shape) * shape.kv_heads


def cut_of(
    shape: DecodeShape, host: Host, batch: int, tokens: int, *, uneven: bool, tiles: Sequence[Tile] | None = None
) -> Cut:
    """The cut without tuning, of `tiles` where some are given. Raises KassayError where no tile fits."""
    cuts = candidates(shape, host, batch, tokens, tiles)
    if not cuts:
        raise KassayError(f"{host.name} has {host.shared_bytes} bytes of shared memory: no tile of ours fits")
    units = batch * shape.programs
    if not uneven or units * -(-tokens // UNEVEN_TOKENS) <= host.processors:  # more splits than that are taken anyhow
        estimates = {cut: estimate_us(shape, host, batch, tokens, cut) for cut in cuts}
        near = [cut for cut, us in estimates.items() if us <= ALIKE * min(estimates.values())]
        return min(near, key=lambda cut: (cut.splits, estimates[cut]))
    by_heads = [[cut for cut in cuts if cut.tile.heads == heads] for heads in (2, 1)]
    found = [uneven_cut(shape, host, batch, tokens, each) for each in by_heads if each]
    slack = {1: UNEVEN_PAIRS, 2: 1.0}
    return min(found, key=lambda cut: slack[cut.tile.heads] * estimate_us(shape, host, batch, tokens, cut))


def uneven_cut(shape: DecodeShape, host: Host, batch: int, tokens: int, cuts: list[Cut]) -> Cut:
    """Of the first tile that cannot crowd a processor the fastest of enough splits."""
    full = {cut.tile: crowding(shape, cut.tile, assumed_residents(host, shape, cut.tile)) for cut in cuts}
    tile = next((each for each, factor in full.items() if factor <= UNCROWDED), cuts[-1].tile)
    same = [cut for cut in cuts if cut.tile == tile]
    fastest = min(same, key=lambda cut: estimate_us(shape, host, batch, tokens, cut))
    least = min(MOST_SPLITS, max(fastest.splits, -(-tokens // UNEVEN_TOKENS)))
    slots = host.processors * assumed_residents(host, shape, tile)
    if least * units_of(shape, tile, batch) >= 2 * slots:  # so many waves that uneven lengths fill them anyhow
        return replace(fastest, splits=least)
    numbers = range(least, min(MOST_SPLITS, 2 * least) + 1)
    return min(
        (replace(fastest, splits=splits) for splits in numbers),
        key=lambda cut: estimate_us(shape, host, batch, tokens, cut),
    )


def chunk_of(tokens: int, splits: int, step: int) -> int:
    """Tokens of a split, whole steps."""
    return -(-max(1, tokens) // (splits * step)) * step
