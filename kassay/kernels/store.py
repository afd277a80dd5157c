"""The fast writer: the launcher of kassay.kernels.device.write. The planes and bits are those of kassay.kv.paged."""

from typing import Any

import torch

from kassay.errors import KassayError
from kassay.kernels.device.write import write_pages
from kassay.kernels.host import Host
from kassay.kernels.launch import rotated_bias_of, scales, shape_of, step
from kassay.kernels.shape import require
from kassay.kv import formats
from kassay.kv.paged import SKIP, PagedLayer, check_write
from kassay.kv.plane import DTYPES, operand_of
from kassay.kv.recipe import BITS, Format

BLOCK = 16  # rows of a program: a token of 8 heads is half of one


def store(
    layer: PagedLayer, host: Host, k_NHD: torch.Tensor, v_NHD: torch.Tensor, slots_N: torch.Tensor, *, checked: bool,
    positions_N: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """Quantize and store tokens; slot -1 leaves its token out.

    `positions_N`: where each token stands in its sequence, which a pre-bias recipe needs.

    `checked` also looks at values (slots out of range or twice, operands that are not finite), which waits for the
    device: off in a captured graph, where a caller's slots come from its own allocator. Shapes are always checked.
    """
    shape = shape_of(layer, layer.shape.kv_heads)
    require(host, shape, prebias=True)
    wanted = (len(slots_N), shape.kv_heads, shape.head_dim)
    for name, x_NHD in (("keys", k_NHD), ("values", v_NHD)):
        if tuple(x_NHD.shape) != wanted or x_NHD.dtype != DTYPES[shape.recipe.sixteen]:
            raise KassayError(
                f"{name} of a write are {tuple(x_NHD.shape)} of {x_NHD.dtype}, "
                f"wanted are {wanted} in {shape.recipe.sixteen}"
            )
        if x_NHD.stride()[1:] != (shape.head_dim, 1):
            raise KassayError(f"{name} of a write have strides {x_NHD.stride()}: heads of a token must be neighbours")
    if slots_N.dtype != torch.int64 or slots_N.ndim != 1 or not slots_N.is_contiguous():
        raise KassayError(f"slots are one contiguous axis of int64, got {slots_N.ndim} of {slots_N.dtype}")
    if checked:
        check_write(layer.shape, k_NHD, v_NHD, slots_N)
        if bool((kept_N := slots_N != SKIP).any()):
            operand_of(k_NHD[kept_N], shape.recipe.sixteen)
            operand_of(v_NHD[kept_N], shape.recipe.sixteen)
    if len(slots_N):
        launch(layer, unbiased(layer, k_NHD, positions_N), v_NHD, slots_N)


def unbiased(layer: PagedLayer, k_NHD: torch.Tensor, positions_N: torch.Tensor | None) -> torch.Tensor:
    """Keys without their rotated bias in FP32, rounded as the reference rounds; others as they are."""
    offset = rotated_bias_of(layer)
    if offset is None:
        return k_NHD
    if positions_N is None or positions_N.shape != k_NHD.shape[:1]:
        raise KassayError(f"recipe `{layer.recipe.name}` needs the position of each token that is written")
    return (k_NHD.float() - offset.at(positions_N).transpose(0, 1)).contiguous()


def launch(layer: PagedLayer, k_NHD: torch.Tensor, v_NHD: torch.Tensor, slots_N: torch.Tensor) -> None:
    """The launch alone."""
    grid = (-(-len(slots_N) * layer.shape.kv_heads // BLOCK),)
    write_pages[grid](
        k_NHD, v_NHD, slots_N, layer.keys.data_PSHW, layer.values.data_PSHW,
        scales(layer.keys, slots_N), scales(layer.values, slots_N),
        len(slots_N), k_NHD.stride(0), v_NHD.stride(0), **options(layer)
    )  # fmt: skip


def options(layer: PagedLayer) -> dict[str, Any]:
    """Compile-time arguments of the writer."""
    shape = shape_of(layer, layer.shape.kv_heads)
    keys, values = constants(layer.recipe.key_format), constants(layer.recipe.value_format)
    return {
        **shape.constants(),
        "K_PAGE": step(layer.keys.data_PSHW),
        "V_PAGE": step(layer.values.data_PSHW),
        "K_SCALE_PAGE": 0 if layer.keys.scale_PHSG is None else step(layer.keys.scale_PHSG),
        "V_SCALE_PAGE": 0 if layer.values.scale_PHSG is None else step(layer.values.scale_PHSG),
        "K_LARGEST": keys[0],
        "V_LARGEST": values[0],
        "K_RECIPROCAL": keys[1],
        "V_RECIPROCAL": values[1],
        "BLOCK": BLOCK,
        "num_warps": 4,
    }


def constants(stored: Format) -> tuple[float, float]:
    """Largest code value and its FP32 reciprocal; of a 16-bit format neither is read."""
    if BITS[stored] == 16:
        return 1.0, 1.0
    number = formats.format_named(stored)
    return float(number.largest), float(formats.reciprocal(number))
