"""Arms of a trial at a geometry, by name: one of vLLM's own attention backends, or a recipe on the plug-in."""

from pathlib import Path
from typing import Any

from kassay.backend.vllm_arguments import Asked, cell_of
from kassay.backend.vllm_geometry import model_folder

GEOMETRY, CONTEXT_TOKENS = "qwen3-8b", 8192
SEQUENCE_MIB = 1280  # of the pool for each sequence of a batch: the context and an output in 16 bits
OWN = {  # attention and recipe
    "flash-attn": ("flash-attn", "native"),
    "flashinfer": ("flashinfer", "native"),
    "flashinfer-fp8": ("flashinfer", "k8v8-f"),
    "triton": ("triton", "native"),
    "triton-fp8": ("triton", "k8v8-f"),
}
PLAIN: dict[str, Any] = {
    "sixteen": "fp16", "prefix_caching": False, "chunked_prefill": False, "continued": "refuse", "cuts": None,
}  # fmt: skip


def needs_scales(arm: str) -> bool:
    """Whether an arm's recipe has fixed scales of the plug-in."""
    return arm not in OWN and arm.endswith("-f")


def large(
    arm: str, under: Path, scales: Path, *, batches: tuple[int, ...], tokens: int, lengths: str, share: float = 1.0,
    **given: Any,
) -> Asked:  # fmt: skip
    """A cell of the geometry, whose weights are drawn: graphs of these batches, each sequence up to `tokens` of output.

    `under`: where the geometry's folder is made; `share` of the pool that 16 bits take; `given`: other fields of the
    cell. Weights, context and an output of 128 tokens fit twice on a GPU of 140 GB at batch 32.
    """
    attention, recipe = OWN.get(arm, ("plug-in", arm))
    engine = PLAIN | {
        "sequences": max(batches), "sequence_tokens": CONTEXT_TOKENS + tokens, "lengths": lengths, "graphs": batches,
        "batched_tokens": CONTEXT_TOKENS + tokens + max(batches), "pool_mib": SEQUENCE_MIB * max(batches) * share,
    }  # fmt: skip
    base = {"scales": str(scales) if needs_scales(arm) else None, "observe": (), "calibrate": False}
    return cell_of(engine, model=str(model_folder(GEOMETRY, under)), dummy=True, recipe=recipe, attention=attention,
                   seed=0, **base | given)  # fmt: skip
