"""The arms of the old INT4 law on one pool of operands: fused INT4, and 16-bit baselines by what they read.

Axes: B sequences, H query heads, G KV heads, T tokens, D head dim.

    int4              fused, a program a KV head and its whole group; `split` as the rule cuts it, else whole contexts
    int4 each head    fused, a program a query head over its whole context: the launch behind the published law
    grouped           K16/V16, each grouped byte read once
    expanded          K16/V16 over a copy of the heads that was there before the call
    expanding         K16/V16 that makes the copy within the call
    torch repeat      repeat_interleave to the query heads, then torch's flash attention, over contiguous tokens

Arms that read the same planes never follow each other in ORDER: a small shape would find them in the L2.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from kassay.kernels.expand import HEAD_TILE, EachHead, Expanding, Repeat, expanded_shape
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode
from kassay.kernels.shape import DecodeShape
from kassay.kernels.split import Cut, candidates, cut_of, estimate_us, suiting
from kassay.kernels.workload import Calls, Heads, Pool
from kassay.kv.geometry import Geometry, token_bytes
from kassay.kv.recipe import recipe_named

INT4, NATIVE = "k4v4-d", "native"
SPLIT = " split"
EACH_HEAD, TORCH = "int4 each head", "torch repeat"
ORDER = (
    "int4", "grouped", "expanded", "expanding", EACH_HEAD, "grouped split", "expanded split", "expanding split",
    "int4 split", TORCH,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One arm of one cell, ready to be captured."""

    name: str
    recipe: str  # whose stored operands its output is checked against; empty for torch's
    call: Callable[[int], object]  # by its number
    cut: Cut | None  # None where torch decides
    programs: int | None  # of the attention kernel in one launch


def shape_of_arm(heads: Heads, name: str) -> DecodeShape:
    """What its attention kernel is compiled for."""
    if name.startswith("int4"):
        return heads.shape(INT4)
    grouped = heads.shape(NATIVE)
    return grouped if name.startswith("grouped") else expanded_shape(grouped)


def cut_of_arm(heads: Heads, name: str, host: Host, batch: int, tokens: int) -> Cut:
    """The rule's cut over single KV heads; whole contexts for an arm without splits, in the tile best for them."""
    if name == EACH_HEAD:
        return Cut(tile=HEAD_TILE, splits=1)
    shape = shape_of_arm(heads, name)
    if name.endswith(SPLIT):
        return cut_of(shape, host, batch, tokens, uneven=False, tiles=suiting(shape))
    whole = [replace(cut, splits=1) for cut in candidates(shape, host, batch, tokens, suiting(shape))]
    return min(whole, key=lambda cut: estimate_us(shape, host, batch, tokens, cut))


def call_bytes(heads: Heads, name: str, batch: int, tokens: int) -> int:
    """Bytes that a call must move: keys, values, scales and copies of `tokens` of all sequences, queries, outputs."""
    one = Geometry(layers=1, kv_heads=heads.kv_heads, head_dim=heads.head_dim)
    beside = 2 * 2 * batch * heads.query_heads * heads.head_dim
    if name.startswith("int4"):
        return token_bytes(one, recipe_named(INT4)) * tokens + beside
    group = heads.query_heads // heads.kv_heads
    copies = {"grouped": 1, "expanded": group, "expanding": 1 + 2 * group, "torch": 1 + 2 * group}
    return token_bytes(one, recipe_named(NATIVE)) * tokens * copies[name.split()[0]] + beside


class Grid:
    """The pool of one head layout, and its 16-bit heads repeated."""

    def __init__(self, heads: Heads, slots: int, host: Host, device: torch.device) -> None:
        self.heads, self.host, self.device = heads, host, device
        self.pool = Pool(heads, (NATIVE, INT4), slots, host, device)
        whole = self.pool.shape
        every = torch.arange(whole.pages, dtype=torch.int32, device=device)[None]
        repeat = Repeat(heads.shape(NATIVE), device, 1, whole.slots)
        full = torch.tensor([whole.slots], dtype=torch.int32, device=device)
        self.expanded = repeat(self.pool.layers[NATIVE], every, full)  # page for page

    def arm(self, calls: Calls, name: str) -> Arm:
        """One arm of one cell."""
        heads, size = self.heads, (calls.batch, calls.tokens)
        if name == TORCH:
            return Arm(name=name, recipe="", call=self._torch(calls), cut=None, programs=None)
        shape, cut = shape_of_arm(heads, name), cut_of_arm(heads, name, self.host, *size)
        recipe = INT4 if name.startswith("int4") else NATIVE
        layer = self.expanded if name.startswith("expanded") else self.pool.layers[recipe]
        kernel: Decode | EachHead | Expanding
        if name == EACH_HEAD:
            kernel = EachHead(shape, self.host, self.device, *size, cut)
        elif name.startswith("expanding"):
            kernel = Expanding(heads.shape(NATIVE), self.host, self.device, *size, cut)
        else:
            kernel = Decode(shape, self.host, self.device, *size, cut)
        programs = kernel.cut.splits * calls.batch * (heads.query_heads if name == EACH_HEAD else shape.programs)

        def call(at: int) -> object:
            return kernel(calls.q, layer, calls.tables[at], calls.lengths, calls.out, calls.lse)

        return Arm(name=name, recipe=recipe, call=call, cut=kernel.cut, programs=programs)

    def _torch(self, calls: Calls) -> Callable[[int], object]:
        slots, planes = calls.batch * calls.tokens, self.pool.operands()
        places = max(1, min(calls.calls, len(planes[0]) // slots))
        group = self.heads.query_heads // self.heads.kv_heads

        def call(at: int) -> object:
            first = at % places * slots
            parts = (x[first : first + slots].view(calls.batch, -1, *x.shape[1:]).transpose(1, 2) for x in planes)
            k_BHTD, v_BHTD = (part.repeat_interleave(group, dim=1) for part in parts)
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return functional.scaled_dot_product_attention(calls.q[:, :, None], k_BHTD, v_BHTD)

        return call


def precompile(job: tuple[Heads, str, Cut]) -> str:
    """Compile an arm's kernels into Triton's cache, in a process of its own; what went wrong, or nothing."""
    from kassay.kernels.launch import host_of

    heads, name, cut = job
    device = torch.device("cuda")
    host = host_of(device)
    grid = Grid(heads, 512, host, device)
    calls = Calls(grid.pool, [256])
    shape = shape_of_arm(heads, name)
    try:
        if name == EACH_HEAD:
            EachHead(shape, host, device, 1, 256, cut)(
                calls.q, grid.pool.layers[INT4], calls.tables[0], calls.lengths, calls.out, calls.lse
            )
        else:
            layer = grid.expanded if name.startswith("expand") else grid.pool.layers[shape.recipe.name]
            Decode(shape, host, device, 1, 256, cut)(calls.q, layer, calls.tables[0], calls.lengths)
        torch.cuda.synchronize()
    except Exception as error:  # it comes again where it is recorded
        return f"{name} {cut.tile}: {type(error).__name__}: {error}"
    return ""
