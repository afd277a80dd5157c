"""Tensors between two pages that no program may touch: a read beyond a plane ends the process, like a memory checker.

    python -m tests.kernels.guarded end|start [beyond]

Every format and both policies under Triton's interpreter, over single KV heads and pairs, one split and three: written
by the kernel and attended to. Planes, tables, queries and outputs lie right before a forbidden page (`end`) or right
behind one (`start`). `beyond` names a page that the pool does not have: the process dies of it, or nothing is guarded.
"""

import ctypes
import mmap
import sys
from dataclasses import replace
from typing import Literal

import torch

from kassay.kernels.host import INTERPRETER
from kassay.kernels.launch import Decode, shape_of
from kassay.kernels.split import Cut
from kassay.kernels.store import store
from kassay.kv.paged import PagedLayer, PagedShape
from kassay.kv.recipe import recipe_named
from tests.kernels.cases import CPU, SCALES, SMALL

RECIPES = ("native", "k16v8-f", "k16v8-d", "k8v16-d", "k8v8-d", "k16v4-d", "k4v4-d")
GEOMETRIES = ((8, 2, 64, 16), (4, 4, 64, 1), (14, 2, 64, 8), (4, 2, 128, 32))  # query heads, KV heads, head dim, page
LENGTHS = (70, 1, 17, 0, 33)
PAGE = mmap.PAGESIZE
NONE = 0  # PROT_NONE
Side = Literal["start", "end"]
LIBC = ctypes.CDLL(None, use_errno=True)
KEPT: list[mmap.mmap] = []  # memory of tensors, as long as the process


def guarded(like: torch.Tensor, side: Side) -> torch.Tensor:
    """A copy, flush with a forbidden page. Raises OSError where the system protects none."""
    size = like.numel() * like.element_size()
    whole = PAGE * -(-max(1, size) // PAGE)
    memory = mmap.mmap(-1, whole + 2 * PAGE)
    KEPT.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for forbidden in (start, start + PAGE + whole):
        if LIBC.mprotect(ctypes.c_void_p(forbidden), ctypes.c_size_t(PAGE), NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = PAGE + (whole - size if side == "end" else 0)
    if not size:
        return like
    found = torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=offset).view(like.dtype).view(like.shape)
    return found.copy_(like)


def layer_of(recipe: str, shape: PagedShape, side: Side) -> PagedLayer:
    """An empty pool of guarded planes."""
    layer = PagedLayer(recipe_named(recipe), shape, scales=SCALES)
    for plane in (layer.keys, layer.values):
        plane.data_PSHW = guarded(plane.data_PSHW.view(torch.uint8), side).view(plane.data_PSHW.dtype)
        if plane.scale_PHSG is not None:
            plane.scale_PHSG = guarded(plane.scale_PHSG, side)
    return layer


def run(recipe: str, geometry: tuple[int, int, int, int], side: Side, beyond: bool) -> int:
    """Calls of one recipe and geometry; how many."""
    query_heads, kv_heads, head_dim, page = geometry
    pages = [-(-length // page) for length in LENGTHS]
    shape = PagedShape(pages=sum(pages), page_tokens=page, kv_heads=kv_heads, head_dim=head_dim)
    layer = layer_of(recipe, shape, side)
    operands = [torch.randn(shape.slots, kv_heads, head_dim).half() for _ in range(2)]
    store(layer, INTERPRETER, *(guarded(x, side) for x in operands), torch.arange(shape.slots), checked=False)
    free = iter(torch.randperm(shape.pages).tolist())
    table = torch.zeros(len(LENGTHS), max(pages), dtype=torch.int32)
    for row, count in enumerate(pages):
        table[row, :count] = torch.tensor([next(free) for _ in range(count)], dtype=torch.int32)
    if beyond:
        table[0, 0] = shape.pages if side == "end" else -1
    table, lengths = guarded(table, side), guarded(torch.tensor(LENGTHS, dtype=torch.int32), side)
    q = guarded(torch.randn(len(LENGTHS), query_heads, head_dim).half(), side)
    asked, made = shape_of(layer, query_heads), 0
    for heads in (1, 2) if asked.pairs else (1,):
        for splits in (1, 3):
            cut = Cut(tile=replace(SMALL, heads=heads), splits=splits)
            kernel = Decode(asked, INTERPRETER, CPU, len(LENGTHS), table.shape[1] * page, cut)
            kernel.part, kernel.part_lse = guarded(kernel.part, side), guarded(kernel.part_lse, side)
            out, lse = guarded(torch.empty_like(q), side), guarded(torch.empty(q.shape[:2]), side)
            kernel(q, layer, table, lengths, out, lse)
            assert bool(out.isfinite().all())
            made += 1
    return made


def main() -> int:
    """All recipes and geometries."""
    torch.manual_seed(1)
    side: Side = "end" if sys.argv[1] == "end" else "start"
    beyond = "beyond" in sys.argv[2:]
    print(sum(run(recipe, geometry, side, beyond) for recipe in RECIPES for geometry in GEOMETRIES))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
