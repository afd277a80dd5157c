"""Hold every recipe's cache and attention against a float64 reference, and prove that the check notices faults.

Axes: B sequences, G KV heads, T new tokens, S stored tokens, D head dim.

A context is prefilled natively, fills each recipe's cache, and a question of several tokens is decoded through it. Per
layer: stored codes and scales bit for bit against kassay.kv.formats on the FP16 operands; attention output and
log-normalizer against float64 on the stored operands; then every fault of kassay.kv.mutation that applies, put into
what sdpa reads. Rejected if a clean case misses or a fault escapes; a fault that changes nothing is an escape too.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from kassay.backend import capture, reference, workload
from kassay.errors import KassayError
from kassay.kinds.oracle import OracleCase
from kassay.kv import formats, oracle
from kassay.kv.cache import Operands, RecipeCache, Scales
from kassay.kv.mutation import MUTATIONS, Mutation, inert
from kassay.kv.oracle import Comparison, Component, Stored
from kassay.kv.recipe import Format, Recipe, recipe_named
from kassay.kv.tasks import document, retrieval
from kassay.stage import Metrics, Rejection, Stage, main

SPLIT = "calibration"
COMPONENTS = ("keys", "values")
FEWEST_RETRIEVAL_TOKENS = 1 + retrieval.EVALUATION_RECORDS * retrieval.RECORD_CHARACTERS + 1

Found = dict[str, Comparison]  # quantity -> comparison


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of one recipe after its pass: what is stored, what should be, what the model returned."""

    stored: Stored
    expected: dict[str, Component]  # of COMPONENTS, by kassay.kv.formats
    wanted: tuple[oracle.Doubles, oracle.Doubles]  # out_BHTD, lse_BHT in float64
    got: tuple[np.ndarray, np.ndarray]  # of the model's pass


class Verdict:
    """Appends the cases of one model and keeps what the verdict needs."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.cases = 0
        self.missed: list[str] = []
        self.escaped: list[str] = []
        self.worst: dict[str, dict[str, Any]] = {}
        self.table = {
            mutation.name: {"title": mutation.title, "recipes": [], "cases": 0, "caught": 0, "inert": 0, "first_by": {}}
            for mutation in MUTATIONS
        }

    def clean(self, recipe: Recipe, layer: int, case: str, found: Found) -> None:
        """Record a clean case; each quantity must be within."""
        for quantity, result in found.items():
            self._append(recipe, layer, case, None, quantity, result, None)
            if not result.within:
                self.missed.append(f"{recipe.name}, layer {layer}, {case}: {quantity}")
            ratio = result.worst_ratio if result.tolerance else result.max_abs_error
            if quantity not in self.worst or not ratio <= self.worst[quantity]["error"]:
                self.worst[quantity] = {"error": ratio, "recipe": recipe.name, "layer": layer, "case": case}

    def fault(self, recipe: Recipe, layer: int, mutation: Mutation, found: Found, changed: bool) -> None:
        """Record a fault by the first quantity that caught it; it must be caught."""
        by = [quantity for quantity, result in found.items() if not result.within]
        quantity = by[0] if by else "output"
        self._append(recipe, layer, "replay", mutation.name, quantity, found[quantity], bool(by))
        row: dict[str, Any] = self.table[mutation.name]
        row["cases"] += 1
        row["caught"] += bool(by)
        row["inert"] += not changed
        if recipe.name not in row["recipes"]:
            row["recipes"].append(recipe.name)
        if by:
            row["first_by"][quantity] = row["first_by"].get(quantity, 0) + 1
        else:
            self.escaped.append(f"{recipe.name}, layer {layer}: {mutation.name}" + ("" if changed else " (inert)"))

    def _append(
        self, recipe: Recipe, layer: int, case: str, mutation: str | None, quantity: str, result: Comparison, caught: bool | None
    ) -> None:
        self.cases += 1
        self.stage.append(
            OracleCase(
                model=self.stage.params["model"],
                recipe=recipe.name,
                layer=layer,
                case=case,
                mutation=mutation,
                quantity=quantity,
                caught=caught,
                **asdict(result),
            )
        )


def run(stage: Stage) -> Metrics | Rejection:
    """All recipes of one model, clean and with faults."""
    model = reference.load(stage.inputs["model"], stage.cpus)
    scales = own_scales(stage)
    context_BT, chunk_BT = rows(stage.params)
    operands = reference.prefill(model, context_BT)
    recipes = [recipe_named(name) for name in stage.params["recipes"]]
    verdict = Verdict(stage)
    for done, recipe in enumerate(recipes):
        cache = reference.filled(model, recipe, scales, operands, chunk_BT.shape[1])
        with capture.captured(model, cache) as reads:
            model(chunk_BT, past_key_values=cache, use_cache=True)
        for index, layer in enumerate(layers(recipe, cache, scales, operands, reads)):
            judge(verdict, recipe, index, layer)
        stage.progress(done + 1, len(recipes), "recipes")
    return conclude(stage, verdict)


def own_scales(stage: Stage) -> Scales:
    """The calibrated scales, which must be of this very model."""
    made = stage.json_input("scales")
    if made["model_sha256"] != stage.request["inputs"]["model"]["sha256"]:
        raise KassayError(f"the scales were calibrated on another model than `{stage.params['model']}`")
    found: Scales = made["scales"]
    return found


def rows(params: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """ids_BT of different contexts and of the tokens that follow: questions, or text where no question fits."""
    asked = {"split": SPLIT, "seed": params["seed"], "count": params["batch"], "context_tokens": params["context_tokens"]}
    if params["context_tokens"] >= FEWEST_RETRIEVAL_TOKENS:
        items = retrieval.items(**asked)
        contexts, chunks = [item.context for item in items], [item.question for item in items]
    else:
        texts = document.documents(**asked, targets=retrieval.QUESTION_CHARACTERS)
        contexts, chunks = [text.context for text in texts], [text.continuation for text in texts]
    return workload.context_rows(contexts), workload.text_rows(chunks)


def layers(
    recipe: Recipe, cache: RecipeCache, scales: Scales, operands: Operands, reads: list[capture.Read]
) -> Iterator[Layer]:
    """The layers of one pass, one at a time."""
    held: dict[tuple[int, str], torch.Tensor] = {
        (storage.layer, storage.part): storage.tensor[:, :, : storage.tokens] if storage.tensor.ndim else storage.tensor
        for storage in cache.storages()
    }
    for index, (read, (k_BGSD, v_BGSD)) in enumerate(zip(reads, operands, strict=True)):
        fixed = {name: np.float32(scales[name][index]) for name in ("k", "v")} if recipe.policy == "fixed" else None
        keys = found_component(held, index, "key", recipe.key_format, fixed and fixed["v"])
        values = found_component(held, index, "value", recipe.value_format, fixed and fixed["k"])
        first = k_BGSD.shape[2]
        stored = Stored(keys=keys, values=values, q_BHTD=read.q_BHTD.numpy(), first_query=first, causal=True)
        seen_TS = capture.seen(read.q_BHTD.shape[2], read.k_BGSD.shape[2], first, True)
        lse_BHT = capture.log_normalizer(read.q_BHTD, read.k_BGSD, seen_TS)
        yield Layer(
            stored=stored,
            expected={
                "keys": expected_component(keys, whole(k_BGSD, read.new_k_BGTD), fixed and fixed["k"]),
                "values": expected_component(values, whole(v_BGSD, read.new_v_BGTD), fixed and fixed["v"]),
            },
            wanted=oracle.reference_of(stored),
            got=(read.out_BHTD.numpy(), lse_BHT.numpy()),
        )


def whole(context_BGSD: torch.Tensor, chunk_BGTD: torch.Tensor) -> np.ndarray:
    """FP16 operands of context and chunk, rounded by numpy."""
    return np.concatenate([context_BGSD.numpy(), chunk_BGTD.numpy().astype(np.float16)], axis=2)


def found_component(
    held: dict[tuple[int, str], torch.Tensor], layer: int, part: str, stored: Format, other: np.float32 | None
) -> Component:
    """What the cache holds of one component."""
    scale = held[layer, f"{part}_scales"].numpy() if stored == "e4m3fn" else None
    other_scale = None if other is None else np.asarray(other)
    return Component(data_BGSD=held[layer, f"{part}s"].numpy(), scale=scale, other_scale=other_scale, decoded_as=stored)


def expected_component(found: Component, operand_BGSD: np.ndarray, fixed: np.float32 | None) -> Component:
    """What the cache should hold of one component, by kassay.kv.formats."""
    if found.decoded_as == "fp16":
        return Component(data_BGSD=operand_BGSD, scale=None, other_scale=None, decoded_as="fp16")
    wide = operand_BGSD.astype(np.float32)
    scale = formats.scale_of(np.abs(wide).max(axis=-1, keepdims=True)) if fixed is None else np.asarray(fixed)
    return Component(data_BGSD=formats.encode(wide, scale), scale=scale, other_scale=None, decoded_as=found.decoded_as)


def judge(verdict: Verdict, recipe: Recipe, index: int, layer: Layer) -> None:
    """The clean cases of one layer, then its faults."""
    verdict.clean(recipe, index, "chunk", attention(layer, layer.got) | bits(layer, layer.stored))
    verdict.clean(recipe, index, "replay", attention(layer, capture.replay(layer.stored)))
    for mutation in MUTATIONS:
        if mutation.applies(recipe):
            faulty = mutation.inject(layer.stored)
            found = attention(layer, capture.replay(faulty)) | bits(layer, faulty)
            verdict.fault(recipe, index, mutation, found, not inert(layer.stored, faulty))


def attention(layer: Layer, got: tuple[np.ndarray, np.ndarray]) -> Found:
    """Output and log-normalizer against the reference on the clean stored operands."""
    return {
        "output": oracle.compare(got[0], layer.wanted[0]),
        "log_normalizer": oracle.compare(got[1], layer.wanted[1]),
    }


def bits(layer: Layer, stored: Stored) -> Found:
    """Codes and scales of both components bit for bit, the worse component of each."""
    found: dict[str, list[Comparison]] = {"codes": [], "scales": []}
    for name in COMPONENTS:
        holds: Component = getattr(stored, name)
        should = layer.expected[name]
        found["codes"].append(oracle.compare_bits(holds.data_BGSD, should.data_BGSD))
        if holds.scale is not None and should.scale is not None:
            found["scales"].append(oracle.compare_bits(holds.scale, should.scale))
    return {
        quantity: max(results, key=lambda result: result.max_abs_error) for quantity, results in found.items() if results
    }


def conclude(stage: Stage, verdict: Verdict) -> Metrics | Rejection:
    """Passed if every clean case is within and every fault was caught."""
    rows = [{"mutation": name, **row} for name, row in verdict.table.items() if row["cases"]]
    caught = sum(row["cases"] == row["caught"] for row in rows)
    passed = not verdict.missed and not verdict.escaped
    stage.write_json(
        "verdict",
        {
            "model": stage.params["model"],
            "model_sha256": stage.request["inputs"]["model"]["sha256"],
            "passed": passed,
            "tolerance": oracle.TOLERANCE,
            "worst": {quantity: worst | {"error": finite(worst["error"])} for quantity, worst in verdict.worst.items()},
            "mutations": rows,
            "missed": verdict.missed,
            "escaped": verdict.escaped,
        },
    )
    metrics: Metrics = {
        "cases": verdict.cases,
        "worst error over tolerance": finite(max(verdict.worst[name]["error"] for name in ("output", "log_normalizer"))),
        "mutations caught": f"{caught} of {len(rows)}",
    }
    if passed:
        return metrics
    said = [f"{len(names)} {what} ({names[0]})" for names, what in (
        (verdict.missed, "clean comparisons missed"), (verdict.escaped, "faults escaped")) if names]
    return stage.rejected("; ".join(said), **metrics)


def finite(error: float) -> float | None:
    """The error to four digits, null where it is not finite."""
    return float(f"{error:.4g}") if np.isfinite(error) else None


if __name__ == "__main__":
    main(run)
