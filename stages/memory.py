"""What each recipe's cache holds, byte by byte, beside what the geometry says it must; and samples of the process.

Storages are counted once by (device, storage pointer); keys, values and scales apart; the weights apart from both.
The stage is rejected if a cache's payload differs from the geometry's arithmetic.
"""

from collections import defaultdict
from typing import Any

import torch

from kassay.backend import inputs, reference, structure, workload
from kassay.kinds.timing import MemoryPart, MemorySample
from kassay.kv.geometry import token_bytes
from kassay.kv.recipe import Recipe, recipe_named
from kassay.kv.tasks import retrieval
from kassay.stage import Metrics, Rejection, Stage, main
from kassay.telemetry import ResidentSampler


def run(stage: Stage) -> Metrics | Rejection:
    """Parts and samples of every recipe."""
    params = stage.params
    model = reference.load(stage.inputs["model"], stage.cpus)
    scales = inputs.scales_of(stage)
    items = retrieval.items(
        split="development", seed=params["seed"], count=params["batch"], context_tokens=params["context_tokens"]
    )
    context = reference.prefill(model, workload.context_rows([item.context for item in items]), params["sixteen"])
    append_part(stage, "native", "weights", *weight_bytes(model))
    wrong = []
    ratios: Metrics = {}
    for done, name in enumerate(params["recipes"], start=1):
        recipe = recipe_named(name, params["sixteen"])
        with ResidentSampler() as sampler:
            cache = reference.filled(model, recipe, scales, context, 0)
            payload = cache_parts(stage, recipe, cache)
        for at_ns, resident_bytes in sampler.samples:
            stage.append(MemorySample(model=params["model"], recipe=name, at_ns=at_ns, resident_bytes=resident_bytes))
        expected = token_bytes(structure.geometry_of(model), recipe) * params["batch"] * params["context_tokens"]
        if payload != expected:
            wrong.append(f"{name} holds {payload} bytes, the geometry says {expected}")
        ratios[f"{name} bytes per token"] = payload / (params["batch"] * params["context_tokens"])
        stage.progress(done, len(params["recipes"]), name)
    return stage.rejected("; ".join(wrong), **ratios) if wrong else ratios


def cache_parts(stage: Stage, recipe: Recipe, cache: Any) -> int:
    """Append a record for each part of a cache; the payload of its per-token parts in bytes."""
    payload: dict[str, int] = defaultdict(int)
    backing: dict[str, int] = defaultdict(int)
    seen: set[tuple[str, int]] = set()
    per_token = 0
    for storage in cache.storages():
        held = storage.tensor.untyped_storage()
        key = (str(storage.tensor.device), held.data_ptr())
        used = storage.tensor.nbytes * storage.tokens // max(1, capacity(storage.tensor))
        payload[storage.part] += used
        per_token += used if storage.tensor.dim() else 0
        if key not in seen:
            backing[storage.part] += held.nbytes()
            seen.add(key)
    for part, size in payload.items():
        append_part(stage, recipe.name, part, size, backing[part])
    return per_token


def capacity(tensor: torch.Tensor) -> int:
    """Token capacity of a stored tensor (axis T of BHTD); 1 for the scalar of a fixed scale."""
    return tensor.shape[2] if tensor.dim() else 1


def weight_bytes(model: Any) -> tuple[int, int]:
    """Bytes of the parameters, tied ones once: as tensors and as storages."""
    held = {tensor.untyped_storage().data_ptr(): tensor for tensor in model.parameters()}
    return sum(t.nbytes for t in held.values()), sum(t.untyped_storage().nbytes() for t in held.values())


def append_part(stage: Stage, recipe: str, part: str, payload_bytes: int, backing_bytes: int) -> None:
    """One part as a record."""
    stage.append(
        MemoryPart(
            model=stage.params["model"],
            recipe=recipe,
            batch=stage.params["batch"],
            tokens=stage.params["context_tokens"],
            part=part,
            payload_bytes=payload_bytes,
            backing_bytes=backing_bytes,
        )
    )


if __name__ == "__main__":
    main(run)
