"""Launchers of kassay.kernels.device.rows: a decoder layer's arithmetic between its products, on the rows of a step.

Axes: N rows (tokens), H query heads, G KV heads, D head dim, W hidden or intermediate size, X pages of a sequence.

Rows are tokens of any sequences: those of a prompt in a prefill, the last ones of a batch in a decode step. Nothing is
copied to the host, so that a CUDA graph can hold every call. `PDL` is on where the device has it: all of these wait by
themselves for what was launched before.
"""

from typing import Any

import torch
import triton

from kassay.errors import KassayError
from kassay.kernels import store
from kassay.kernels.device.rows import add_norm, gate, turn_and_store
from kassay.kernels.host import Host
from kassay.kernels.launch import rotated_bias_of, scales
from kassay.kv.paged import PagedLayer

GATED = 1024  # elements of one program of the gate


def launch_of(host: Host) -> dict[str, Any]:
    """What a launch beside the one before it takes."""
    return {"PDL": True, "launch_pdl": True} if host.launches_dependents else {"PDL": False}


def norm_options(host: Host, width: int, adds: bool) -> dict[str, Any]:
    """Compile-time arguments of a norm of rows of this width."""
    block = triton.next_power_of_2(width)
    return {
        "WIDTH": width,
        "BLOCK": block,
        "ADD": adds,
        "num_warps": min(16, max(1, block // 512)),
        **launch_of(host),
    }


def gate_options(host: Host) -> dict[str, Any]:
    """Compile-time arguments of the gate."""
    return {"BLOCK": GATED, "num_warps": 4, **launch_of(host)}


def turn_options(host: Host, layer: PagedLayer, group: int, normed: bool) -> dict[str, Any]:
    """Compile-time arguments of the turned heads of a layer, `group` query heads to a KV head."""
    stored = {name: value for name, value in store.options(layer).items() if name not in ("BLOCK", "num_warps")}
    return {
        "GROUP": group,
        "NORM": normed,
        "PREBIAS": layer.recipe.prebias,
        "BLOCK_R": triton.next_power_of_2(group),
        "num_warps": 1 if group <= 4 else 4,
        **stored,
        **launch_of(host),
    }


def normed(
    host: Host, hidden_NW: torch.Tensor, added_NW: torch.Tensor | None, weight_W: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """out_NW of a norm; `hidden_NW` takes in `added_NW` first, in place."""
    out_NW = torch.empty_like(hidden_NW)
    add_norm[(len(hidden_NW),)](
        hidden_NW, hidden_NW if added_NW is None else added_NW, weight_W, out_NW, epsilon,
        **norm_options(host, hidden_NW.shape[1], added_NW is not None)
    )  # fmt: skip
    return out_NW


def gated(host: Host, both_NW: torch.Tensor) -> torch.Tensor:
    """silu(first half) * second half of each row."""
    rows, width = len(both_NW), both_NW.shape[1] // 2
    out_NW = both_NW.new_empty((rows, width))
    gate[(rows, triton.cdiv(width, GATED))](both_NW, out_NW, width, **gate_options(host))
    return out_NW


def turned_and_stored(
    host: Host,
    layer: PagedLayer,
    heads_NW: torch.Tensor,
    out: tuple[torch.Tensor, torch.Tensor],
    norms: tuple[torch.Tensor, torch.Tensor] | None,
    turns: torch.Tensor,
    epsilon: float,
    positions_N: torch.Tensor,
    rows_N: torch.Tensor,
    table_BX: torch.Tensor,
) -> None:
    """Queries and keys after norm and RoPE into `out` = (q_NHD, kv_N2GD); keys and values also into the pages.

    Pre-biased keys are stored without their rotated bias, whose waves are the turns rounded to FP16; in `out` they are
    whole.

    `turns`: positions, cosines and sines, D / 2 each. A position below 0 stores nothing. Raises KassayError for
    operands of another shape; pages and positions out of range are the caller's fault, which cannot be seen from here.
    """
    q_NHD, kv_N2GD = out
    held = layer.shape
    n, query_heads = q_NHD.shape[:2]
    if heads_NW.shape != (n, (query_heads + 2 * held.kv_heads) * held.head_dim) or query_heads % held.kv_heads:
        raise KassayError(
            f"{tuple(heads_NW.shape)} are no {query_heads} query and {held.kv_heads} KV heads of {n} rows"
        )
    if kv_N2GD.shape != (n, 2, held.kv_heads, held.head_dim) or kv_N2GD.element_size() != 2:
        raise KassayError(f"operands are {tuple(kv_N2GD.shape)} of {kv_N2GD.dtype}, wanted are 16 bits for {n} rows")
    group = query_heads // held.kv_heads
    q_weight, k_weight = norms or (turns, turns)
    offset = rotated_bias_of(layer)
    bias = turns if offset is None else offset.bias_on(turns.device)
    unbiased = turns if offset is None else turns.new_empty((n, held.kv_heads, held.head_dim))
    turn_and_store[(n, held.kv_heads)](
        heads_NW, q_NHD, kv_N2GD, q_weight, k_weight, turns, bias, unbiased, positions_N, rows_N, table_BX,
        layer.keys.data_PSHW, layer.values.data_PSHW, *(scales(one, positions_N) for one in (layer.keys, layer.values)),
        epsilon, table_BX.stride(0), len(turns), **turn_options(host, layer, group, norms is not None)
    )  # fmt: skip
