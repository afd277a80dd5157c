"""Fixed scales, one per layer and component, folded over everything that the cache writer saw in calibration.

Refused: a layer that saw nothing, only zeros, or a value that is not finite. A unit scale is never a
fallback.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kassay.errors import KassayError
from kassay.kv.float8 import E4M3FN
from kassay.kv.formats import scale_of


@dataclass(frozen=True, kw_only=True)
class LayerScale:
    """The scale of one component of one layer and what it rests on."""

    component: str  # `k` or `v`
    layer: int
    amax: float  # largest absolute operand
    scale: float  # FP32 value
    elements: int  # operands folded
    zeros: int  # of them exactly zero


class AmaxFold:
    """Folds absolute maxima of operands, one call per batch, layer and component."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], tuple[float, int, int]] = {}

    def add(self, component: str, layer: int, operand: npt.NDArray[np.float16]) -> None:
        """Fold one operand (any shape, 16 bit). Raises KassayError for a value that is not finite."""
        magnitude = np.abs(operand.astype(np.float32))
        largest = float(magnitude.max())
        if not np.isfinite(largest):
            raise KassayError(f"layer {layer}, component `{component}`: an operand is not finite")
        amax, elements, zeros = self._found.get((component, layer), (0.0, 0, 0))
        zeros += int(np.count_nonzero(magnitude == 0))
        self._found[component, layer] = (max(amax, largest), elements + operand.size, zeros)

    def scales(self, layers: int) -> list[LayerScale]:
        """Scales of all layers and both components. Raises KassayError if one has nothing but zeros."""
        made = []
        for component in ("k", "v"):
            for layer in range(layers):
                amax, elements, zeros = self._found.get((component, layer), (0.0, 0, 0))
                if not amax > 0:
                    raise KassayError(
                        f"layer {layer}, component `{component}`: nothing but zeros in {elements} operands"
                    )
                scale = float(scale_of(E4M3FN, np.float32(amax).reshape(1))[0])
                made.append(
                    LayerScale(
                        component=component,
                        layer=layer,
                        amax=amax,
                        scale=scale,
                        elements=elements,
                        zeros=zeros,
                    )
                )
        return made


def own_scales(made: dict[str, Any], *, model_sha256: str) -> dict[str, list[float]]:
    """The scales of a calibration, component -> scale per layer. Raises KassayError if another model made them."""
    if made["model_sha256"] != model_sha256:
        raise KassayError(
            f"the scales were calibrated on another model: `{made['model']}`, {made['model_sha256'][:16]}…"
        )
    found: dict[str, list[float]] = made["scales"]
    return found
