"""An engine in vLLM's place that decodes by the reference: what goes through its cache is what a worker's would.

One request after the other; a script is fed as a decode would feed it. The stage's contract (`serve`, `attested`) is
that of kassay.backend.vllm.Engine.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from kassay import digest, paths
from kassay.backend import reference
from kassay.backend.vllm_arguments import sampling_arguments
from kassay.kv.recipe import Recipe
from kassay.stage import Stage
from tests.vllm.test_arguments import engine

PREFILLED_NATS = 99.0  # loss of a script's first token: the prefill's, which nothing may read


def model_of(name: str) -> Any:
    """A shipped model."""
    return reference.load(paths.ROOT / "data" / "models" / name, 1)


class StandIn:
    """A model behind a recipe's cache."""

    def __init__(self, model: Any, recipe: Recipe, arm: str, scales: Any = None) -> None:
        self.model, self.recipe, self.arm, self.scales = model, recipe, arm, scales
        self.attested = engine(arm=arm, graph_batches=[], events=[])
        self.span: dict[str, Any] = {}  # what is changed of what is told of a cohort
        self.steps: Any = None

    def serve(
        self, prompts: Sequence[Sequence[int]], tokens: int, *, repetition: int, warmup: bool, forced: bool,
        stops: Sequence[int] = (), scripts: Sequence[Sequence[int]] = (), scored: bool = False,
    ) -> SimpleNamespace:  # fmt: skip
        """All requests, one after the other."""
        assert not warmup and forced == scored and not (forced and tokens)
        for script in scripts:
            sampling_arguments(
                tokens, forced=forced, stops=stops, script=script, scored=scored
            )  # refuses what vLLM ends
        rows = [self.one(list(prompt), list(script), tokens, stops)
                for prompt, script in zip(prompts, scripts, strict=True)]  # fmt: skip
        requests = [
            SimpleNamespace(prompt_tokens=len(prompt), output_tokens=len(row),
                            completion_steps=self.steps or list(range(1, 1 + len(row))))
            for prompt, (row, _) in zip(prompts, rows, strict=True)
        ]  # fmt: skip
        told = {
            "arm": self.arm, "repetition": repetition, "requests": len(prompts), "preemptions": 0, "mixed_steps": 0,
            "prefilled_tokens": sum(map(len, prompts)), "decode_steps": max(len(row) for row, _ in rows) - 1,
            "replays": {}, "fallbacks": 0,
        }  # fmt: skip
        return SimpleNamespace(span=SimpleNamespace(**told | self.span), requests=requests,
                               outputs=[row for row, _ in rows], losses=[losses for _, losses in rows])  # fmt: skip

    def one(
        self, prompt: list[int], script: list[int], tokens: int, stops: Sequence[int]
    ) -> tuple[list[int], list[float]]:
        """Output of a request, and the loss of each token of its script."""
        context = reference.prefill(self.model, torch.tensor([prompt]), self.recipe.sixteen)
        cache = reference.filled(self.model, self.recipe, self.scales, context, len(script) + tokens)
        losses = [PREFILLED_NATS]
        if tokens:
            return script + reference.generate(self.model, cache, torch.tensor([script]), tokens, stops)[0], losses
        targets_BT = torch.tensor([script[1:]])
        losses += reference.score(self.model, cache, torch.tensor([script[:1]]), targets_BT)[0].tolist()
        return script, losses


class Kept(Stage):
    """A stage's params, inputs and records, nothing on disk."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params, self.inputs = params, {}
        self.records: list[Any] = []
        self.told: list[tuple[int, int]] = []

    def append(self, record: Any) -> None:
        self.records.append(record)

    def input_sha256(self, name: str) -> str:
        return digest.of_path(self.inputs[name])

    def progress(self, done: int, total: int, what: str) -> None:
        self.told.append((done, total))

    def of(self, kind: type) -> list[Any]:
        """The records of one kind."""
        return [one for one in self.records if isinstance(one, kind)]
