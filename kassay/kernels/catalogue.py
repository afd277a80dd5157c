"""Every kernel of ours as it is launched at a served geometry, compiled for sm_90 on any machine.

A name says what is compiled: `attention <recipe> <splits>`, `merge`, `prefix <recipe> <rows>` (of a shared
cartridge), `write <recipe>`, `gather <recipe>`, `unfused <recipe> <part>`; `head <recipe> <splits>` and `repeat` of the
old law's arms; `turn <recipe>` (and `turn <recipe> plain` of heads without a norm), `norm`, `norm add` and `gate` of a
decoder layer, whose hidden size is that of all query heads.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from kassay.kernels import expand, gather, rows, store, unfused
from kassay.kernels.ahead import Compiled, compiled
from kassay.kernels.cartridge import Shared, most_rows, prefix_cut_of
from kassay.kernels.device.attention import attention_merge, attention_split
from kassay.kernels.device.dequantize import dequantize_pages
from kassay.kernels.device.expand import attention_head, repeat_heads
from kassay.kernels.device.gather import gather_pages
from kassay.kernels.device.prefix import attention_prefix
from kassay.kernels.device.rows import add_norm, gate, turn_and_store
from kassay.kernels.device.write import write_pages
from kassay.kernels.host import H200
from kassay.kernels.launch import Decode, shape_of
from kassay.kernels.shape import LEAST_ROWS, DecodeShape, supports
from kassay.kernels.split import Cut, tiles_of
from kassay.kv.paged import LayerScales, PagedLayer, PagedShape
from kassay.kv.prebias import KeyBias
from kassay.kv.recipe import NATIVE, RECIPES, recipe_named

WORDS = {0: "fp16", 1: "i16", 2: "i16", 3: "i16"}  # what a kernel reads of a format (kassay.kernels.shape)
SPLITS = (1, 4)
BATCH, TOKENS = 2, 8192  # of the launch whose cut is compiled
QUERY_HEADS, KV_HEADS, HEAD_DIMS = 32, 8, (64, 128)
NO_HEAD = 0  # head dim of a kernel that has none

Compile = Callable[[], Compiled]


def layer_of(name: str, head_dim: int, page_tokens: int = 16) -> PagedLayer:
    """An empty layer of a recipe, one page; where it has a key bias, that is 0."""
    pool = PagedShape(pages=1, page_tokens=page_tokens, kv_heads=KV_HEADS, head_dim=head_dim)
    none = KeyBias(bias_LHD=torch.zeros(1, KV_HEADS, head_dim), frequencies=torch.zeros(head_dim // 2), scaling=1.0)
    offset = none.offset(0) if recipe_named(name).prebias else None
    return PagedLayer(recipe_named(name), pool, scales=LayerScales(keys=1.0, values=1.0), key_offset=offset)


def supported() -> list[str]:
    """Recipes that the kernels have; of those with pre-biased keys attention and both writers."""
    paged = [recipe.name for recipe in RECIPES if recipe.policy != "tensor"]
    return [name for name in paged if supports(H200, shape_of(layer_of(name, 128), QUERY_HEADS), prebias=True)]


def kernels(
    recipes: list[str] | None = None, head_dims: tuple[int, ...] = HEAD_DIMS
) -> Iterator[tuple[str, int, Compile]]:
    """Name, head dim and what compiles it, of every kernel of these recipes (all that are supported)."""
    for head_dim in head_dims:
        for name in supported() if recipes is None else recipes:
            yield from attention_of(name, head_dim)
            if recipe_named(name).prebias:
                yield f"write {name}", head_dim, write(name, head_dim)
                yield f"turn {name} plain", head_dim, turn(name, head_dim, normed=False)
                continue
            for count in prefix_rows(name):
                yield f"prefix {name} {count}", head_dim, prefix(name, head_dim, count)
            yield f"write {name}", head_dim, write(name, head_dim)
            yield f"gather {name}", head_dim, gathered(name, head_dim)
            yield from unfused_of(name, head_dim)
            yield from expand_of(name, head_dim)
            yield f"turn {name}", head_dim, turn(name, head_dim, normed=True)
            yield f"turn {name} plain", head_dim, turn(name, head_dim, normed=False)
        yield "merge", head_dim, merge(head_dim)
        yield "norm", head_dim, norm(QUERY_HEADS * head_dim, adds=False)
        yield "norm add", head_dim, norm(QUERY_HEADS * head_dim, adds=True)
    yield "gate", NO_HEAD, gated()


def attention_of(name: str, head_dim: int) -> Iterator[tuple[str, int, Compile]]:
    """Decode attention of one recipe, and over pairs of heads where the rule may choose some."""
    tiles = tiles_of(shape_of(layer_of(name, head_dim), QUERY_HEADS))
    for splits in SPLITS:
        for heads in sorted({tile.heads for tile in tiles}):
            said = f"attention {name} {splits}" + (" pairs" if heads == 2 else "")
            yield said, head_dim, attention(name, head_dim, splits, heads=heads)


def asked_and_stored(shape: DecodeShape) -> dict[str, str]:
    """Types of what every attention kernel reads: queries, keys, values and their scales."""
    return {
        "q_ptr": "fp16",
        "k_ptr": WORDS[shape.key_number],
        "v_ptr": WORDS[shape.value_number],
        "k_scale_ptr": "fp32",
        "v_scale_ptr": "fp32",
    }


def attention(name: str, head_dim: int, splits: int, beside: int = 0, heads: int = 1) -> Compile:
    """Decode attention of one recipe, alone or beside a shared prefix; over pairs of KV heads where `heads` is 2."""
    shape = shape_of(layer_of(name, head_dim), QUERY_HEADS)
    tiles = [tile for tile in tiles_of(shape) if tile.heads == heads]
    cut = Cut(tile=tiles[min(splits > 1, len(tiles) - 1)], splits=splits)
    return launched(Decode(shape, H200, torch.device("cpu"), BATCH, TOKENS, cut, beside=beside))


def launched(decode: Decode) -> Compile:
    """The split kernel as a launcher launches it."""
    pointers = {
        **asked_and_stored(decode.shape),
        "bias_ptr": "fp32",
        "waves_ptr": "fp16",
        "table_ptr": "i32",
        "length_ptr": "i32",
        "o_ptr": "fp32" if decode.parts > 1 else "fp16",
        "lse_ptr": "fp32",
    }
    numbers = {"scale": "fp32", "chunk": "i32", "table_stride": "i32", "width": "i32", "splits": "i32"}
    return lambda: compiled(attention_split, pointers, numbers, decode.options())


def prefix_rows(name: str) -> list[int]:
    """Queries of a tile of a prefix: the fewest and the most that its rule picks."""
    return sorted({LEAST_ROWS, most_rows(shape_of(layer_of(name, 128), QUERY_HEADS))})


def prefix(name: str, head_dim: int, queries: int) -> Compile:
    """Attention of a shared prefix of one recipe, by tiles of so many queries."""
    shape = shape_of(layer_of(name, head_dim), QUERY_HEADS)
    cut = replace(prefix_cut_of(shape, H200, BATCH, TOKENS), rows=queries)
    shared = Shared(shape, shape, H200, torch.device("cpu"), BATCH, TOKENS, TOKENS, prefix_cut=cut)
    pointers = {
        **asked_and_stored(shape),
        "pages_ptr": "i32",
        "part_ptr": "fp32",
        "part_lse_ptr": "fp32",
    }
    numbers = {"scale": "fp32", **dict.fromkeys(("tokens", "chunk", "batch", "first", "parts"), "i32")}
    return lambda: compiled(attention_prefix, pointers, numbers, shared.options())


def gathered(name: str, head_dim: int) -> Compile:
    """The gather of one recipe's pages into 16 bits."""
    shape = shape_of(layer_of(name, head_dim), QUERY_HEADS)
    pointers = {
        "k_words_ptr": WORDS[shape.key_number],
        "v_words_ptr": WORDS[shape.value_number],
        "k_scale_ptr": "fp32",
        "v_scale_ptr": "fp32",
        "k_to_ptr": "fp16",
        "v_to_ptr": "fp16",
        "table_ptr": "i32",
        "piece_ptr": "i32",
    }
    return lambda: compiled(gather_pages, pointers, {"table_stride": "i32"}, gather.options(shape, H200))


def merge(head_dim: int) -> Compile:
    """The kernel that puts splits together."""
    pointers = {"part_ptr": "fp32", "part_lse_ptr": "fp32", "o_ptr": "fp16", "lse_ptr": "fp32"}
    pdl = H200.launches_dependents
    options: dict[str, Any] = {"D": head_dim, "BLOCK_C": 16, "PDL": pdl, "num_warps": 4, "launch_pdl": pdl}
    return lambda: compiled(attention_merge, pointers, {"splits": "i32"}, options)


def write(name: str, head_dim: int) -> Compile:
    """The writer of one recipe."""
    layer = layer_of(name, head_dim)
    kinds = ["fp16" if plane.sixteen_bit else "u8" for plane in (layer.keys, layer.values)]
    pointers = {
        "k_ptr": "fp32" if layer.recipe.prebias else "fp16",
        "v_ptr": "fp16",
        "slot_ptr": "i64",
        "k_data_ptr": kinds[0],
        "v_data_ptr": kinds[1],
        "k_scale_ptr": "fp32",
        "v_scale_ptr": "fp32",
    }
    numbers = {"tokens": "i32", "k_stride": "i32", "v_stride": "i32"}
    return lambda: compiled(write_pages, pointers, numbers, store.options(layer))


def unfused_of(name: str, head_dim: int) -> Iterator[tuple[str, int, Compile]]:
    """The control that dequantizes a component to a temporary, for each component of fewer than 16 bits."""
    layer = layer_of(name, head_dim)
    shape = shape_of(layer, QUERY_HEADS)
    pointers = {"words_ptr": "i16", "scale_ptr": "fp32", "to_ptr": "fp16", "table_ptr": "i32", "length_ptr": "i32"}
    for part, plane in (("keys", layer.keys), ("values", layer.values)):
        if not plane.sixteen_bit:
            options = unfused.options(shape, plane, H200)

            def compile_it(options: dict[str, Any] = options) -> Compiled:
                return compiled(dequantize_pages, pointers, {"table_stride": "i32"}, options)

            yield f"unfused {name} {part}", head_dim, compile_it


def expand_of(name: str, head_dim: int) -> Iterator[tuple[str, int, Compile]]:
    """The old law's arms: one program a query head reads dynamic INT4, heads are repeated in 16 bits."""
    shape = shape_of(layer_of(name, head_dim), QUERY_HEADS)
    if name == "k4v4-d":
        for splits in SPLITS:
            yield f"head {name} {splits}", head_dim, head(shape, splits)
    if name == NATIVE.name:
        yield "repeat", head_dim, repeat(shape)


def head(shape: DecodeShape, splits: int) -> Compile:
    """Decode attention of one query head a program."""
    options = expand.head_options(shape, H200, Cut(tile=expand.HEAD_TILE, splits=splits))
    pointers = {
        **asked_and_stored(shape),
        "table_ptr": "i32",
        "length_ptr": "i32",
        "o_ptr": "fp32" if splits > 1 else "fp16",
        "lse_ptr": "fp32",
    }
    numbers = {"scale": "fp32", "chunk": "i32", "table_stride": "i32", "splits": "i32"}
    return lambda: compiled(attention_head, pointers, numbers, options)


def repeat(shape: DecodeShape) -> Compile:
    """The copy of every KV head for each of its query heads."""
    planes = dict.fromkeys(("k_ptr", "v_ptr", "k_to_ptr", "v_to_ptr"), "fp16")
    pointers = {**planes, "table_ptr": "i32", "length_ptr": "i32"}
    return lambda: compiled(repeat_heads, pointers, {"table_stride": "i32"}, expand.repeat_options(shape))


def norm(width: int, *, adds: bool) -> Compile:
    """The norm of rows, which takes in what is added first."""
    pointers = dict.fromkeys(("hidden_ptr", "added_ptr", "weight_ptr", "out_ptr"), "fp16")
    return lambda: compiled(add_norm, pointers, {"epsilon": "fp32"}, rows.norm_options(H200, width, adds))


def gated() -> Compile:
    """The gate of a feed-forward."""
    pointers = {"both_ptr": "fp16", "out_ptr": "fp16"}
    return lambda: compiled(gate, pointers, {"width": "i32"}, rows.gate_options(H200))


def turn(name: str, head_dim: int, *, normed: bool) -> Compile:
    """Norm, RoPE and the write of one recipe."""
    layer = layer_of(name, head_dim)
    weight = "fp16" if normed else "fp32"  # without norms the launcher passes the turns
    kinds = ["fp16" if plane.sixteen_bit else "u8" for plane in (layer.keys, layer.values)]
    pointers = {
        "heads_ptr": "fp16",
        "q_ptr": "fp16",
        "kv_ptr": "fp16",
        "q_weight_ptr": weight,
        "k_weight_ptr": weight,
        "turns_ptr": "fp32",
        "bias_ptr": "fp32",
        "unbiased_ptr": "fp32",
        "position_ptr": "i32",
        "row_ptr": "i32",
        "table_ptr": "i32",
        "k_data_ptr": kinds[0],
        "v_data_ptr": kinds[1],
        "k_scale_ptr": "fp32",
        "v_scale_ptr": "fp32",
    }
    numbers = {"epsilon": "fp32", "table_stride": "i32", "positions": "i32"}
    options = rows.turn_options(H200, layer, QUERY_HEADS // KV_HEADS, normed)
    return lambda: compiled(turn_and_store, pointers, numbers, options)
