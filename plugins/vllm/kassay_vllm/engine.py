"""What an engine's configuration says that matters here: its cache's settings, or every reason why it is refused."""

from vllm.config import VllmConfig

from kassay.errors import KassayError
from kassay.kv.plane import DTYPES
from kassay_vllm import refusals, settings

SIXTEEN = {dtype: name for name, dtype in DTYPES.items()}


def read_settings(config: VllmConfig) -> settings.Settings:
    """The settings of an engine. Raises KassayError with every reason why the engine is refused."""
    model, parallel = config.model_config, config.parallel_config
    if model.dtype not in SIXTEEN:
        raise KassayError(f"kassay_vllm: a model in {model.dtype}, allowed are float16 and bfloat16")
    found = settings.read(config.additional_config, SIXTEEN[model.dtype], model.get_num_layers(parallel))
    asked = refusals.Engine(
        tensor_parallel=parallel.tensor_parallel_size,
        pipeline_parallel=parallel.pipeline_parallel_size,
        context_parallel=parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size,
        prefix_caching=bool(config.cache_config.enable_prefix_caching),
        chunked_prefill=config.scheduler_config.enable_chunked_prefill,
        gathers=found.continued == "gather",
        speculative=config.speculative_config is not None,
        kv_transfer=config.kv_transfer_config is not None,
        kv_cache_dtype=config.cache_config.cache_dtype,
        mla=model.use_mla,
        fixed_layers=not model.is_hybrid,
    )
    if reasons := refusals.of_engine(asked):
        raise KassayError("kassay_vllm does not do this: " + "; ".join(reasons))
    return found
