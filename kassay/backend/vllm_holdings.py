"""What a vLLM worker holds, tensor by tensor, as views of their storages for kassay.kv.accounting.

    keys, values, scales   planes that the plug-in laid over its pages, or the halves of vLLM's own pools
    weights                parameters and buffers of the worker's model
    block_tables, staging  the runner's tables of blocks and slots; its inputs of a step
    scratch                parts of the plug-in's split attention, and vLLM's workspace where it has one

CUDA graphs, activations and the libraries' own are no tensors that could be listed: they stand in the allocator's
numbers, graph pools apart.
"""

import sys
from collections.abc import Iterable
from typing import Any

import torch

from kassay.backend import holdings
from kassay.backend.holdings import held
from kassay.backend.vllm import reach
from kassay.backend.vllm_attest import formats, layers_of, tensors_of
from kassay.errors import KassayError
from kassay.kv.accounting import KEY_SCALES, KEYS, SCRATCH, STAGING, TABLES, VALUE_SCALES, VALUES, Held

OWN_SCALES = ("_k_scale", "_v_scale")  # of vLLM's attention layers


def cache_held(worker: Any) -> list[Held]:
    """Keys, values and scales of every layer, as views of their storages; all slots are payload."""
    return [one for layer in layers_of(worker).values() for one in layer_held(layer)]


def layer_held(layer: Any) -> list[Held]:
    """The cache of one layer. Raises KassayError for one whose halves cannot be told."""
    planes = getattr(getattr(layer.impl, "cache", None), "layer", None)
    if planes is not None:
        found = []
        for plane, part, scales in ((planes.keys, KEYS, KEY_SCALES), (planes.values, VALUES, VALUE_SCALES)):
            found.append(held(part, plane.data_PSHW))
            beside = plane.scale_PHSG if plane.scale_PHSG is not None else plane.scale
            found += [] if beside is None else [held(scales, beside)]
        return found
    tensors = tensors_of(layer)
    keys, values = halves(layer.layer_name, tensors[0]) if len(tensors) == 1 else tensors
    found = [held(KEYS, keys), held(VALUES, values)]
    for stored, part, name in zip(formats(layer)[:2], (KEY_SCALES, VALUE_SCALES), OWN_SCALES, strict=True):
        if stored == "e4m3fn" and (scale := getattr(layer, name, None)) is not None:
            found.append(held(part, scale))
    return found


def halves(name: str, tensor: Any) -> tuple[Any, Any]:
    """Keys and values of a pool (blocks, 2, ...) or (2, blocks, ...)."""
    sizes = tuple(tensor.shape[:2])
    if sizes.count(2) != 1:
        raise KassayError(f"layer `{name}`: a pool of {tuple(tensor.shape)}, whose halves cannot be told")
    keys, values = tensor.unbind(sizes.index(2))
    return keys, values


def weights_held(worker: Any, cache: Iterable[Held]) -> list[Held]:
    """Parameters and buffers of the model; scales of a cache that are buffers stay the cache's."""
    own = {(one.device, one.pointer) for one in cache}
    return [one for one in holdings.weights_held(worker.get_model()) if (one.device, one.pointer) not in own]


def runner_held(runner: Any) -> list[Held]:
    """Tables of blocks and slots, and inputs of a step, of vLLM's model runner v2. Raises KassayError for another."""
    tables = reach(runner, "block_tables")
    told = [*(one.gpu for one in tables.block_tables), *tables.input_block_tables, tables.slot_mappings]
    inputs = tensors(vars(reach(runner, "input_buffers")).values())
    return [*(held(TABLES, one) for one in told), *(held(STAGING, one) for one in inputs)]


def scratch_held() -> list[Held]:
    """Workspaces of this process: of the plug-in's decodes, and vLLM's own where it has made one."""
    found: list[Any] = []
    if (state := sys.modules.get("kassay_vllm.state")) is not None and state.STATE.plans is not None:
        found += state.STATE.plans.workspaces()
    workspace = sys.modules.get("vllm.v1.worker.workspace")
    if workspace is not None and workspace.is_workspace_manager_initialized():
        found += tensors(workspace.current_workspace_manager()._current_workspaces)
    return [held(SCRATCH, one) for one in found]


def tensors(things: Iterable[Any]) -> list[Any]:
    """The tensors among things."""
    return [one for one in things if isinstance(one, torch.Tensor)]


def on_device(held: Iterable[Held]) -> list[Held]:
    """What lies on a GPU."""
    return [one for one in held if one.device.startswith("cuda")]
