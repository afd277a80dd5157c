"""vLLM cells: what an engine really used, what became of each request and step, and checks inside its worker."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kassay.combination import absent, one_of, ordered, rule
from kassay.record import Record, doc


def within(check: Any) -> bool:
    """Whether the error of a check is within its limit; one that was not finite is not."""
    return check.error is not None and check.error <= check.limit


@dataclass(frozen=True, kw_only=True)
class VllmEngine(Record):
    """An engine as its live layers, tensors and configuration tell it; what was asked for stands in the request."""

    schema: ClassVar[str] = "kassay.vllm_engine/2"

    arm: str = doc("Name of the arm.")
    vllm: str = doc("Version of vLLM.")
    torch: str = doc("Version of torch.")
    triton: str = doc("Version of Triton.")
    device: str = doc("Name of the GPU as torch tells it.")
    dummy_weights: bool = doc("Whether weights were drawn instead of loaded: no statement about quality.")
    backend: str = doc("Class of the live layers' attention backend.")
    implementation: str = doc("Class of the live layers' attention implementation.")
    flash_attention: int | None = doc("Version of FlashAttention that prefills, or null where none does.")
    layers: int = doc("Attention layers with a cache.")
    key_format: str = doc("Format of the keys in the live cache: `fp16`, `bf16` or `e4m3fn`.")
    value_format: str = doc("Format of the values in the live cache.")
    scale_policy: str = doc("`none`, `fixed` or `dynamic`.")
    key_scales: list[float] | None = doc("Fixed scales of the keys, read back from the GPU, one a layer; or null.")
    value_scales: list[float] | None = doc("Fixed scales of the values, read back from the GPU, one a layer; or null.")
    block_tokens: int = doc("Tokens of a block.")
    blocks: int = doc("Blocks of the pool, the null block included.")
    token_layer_bytes: float = doc("Bytes of one token in one layer, scales included, by the live tensors.")
    pool_bytes: int = doc("Bytes of all layers' tensors, storages counted once.")
    storages: int = doc("Different storages behind the layers' caches.")
    graph_mode: str = doc("vLLM's CUDA-graph mode.")
    graph_batches: list[int] = doc("Batches for which a full decode graph was captured.")
    piecewise_graphs: list[int] = doc("Numbers of tokens for which pieces of the model were captured as graphs.")
    compilation: str = doc("vLLM's compilation mode, such as `NONE` or `VLLM_COMPILE`.")
    compiled_modules: int = doc("Modules of the live model that run torch.compile's code.")
    asynchronous: bool = doc("Whether a step is scheduled while the one before it runs.")
    runner: str = doc("`v1` or `v2` model runner.")
    prefix_caching: bool = doc("Whether vLLM caches prefixes.")
    chunked_prefill: bool = doc("Whether vLLM cuts prompts.")
    cuts: dict[str, Any] = doc("Of the plug-in: how each batch of decodes is cut; empty elsewhere.")
    events: list[str] = doc("Of the plug-in: in order, layers whose scales and pool were bound and graphs captured.")

    combinations = (
        one_of("scale_policy", ("none", "fixed", "dynamic")),
        absent("scale_policy", ("none", "dynamic"), "key_scales", "value_scales"),
        one_of("runner", ("v1", "v2")),
    )


@dataclass(frozen=True, kw_only=True)
class VllmRequest(Record):
    """One request of one repetition."""

    schema: ClassVar[str] = "kassay.vllm_request/1"

    arm: str = doc("Name of the arm.")
    repetition: int = doc("Number of the repetition from 0, warm-ups included.")
    warmup: bool = doc("Whether the repetition is a warm-up.")
    request: int = doc("Number of the request from 0.")
    prompt_tokens: int = doc("Tokens of its prompt.")
    prompt_sha256: str = doc("Digest of the prompt's token ids.")
    submitted_ns: int = doc("When it was handed to the engine, on the monotonic clock in nanoseconds.")
    first_ns: int = doc("When its first token was there, on the same clock.")
    ended_ns: int = doc("When its last token was there, on the same clock.")
    output_tokens: int = doc("Tokens that it completed.")
    completion_steps: list[int] = doc("Number of the step from 0 in which each of its tokens was there.")
    output_sha256: str = doc("Digest of its output's token ids.")
    finished_by: str = doc("vLLM's reason for its end, such as `length`.")

    combinations = (
        rule(
            "`submitted_ns` <= `first_ns` <= `ended_ns` where `output_tokens` are above 0",
            lambda one: not one.output_tokens or one.submitted_ns <= one.first_ns <= one.ended_ns,
        ),
        rule(
            "`completion_steps` are at most as many as `output_tokens`",
            lambda one: len(one.completion_steps) <= one.output_tokens,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class VllmSpan(Record):
    """One repetition of a batch of requests: stamps with the GPU idle, and what the scheduler did."""

    schema: ClassVar[str] = "kassay.vllm_span/1"

    arm: str = doc("Name of the arm.")
    repetition: int = doc("Number of the repetition from 0, warm-ups included.")
    warmup: bool = doc("Whether the repetition is a warm-up.")
    requests: int = doc("Requests of the repetition.")
    started_ns: int = doc("Start on the monotonic clock in nanoseconds, the GPU idle.")
    ended_ns: int = doc("End on the same clock, the GPU idle again.")
    prefilled_tokens: int = doc("Prompt tokens that the scheduler let compute, over all requests.")
    decode_steps: int = doc("Steps that scheduled one token of each of their requests.")
    full_steps: int = doc("Those of them that served every request.")
    mixed_steps: int = doc("Steps that decoded some requests and prefilled others.")
    preemptions: int = doc("Requests that were taken out of the running batch before their end.")
    replays: dict[str, int] = doc("Of the plug-in: decodes of a batch -> replays of its graph; empty elsewhere.")
    fallbacks: int | None = doc("Of the plug-in: prefills behind stored tokens; null elsewhere.")
    step_ns: list[int] = doc("When each step's tokens were there, on the monotonic clock in nanoseconds.")

    combinations = (ordered("started_ns", "ended_ns"), ordered("full_steps", "decode_steps"))


@dataclass(frozen=True, kw_only=True)
class VllmOutput(Record):
    """What one request of a checked engine generated, token by token."""

    schema: ClassVar[str] = "kassay.vllm_output/1"

    arm: str = doc("Name of the arm.")
    repetition: int = doc("Number of the repetition from 0.")
    request: int = doc("Number of the request from 0.")
    token_ids: list[int] = doc("Ids of its tokens, in order.")


@dataclass(frozen=True, kw_only=True)
class VllmRest(Record):
    """What a checked engine holds after a repetition, when no request is left."""

    schema: ClassVar[str] = "kassay.vllm_rest/1"

    arm: str = doc("Name of the arm.")
    repetition: int = doc("Number of the repetition from 0.")
    free_blocks: int = doc("Blocks that no request holds; vLLM's null block is none of them.")
    allocated_bytes: int = doc("Bytes that torch has in tensors.")


@dataclass(frozen=True, kw_only=True)
class VllmFinding(Record):
    """One finding of the check of an engine; the check passes if all hold."""

    schema: ClassVar[str] = "kassay.vllm_finding/1"

    arm: str = doc("Name of the arm.")
    finding: str = doc("`physical`, `scales`, `route`, `graphs`, `memory`, `text` or `oracle`.")
    passed: bool = doc("Whether it holds.")
    said: str = doc("What was seen, in words.")

    combinations = (one_of("finding", ("physical", "scales", "route", "graphs", "memory", "text", "oracle")),)


@dataclass(frozen=True, kw_only=True)
class VllmCohort(Record):
    """Items of one endpoint that one arm answered together, and what the scheduler and the plug-in did meanwhile."""

    schema: ClassVar[str] = "kassay.vllm_cohort/1"

    model: str = doc("Name of the model.")
    arm: str = doc("Name of the arm.")
    endpoint: str = doc("Name of the endpoint in the study.")
    cohort: int = doc("Number of the cohort in its endpoint from 0.")
    requests: int = doc("Items of the cohort, all of which are submitted before its first step.")
    prompt_tokens: int = doc("Tokens that were prefilled of all items, each prompt by itself, in 16 bits.")
    script_tokens: int = doc("Tokens of questions or targets that were decoded in the place of sampled ones.")
    output_tokens: int = doc("Tokens that were completed, those of scripts included.")
    prefilled_tokens: int = doc("Prompt tokens that the scheduler let compute; less than all came from a cache.")
    decode_steps: int = doc("Steps that scheduled one token of each of their requests.")
    mixed_steps: int = doc("Steps that decoded some requests and prefilled others.")
    preemptions: int = doc("Requests that were taken out of the running batch before their end.")
    replays: dict[str, int] = doc("Of the plug-in: decodes of a batch -> replays of its graph; empty elsewhere.")
    fallbacks: int | None = doc("Of the plug-in: prefills behind stored tokens; null elsewhere.")


@dataclass(frozen=True, kw_only=True)
class VllmCheck(Record):
    """One check of one layer inside the worker, against numpy and float64 on what its own pool holds."""

    schema: ClassVar[str] = "kassay.vllm_check/1"

    arm: str = doc("Name of the arm.")
    traffic: str = doc("What had run: `fresh`, `mixed`, `decode` or `replay`.")
    layer: int = doc("Number of the layer.")
    what: str = doc("`codes`, `scales`, `output`, or a planted fault.")
    planted: bool = doc("Whether it is a fault that must be found.")
    count: int = doc("Numbers that were compared.")
    differing: int = doc("Of codes and scales: bytes that differ.")
    error: float = doc("Of outputs: largest relative Euclidean error of a row; 0 elsewhere.")
    limit: float = doc("Largest error that passes.")
    passed: bool = doc("Whether the check found nothing, or found the planted fault.")

    combinations = (
        ordered("differing", "count"),
        rule(
            "`passed` is whether nothing is `differing` and `error` is within `limit`, and of `planted` the reverse",
            lambda check: check.passed == ((check.differing == 0 and within(check)) != check.planted),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class VllmRatio(Record):
    """One arm beside its control over the blocks: described, without a certificate, so never a gain."""

    schema: ClassVar[str] = "kassay.vllm_ratio/1"

    arm: str = doc("Name of the arm in the numerator.")
    control: str = doc("Name of the arm in the denominator.")
    endpoint: str = doc("`complete request (tokens/s)` or `decode step (1/s)`.")
    batch: int = doc("Requests of a repetition.")
    ratios: list[float] = doc("Ratio within each block, in block order; above 1 the arm is faster.")
    median: float = doc("Median of the ratios.")
    wins: int = doc("Blocks whose ratio is above 1; ties are none.")
    sign_p: float = doc("One-sided exact sign test over the blocks, unadjusted.")
    capacity_ratio: float = doc("Tokens of the arm's pool over those of the control's, each per byte of its pool.")
    capacity_limit: float = doc("The same by the arithmetic of bytes a token and layer.")
    dummy_weights: bool = doc("Whether weights were drawn: no statement about quality.")
    verdict: str = doc("Always `descriptive`.")

    combinations = (
        one_of("verdict", ("descriptive",)),
        rule("`wins` are at most as many as `ratios`", lambda made: made.wins <= len(made.ratios)),
    )
