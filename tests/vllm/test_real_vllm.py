"""The plug-in inside vLLM's own classes, where vLLM 0.25.1 is installed: spec, allocator, pool, metadata, layers.

vLLM's wheel has no CPU engine, so no model runs; its configuration, KV-cache manager and layers do, on the CPU,
with kassay's kernels interpreted and a float64 attention in FlashAttention's place.
"""

from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")
pytest.importorskip("vllm", reason="vLLM is not installed here")

from kassay import paths
from kassay.errors import KassayError
from tests.vllm.pools import D, G, H, drawn, exact, slots_of_new, varlen

LAYERS = 4
TABLE = torch.zeros((4, 32), dtype=torch.int32)
TABLE[:, :3] = torch.tensor([[5, 9, 2], [1, 7, 11], [8, 3, 4], [6, 10, 12]])


class Made:
    """Layers of the shipped model on the plug-in, with vLLM's own pool."""

    def __init__(self, recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
        import vllm.platforms
        from vllm.platforms.cpu import CpuPlatform

        monkeypatch.setattr(vllm.platforms, "_current_platform", CpuPlatform())
        import kassay_vllm

        kassay_vllm.register()
        import kassay_vllm.backend as ours
        from vllm import config as c
        from vllm.model_executor.layers.attention.attention import Attention
        from vllm.v1.core.kv_cache_utils import get_kv_cache_configs
        from vllm.v1.worker.gpu.attn_utils import init_attn_backend, init_kv_cache

        monkeypatch.setattr(ours, "get_flash_attn_version", lambda head_size: 3)
        monkeypatch.setattr(ours.Implementation, "varlen", staticmethod(varlen))
        model = c.ModelConfig(model=str(paths.ROOT / "data/models/robust"), dtype="float16", max_model_len=512,
                              skip_tokenizer_init=True)  # fmt: skip
        scheduler = c.SchedulerConfig(max_num_batched_tokens=512, max_num_seqs=8, max_model_len=512,
                                      is_encoder_decoder=False, enable_chunked_prefill=False)  # fmt: skip
        cache = c.CacheConfig(block_size=16, enable_prefix_caching=False)
        self.config = c.VllmConfig(model_config=model, cache_config=cache, device_config=c.DeviceConfig("cpu"),
                                   scheduler_config=scheduler,
                                   additional_config={"kassay": {"recipe": recipe}})  # fmt: skip
        with c.set_current_vllm_config(self.config):
            self.layers = [
                Attention(H, D, D**-0.5, G, cache_config=cache, attn_backend=ours.PagedBackend,
                          prefix=f"model.layers.{index}.self_attn.attn")
                for index in range(LAYERS)
            ]  # fmt: skip
            specs = {layer.layer_name: layer.get_kv_cache_spec(self.config) for layer in self.layers}
        self.pool = get_kv_cache_configs(self.config, [specs], [10_000_000])[0]
        device = torch.device("cpu")
        self.groups, _, sizes = init_attn_backend(self.pool, self.config, device)
        context = self.config.compilation_config.static_forward_context
        self.caches = init_kv_cache([], context, self.pool, self.groups, device, "auto", sizes, self.config)

    def step(self, new: list[int], lengths: list[int]) -> tuple[torch.Tensor, ...]:
        """A batch through layer 0: q, k, v, out."""
        from vllm.v1.worker.gpu.attn_utils import build_attn_metadata

        count, layer = len(new), self.layers[0]
        starts = torch.tensor([0, *new]).cumsum(0).int()
        ends, slots = torch.tensor(lengths).int(), slots_of_new(new, lengths, TABLE[:count])
        metadata: Any = build_attn_metadata(
            attn_groups=self.groups, num_reqs=count, num_tokens=sum(new), query_start_loc_gpu=starts,
            query_start_loc_cpu=starts, max_query_len=max(new), seq_lens=ends, max_seq_len=max(lengths),
            block_tables=[TABLE[:count]], slot_mappings=slots[None], kv_cache_config=self.pool,
            seq_lens_cpu_upper_bound=ends,
        )  # fmt: skip
        q, k, v = (drawn(sum(new), heads, D, seed=seed) for seed, heads in ((1, H), (2, G), (3, G)))
        out = torch.full_like(q, float("nan"))
        layer.impl.do_kv_cache_update(layer, k, v, layer.kv_cache, slots)
        layer.impl.forward(layer, q, k, v, layer.kv_cache, metadata[layer.layer_name], output=out)
        return q, k, v, out


@pytest.mark.usefixtures("interpreted")
@pytest.mark.filterwarnings("ignore")
def test_vllm_allocates_our_pages_and_its_batches_take_our_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made("k16v8-d", monkeypatch)
    page = 16 * G * (2 * D + D + 4)
    assert made.pool.num_blocks == 10_000_000 // LAYERS // page
    assert {tuple(cache.shape) for cache in made.caches.values()} == {(made.pool.num_blocks, page)}
    q, k, v, out = made.step([30, 17], [30, 17])
    assert (out[:30] - exact(q[:30], k[:30], v[:30])).abs().max() < 2e-3
    q, k, v, out = made.step([1, 1, 20], [31, 18, 20])
    stored = made.layers[0].impl.cache.gathered(TABLE[0], 31)
    assert (out[:1] - exact(q[:1], *stored)).abs().max() < 2e-3 and bool(out.isfinite().all())
    with pytest.raises(KassayError, match="a prefill of 5 tokens continues 18 stored ones"):
        made.step([1, 5], [32, 23])
    with pytest.raises(KassayError, match="no file: no scale of 1 replaces it"):
        Made("k16v8-f", monkeypatch)


@pytest.mark.filterwarnings("ignore")
def test_the_sampler_whose_place_scripts_take_is_vllm_s() -> None:
    import inspect

    from vllm import SamplingParams
    from vllm.v1.worker.gpu.sample.sampler import Sampler

    from kassay.backend.vllm_arguments import sampling_arguments
    from kassay.backend.vllm_forcing import ADDS, SAMPLES, SCRIPT

    assert tuple(inspect.signature(Sampler.sample).parameters) == ("self", *SAMPLES)
    assert tuple(inspect.signature(Sampler.add_request).parameters) == ("self", *ADDS)
    made = SamplingParams(**sampling_arguments(0, forced=True, script=[3, 10], scored=True))
    assert made.extra_args == {SCRIPT: [3, 10]} and made.num_logprobs == 0 and made.max_tokens == 2
