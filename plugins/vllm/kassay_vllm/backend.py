"""vLLM's side: the attention backend, its metadata and its implementation (vLLM 0.25.1, V1 engine).

Prefill of fresh prompts is vLLM's own FlashAttention over the tokens' 16-bit keys and values; decode is kassay's
fused kernel over the pages, one graph a batch. `routes` says the rule for mixed batches.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadata,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.attention.backends.fa_utils import get_flash_attn_version
from vllm.v1.attention.backends.utils import get_num_attention_heads_from_layers
from vllm.v1.kv_cache_interface import AttentionSpec

from kassay.errors import KassayError
from kassay.kernels.launch import host_of
from kassay.kernels.shape import HEAD_DIMS, DecodeShape
from kassay.kv.paged import LayerScales
from kassay_vllm import refusals
from kassay_vllm.attend import Cache, Plans, Step, attend, refuse_continued
from kassay_vllm.engine import read_settings
from kassay_vllm.page import PAGE_TOKENS, PageFormat
from kassay_vllm.routes import Route, split
from kassay_vllm.state import STATE


@dataclass
class Metadata(AttentionMetadata):
    """What a layer reads of a batch."""

    step: Step
    plans: Plans


class Builder(AttentionMetadataBuilder[Metadata]):
    """Metadata of a batch. Full CUDA graphs hold decodes of one token each."""

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
    reorder_batch_threshold: int | None = 1

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        model, parallel = vllm_config.model_config, vllm_config.parallel_config
        assert STATE.settings is not None, "a bug: a builder was made without settings"
        self.settings = STATE.settings
        shape = DecodeShape(
            recipe=self.settings.recipe,
            query_heads=get_num_attention_heads_from_layers(vllm_config, layer_names)
            or model.get_num_attention_heads(parallel),
            kv_heads=kv_cache_spec.num_kv_heads,
            head_dim=kv_cache_spec.head_size,
            page_tokens=PAGE_TOKENS,
        )
        sizes = set(vllm_config.compilation_config.cudagraph_capture_sizes or ())
        self.plans = Plans(
            shape, host_of(device), device, model.max_model_len, sizes,
            uneven=self.settings.lengths == "uneven", book=self.settings.cuts,
        )  # fmt: skip
        STATE.plans = self.plans

    def build_for_cudagraph_capture(self, common_attn_metadata: CommonAttentionMetadata) -> Metadata:
        """Decodes of one stored token: what a graph reads is looked up at its replay."""
        common_attn_metadata.seq_lens.fill_(1)
        made = self._made(common_attn_metadata, capturing=True)
        STATE.counts.captured[made.step.route.decodes] += 1
        return made

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Metadata:
        """The batch's route. Raises KassayError for a prefill behind stored tokens where settings refuse it."""
        made = self._made(common_attn_metadata, capturing=False)
        route = made.step.route
        refuse_continued(route, self.settings.continued == "gather")
        STATE.counts.built[route.name, route.decodes] += 1
        STATE.counts.fallbacks += sum(stored > 0 for stored in route.stored)
        return made

    def _made(self, common: CommonAttentionMetadata, *, capturing: bool) -> Metadata:
        count = common.num_reqs
        if common.max_query_len <= 1:  # graphs included, whose padding has no token
            route = Route(decodes=count, prefills=0, decode_tokens=count, longest=0, stored=())
        else:
            starts = common.query_start_loc_cpu[: count + 1].tolist()
            lengths = common.seq_lens_cpu_upper_bound  # exact for prefills
            lengths = common.seq_lens.cpu() if lengths is None else lengths
            new = [after - before for before, after in pairwise(starts)]
            route = split(new, lengths[:count].tolist())
        step = Step(
            route=route,
            tokens=common.num_actual_tokens,
            table_BX=common.block_table_tensor,
            lengths_B=common.seq_lens,
            starts=common.query_start_loc[route.decodes : count + 1] - route.decode_tokens
            if route.prefills
            else common.query_start_loc[:1],
            capturing=capturing,
        )
        if route.decodes:
            self.plans.of(route.decodes)  # its memory is no graph's
        return Metadata(step=step, plans=self.plans)


class Implementation(AttentionImpl[Metadata]):
    """Attention of one layer. Raises KassayError, when it is made, for what `refusals` names."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = "decoder",
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
        **others: Any,
    ) -> None:
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype
        asked = refusals.Layer(
            query_heads=num_heads, kv_heads=self.num_kv_heads, head_dim=head_size, scale=self.scale,
            sliding_window=sliding_window, soft_cap=logits_soft_cap, alibi=alibi_slopes is not None,
            sinks=sinks is not None, kind=str(getattr(attn_type, "value", attn_type)),
            shares=kv_sharing_target_layer_name,
        )  # fmt: skip
        reasons = refusals.of_layer(asked) + [f"attention with `{name}`" for name, value in others.items() if value]
        if reasons:
            raise KassayError("kassay_vllm does not do this: " + "; ".join(reasons))
        self.settings = read_settings(get_current_vllm_config())
        STATE.renew(self.settings)
        self.flash_attention = get_flash_attn_version(head_size=head_size)
        if self.flash_attention is None:
            raise KassayError("kassay_vllm prefills with vLLM's FlashAttention, and this build has none for the GPU")
        STATE.flash_attention = self.flash_attention
        self.format = PageFormat(recipe=self.settings.recipe, kv_heads=self.num_kv_heads, head_dim=head_size)
        self.cache: Cache | None = None
        self.index = -1

    def do_kv_cache_update(
        self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        """Store new tokens: vLLM calls it before `forward`, with slot -1 where there is none."""
        cache = self.bound(layer, kv_cache)
        if self.settings.calibrate:
            self.fold(key[: len(slot_mapping)], value[: len(slot_mapping)])
        cache.write(key, value, slot_mapping)

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: Metadata,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attention of a batch into `output` (tokens, query heads, head dim); 0 where vLLM only measures memory."""
        if attn_metadata is None:
            return output.fill_(0)
        step = attn_metadata.step
        cache = self.bound(layer, kv_cache)
        if self.index == 0 and not step.capturing:
            STATE.counts.called[step.route.name, step.route.decodes] += 1
        if self.index == 0 and query.is_cuda and torch.cuda.is_current_stream_capturing():
            STATE.events.append(f"captured {step.route.decodes}")
        attend(cache, query, key, value, output, step, attn_metadata.plans, self.varlen)
        return output

    def varlen(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor,
        starts_q: torch.Tensor, longest_q: int, starts_k: torch.Tensor, longest_k: int,
    ) -> None:  # fmt: skip
        """vLLM's FlashAttention of sequences that lie one after another."""
        from vllm.vllm_flash_attn import flash_attn_varlen_func

        flash_attn_varlen_func(
            q=q, k=k, v=v, out=out, cu_seqlens_q=starts_q, max_seqlen_q=longest_q, cu_seqlens_k=starts_k,
            max_seqlen_k=longest_k, softmax_scale=self.scale, causal=True, fa_version=self.flash_attention,
        )  # fmt: skip

    def bound(self, layer: Any, kv_cache: torch.Tensor) -> Cache:
        """The planes over the layer's pool, made when the pool is first seen, which is before any graph."""
        if self.cache is not None and self.cache.pages.data_ptr() == kv_cache.data_ptr():
            return self.cache
        if kv_cache.is_cuda and torch.cuda.is_current_stream_capturing():
            raise KassayError(f"a bug: the pool of layer `{layer.layer_name}` is first seen while a graph is captured")
        self.index = extract_layer_index(layer.layer_name)
        keys, values = self.settings.key_scales, self.settings.value_scales
        scales = LayerScales(
            keys=None if keys is None else keys[self.index], values=None if values is None else values[self.index]
        )
        host = host_of(kv_cache.device)
        self.cache = Cache(self.format, kv_cache, scales, host, observe=self.index in self.settings.observe)
        STATE.caches[self.index] = self.cache
        STATE.events.append(f"bound {self.index}")
        return self.cache

    def fold(self, key: torch.Tensor, value: torch.Tensor) -> None:
        """Fold the largest absolute operands of this layer, for calibration."""
        if self.index not in STATE.amax:
            STATE.amax[self.index] = torch.zeros(2, device=key.device)
        amax = STATE.amax[self.index]
        assert isinstance(amax, torch.Tensor), "a bug: what is folded is a tensor"
        amax.copy_(torch.maximum(amax, torch.stack([key.abs().max(), value.abs().max()]).float()))


class PagedBackend(AttentionBackend):
    """Keys, values and scales in one page of bytes. Its name is the free place of vLLM's registry."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes: ClassVar[list[Any]] = ["auto"]
    forward_includes_kv_cache_update: bool = False

    @staticmethod
    def get_name() -> str:
        """The registry's place."""
        return "CUSTOM"

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int | MultipleOf]:
        """Pages of 16 tokens; larger blocks are several pages."""
        return [PAGE_TOKENS]

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        """What the kernels read."""
        return list(HEAD_DIMS)

    @classmethod
    def supports_kv_connector(cls) -> bool:
        """No connector knows our pages."""
        return False

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        """Where kassay's kernels run."""
        return bool(capability.major >= 8)

    @staticmethod
    def get_impl_cls() -> type[Implementation]:
        """The implementation."""
        return Implementation

    @staticmethod
    def get_builder_cls() -> type[Builder]:
        """The builder of metadata."""
        return Builder

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, cache_dtype_str: str = "auto"
    ) -> tuple[int, ...]:
        """Pages of bytes, of the recipe whose layers were made last."""
        if block_size != PAGE_TOKENS or STATE.settings is None:
            raise KassayError(f"a pool in pages of {block_size} tokens was asked for, pages are of {PAGE_TOKENS}")
        format = PageFormat(recipe=STATE.settings.recipe, kv_heads=num_kv_heads, head_dim=head_size)
        return num_blocks, format.page_bytes
