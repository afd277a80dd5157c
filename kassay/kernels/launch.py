"""Decode attention over pages: the launcher of kassay.kernels.device.attention.

Axes: B sequences, H query heads, G KV heads, D head dim, X pages of a sequence, C splits.

A `Decode` is made once for a layer's shape, a largest batch and a largest length: it owns the workspace of the splits,
so that calls allocate nothing and a CUDA graph can hold them. Lengths and tables are read on the device, at each
replay. Out of one launch an eager call costs 0.1 ms on a host CPU: capture it, or measure Python.
"""

from dataclasses import replace
from typing import Any

import torch
import triton

from kassay.errors import KassayError
from kassay.kernels.device.attention import attention_merge, attention_split
from kassay.kernels.host import INTERPRETER, Host
from kassay.kernels.shape import FOLDS, DecodeShape, require
from kassay.kernels.split import Cut, chunk_of, cut_of
from kassay.kernels.tuning import Book, key_of, source_version
from kassay.kv.paged import PagedLayer, PagedPlane
from kassay.kv.plane import DTYPES
from kassay.kv.prebias import RotatedBias

PACKED = {"K_PAGE": 0, "V_PAGE": 0, "K_SCALE_PAGE": 0, "V_SCALE_PAGE": 0}  # planes whose pages follow each other


def host_of(device: torch.device) -> Host:
    """The device as rules see it; the interpreter's where Triton interprets."""
    if triton.knobs.runtime.interpret:
        return INTERPRETER
    if device.type != "cuda":
        raise KassayError(f"kernels run on a GPU, not on `{device}`; TRITON_INTERPRET=1 interprets them")
    found = torch.cuda.get_device_properties(device)
    hip = torch.version.hip is not None
    return Host(
        name=found.name,
        backend="hip" if hip else "cuda",
        capability=0 if hip else 10 * found.major + found.minor,
        processors=found.multi_processor_count,
        shared_bytes=getattr(found, "shared_memory_per_block_optin", 64 * 1024),
        shared_bytes_each=getattr(found, "shared_memory_per_multiprocessor", 64 * 1024),
        registers_each=getattr(found, "regs_per_multiprocessor", 65536),
        bytes_per_us=2e-3 * getattr(found, "memory_clock_rate", 0) * getattr(found, "memory_bus_width", 0) / 8 or 2e6,
    )


def shape_of(layer: PagedLayer, query_heads: int) -> DecodeShape:
    """The shape of calls on this layer."""
    held = layer.shape
    return DecodeShape(
        recipe=layer.recipe,
        query_heads=query_heads,
        kv_heads=held.kv_heads,
        head_dim=held.head_dim,
        page_tokens=held.page_tokens,
    )


def chosen(shape: DecodeShape, host: Host, batch: int, tokens: int, *, uneven: bool, book: Book | None) -> Cut:
    """What a book has measured on this device, and what the rule says where it has nothing."""
    version = source_version(triton.__version__)
    measured = None if book is None else book.cut(key_of(host, shape, batch, tokens, version, uneven=uneven))
    return measured or cut_of(shape, host, batch, tokens, uneven=uneven)


class Decode:
    """Attention of one new token of each sequence over its pages."""

    def __init__(
        self, shape: DecodeShape, host: Host, device: torch.device, batch: int, tokens: int, cut: Cut | None = None,
        *, uneven: bool = True, book: Book | None = None, beside: int = 0,
    ) -> None:  # fmt: skip
        """`cut`, or what a book has measured for such lengths, or the rule's.

        `beside`: parts behind the splits that the kernel launched before writes, merged with them.
        """
        require(host, shape, prebias=not beside)  # a suffix does not know at which position it begins
        self.shape, self.host, self.device, self.batch, self.tokens = shape, host, device, batch, tokens
        self.scale = shape.head_dim**-0.5
        self.cut = cut or chosen(shape, host, batch, tokens, uneven=uneven, book=book)
        self.read = shape.read_as(self.cut.tile.heads)
        if self.cut.tile.tokens % shape.page_tokens:
            raise KassayError(f"a step of {self.cut.tile.tokens} tokens is no whole pages of {shape.page_tokens}")
        self.chunk = chunk_of(tokens, self.cut.splits, self.cut.tile.tokens)
        used = -(-max(1, tokens) // self.chunk)  # whole steps may leave the last splits without a token
        self.cut = replace(self.cut, splits=used)
        self.beside, self.parts = beside, used + beside
        rows = batch * shape.query_heads * self.parts if self.parts > 1 else 0
        self.part = torch.empty(rows * shape.head_dim, dtype=torch.float32, device=device)
        self.part_lse = torch.empty(rows, dtype=torch.float32, device=device)

    def __call__(
        self,
        q_BHD: torch.Tensor,
        layer: PagedLayer,
        table_BX: torch.Tensor,
        lengths_B: torch.Tensor,
        out_BHD: torch.Tensor | None = None,
        lse_BH: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """out_BHD in q's format and lse_BH (FP32, natural logarithm; -inf and 0 for a sequence of no token).

        Raises KassayError for operands of another shape, format, device or layout. Values are not looked at: a page
        or a length out of range is the caller's fault, as everything that needs a copy to the host.
        """
        self.check(q_BHD, layer, table_BX, lengths_B)
        out = torch.empty_like(q_BHD) if out_BHD is None else out_BHD
        lse = torch.empty(q_BHD.shape[:2], dtype=torch.float32, device=q_BHD.device) if lse_BH is None else lse_BH
        grid = (self.read.programs, self.cut.splits, len(q_BHD))
        several = self.parts > 1
        bias, waves = self.key_bias(layer, lse)
        planes = (words(layer.keys), words(layer.values), scales(layer.keys, lse), scales(layer.values, lse))
        outs = (self.part, self.part_lse) if several else (out, lse)
        attention_split[grid](
            q_BHD, *planes, bias, waves, table_BX, lengths_B, *outs,
            self.scale, self.chunk, table_BX.stride(0),
            table_BX.shape[1] * self.shape.page_tokens, self.parts, **(self.options() | steps(layer))
        )  # fmt: skip
        if several:
            self.merge(out, lse)
        return out, lse

    def options(self) -> dict[str, Any]:
        """Compile-time arguments of the split kernel."""
        shape, tile = self.read, self.cut.tile
        pdl = self.parts > 1 and self.host.launches_dependents
        return {
            **shape.constants(),
            **PACKED,
            "GROUP": shape.group,
            "FOLD": FOLDS[shape.value_number] if shape.recipe.policy == "dynamic" else 0,
            "SEVERAL": self.parts > 1,
            "BLOCK_R": max(shape.rows, self.host.least_columns),
            "BLOCK_N": tile.tokens,
            "ASM": self.host.converts_e4m3,
            "WIDE": self.host.backend == "interpreter" and shape.recipe.sixteen == "bf16",
            "PDL": pdl,
            "AFTER": pdl and self.beside > 0,
            "SECOND": self.shape.group if tile.heads == 2 else 0,
            "PREBIAS": shape.recipe.prebias,
            **({"launch_pdl": True} if pdl and self.beside else {}),
            "num_warps": tile.warps,
            "num_stages": tile.stages,
        }

    def key_bias(self, layer: PagedLayer, none: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The bias of pre-biased keys, and the waves of all positions up to a whole step; `none` of other keys.

        The first call makes the waves, which is no work for a captured graph. Raises KassayError for another offset.
        """
        if not self.shape.recipe.prebias:
            return none, none
        offset = rotated_bias_of(layer)
        assert offset is not None, "a bug: a pre-bias layer was made without an offset"
        return offset.bias_on(self.device), offset.of.waves(self.chunk * self.cut.splits, self.device)

    def merge(self, out: torch.Tensor, lse: torch.Tensor) -> None:
        """Put the parts in the workspace together."""
        pdl = self.host.launches_dependents
        launch = {"launch_pdl": True} if pdl else {}
        attention_merge[(out.shape[0] * out.shape[1],)](
            self.part, self.part_lse, out, lse, self.parts, D=self.shape.head_dim,
            BLOCK_C=triton.next_power_of_2(self.parts), PDL=pdl, num_warps=4, **launch
        )  # fmt: skip

    def check(self, q_BHD: torch.Tensor, layer: PagedLayer, table: torch.Tensor, lengths: torch.Tensor) -> None:
        """Raise KassayError for operands of another shape, format, device or layout."""
        if shape_of(layer, self.shape.query_heads) != self.shape:
            raise KassayError(f"these kernels are for {self.shape}, the layer is another")
        b, width = len(q_BHD), table.shape[-1] * self.shape.page_tokens
        wanted = (b, self.shape.query_heads, self.shape.head_dim)
        if b > self.batch or tuple(q_BHD.shape) != wanted or q_BHD.dtype != DTYPES[self.shape.recipe.sixteen]:
            raise KassayError(
                f"q is {tuple(q_BHD.shape)} of {q_BHD.dtype}, allowed are up to {self.batch} sequences of {wanted[1:]} "
                f"in {self.shape.recipe.sixteen}"
            )
        if table.dtype != torch.int32 or table.ndim != 2 or len(table) != b or table.stride(1) != 1:
            raise KassayError(f"the block table is {tuple(table.shape)} of {table.dtype}, wanted is int32 ({b}, pages)")
        if width < self.tokens:
            raise KassayError(f"a block table of {width} tokens does not cover the {self.tokens} that were planned")
        if lengths.dtype != torch.int32 or tuple(lengths.shape) != (b,):
            raise KassayError(f"lengths are {tuple(lengths.shape)} of {lengths.dtype}, wanted is int32 ({b},)")
        for name, each in (("q", q_BHD), ("lengths", lengths)):
            if not each.is_contiguous():
                raise KassayError(f"{name} is not contiguous")
        places = {each.device for each in (q_BHD, table, lengths, layer.keys.data_PSHW, self.part)}
        if len(places) > 1:
            raise KassayError(f"operands lie on {sorted(map(str, places))}, wanted is one device")


def words(plane: PagedPlane) -> torch.Tensor:
    """A plane's codes as 16-bit words, its 16-bit numbers as they are."""
    return plane.data_PSHW if plane.sixteen_bit else plane.data_PSHW.view(torch.int16)


def rotated_bias_of(layer: PagedLayer) -> RotatedBias | None:
    """What a layer takes off its keys. Raises KassayError for an offset that kernels cannot make again."""
    offset = layer.keys.rule.offset
    if offset is None or isinstance(offset, RotatedBias):
        return offset
    raise KassayError(f"recipe `{layer.recipe.name}`: kernels add a rotated bias (kassay.kv.prebias), this is none")


def steps(layer: PagedLayer) -> dict[str, int]:
    """Words, and FP32 scales, from a page of each plane to its next; 0 for a plane whose pages follow each other."""
    words = [step(p.data_PSHW) * p.data_PSHW.element_size() // 2 for p in (layer.keys, layer.values)]
    beside = [0 if p.scale_PHSG is None else step(p.scale_PHSG) for p in (layer.keys, layer.values)]
    return {"K_PAGE": words[0], "V_PAGE": words[1], "K_SCALE_PAGE": beside[0], "V_SCALE_PAGE": beside[1]}


def step(plane: torch.Tensor) -> int:
    """Elements from a page to the next, 0 if nothing lies between them. Raises KassayError for pages in pieces."""
    if plane[:1].is_contiguous():
        return 0 if plane.is_contiguous() else plane.stride(0)
    raise KassayError(f"a plane has strides {plane.stride()}: what it holds of one page must lie in one piece")


def scales(plane: PagedPlane, none: torch.Tensor) -> torch.Tensor:
    """A plane's scales; `none`, which is not read, where it has none."""
    if plane.scale_PHSG is not None:
        return plane.scale_PHSG
    return none if plane.scale is None else plane.scale
