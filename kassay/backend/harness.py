"""A recipe as a language model of lm-evaluation-harness, for whoever wants the harness' own tasks and numbers.

All but the last token of a context is prefilled natively; that token, what is scored and what is generated run through
the recipe's cache, as everywhere in the reference execution. One request at a time, greedily; a text that is longer
than the model's positions is refused and never cut. Chat templates are not used. The harness is imported only when a
language model is made (`pip install kassay[lm-eval]`); its scores are descriptive.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kassay.backend import reference
from kassay.backend.checkpoint import Checkpoint
from kassay.backend.text import Ids, Tokens
from kassay.errors import KassayError
from kassay.kinds.harness import HarnessScore
from kassay.kv.cache import RecipeCache, Scales
from kassay.kv.recipe import Recipe

CAP_TOKENS = 256  # of an answer whose task states none, as the harness' own models have it
DESCRIPTIVE = "descriptive"


@dataclass(frozen=True, kw_only=True)
class RecipeModel:
    """A checkpoint under one recipe, asked with texts."""

    checkpoint: Checkpoint
    tokens: Tokens
    recipe: Recipe
    scales: Scales | None
    sixteen: str

    def loglikelihood(self, context: str, continuation: str) -> tuple[float, bool]:
        """Sum of log-likelihoods of the continuation's tokens in nats, and whether each is the likeliest one."""
        blank = len(context) - len(context.rstrip())  # tokenizers join it to what follows
        whole = self.prefix() + self.tokens.ids(context + continuation)
        before = len(self.prefix() + self.tokens.ids(context[: len(context) - blank]))
        return self.scored(whole[:before], whole[before:])

    def scored(self, context: Ids, targets: Ids) -> tuple[float, bool]:
        """The same of tokens."""
        if not targets:
            return 0.0, True
        cache = self.cache(context, len(targets))
        fed_BT = self.checkpoint.rows([(context[-1], *targets[:-1])])
        logits_TV = self.checkpoint.model(fed_BT, past_key_values=cache, use_cache=True).logits[0].float()
        targets_T = torch.tensor(targets, device=logits_TV.device)
        said_T = logits_TV.log_softmax(-1).gather(-1, targets_T[:, None])
        return float(said_T.double().sum()), bool((logits_TV.argmax(-1) == targets_T).all())

    def generated(self, context: str, asked: Mapping[str, Any]) -> str:
        """The greedy continuation up to the first of `until`, the end of the text, or `max_gen_toks` tokens."""
        if asked.get("do_sample"):
            raise KassayError("a task asks for sampled answers; the reference execution answers greedily")
        until = asked.get("until") or []
        cap_tokens = int(asked.get("max_gen_toks") or CAP_TOKENS)
        ids = self.prefix() + self.tokens.ids(context)
        cache = self.cache(ids, cap_tokens)
        last_BT = self.checkpoint.rows([ids[-1:]])
        (row,) = reference.generate(self.checkpoint.model, cache, last_BT, cap_tokens, self.tokens.ends)
        text = self.tokens.whole(row)
        for end in [until] if isinstance(until, str) else until:
            text = text.partition(end)[0] if end else text
        return text

    def prefix(self) -> Ids:
        """What begins every text: begin-of-text where the tokenizer puts it, else the token that ends a text."""
        return self.tokens.begin or (self.tokens.tokenizer.eos_token_id,)

    def cache(self, ids: Ids, more_tokens: int) -> RecipeCache:
        """The recipe's cache with all but the last token of a context, and room for it and `more_tokens`."""
        self.checkpoint.check_length(len(ids) + more_tokens)
        model = self.checkpoint.model
        if len(ids) == 1:
            return reference.made(model, self.recipe, self.scales, 1 + more_tokens)
        context = reference.prefill(model, self.checkpoint.rows([ids[:-1]]), self.sixteen)
        return reference.filled(model, self.recipe, self.scales, context, 1 + more_tokens)


def language_model(asked: RecipeModel) -> Any:
    """An instance of the harness' `LM`. Raises KassayError if the harness is not installed."""
    try:
        from lm_eval.api.model import LM
    except ImportError as error:
        raise KassayError("lm-evaluation-harness is not installed", hint="pip install 'kassay[lm-eval]'") from error

    class RecipeLM(LM):  # type: ignore[misc,unused-ignore]
        """The harness' interface."""

        def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
            """Of each (context, continuation)."""
            return [asked.loglikelihood(*one.args) for one in requests]

        def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
            """Of each whole text."""
            return [asked.scored(asked.prefix(), asked.tokens.ids(one.args[0]))[0] for one in requests]

        def generate_until(self, requests: Sequence[Any]) -> list[str]:
            """Of each (context, how to generate)."""
            return [asked.generated(*one.args) for one in requests]

    return RecipeLM()


def scores(found: Mapping[str, Any], **identity: Any) -> Iterator[HarnessScore]:
    """What `lm_eval.simple_evaluate` returned, as records; `identity` says of which model and recipe."""
    for task, metrics in found["results"].items():
        for metric, value in metrics.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or "," not in metric:
                continue
            yield HarnessScore(
                task=task,
                task_version=str(found["versions"].get(task)),
                metric=metric,
                value=float(value),
                items=(found.get("n-samples", {}).get(task) or {}).get("effective"),
                standing=DESCRIPTIVE,
                **identity,
            )
