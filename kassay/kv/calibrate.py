"""Fixed scales, one per layer and component, folded over everything that the cache writer saw in calibration.

Components are `k`, `v`, and for a model with a key bias `k_residual`: keys without their rotated bias, which is what a
pre-bias recipe quantizes.

A scale rests on the largest of *all* batches: with the first alone, [44.8, -10, 3] before [100, -5], 100 would come
back as 44.8. Refused: a layer that saw nothing, a value that is not finite. A layer of nothing but zeros gets the
floor's scale and is flagged: its codes are zero, and the first operand that is not would saturate. A unit scale is
never a fallback.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kassay.errors import KassayError
from kassay.kv import formats
from kassay.kv.float8 import E4M3FN
from kassay.kv.formats import scale_of

SCHEMA = "kassay.scales/2"


@dataclass(frozen=True, kw_only=True)
class LayerScale:
    """The scale of one component of one layer and what it rests on."""

    component: str  # `k`, `v` or `k_residual`
    layer: int
    amax: float  # largest absolute operand
    scale: float  # FP32 value
    elements: int  # operands folded
    zeros: int  # of them exactly zero

    @property
    def all_zero(self) -> bool:
        """Whether every operand was zero: the scale is the floor's and rests on nothing."""
        return self.zeros == self.elements


class AmaxFold:
    """Folds absolute maxima of operands, one call per batch, layer and component."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], tuple[float, int, int]] = {}

    def add(self, component: str, layer: int, operand: npt.NDArray[Any]) -> None:
        """Fold one operand (any shape; FP16, BF16, FP32). Raises KassayError for a value that is not finite."""
        magnitude = np.abs(operand.astype(np.float32))
        largest = float(magnitude.max(initial=0.0))
        if not np.isfinite(largest):
            raise KassayError(f"layer {layer}, component `{component}`: an operand is not finite")
        amax, elements, zeros = self._found.get((component, layer), (0.0, 0, 0))
        zeros += int(np.count_nonzero(magnitude == 0))
        self._found[component, layer] = (max(amax, largest), elements + operand.size, zeros)

    def scales(self, layers: int, components: Sequence[str] = ("k", "v")) -> list[LayerScale]:
        """Scales of all layers and components. Raises KassayError if one saw no operand."""
        made = []
        for component in components:
            for layer in range(layers):
                amax, elements, zeros = self._found.get((component, layer), (0.0, 0, 0))
                if not elements:
                    raise KassayError(f"layer {layer}, component `{component}` saw no operand")
                made.append(
                    LayerScale(
                        component=component,
                        layer=layer,
                        amax=amax,
                        scale=float(scale_of(E4M3FN, np.float32(amax).reshape(1))[0]),
                        elements=elements,
                        zeros=zeros,
                    )
                )
        return made


def saturated(operand: npt.NDArray[Any], scale: float) -> int:
    """How many operands round beyond the range of E4M3FN under a scale: 0 for all that the scale was folded over."""
    return int(np.count_nonzero(formats.saturated(E4M3FN, operand.astype(np.float32), np.float32(scale).reshape(1))))


def by_component(scales: Iterable[LayerScale]) -> dict[str, list[float]]:
    """component -> FP32 scale per layer."""
    found: dict[str, list[float]] = {}
    for one in scales:
        found.setdefault(one.component, []).append(one.scale)
    return found


def own_scales(made: dict[str, Any], *, model_sha256: str, sixteen: str) -> dict[str, list[float]]:
    """The scales of a calibration, component -> scale per layer.

    Raises KassayError for scales of another model or weight format (the digest covers the weights' bytes), of operands
    in another 16-bit format, or of another version of the file.
    """
    if made.get("schema") != SCHEMA:
        raise KassayError(f"the scales are `{made.get('schema')}`, this version reads {SCHEMA}: calibrate again")
    if made["model_sha256"] != model_sha256:
        raise KassayError(
            f"the scales were calibrated on another model: `{made['model']}`, {made['model_sha256'][:16]}…"
        )
    if made["sixteen"] != sixteen:
        raise KassayError(f"the scales were calibrated on {made['sixteen']} operands, these are {sixteen}")
    found: dict[str, list[float]] = made["scales"]
    return found


def check_disjoint(splits: dict[str, Iterable[str]]) -> dict[str, int]:
    """Texts per split, by digest of their content. Raises KassayError if two splits share one."""
    held = {name: set(digests) for name, digests in splits.items()}
    names = list(held)
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            if shared := held[one] & held[other]:
                raise KassayError(f"{len(shared)} texts are in both `{one}` and `{other}`, such as {min(shared)[:16]}…")
    return {name: len(digests) for name, digests in held.items()}
