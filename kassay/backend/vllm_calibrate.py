"""Fixed scales from a vLLM worker: the largest absolute operands that the plug-in's writer saw, one scale a layer.

The operands are those that are stored: keys after norm and rotation, values as they are, of prompts and of decodes. The
engine runs recipe `native` with `calibrate`; what its own warm-up folded is forgotten first.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from kassay.errors import KassayError
from kassay.kv.calibrate import SCHEMA
from kassay.kv.float8 import E4M3FN
from kassay.kv.formats import scale_of


def forget(state: Any) -> None:
    """Forget what was folded before the first text, such as the operands of a warm-up."""
    import torch

    with torch.inference_mode():  # where vLLM made them
        for amax in state.amax.values():
            amax.zero_()


def scales(
    state: Any, layers: int, *, model: str, model_sha256: str, sixteen: str, dummy: bool,
    contents: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Any]:  # fmt: skip
    """What scales.json holds. Raises KassayError for a layer that saw nothing, and for what is not finite.

    `contents`: digests of the texts by their split. Without them no quality is measured with these scales, for that a
    text was not among them could not be shown.
    """
    found: dict[str, list[float]] = {"k": [], "v": []}
    amaxes: dict[str, list[float]] = {"k": [], "v": []}
    for layer in range(layers):
        held = state.amax[layer].tolist() if layer in state.amax else [0.0, 0.0]
        for component, amax in zip(("k", "v"), held, strict=True):
            if not np.isfinite(amax) or amax <= 0:
                raise KassayError(f"layer {layer}, component `{component}`: the largest operand is {amax}")
            amaxes[component].append(amax)
            found[component].append(float(scale_of(E4M3FN, np.float32(amax).reshape(1))[0]))
    return {
        "schema": SCHEMA, "model": model, "model_sha256": model_sha256, "sixteen": sixteen, "scales": found,
        "amax": amaxes, "backend": "vllm", "dummy": dummy,
        "contents": {split: list(digests) for split, digests in contents.items()},
    }  # fmt: skip
