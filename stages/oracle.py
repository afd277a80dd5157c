"""Hold every recipe's cache and attention against a float64 reference, and prove that it notices faults.

Axes: B sequences, G KV heads, T new tokens, S stored tokens, D head dim.

A context is prefilled natively, fills each recipe's cache, and a question of several tokens is decoded
through it. Per layer: stored codes and scales bit for bit against kassay.kv.formats on the FP16 operands;
attention output and log-normalizer against float64 on the stored operands; then every fault of
kassay.kv.mutation that applies, put into what sdpa reads. Rejected if a clean case misses or a fault
escapes; a fault that changes nothing escapes too. A model of 16 bits attends within that format's wider
tolerance on what it read, which is held against what is stored; the replay, and so every fault, is FP32's.

On the fused backend the code under test is our kernels, in pages (kassay.backend.kernel_cases), and, where a study
shares a prefix, its route (kassay.backend.cartridge_cases).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes
import numpy as np
import torch

from kassay.backend import capture, checkpoint, inputs, reference, speed, structure
from kassay.backend.checkpoint import Checkpoint
from kassay.backend.judging import Found, Layer, Verdict, finite, judge
from kassay.backend.paged_cases import Operands
from kassay.kv import oracle
from kassay.kv.cache import Prefilled, RecipeCache, Scales, component_of
from kassay.kv.expected import quantized
from kassay.kv.oracle import Component, Stored
from kassay.kv.paged import LayerScales
from kassay.kv.plane import DTYPES, Storage, as_numpy
from kassay.kv.prebias import KeyBias
from kassay.kv.recipe import Recipe, recipe_named
from kassay.kv.tasks import retrieval
from kassay.stage import Metrics, Rejection, Stage, main

if TYPE_CHECKING:
    from kassay.backend.kernel_operands import Given

SPLIT = "calibration"
Parts = Mapping[tuple[int, str], np.ndarray]  # (layer, part) -> what a cache holds of it
FEWEST_RETRIEVAL_TOKENS = 1 + retrieval.EVALUATION_RECORDS * retrieval.RECORD_CHARACTERS + 1


def run(stage: Stage) -> Metrics | Rejection:
    """All recipes of one model, clean and with faults."""
    if (stage.params.get("backend") or {}).get("engine") == speed.FUSED:
        return of_kernels(stage)
    loaded = checkpoint.of_stage(stage)
    model = loaded.model
    scales = inputs.scales_of(stage)
    context_BT, chunk_BT = rows(loaded, stage.params)
    sixteen = stage.params["sixteen"]
    context = reference.prefill(model, context_BT, sixteen)
    recipes = [recipe_named(name, sixteen) for name in stage.params["recipes"]]
    verdict = Verdict(stage)
    for done, recipe in enumerate(recipes):
        if reason := structure.ineligible(model, recipe):
            verdict.ineligible[recipe.name] = reason
            continue
        cache = reference.filled(model, recipe, scales, context, chunk_BT.shape[1])
        with capture.captured(model, cache) as reads:
            model(chunk_BT, past_key_values=cache, use_cache=True)
        key_bias = structure.key_bias_of(model) if recipe.prebias else None
        for index, layer in enumerate(layers(recipe, cache, scales, context, reads, loaded.compute, key_bias)):
            judge(verdict, recipe, index, layer)
        stage.progress(done + 1, len(recipes), "recipes")
    return conclude(stage, verdict)


def of_kernels(stage: Stage) -> Metrics | Rejection:
    """The same of our kernels: on the operands of a model's own prefill, and on drawn ones of other heads."""
    from kassay.backend import fused, fused_stage, kernel_cases, kernel_operands, workload

    params = stage.params
    weights = fused_stage.weights_of(stage)
    scales = fused_stage.scales_of(stage, weights)
    device, batch, tokens = weights.embedding.device, params["batch"], params["context_tokens"]
    plan = fused.Plan(batch=batch, row_tokens=tokens + 1, steps=1)
    decoder = fused.Decoder(weights, recipe_named("native", params["sixteen"]), plan)
    decoder.step.seen = []
    decoder.admit(workload.speed_prompts(batch, tokens + 1, params["seed"]), 1)
    own = list(kernel_operands.cut_apart(decoder.step.seen, batch, scales))
    verdict, recipes = Verdict(stage), [recipe_named(name, params["sixteen"]) for name in params["recipes"]]
    for done, recipe in enumerate(recipes, start=1):
        for index, given in enumerate([] if recipe.prebias else own):  # no shipped model of the backend has a key bias
            kernel_cases.judge_kernels(verdict, recipe, index, given, plan.page_tokens, "kernel")
        for query_heads, kv_heads, head_dim, page_tokens in params["heads"]:
            given = kernel_operands.drawn((query_heads, kv_heads, head_dim), params["sixteen"], device, batch, tokens)
            given = kernel_operands.biased(given) if recipe.prebias else given
            case = f"kernel-q{query_heads}-kv{kv_heads}-d{head_dim}-page{page_tokens}"
            kernel_cases.judge_kernels(verdict, recipe, 0, given, page_tokens, case)
        stage.progress(done, len(recipes), recipe.name)
    if section := params["backend"].get("prefix"):
        behind_a_prefix(stage, verdict, section, own)
    return conclude(stage, verdict)


def behind_a_prefix(stage: Stage, verdict: Verdict, section: dict[str, Any], own: list["Given"]) -> None:
    """The arms that store a prefix once: on the model's own operands, as far as they go, and on drawn ones."""
    from kassay.backend import cartridge_cases, fused_arms, kernel_operands

    params, page_tokens, positions = stage.params, section["page_tokens"], section["positions"]
    arms = [arm for arm in fused_arms.arms_of(list(section["arms"]), section, params["sixteen"]) if arm.once]
    for done, arm in enumerate(arms, start=1):
        assert arm.once is not None, "a bug: an arm without a prefix"
        named = replace(arm.own, name=arm.name)
        for index, given in enumerate(own):
            whole = given.whole // page_tokens * page_tokens
            cartridge_cases.judge_cartridge(verdict, named, arm.once, index, given, page_tokens, whole, "cartridge")
        for query_heads, kv_heads, head_dim, _ in params["heads"]:
            sizes, device = (query_heads, kv_heads, head_dim), own[0].k_BGSD.device
            given = kernel_operands.drawn(sizes, params["sixteen"], device, params["batch"], positions)
            case = f"cartridge-q{query_heads}-kv{kv_heads}-d{head_dim}"
            cartridge_cases.judge_cartridge(verdict, named, arm.once, 0, given, page_tokens, positions, case)
        stage.progress(done, len(arms), arm.name)


def rows(loaded: Checkpoint, params: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """ids_BT of different contexts and of what follows: questions, or text where no question of one length fits."""
    asked = {"split": SPLIT, "seed": params["seed"], "count": params["batch"]}
    asked["context_tokens"] = params["context_tokens"]
    if loaded.text.exact and params["context_tokens"] >= FEWEST_RETRIEVAL_TOKENS:
        made = [(found.context, found.question) for found in loaded.text.questions("retrieval", **asked)]
    else:
        texts = loaded.text.passages(**asked, targets=retrieval.QUESTION_CHARACTERS)
        made = [(found.context, found.continuation) for found in texts]
    return loaded.rows(context for context, _ in made), loaded.rows(chunk for _, chunk in made)


def layers(
    recipe: Recipe,
    cache: RecipeCache,
    scales: Scales,
    context: Prefilled,
    reads: list[capture.Read],
    compute: str,
    key_bias: KeyBias | None,
) -> Iterator[Layer]:
    """The layers of one pass, one at a time."""
    held: Parts = {(storage.layer, storage.part): in_use(storage) for storage in cache.storages()}
    for index, (there, (k_BGSD, v_BGSD)) in enumerate(zip(reads, context.operands, strict=True)):
        read = there.on_host()
        k_scale, v_scale = (fixed_scale(recipe, scales, part, index) for part in ("key", "value"))
        keys, values = whole(recipe, k_BGSD, read.new_k_BGTD), whole(recipe, v_BGSD, read.new_v_BGTD)
        writes = (context.tokens, keys.shape[2] - context.tokens)
        expected = {
            "keys": quantized(recipe, recipe.key_format, keys, writes, k_scale, rotated(cache, index)),
            "values": quantized(recipe, recipe.value_format, values, writes, v_scale),
        }
        stored = stored_of(held, index, expected, (k_scale, v_scale), read.q_BHTD.numpy(), context.tokens)
        seen_TS = capture.seen(read.q_BHTD.shape[2], read.k_BGSD.shape[2], context.tokens, True)
        wanted = oracle.reference_of(stored)
        own, found = of_pass(stored, read, compute) if compute in oracle.ROUNDING else (wanted, {})
        yield Layer(
            stored=stored,
            expected=expected,
            wanted=wanted,
            got=(read.out_BHTD.numpy(), capture.log_normalizer(read.q_BHTD, read.k_BGSD, seen_TS).numpy()),
            own=own,
            read=found,
            operands=Operands(
                k_BGSD=together(recipe, k_BGSD, read.new_k_BGTD),
                v_BGSD=together(recipe, v_BGSD, read.new_v_BGTD),
                q_BHTD=read.q_BHTD.float(),
            ),
            scales=LayerScales(keys=number(k_scale), values=number(v_scale)),
            offset=cache.stored[index].key_plane.rule.offset,
            rotated_GSD=None if key_bias is None else rotation_of(key_bias, index, keys.shape[2]),
        )


def of_pass(stored: Stored, read: capture.Read, compute: str) -> tuple[oracle.Reference, Found]:
    """What a model of 16 bits should make of what it read, and how far that is from what is stored."""
    k_BGSD, v_BGSD = read.k_BGSD.numpy(), read.v_BGSD.numpy()
    found = [oracle.compare_read(k_BGSD, stored.keys, compute), oracle.compare_read(v_BGSD, stored.values, compute)]
    worse = max(found, key=lambda result: result.worst_ratio)
    return oracle.reference_of_read(stored.q_BHTD, k_BGSD, v_BGSD, compute), {"read": worse}


def fixed_scale(recipe: Recipe, scales: Scales, part: Literal["key", "value"], layer: int) -> np.ndarray | None:
    """The calibrated FP32 scale of one component under a fixed policy."""
    if recipe.policy != "fixed":
        return None
    return np.asarray(scales[component_of(recipe, part)][layer], np.float32)


def together(recipe: Recipe, context_BGSD: torch.Tensor, chunk_BGTD: torch.Tensor) -> torch.Tensor:
    """16-bit operands of context and chunk on the host, as a writer takes them."""
    return torch.cat([context_BGSD.cpu(), chunk_BGTD.cpu().to(DTYPES[recipe.sixteen])], dim=2)


def number(scale: np.ndarray | None) -> float | None:
    """A fixed scale as a number."""
    return None if scale is None else float(scale)


def rotation_of(key_bias: KeyBias, layer: int, tokens: int) -> oracle.Doubles:
    """The rotated bias of one layer in float64."""
    bias, frequencies = key_bias.bias_LHD[layer].cpu().numpy(), key_bias.frequencies.cpu().numpy()
    return oracle.rotated_bias(bias, frequencies, key_bias.scaling, tokens)


def rotated(cache: RecipeCache, layer: int) -> np.ndarray | None:
    """offset_GSD that the key plane subtracts, of all its tokens."""
    held = cache.stored[layer].key_plane
    device = held.data_BHTD.device
    return None if held.rule.offset is None else as_numpy(held.rule.offset(0, held.tokens, device)[0])


def in_use(storage: Storage) -> np.ndarray:
    """The stored tokens of a storage; a fixed scale as it is."""
    return as_numpy(storage.tensor[:, :, : storage.tokens] if storage.tensor.ndim else storage.tensor)


def whole(recipe: Recipe, context_BGSD: torch.Tensor, chunk_BGTD: torch.Tensor) -> np.ndarray:
    """16-bit operands of context and chunk, rounded by numpy."""
    sixteen = np.float16 if recipe.sixteen == "fp16" else ml_dtypes.bfloat16
    return np.concatenate([as_numpy(context_BGSD), chunk_BGTD.float().numpy().astype(sixteen)], axis=2)


def stored_of(
    held: Parts,
    layer: int,
    expected: dict[str, Component],
    fixed: tuple[np.ndarray | None, np.ndarray | None],
    q_BHTD: np.ndarray,
    first_query: int,
) -> Stored:
    """What attention of one layer reads; `fixed` are the calibrated scales of keys and values."""
    return Stored(
        keys=found_component(held, layer, "key", expected["keys"], fixed[1]),
        values=found_component(held, layer, "value", expected["values"], fixed[0]),
        q_BHTD=q_BHTD,
        first_query=first_query,
        causal=True,
    )


def found_component(held: Parts, layer: int, part: str, expected: Component, other: np.ndarray | None) -> Component:
    """What the cache holds of one component; `other` is the calibrated scale of the other one."""
    scale = None if expected.scale is None else held[layer, f"{part}_scales"]
    return replace(expected, data_BGSD=held[layer, f"{part}s"], scale=scale, other_scale=other)


def conclude(stage: Stage, verdict: Verdict) -> Metrics | Rejection:
    """Passed if every clean case is within and every fault was caught."""
    body = verdict.body()
    stage.write_json("verdict", body)
    caught = sum(row["cases"] == row["caught"] for row in body["mutations"])
    ratio = max(verdict.worst[quantity]["ratio"] for quantity in ("output", "log_normalizer"))
    metrics: Metrics = {
        "cases": verdict.cases,
        "worst error over tolerance": finite(ratio),
        "mutations caught": f"{caught} of {len(body['mutations'])}",
    }
    if body["passed"]:
        return metrics
    found = {"clean comparisons missed": verdict.missed, "faults escaped": verdict.escaped}
    said = [f"{len(names)} {what} ({names[0]})" for what, names in found.items() if names]
    return stage.rejected("; ".join(said), **metrics)


if __name__ == "__main__":
    main(run)
