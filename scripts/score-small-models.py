#!/usr/bin/env python3
"""Score a small model on development items: accuracies and losses of every recipe, as one JSON line on stdout.

    python scripts/score-small-models.py --model data/models/robust --items 1000

Compute is FP32. The context is prefilled natively; the cache gives it back as the recipe stores it, keys after RoPE;
question and answer run through that cache, and their own keys and values are stored so too. This is the trainer's quick
look: kassay's own cache, calibration and gates are not used here, and no verdict rests on it. Never imported.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.cache_utils import DynamicLayer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from kassay.kv.tasks import arithmetic, document, retrieval, vocabulary

RECIPES = {  # key format, value format, scale policy
    "native": (16, 16, "none"),
    "K16/V8-fixed": (16, 8, "fixed"),
    "K16/V8-dynamic": (16, 8, "dynamic"),
    "K8/V16-fixed": (8, 16, "fixed"),
    "K8/V16-dynamic": (8, 16, "dynamic"),
    "K8/V8-fixed": (8, 8, "fixed"),
    "K8/V8-dynamic": (8, 8, "dynamic"),
}
CONTEXT_TOKENS, ARITHMETIC_TOKENS, TARGETS, ANSWER_CAP, SCORE_BATCH = 1000, 96, 128, 32, 128
EVALUATION_SEED = 1


def rebuilt(x_BHTD, width, policy, scale):
    """What a cache gives back: rounded to FP16 and, where `width` is 8, to E4M3FN codes times an FP32 scale."""
    x_BHTD = x_BHTD.half().float()
    if width == 16:
        return x_BHTD
    if policy == "dynamic":
        scale = scale_of(x_BHTD.abs().amax(dim=-1, keepdim=True))
    return (x_BHTD / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


def scale_of(largest):
    """FP8 scale of a largest absolute value."""
    return largest.clamp(min=1e-12) * torch.tensor(1 / 448, dtype=torch.float32, device=largest.device)


class RebuildingLayer(DynamicLayer):
    """A cache layer whose every entry passes `rebuilt` before it can be attended to."""

    def __init__(self, recipe, scales):
        super().__init__()
        self.recipe, self.scales = recipe, scales

    def update(self, key_states, value_states, *rest, **more):
        """Append keys and values as the recipe stores them."""
        key_width, value_width, policy = self.recipe
        keys = rebuilt(key_states, key_width, policy, self.scales[0])
        return super().update(keys, rebuilt(value_states, value_width, policy, self.scales[1]), *rest, **more)


def cache_of(prefilled, recipe, scales):
    """A cache of `recipe` that holds the natively prefilled context."""
    cache = DynamicCache()
    cache.layers = [RebuildingLayer(recipe, scales[index]) for index in range(len(prefilled.layers))]
    for layer, source in zip(cache.layers, prefilled.layers, strict=True):
        layer.update(source.keys, source.values)
    return cache


def rows_of(texts, device, begin):
    """Ids of equally long texts."""
    return torch.tensor([(vocabulary.encode_context if begin else vocabulary.encode)(t) for t in texts], device=device)


def calibrated_scales(model, device):
    """Fixed scales by layer, keys and values, from calibration contexts of all three tasks."""
    asked = dict(split="calibration", seed=EVALUATION_SEED, count=32)
    contexts = [
        [d.context for d in document.documents(**asked, context_tokens=CONTEXT_TOKENS, targets=TARGETS)],
        [i.context for i in retrieval.items(**asked, context_tokens=CONTEXT_TOKENS)],
        [i.context for i in arithmetic.items(**asked, context_tokens=ARITHMETIC_TOKENS)],
    ]
    caches = [model(rows_of(texts, device, True), use_cache=True).past_key_values for texts in contexts]
    layers = [[cache.layers[index] for cache in caches] for index in range(len(caches[0].layers))]
    largest = [
        (max(one.keys.abs().amax() for one in same), max(one.values.abs().amax() for one in same)) for same in layers
    ]
    return [[scale_of(component.half().float()) for component in pair] for pair in largest]


def answers(model, cache, question_ids):
    """Greedy answers through `cache`, each cut at its newline."""
    ids, made = question_ids, []
    for _ in range(ANSWER_CAP):
        ids = model(ids, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
        made.append(ids)
        if (torch.cat(made, 1) == vocabulary.NEWLINE).any(1).all():
            break
    return [vocabulary.decode(row).split("\n")[0] for row in torch.cat(made, 1).tolist()]


def right_answers(model, items, recipe, scales, device):
    """One bool an item: whether the recipe's answer is the expected one."""
    right = []
    for at in range(0, len(items), SCORE_BATCH):
        batch = items[at : at + SCORE_BATCH]
        prefilled = model(rows_of([i.context for i in batch], device, True), use_cache=True).past_key_values
        texts = answers(model, cache_of(prefilled, recipe, scales), rows_of([i.question for i in batch], device, False))
        read = [
            arithmetic.last_labelled_answer(t) if i.task == "arithmetic" else t
            for t, i in zip(texts, batch, strict=True)
        ]
        right += [text == item.expected for text, item in zip(read, batch, strict=True)]
    return np.array(right)


def document_loss(model, documents, recipe, scales, device):
    """Mean loss (nats a character) of the continuations after their first character, through the recipe's cache."""
    losses = []
    for at in range(0, len(documents), SCORE_BATCH):
        batch = documents[at : at + SCORE_BATCH]
        prefilled = model(rows_of([d.context for d in batch], device, True), use_cache=True).past_key_values
        ids = rows_of([d.continuation for d in batch], device, False)
        logits = model(ids[:, :-1], past_key_values=cache_of(prefilled, recipe, scales), use_cache=True).logits
        losses.append(cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none"))
    return torch.cat(losses).mean().item()


@torch.no_grad()
def scores(model, count, device):
    """Development scores of every recipe: accuracies, gross losses against native, relative change of document loss."""
    asked = dict(split="development", seed=EVALUATION_SEED, count=count)
    scales = calibrated_scales(model, device)
    asked_items = {
        "retrieval": retrieval.items(**asked, context_tokens=CONTEXT_TOKENS),
        "arithmetic": arithmetic.items(**asked, context_tokens=ARITHMETIC_TOKENS),
    }
    texts = document.documents(**asked, context_tokens=CONTEXT_TOKENS, targets=TARGETS)
    table, native = {"items": count}, {}
    for recipe_name, recipe in RECIPES.items():
        row = {}
        for task, items in asked_items.items():
            right = right_answers(model, items, recipe, scales, device)
            native.setdefault(task, right)
            row[f"{task}_accuracy"] = round(float(right.mean()), 5)
            row[f"{task}_gross_loss"] = round(float((native[task] & ~right).mean()), 5)
        loss = document_loss(model, texts, recipe, scales, device)
        native.setdefault("loss", loss)
        table[recipe_name] = row | {"loss_nats": round(loss, 5), "loss_change": round(loss / native["loss"] - 1, 6)}
    return table


def unigram_entropy():
    """Entropy of single characters of the development documents, in nats: what a model without context reaches."""
    asked = dict(split="development", seed=EVALUATION_SEED, count=200)
    text = "".join(d.context for d in document.documents(**asked, context_tokens=CONTEXT_TOKENS, targets=TARGETS))
    share = np.bincount(np.frombuffer(text.encode(), np.uint8)) / len(text)
    return float(-(share[share > 0] * np.log(share[share > 0])).sum())


def main(arguments):
    """Load, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="folder that from_pretrained loads")
    parser.add_argument("--items", type=int, default=1000, help="development items a task")
    options = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).to(device).eval()
    print(json.dumps({"unigram_entropy_nats": round(unigram_entropy(), 4), **scores(model, options.items, device)}))


if __name__ == "__main__":
    main(sys.argv[1:])
