"""The verdict of the oracle on one model: clean comparisons that must be within, faults that must be caught.

Axes: B sequences, G KV heads, S stored tokens, D head dim.

Contiguous cases judge what the model's own pass and sdpa make of a cache; paged ones put the same operands into pages
(kassay.backend.paged_cases). A fault that changes nothing escapes too. Every comparison is a record.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kassay.backend import capture, paged_cases
from kassay.backend.paged_cases import PAGE_FAULTS, Operands, Pool
from kassay.errors import KassayError
from kassay.kinds.oracle import OracleCase
from kassay.kv import oracle
from kassay.kv.mutation import MUTATIONS, inert
from kassay.kv.oracle import Comparison, Component, Doubles, Stored
from kassay.kv.paged import LayerScales
from kassay.kv.plane import Offset
from kassay.kv.prebias import WAVE_ERROR
from kassay.kv.recipe import Recipe
from kassay.stage import Stage

COMPONENTS = ("keys", "values")
TITLES = {fault.name: fault.title for fault in MUTATIONS} | {fault.name: fault.title for fault in PAGE_FAULTS}
READINGS = ("fresh", "decode", "mixed")

Found = dict[str, Comparison]  # quantity -> comparison


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of one recipe after its pass: what is stored, what should be, what the model returned."""

    stored: Stored
    expected: dict[str, Component]  # of COMPONENTS, by kassay.kv.formats
    wanted: oracle.Reference
    got: tuple[np.ndarray, np.ndarray]  # out_BHTD, lse_BHT of the model's pass
    own: oracle.Reference  # of that pass: `wanted`, or what a model of 16 bits should make of what it read
    read: Found  # what such a model read against what is stored
    operands: Operands  # 16-bit keys and values, and the queries, for the pages
    scales: LayerScales  # under a fixed policy
    offset: Offset | None  # the rotated key bias of a pre-bias recipe
    rotated_GSD: Doubles | None  # the same in float64, from the bias and the frequencies


class Verdict:
    """Appends the cases of one model and keeps what the verdict needs."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.cases = 0
        self.ineligible: dict[str, str] = {}  # recipe -> why this model cannot have it: not judged
        self.unpaged: dict[str, str] = {}  # recipe -> why it has no paged form
        self.missed: list[str] = []
        self.escaped: list[str] = []
        self.worst: dict[str, dict[str, Any]] = {}
        self.caught_by: dict[str, Counter[str]] = {}  # mutation -> quantity, `nothing` if it escaped

    def clean(self, recipe: Recipe, layer: int, case: str, found: Found) -> None:
        """Record a clean case; each quantity must be within."""
        for quantity, result in found.items():
            where = {"recipe": recipe.name, "layer": layer, "case": case}
            self._append(result, **where, mutation=None, quantity=quantity, caught=None)
            if not result.within:
                self.missed.append(f"{recipe.name}, layer {layer}, {case}: {quantity}")
            if result.worst_ratio >= self.worst.get(quantity, {"ratio": 0.0})["ratio"]:
                self.worst[quantity] = {"ratio": result.worst_ratio, **where}

    def fault(self, recipe: Recipe, layer: int, case: str, name: str, found: Found, changed: bool) -> None:
        """Record a fault by the first quantity that caught it; it must be caught."""
        by = next((quantity for quantity, result in found.items() if not result.within), None)
        shown = by or ("output" if "output" in found else next(iter(found)))
        where = {"recipe": recipe.name, "layer": layer, "case": case, "mutation": name}
        self._append(found[shown], **where, quantity=shown, caught=by is not None)
        self.caught_by.setdefault(name, Counter())[by or "nothing"] += 1
        if by is None:
            self.escaped.append(f"{recipe.name}, layer {layer}: {name}{'' if changed else ' (changed nothing)'}")

    def _append(self, result: Comparison, **fields: Any) -> None:
        self.cases += 1
        self.stage.append(OracleCase(model=self.stage.params["model"], **fields, **asdict(result)))

    def known(self) -> list[str]:
        """Names of faults in the order of the table, unknown ones last."""
        return list(dict.fromkeys([*TITLES, *self.caught_by]))

    def body(self) -> dict[str, Any]:
        """The verdict as JSON."""
        return {
            "model": self.stage.params["model"],
            "model_sha256": self.stage.request["inputs"]["model"]["sha256"],
            "passed": not self.missed and not self.escaped,
            "tolerance": oracle.TOLERANCE,
            "worst_over_tolerance": {
                name: worst | {"ratio": finite(worst["ratio"])} for name, worst in self.worst.items()
            },
            "mutations": [row(name, self.caught_by[name]) for name in self.known() if name in self.caught_by],
            "ineligible": self.ineligible,
            "unpaged": self.unpaged,
            "missed": self.missed,
            "escaped": self.escaped,
        }


def row(name: str, by: Counter[str]) -> dict[str, Any]:
    """One line of the mutation table."""
    return {
        "mutation": name,
        "title": TITLES.get(name, name),
        "cases": by.total(),
        "caught": by.total() - by["nothing"],
        "caught_by": {quantity: count for quantity, count in by.items() if quantity != "nothing"},
    }


def judge(verdict: Verdict, recipe: Recipe, index: int, layer: Layer) -> None:
    """The clean cases of one layer, then its faults."""
    verdict.clean(recipe, index, "chunk", attention(layer.own, layer.got) | layer.read | bits(layer, layer.stored))
    verdict.clean(recipe, index, "rotation", rotation(layer))
    verdict.clean(recipe, index, "replay", attention(layer.wanted, capture.replay(layer.stored)))
    for mutation in MUTATIONS:
        if mutation.applies(recipe) and mutation.reaches(layer.stored):
            faulty = mutation.inject(layer.stored)
            found = attention(layer.wanted, capture.replay(faulty)) | bits(layer, faulty)
            verdict.fault(recipe, index, "replay", mutation.name, found, not inert(layer.stored, faulty))
    judge_pages(verdict, recipe, index, layer)


def judge_pages(verdict: Verdict, recipe: Recipe, index: int, layer: Layer) -> None:
    """The same operands in pages: three readings, other places and orders, faults of the block table."""
    try:
        pool, other = (Pool(recipe, layer.operands, layer.scales, layer.offset, seed) for seed in (0, 1))
    except KassayError as error:
        verdict.unpaged[recipe.name] = str(error).splitlines()[0]
        return
    for kind in READINGS:
        batch = pool.batch(kind)
        verdict.clean(recipe, index, f"paged-{kind}", paged_cases.compared(pool, batch, batch))
    same = {"codes": paged_cases.same_bits(pool, other), "storage": paged_cases.disjoint(pool)}
    verdict.clean(recipe, index, "paged-moved", same)
    clean = pool.batch("decode")
    for fault in PAGE_FAULTS:
        faulty = fault.inject(clean, pool.shape)
        found = paged_cases.compared(pool, faulty, clean)
        verdict.fault(recipe, index, "paged-decode", fault.name, found, not faulty.same(clean))


def rotation(layer: Layer) -> Found:
    """The rotated key bias against float64; none of a recipe that takes none off."""
    offset = layer.stored.keys.offset_GSD
    if offset is None or layer.rotated_GSD is None:
        return {}
    angles = oracle.UNIT_ROUNDOFF * (offset.shape[1] + 4)  # of the largest angle, and of cosine, sine and their sum
    tolerance = max(oracle.TOLERANCE, 2 * angles) + WAVE_ERROR
    return {"key_offset": oracle.compare(offset, layer.rotated_GSD, peak_tolerance=tolerance, tolerance=tolerance)}


def attention(wanted: oracle.Reference, got: tuple[np.ndarray, np.ndarray]) -> Found:
    """Output and log-normalizer against a reference on clean operands."""
    tolerance, peak = wanted.output_tolerance, wanted.output_peak_tolerance
    return {
        "output": oracle.compare(got[0], wanted.out_BHTD, peak_tolerance=peak, tolerance=tolerance),
        "log_normalizer": oracle.compare(got[1], wanted.lse_BHT, peak_tolerance=wanted.peak_tolerance),
    }


def bits(layer: Layer, stored: Stored) -> Found:
    """Codes and scales of both components bit for bit, the worse component of each."""
    found: dict[str, Comparison] = {}
    for name in COMPONENTS:
        holds: Component = getattr(stored, name)
        should = layer.expected[name]
        results = {"codes": oracle.compare_bits(holds.data_BGSD, should.data_BGSD)}
        if holds.scale is not None and should.scale is not None:
            results["scales"] = oracle.compare_bits(holds.scale, should.scale)
        for quantity, result in results.items():
            if quantity not in found or result.max_abs_error > found[quantity].max_abs_error:
                found[quantity] = result
    return found


def finite(error: float) -> float | None:
    """The error to four digits, null where it is not finite."""
    return float(f"{error:.4g}") if np.isfinite(error) else None
