"""What a model stage ran on: the device and the types that it found, not those that it was asked for."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import given_only, one_of, rule
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class BackendRecord(Record):
    """The loaded model of one stage."""

    schema: ClassVar[str] = "kassay.backend/1"

    model: str = doc("Name of the model in the study.")
    architecture: str = doc("transformers' class of the model.")
    model_sha256: str = doc("Digest of the checkpoint's folder, which is its identity.")
    device: str = doc("Name of the GPU as torch tells it, or `cpu`.")
    compute_dtype: str = doc("dtype of the loaded weights, in which the model computes.")
    torch: str = doc("Version of torch.")
    text: str = doc("`characters`, or the class of the checkpoint's own tokenizer.")
    parameters: int = doc("Number of parameters, tied ones once.")


@dataclass(frozen=True, kw_only=True)
class FusedBackend(Record):
    """The decoder of one stage on our own kernels."""

    schema: ClassVar[str] = "kassay.fused_backend/1"

    model: str = doc("Name of the model, or of the geometry that drawn weights have.")
    model_sha256: str | None = doc("Digest of the checkpoint's folder; null for drawn weights.")
    drawn: bool = doc("Whether the weights were drawn from a seed: such a decoder shows speed and answers nothing.")
    family: str = doc("Family of the architecture: `qwen2`, `qwen3`, `llama` or `mistral`.")
    layers: int = doc("Layers that ran.")
    hidden: int = doc("Width of the hidden state.")
    intermediate: int = doc("Width of the feed-forward layers.")
    query_heads: int = doc("Query heads of a layer.")
    kv_heads: int = doc("KV heads of a layer.")
    head_dim: int = doc("Elements of a head.")
    vocabulary: int = doc("Tokens of the vocabulary.")
    device: str = doc("Name of the GPU as torch tells it, or `cpu, interpreted`.")
    compute_dtype: str = doc("dtype of the loaded weights, in which the decoder computes.")
    torch: str = doc("Version of torch.")
    triton: str = doc("Version of Triton.")
    parameters: int = doc("Number of parameters, tied ones once.")

    combinations = (given_only("drawn", (False,), "model_sha256"),)


@dataclass(frozen=True, kw_only=True)
class FusedCache(Record):
    """A paged cache that something was measured on, and how its attention was cut."""

    schema: ClassVar[str] = "kassay.fused_cache/1"

    model: str = doc("Name of the model, or of the geometry that drawn weights have.")
    recipe: str = doc("Name of the recipe.")
    context_tokens: int = doc("Cached tokens of each sequence before the first decode step.")
    batches: list[int] = doc("Batches that were measured on it.")
    page_tokens: int = doc("Tokens of a page.")
    pages: int = doc("Pages of a pool.")
    pools: int = doc("Pools of pages; fewer than layers where layers take turns with them, which drawn weights may.")
    layers: int = doc("Layers.")
    backing_bytes: int = doc("Bytes of keys, values and scales of all pools.")
    context: str = doc("How the cached context came: `prefilled` from prompts, or `drawn` operands.")
    cuts: list[dict[str, int]] = doc(
        "For each batch tokens, warps and stages of a program, KV heads that it reads as one row (`heads`, 1 where it "
        "is not there), and splits of a sequence."
    )

    combinations = (
        one_of("context", ("prefilled", "drawn")),
        rule("`pools` are at most `layers`", lambda cache: cache.pools <= cache.layers),
    )


@dataclass(frozen=True, kw_only=True)
class StepParts(Record):
    """Where the time of one decode step goes, by its kernels on the device."""

    schema: ClassVar[str] = "kassay.step_parts/2"

    model: str = doc("Name of the model, or of the geometry that drawn weights have.")
    recipe: str = doc("Name of the recipe.")
    batch: int = doc("Active sequences.")
    context_tokens: int = doc("Cached tokens of each sequence.")
    parts_us: dict[str, float] = doc(
        "Microseconds of `attention`, `product`, `rows`, `other` and `idle` in a step, under a profiler: what two "
        "kernels share is that of the earlier one. Empty if it saw no kernel."
    )
    kernels_us: dict[str, float] = doc("Microseconds in a step of the kernels that take longest, by their names.")
    without_attention_us: list[float] = doc(
        "Microseconds of a step whose attention is left out, of each round, without a profiler."
    )
