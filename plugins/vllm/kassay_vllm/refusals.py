"""What the plug-in does not do, by name. Plain Python: asked before anything is allocated, with all reasons at once."""

from dataclasses import dataclass

from kassay.kernels.shape import HEAD_DIMS


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What an engine asks for, as far as it matters here."""

    tensor_parallel: int
    pipeline_parallel: int
    context_parallel: int
    prefix_caching: bool
    chunked_prefill: bool
    gathers: bool  # settings: prefills behind stored tokens are allowed
    speculative: bool
    kv_transfer: bool
    kv_cache_dtype: str
    mla: bool
    fixed_layers: bool  # whether all layers keep every token (no windows, no states)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What one attention layer asks for."""

    query_heads: int
    kv_heads: int
    head_dim: int
    scale: float
    sliding_window: int | None
    soft_cap: float | None
    alibi: bool
    sinks: bool
    kind: str  # of attention, `decoder` here
    shares: str | None  # the layer whose cache it reads instead of its own


def of_engine(engine: Engine) -> list[str]:
    """Why this engine is refused; empty if it is not."""
    found = []
    if engine.tensor_parallel > 1:
        found.append(f"tensor_parallel_size {engine.tensor_parallel}: tried on one GPU only")
    if engine.pipeline_parallel > 1:
        found.append(f"pipeline_parallel_size {engine.pipeline_parallel}: tried on one GPU only")
    if engine.context_parallel > 1:
        found.append(f"context parallelism of {engine.context_parallel}: a sequence's pages lie on one GPU here")
    if engine.prefix_caching and not engine.gathers:
        found.append("enable_prefix_caching: a prefill behind a cached prefix is refused by the settings")
    if engine.chunked_prefill and not engine.gathers:
        found.append("enable_chunked_prefill: a second chunk is refused by the settings")
    if engine.speculative:
        found.append("speculative decoding: a decode is one token here")
    if engine.kv_transfer:
        found.append("a KV connector: what it sends of a page is not known to it")
    if engine.kv_cache_dtype != "auto":
        found.append(f"kv_cache_dtype `{engine.kv_cache_dtype}`: the recipe says what is stored, leave it `auto`")
    if engine.mla:
        found.append("MLA: a compressed latent has no values to store apart")
    if not engine.fixed_layers:
        found.append("a model with windows, states or shared caches: every layer must keep every token")
    return found


def of_layer(layer: Layer) -> list[str]:
    """Why this layer is refused; empty if it is not."""
    found = []
    if layer.kind != "decoder":
        found.append(f"attention of kind `{layer.kind}`, allowed is `decoder`")
    if layer.head_dim not in HEAD_DIMS:
        found.append(f"head dim {layer.head_dim}, allowed are {HEAD_DIMS}")
    if layer.kv_heads < 1 or layer.query_heads % layer.kv_heads:
        found.append(f"{layer.query_heads} query heads are no multiple of {layer.kv_heads} KV heads")
    if abs(layer.scale * layer.head_dim**0.5 - 1) > 1e-6:
        found.append(f"logits scaled by {layer.scale:g}, allowed is 1 / sqrt({layer.head_dim})")
    if layer.sliding_window is not None:
        found.append(f"a sliding window of {layer.sliding_window} tokens")
    if layer.soft_cap:
        found.append(f"a soft cap of {layer.soft_cap:g} on logits")
    if layer.alibi:
        found.append("ALiBi slopes")
    if layer.sinks:
        found.append("attention sinks")
    if layer.shares is not None:
        found.append(f"a layer that reads the cache of `{layer.shares}`")
    return found
