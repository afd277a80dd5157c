"""From what a study asks of a vLLM cell to the arguments of its engine. Plain Python: looked at without vLLM.

    attention    flash-attn, flashinfer, triton   vLLM's own backends, which keep keys and values in one format
                 plug-in                          kassay_vllm (plugins/vllm): any of the seven arms in pages of bytes
fork                             a fork's FlashInfer: keys and values by a pair of cache dtypes

A cell is greedy, of one seed, without prefix caching and chunked prefill unless it is asked for otherwise, in this one
process; request statistics are on. A pool is asked for in bytes (all layers), so that arms hold equal bytes. Decodes
replay captured graphs (`graphs` names their batches); where none is named everything is eager, which measures the
host: never compare formats so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kassay.backend.vllm_forcing import SCRIPT
from kassay.errors import KassayError
from kassay.kv.recipe import SEVEN_ARMS, Recipe, recipe_named

Attention = Literal["flash-attn", "flashinfer", "triton", "plug-in"]
ATTENTION: dict[str, str] = {
    "flash-attn": "FLASH_ATTN",
    "flashinfer": "FLASHINFER",
    "triton": "TRITON_ATTN",
    "plug-in": "CUSTOM",
    "fork": "FLASHINFER",
}
DTYPES = {"fp16": "float16", "bf16": "bfloat16"}
BLOCK_TOKENS = 16
FREE_AT_START = 0.1  # of the GPU: vLLM refuses to start below it; the pool is asked for in bytes, not as a share
# What vLLM 0.25.1 does by itself with this recipe, kv_cache_dtype.
NATIVE_KINDS = {"native": "auto", "k8v8-f": "fp8_e4m3"}
# What the published forks take (predecessor's gates): one word for both components, or a pair of keys and values.
FORK_KINDS: dict[str, Any] = {
    "native": "auto",
    "k16v8-f": ("auto", "fp8_e4m3"),
    "k8v16-f": ("fp8_e4m3", "auto"),
    "k8v8-f": "fp8_e4m3",
}
FP16_OF_FA3 = "FlashAttention 3 with E4M3 caches writes BF16 only (vLLM 0.25.1): take bf16"
# FlashInfer's prefill would quantize queries to E4M3 on sm_90, which is another recipe.
FLASHINFER = {"use_trtllm_attention": False, "disable_flashinfer_q_quantization": True}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One cell: an engine in a process of its own."""

    model: str  # folder or hub id
    dummy: bool  # weights drawn instead of loaded: for speed at a geometry, marked, never for quality
    sixteen: str
    recipe: str
    attention: str
    scales: str | None  # path of a calibration's scales.json
    pool_bytes: int  # keys, values and scales of all layers
    sequences: int
    sequence_tokens: int  # longest request, output included
    batched_tokens: int  # of one step
    graphs: tuple[int, ...]  # batches of captured decode graphs; none: eager
    prefix_caching: bool
    chunked_prefill: bool
    continued: str  # of kassay_vllm: `refuse` or `gather`
    observe: tuple[int, ...]  # layers whose operands the oracle reads
    calibrate: bool  # fold the largest absolute operands
    variables: tuple[tuple[str, str], ...]  # of the environment, by which a fork's routes are chosen
    scales_argument: str  # of a fork: engine argument that takes the scales; empty: it is not known
    lengths: str  # of kassay_vllm: `uneven` or `equal`
    cuts: str | None  # book of measured cuts
    seed: int

    @property
    def cache_recipe(self) -> Recipe:
        """The recipe on the cell's 16-bit format."""
        return recipe_named(self.recipe, self.sixteen)


def cell_of(engine: Mapping[str, Any], **given: Any) -> Asked:
    """A cell of a study's engine parameters and of what the stage itself knows."""
    own = {name: value for name, value in engine.items() if name != "pool_mib"}
    variables = {**own.pop("variables", {}), **given.pop("variables", {})}
    fork = {"variables": tuple(sorted(variables.items())), "scales_argument": own.pop("scales_argument", "")}
    sizes = {"graphs": tuple(engine["graphs"]), "pool_bytes": int(engine["pool_mib"]) << 20}
    return Asked(**{**own, **fork, **given, **sizes})


def arm_arguments(arm: Mapping[str, Any], inputs: Mapping[str, object]) -> dict[str, Any]:
    """What an arm of a study gives its cell, in every stage alike: nothing of it is left out in one of them.

    Input `scales` goes to recipes with fixed scales that are ours to give: vLLM's own backends have theirs.
    """
    given = arm["recipe"].endswith("-f") and arm["attention"] in ("plug-in", "fork")
    return {
        "recipe": arm["recipe"], "attention": arm["attention"], "variables": arm.get("variables") or {},
        "scales": str(inputs["scales"]) if given else None, "observe": (), "calibrate": False,
    }  # fmt: skip


def require_real(scales: Mapping[str, Any]) -> None:
    """Raise KassayError for scales of drawn weights, where text or quality is looked at."""
    if scales.get("dummy", False):
        raise KassayError(
            f"the scales of `{scales.get('model')}` were calibrated on drawn weights, whose text says nothing",
            hint="calibrate on a checkpoint",
        )


def refusals(asked: Asked) -> list[str]:
    """Why no engine can do this, all reasons; empty if it may be tried."""
    found = []
    if asked.attention not in ATTENTION:
        return [f"attention `{asked.attention}`, allowed are {', '.join(ATTENTION)}"]
    if asked.sixteen not in DTYPES:
        found.append(f"16-bit format `{asked.sixteen}`, allowed are {', '.join(DTYPES)}")
    if asked.attention == "plug-in":
        if asked.recipe not in (arms := [recipe.name for recipe in SEVEN_ARMS]):
            found.append(f"recipe `{asked.recipe}` with the plug-in, allowed are {', '.join(arms)}")
        if (asked.prefix_caching or asked.chunked_prefill) and asked.continued != "gather":
            found.append("prefix caching and chunked prefill need `continued: gather`")
    elif asked.attention == "fork":
        found += of_fork(asked)
    else:
        if asked.recipe not in NATIVE_KINDS:
            found.append(f"recipe `{asked.recipe}` with vLLM's own `{asked.attention}`: it keeps K and V in one format")
        if asked.recipe == "k8v8-f" and asked.attention == "flash-attn" and asked.sixteen == "fp16":
            found.append(FP16_OF_FA3)
        if asked.observe or asked.calibrate:
            found.append("operands are observed and folded by the plug-in only: take recipe `native` on it")
        if asked.recipe == "k8v8-f" and asked.scales is not None:
            found.append("vLLM reads scales of its own E4M3 cache from a checkpoint, not from a calibration's file")
    if asked.pool_bytes < 1 or asked.sequences < 1 or asked.sequence_tokens < 2:
        found.append("a pool of at least one byte, one sequence and two tokens is needed")
    if asked.batched_tokens < asked.sequence_tokens and not asked.chunked_prefill:
        found.append(f"a step of {asked.batched_tokens} tokens holds no prompt of up to {asked.sequence_tokens}")
    if too_many := [size for size in asked.graphs if not 1 <= size <= asked.sequences]:
        found.append(f"a graph of {too_many[0]} decodes, allowed are 1 to {asked.sequences}")
    return found


def of_fork(asked: Asked) -> list[str]:
    """Why a fork is not asked for this."""
    found = []
    if asked.recipe not in FORK_KINDS:
        found.append(f"recipe `{asked.recipe}` on a fork, allowed are {', '.join(FORK_KINDS)}")
    elif asked.recipe != "native" and (asked.scales is None or not asked.scales_argument):
        found.append(f"recipe `{asked.recipe}` on a fork needs scales and the engine argument that takes them")
    if asked.observe or asked.calibrate:
        found.append("operands are observed and folded by the plug-in only")
    return found


def kv_cache_dtype(asked: Asked) -> Any:
    """What the engine is told of its cache's formats."""
    if asked.attention == "plug-in":
        return "auto"
    return FORK_KINDS[asked.recipe] if asked.attention == "fork" else NATIVE_KINDS[asked.recipe]


def engine_arguments(asked: Asked) -> dict[str, Any]:
    """Keyword arguments of vllm.LLM. Raises KassayError with every reason why the cell is refused."""
    if found := refusals(asked):
        raise KassayError("this vLLM cell is refused: " + "; ".join(found))
    ours = asked.attention == "plug-in"
    attention: dict[str, Any] = {"backend": ATTENTION[asked.attention]}
    if asked.attention == "flashinfer":
        attention |= FLASHINFER
    made: dict[str, Any] = {
        "model": asked.model,
        "skip_tokenizer_init": True,
        "load_format": "dummy" if asked.dummy else "auto",
        "dtype": DTYPES[asked.sixteen],
        "seed": asked.seed,
        "block_size": BLOCK_TOKENS,
        "kv_cache_dtype": kv_cache_dtype(asked),
        "kv_cache_memory_bytes": asked.pool_bytes,
        "gpu_memory_utilization": FREE_AT_START,
        "max_model_len": asked.sequence_tokens,
        "max_num_seqs": asked.sequences,
        "max_num_batched_tokens": asked.batched_tokens,
        "enable_prefix_caching": asked.prefix_caching,
        "enable_chunked_prefill": asked.chunked_prefill,
        "disable_log_stats": False,
        "attention_config": attention,
    }
    if asked.graphs:
        sizes = {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": sorted(asked.graphs)}
        made["compilation_config"] = {"mode": 0, **sizes}
    else:
        made["enforce_eager"] = True
    if ours:
        made["additional_config"] = {"kassay": settings(asked)}
    if asked.attention == "fork" and asked.recipe != "native":
        made[asked.scales_argument] = asked.scales
    return made


def sampling_arguments(
    tokens: int, *, forced: bool, stops: Sequence[int] = (), script: Sequence[int] = (), scored: bool = False
) -> dict[str, Any]:
    """Keyword arguments of vllm.SamplingParams for a greedy request of a script and up to `tokens` tokens behind it.

    `forced`: exactly so many. Else `stops` are all that ends it, a checkpoint's own end of text included only if it is
    among them. Raises KassayError for a script that one of them would end.
    """
    if not forced and (early := set(script) & set(stops)):
        raise KassayError(f"token {min(early)} of a script is one that ends an answer: nothing would come behind it")
    made: dict[str, Any] = {"temperature": 0.0, "max_tokens": len(script) + tokens, "detokenize": False}
    made |= {"min_tokens": len(script) + tokens} if forced else {"stop_token_ids": list(stops)}
    made["ignore_eos"] = forced or bool(stops)
    made |= {"extra_args": {SCRIPT: list(script)}} if script else {}
    return made | ({"logprobs": 0} if scored else {})


def settings(asked: Asked) -> dict[str, Any]:
    """What kassay_vllm is told."""
    told: dict[str, Any] = {"recipe": asked.recipe, "continued": asked.continued, "lengths": asked.lengths}
    if asked.scales is not None:
        told["scales"] = asked.scales
    if asked.cuts is not None:
        told["cuts"] = asked.cuts
    if asked.observe:
        told["observe"] = list(asked.observe)
    if asked.calibrate:
        told["calibrate"] = True
    return told
