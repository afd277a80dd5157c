"""What a vLLM engine really uses, asked of its worker's live layers, tensors and scheduler (vLLM 0.25.1, in process).

A requested dtype is no evidence. Formats come from the tensors that the layers read: where a pool is bytes, from the
planes that the plug-in laid over it. What could not be told is an error, never a guess.
"""

from importlib import metadata
from typing import Any

from kassay.backend.vllm_arguments import ATTENTION, Asked
from kassay.backend.vllm_compiled import compiled_modules, full_graphs, piecewise_graphs
from kassay.errors import KassayError
from kassay.kinds.vllm import VllmEngine

FORMATS = {"float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3fn"}
CLASSES = {
    "FLASH_ATTN": "FlashAttentionBackend",
    "FLASHINFER": "FlashInferBackend",
    "TRITON_ATTN": "TritonAttentionBackend",
    "CUSTOM": "PagedBackend",
}


def layers_of(worker: Any) -> dict[int, Any]:
    """Attention layers of a worker that have a cache, by number."""
    found = {}
    context = worker.vllm_config.compilation_config.static_forward_context
    for name, layer in context.items():
        if hasattr(layer, "attn_backend") and hasattr(layer, "kv_cache"):
            found[next(int(part) for part in name.split(".") if part.isdigit())] = layer
    return dict(sorted(found.items()))


def tensors_of(layer: Any) -> list[Any]:
    """The tensors behind a layer's cache: one for both components, or one of keys and one of values.

    Raises KassayError for another number: whose they are could not be told.
    """
    held = layer.kv_cache
    while isinstance(held, list | tuple) and len(held) == 1:
        held = held[0]
    found = list(held) if isinstance(held, list | tuple) else [held]
    if len(found) not in (1, 2) or any(isinstance(one, list | tuple) for one in found):
        raise KassayError(f"layer `{layer.layer_name}`: a cache of {len(found)} tensors, whose they are cannot be told")
    return found


def engine_record(worker: Any, arm: str) -> VllmEngine:
    """What is there. Raises KassayError for layers that differ, and for a cache whose format cannot be told."""
    import torch
    import vllm  # type: ignore[import-not-found]

    config, layers = worker.vllm_config, layers_of(worker)
    if not layers:
        raise KassayError("the engine has no attention layer with a cache")
    pools = [pool for layer in layers.values() for pool in tensors_of(layer)]
    backend, implementation, (keys, values, policy) = kind_of(layers)
    storages = {pool.untyped_storage().data_ptr(): pool.untyped_storage().nbytes() for pool in pools}
    blocks, tokens = config.cache_config.num_gpu_blocks, config.cache_config.block_size
    compilation, compiled = config.compilation_config, compiled_modules(worker.get_model())
    state = plug_in_state() if backend == CLASSES["CUSTOM"] else None
    return VllmEngine(
        arm=arm,
        vllm=vllm.__version__,
        torch=torch.__version__,
        triton=metadata.version("triton"),
        device=torch.cuda.get_device_name(pools[0].device),
        dummy_weights=config.load_config.load_format == "dummy",
        backend=backend,
        implementation=implementation,
        flash_attention=flash_attention(next(iter(layers.values()))),
        layers=len(layers),
        key_format=keys,
        value_format=values,
        scale_policy=policy,
        key_scales=scales(layers, "keys"),
        value_scales=scales(layers, "values"),
        block_tokens=tokens,
        blocks=blocks,
        token_layer_bytes=sum(p.numel() * p.element_size() for p in pools) / len(layers) / blocks / tokens,
        pool_bytes=sum(storages.values()),
        storages=len(storages),
        graph_mode=str(getattr(compilation.cudagraph_mode, "name", compilation.cudagraph_mode)),
        graph_batches=full_graphs(worker.model_runner),
        piecewise_graphs=piecewise_graphs(compiled),
        compilation=str(getattr(compilation.mode, "name", compilation.mode)),
        compiled_modules=compiled,
        asynchronous=bool(config.scheduler_config.async_scheduling),
        runner="v2" if config.use_v2_model_runner else "v1",
        prefix_caching=bool(config.cache_config.enable_prefix_caching),
        chunked_prefill=bool(config.scheduler_config.enable_chunked_prefill),
        cuts={} if state is None or state.plans is None else shown_cuts(state.plans.cuts()),
        events=[] if state is None else list(state.events),
    )


def kind_of(layers: dict[int, Any]) -> tuple[str, str, tuple[str, str, str]]:
    """Backend, implementation and formats of all layers. Raises KassayError for layers that differ."""
    kinds = {(type_name(layer.attn_backend), type(layer.impl).__name__, formats(layer)) for layer in layers.values()}
    shapes = {tuple((pool.shape, pool.dtype) for pool in tensors_of(layer)) for layer in layers.values()}
    if len(kinds) > 1 or len(shapes) > 1:
        raise KassayError(f"the engine's layers are not alike: {sorted(map(str, kinds))}")
    return kinds.pop()


def lacks(asked: Asked, found: VllmEngine) -> list[str]:
    """In what an engine is not what the cell asked for; empty if it is all of it."""
    recipe, missing = asked.cache_recipe, []
    pairs = [
        ("backend", found.backend, CLASSES[ATTENTION[asked.attention]]),
        ("keys", found.key_format, recipe.key_format),
        ("values", found.value_format, recipe.value_format),
        ("scale policy", found.scale_policy, recipe.policy),
        ("prefix caching", found.prefix_caching, asked.prefix_caching),
        ("chunked prefill", found.chunked_prefill, asked.chunked_prefill),
        ("graphs", found.graph_batches, sorted(asked.graphs)),
        ("compiled modules", found.compiled_modules, 0),
        ("dummy weights", found.dummy_weights, asked.dummy),
    ]
    missing += [f"{name} are `{got}`, asked for was `{wanted}`" for name, got, wanted in pairs if got != wanted]
    if found.storages not in (found.layers, 2 * found.layers):
        missing.append(f"{found.storages} storages stand behind {found.layers} layers")
    if found.pool_bytes > asked.pool_bytes:
        missing.append(f"the pool takes {found.pool_bytes} bytes, asked for were {asked.pool_bytes}")
    return missing


def formats(layer: Any) -> tuple[str, str, str]:
    """Formats of keys and values, and the scale policy, of one live layer."""
    planes = getattr(getattr(layer.impl, "cache", None), "layer", None)
    if planes is not None:
        held = [plane_format(plane) for plane in (planes.keys, planes.values)]
        dynamic = any(plane.scale_PHSG is not None for plane in (planes.keys, planes.values))
        fixed = any(plane.scale is not None for plane in (planes.keys, planes.values))
        return held[0], held[1], "dynamic" if dynamic else "fixed" if fixed else "none"
    found = tensors_of(layer)
    told = layer.kv_cache_dtype if isinstance(layer.kv_cache_dtype, list | tuple) else [layer.kv_cache_dtype] * 2
    names = [tensor_format(layer, found[min(side, len(found) - 1)], str(told[side])) for side in (0, 1)]
    if len(found) == 1 and len(set(map(str, told))) > 1:
        raise KassayError(
            f"layer `{layer.layer_name}`: one tensor of `{found[0].dtype}` holds keys and values as {told}"
        )
    return names[0], names[1], "fixed" if "e4m3fn" in names else "none"


def tensor_format(layer: Any, tensor: Any, told: str) -> str:
    """The format in one tensor; bytes are what the layer says they are. Raises KassayError where that says nothing."""
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind == "uint8" and told in ("fp8", "fp8_e4m3"):
        kind = "float8_e4m3fn"
    if kind not in FORMATS or told.endswith("per_token_head"):
        raise KassayError(f"layer `{layer.layer_name}`: what its cache of `{kind}` holds cannot be told")
    return FORMATS[kind]


def plane_format(plane: Any) -> str:
    """Of one plane of the plug-in: what its tensor holds, not what its recipe says."""
    kind = str(plane.data_PSHW.dtype).removeprefix("torch.")
    if kind == "uint8":
        return str(plane.rule.stored)
    return FORMATS[kind]


def scales(layers: dict[int, Any], side: str) -> list[float] | None:
    """Fixed scales of a component in E4M3, read back from the GPU: of the plug-in's planes, or of vLLM's own layers."""
    if all(getattr(layer.impl, "cache", None) is None for layer in layers.values()):
        attribute = "_k_scale" if side == "keys" else "_v_scale"
        stored = {formats(layer)[0 if side == "keys" else 1] for layer in layers.values()}
        own = [getattr(layer, attribute, None) for layer in layers.values()]
        return [float(one) for one in own if one is not None] if stored == {"e4m3fn"} else None
    planes = [getattr(getattr(layer.impl, "cache", None), "layer", None) for layer in layers.values()]
    held = [None if one is None else getattr(one, side).scale for one in planes]
    found = [float(one) for one in held if one is not None]
    return found if found and len(found) == len(held) else None


def flash_attention(layer: Any) -> int | None:
    """Version of FlashAttention that prefills, where the implementation tells one."""
    for name in ("flash_attention", "vllm_flash_attn_version"):
        if (found := getattr(layer.impl, name, None)) is not None:
            return int(found)
    return None


def plug_in_state() -> Any:
    """What kassay_vllm knows in this process."""
    from kassay_vllm.state import STATE  # type: ignore[import-not-found]

    return STATE


def shown_cuts(cuts: dict[int, Any]) -> dict[str, Any]:
    """Cuts as numbers for a record."""
    return {str(size): cut.numbers() for size, cut in cuts.items()}


def type_name(backend: Any) -> str:
    """Name of a class or of an object's class."""
    return str(backend.__name__ if isinstance(backend, type) else type(backend).__name__)


def effective(engine: VllmEngine) -> dict[str, Any]:
    """What a receipt says of an engine: formats and backend as it told them, never those that were asked for."""
    return {
        "keys": engine.key_format,
        "values": engine.value_format,
        "scales": engine.scale_policy,
        "backend": engine.backend,
        "vllm": engine.vllm,
        "token_layer_bytes": engine.token_layer_bytes,
    }
