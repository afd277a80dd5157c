"""The fused backend under a clock: complete requests, and points of a sweep.

Axes: B requests, T tokens.

At a point of a sweep the steps are those of the graph, between two events of the device, and every recipe's decoder
stands beside the others, so that they can take turns. Arms may share a prefix or copy it (kassay.backend.fused_arms): a
context of a sweep has it within its tokens, and a complete request has it before its prompt.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kassay.backend import fused, fused_arms, fused_prefix
from kassay.backend.fused_arms import Arm
from kassay.backend.fused_parts import parts_us
from kassay.backend.fused_stage import DRAWN, prompts_of, scales_of, weights_of
from kassay.backend.fused_tuning import tune
from kassay.backend.fused_weights import Weights
from kassay.backend.passes import Schedule
from kassay.backend.prompts import check_prompts
from kassay.digest import of_value
from kassay.errors import KassayError
from kassay.kinds.backend import FusedCache, StepParts
from kassay.kinds.timing import TimingCell
from kassay.kv.geometry import Geometry, token_bytes
from kassay.kv.recipe import Recipe
from kassay.record import Record
from kassay.stage import Stage, Unmet

MOST_POOLED = 0.9  # of the device's free memory, by one pool of each recipe
POOLED = 0.5  # of the device's free memory: pools of a sweep need only be far larger than the L2
PREPARED_STEPS = 4
SHORT_STEPS = 1  # of a warm-up before a measurement of a point
PARTS_ROUNDS = 5
PARTS_STEPS = 2  # of one look at a step's parts
SHOWN_KERNELS = 12


class FusedServed:
    """A dense decoder on our kernels."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.sixteen = stage, stage.params["sixteen"]
        self.weights = weights_of(stage)
        self.device = self.weights.embedding.device
        self.section: Mapping[str, Any] | None = stage.params["backend"].get("prefix")
        self.page_tokens = fused_arms.page_tokens_of(self.section)
        self._scales: dict[str, list[float]] | None = None
        self._operands: dict[int, fused_prefix.Operands] = {}
        self._decoders: dict[tuple[str, int, int], fused.Decoder] = {}
        self._seen: list[tuple[int, int]] = []

    def arms(self, names: Sequence[str]) -> list[Arm]:
        """The arms of these names."""
        return fused_arms.arms_of(names, self.section, self.sixteen)

    def scales(self, arm: Arm) -> dict[str, list[float]] | None:
        """Fixed scales, once an arm asks for them."""
        if self._scales is None and any(recipe.policy == "fixed" for recipe in arm.recipes()):
            self._scales = scales_of(self.stage, self.weights)
        return self._scales

    def operands(self, positions: int) -> fused_prefix.Operands:
        """A prefix of so many positions, before any recipe stored it."""
        if positions not in self._operands:
            ids_P = fused_arms.prefix_ids(self.weights, positions, self.stage.params["seed"])
            self._operands[positions] = fused_arms.operands_of(self.weights, ids_P, self.sixteen)
        return self._operands[positions]

    def made(self, arm: Arm, plan: fused.Plan, positions: int) -> fused.Decoder:
        """A decoder of an arm, behind its prefix where that is stored once."""
        scales = self.scales(arm)
        prefix = None
        if arm.once is not None:
            operands = self.operands(positions)
            prefix = fused_arms.prefix_of(arm, self.weights, operands, self.page_tokens, scales)
        return fused.Decoder(self.weights, arm.own, plan, scales, prefix)

    def prompts(self, batch: int, context_tokens: int, seed: int) -> torch.Tensor:
        """Documents of the development split; drawn token ids for drawn weights."""
        return prompts_of(self.weights, batch, context_tokens, seed)

    def decoder(self, recipe: str, batch: int, context_tokens: int, output_tokens: int) -> fused.Decoder:
        """The decoder of one recipe and size, made once."""
        key = (recipe, batch, context_tokens + output_tokens)
        if key not in self._decoders:
            (arm,) = self.arms([recipe])
            if arm.copied:
                raise KassayError(f"arm `{recipe}`: a prompt behind a copied prefix is chunked prefill, not supported")
            plan = fused.Plan(
                batch=batch, row_tokens=context_tokens + output_tokens, steps=output_tokens, uneven=False,
                sizes=(batch,), page_tokens=self.page_tokens,
            )  # fmt: skip
            self._decoders[key] = self.made(arm, plan, 0 if self.section is None else self.section["positions"])
        return self._decoders[key]

    def prepare(self, recipe: str, context_BT: torch.Tensor, output_tokens: int) -> None:
        """One pass of a prefill and a few steps: kernels are compiled, the graph captured, libraries warm."""
        decoder = self.decoder(recipe, context_BT.shape[0], context_BT.shape[1], output_tokens)
        part = max(1, fused.PREFILL_TOKENS // (context_BT.shape[1] - 1))
        decoder.admit(context_BT[:part], output_tokens)
        decoder.run(min(PREPARED_STEPS, output_tokens))
        decoder.collect()
        decoder.keep([])
        self.stage.append(
            cache_record(self.stage, recipe, decoder, context_BT.shape[1], [len(context_BT)], "prefilled")
        )  # fmt: skip

    def complete(self, recipe: str, context_BT: torch.Tensor, output_tokens: int) -> torch.Tensor:
        """Prefill and decode the whole batch."""
        batch, tokens = context_BT.shape
        decoder = self.decoder(recipe, batch, tokens, output_tokens)
        before = (decoder.prefilled_tokens, decoder.steps)
        decoder.admit(context_BT, output_tokens)
        decoder.run(output_tokens)
        self._seen.append((decoder.prefilled_tokens - before[0] + batch, decoder.steps - before[1]))
        output_BT = decoder.collect().T.contiguous()
        decoder.keep([])
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return output_BT

    def schedule(self, batch: int) -> Schedule:
        """Counted where prompts are admitted and steps are asked for; every step is one of the whole batch."""
        seen, self._seen = self._seen, []
        steps = sum(count for _, count in seen)
        return Schedule(
            prefilled_tokens=sum(tokens for tokens, _ in seen), decode_steps=steps, full_steps=steps, preemptions=0
        )

    def evidence(self, cell: TimingCell) -> list[Record]:
        """None: every arm decodes plainly."""
        return []

    def points(
        self, recipes: list[str], context_tokens: int, largest_batch: int, steps: int, seed: int
    ) -> "FusedPoints":
        """A context of a sweep; the decoders of another one are let go."""
        self._decoders.clear()
        return FusedPoints(self, recipes, context_tokens, largest_batch, steps, seed)


class FusedPoints:
    """One context, every recipe's decoder beside the others, so that they can take turns."""

    def __init__(
        self, served: FusedServed, recipes: Sequence[str], context_tokens: int, largest: int, steps: int, seed: int
    ) -> None:
        self.served, self.context_tokens, self.seed = served, context_tokens, seed
        self.drawn = served.weights.drawn
        self.tuned_cuts = int(served.stage.params.get("tuned_cuts") or 0)
        self.positions = fused_arms.positions_at(served.section, context_tokens)
        self.arms = {arm.name: arm for arm in served.arms(recipes)}
        rows = {name: self.own(arm) + steps + SHORT_STEPS for name, arm in self.arms.items()}
        shared = None
        if self.drawn:
            shared = pools_of(served.weights, [(arm.own, largest * rows[name]) for name, arm in self.arms.items()])
        self.decoders: dict[str, fused.Decoder] = {}
        for name, arm in self.arms.items():
            plan = fused.Plan(
                batch=largest, row_tokens=rows[name], steps=steps + SHORT_STEPS, uneven=False,
                sizes=tuple(range(1, largest + 1)), shared=shared, page_tokens=served.page_tokens,
            )  # fmt: skip
            self.decoders[name] = served.made(arm, plan, self.positions)
        for decoder in self.decoders.values():
            if self.drawn:
                decoder.cache.draw(decoder.host, seed)
        self.batches: list[int] = []

    def own(self, arm: Arm) -> int:
        """Tokens of a context that lie in a sequence's own pages."""
        return self.context_tokens - (self.positions if arm.once else 0)

    def fill(self, batch: int) -> tuple[str, int]:
        """A batch whose context is prefilled, or taken as it was drawn."""
        self.batches.append(batch)
        shared_prefix_tokens = 0
        if self.drawn:
            vocabulary = self.served.weights.geometry.vocabulary
            ids_BT = torch.randperm(vocabulary, generator=torch.Generator().manual_seed(self.seed))[:batch, None]
        else:
            own_tokens = self.context_tokens - self.positions
            ids_BT = self.served.prompts(batch, own_tokens, self.seed)
            shared_prefix_tokens = check_prompts(ids_BT.tolist(), own_tokens)
        for name, decoder in self.decoders.items():
            arm = self.arms[name]
            if self.drawn:
                decoder.assume(batch, self.own(arm), decoder.plan.steps, ids_BT[:, 0])
                if arm.copied:
                    fused_prefix.copied(decoder.cache, decoder.host, batch, self.served.operands(self.positions))
            else:
                decoder.keep([])
                decoder.admit(self.prompts(arm, ids_BT), decoder.plan.steps)
            decoder.graphs.clear()
            decoder.mark()
            if self.tuned_cuts and self.served.device.type == "cuda":
                tune(decoder, batch, self.tuned_cuts)
        return of_value(ids_BT.tolist()), shared_prefix_tokens

    def prompts(self, arm: Arm, ids_BT: torch.Tensor) -> torch.Tensor:
        """What an arm prefills: where a prefix is copied, every prompt has it in front."""
        if not arm.copied:
            return ids_BT
        ids_P = fused_arms.prefix_ids(self.served.weights, self.positions, self.served.stage.params["seed"])
        return torch.cat([ids_P.expand(len(ids_BT), -1), ids_BT], dim=1)

    def decode_ns(self, recipe: str, steps: int) -> int:
        """The steps of the graph between two events, after one that warms it; all from the marked state."""
        decoder = self.decoders[recipe]
        decoder.rewind()
        decoder.run(SHORT_STEPS)
        took_ns = decoder.timed_ns(steps)
        decoder.collect()
        return took_ns

    def parts(self) -> list[Record]:
        """Of the graph's replays on a GPU; an interpreter's times are no device's."""
        if self.served.device.type != "cuda":
            return []
        return [self._parts(name, decoder) for name, decoder in self.decoders.items()]

    def _parts(self, name: str, decoder: fused.Decoder) -> StepParts:
        batch = decoder.rows
        graph = decoder.graph(batch)
        decoder.rewind()
        parts, kernels = parts_us(graph.replay, PARTS_STEPS)
        alone = decoder.captured(batch, attention=False)
        without = []
        for _ in range(PARTS_ROUNDS):
            decoder.rewind()
            decoder.at_1.zero_()
            without.append(1e-3 * decoder.replayed_ns(alone, PARTS_STEPS) / PARTS_STEPS)
        decoder.at_1.zero_()
        largest = dict(sorted(kernels.items(), key=lambda one: -one[1])[:SHOWN_KERNELS])
        return StepParts(
            model=self.served.stage.params["model"], recipe=name, batch=batch, context_tokens=self.context_tokens,
            parts_us=parts, kernels_us=largest, without_attention_us=without,
        )  # fmt: skip

    def records(self) -> list[Record]:
        """What was measured on, once all batches are."""
        how = DRAWN if self.drawn else "prefilled"
        return [
            cache_record(self.served.stage, name, decoder, self.context_tokens, self.batches, how)
            for name, decoder in self.decoders.items()
        ]


def pools_of(weights: Weights, asked: Sequence[tuple[Recipe, int]]) -> int:
    """How many pools each of these recipes, of so many tokens, may have beside the others. Raises Unmet for none."""
    geometry, device = weights.geometry, weights.embedding.device
    one = Geometry(layers=1, kv_heads=geometry.kv_heads, head_dim=geometry.head_dim)
    each = sum(token_bytes(one, recipe) * tokens for recipe, tokens in asked)
    if device.type != "cuda":
        return geometry.layers
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(device)[0]
    if free < each / MOST_POOLED:
        raise Unmet(
            f"a pool of {max(tokens for _, tokens in asked)} tokens of every arm takes {each / 2**30:.1f} GiB, "
            f"{free / 2**30:.1f} are free"
        )
    return max(1, min(geometry.layers, int(POOLED * free) // each))


def cache_record(
    stage: Stage, arm: str, decoder: fused.Decoder, context_tokens: int, batches: Sequence[int], context: str
) -> FusedCache:
    """A decoder's cache, and how its kernels were cut."""
    return FusedCache(
        model=stage.params["model"],
        recipe=arm,
        context_tokens=context_tokens,
        batches=list(batches),
        page_tokens=decoder.plan.page_tokens,
        pages=decoder.cache.shape.pages,
        pools=len(decoder.cache.pools),
        layers=len(decoder.cache.layers),
        backing_bytes=sum(one.tensor.nbytes for one in decoder.cache.storages()),
        context=context,
        cuts=[{"batch": size, **cut.numbers()} for size, cut in decoder.cuts().items()],
    )  # fmt: skip
