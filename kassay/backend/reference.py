"""The reference backend: transformers' own models, FP32 compute, any recipe's cache. It makes no claim of speed.

Axes: B sequences, T tokens, V vocabulary. A context is prefilled natively once; its operands then fill a cache of each
recipe, and what follows (question, answer, scored text) is decoded through that cache, its own keys and values stored
by the recipe too. A chunk of several tokens through the cache equals one token at a time, because codes and scales of
a token depend on that token alone.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from kassay import digest
from kassay.errors import KassayError
from kassay.kv.cache import Operands, RecipeCache, Scales
from kassay.kv.geometry import Geometry
from kassay.kv.recipe import Recipe, recipe_named


class ModelError(KassayError):
    """A checkpoint is missing or corrupted, or its geometry is not supported."""


def load(directory: Path, threads: int) -> Any:
    """The model of a local directory in FP32, after its files were compared with digests.json beside the directory."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    check_files(directory)
    logging.disable_progress_bar()
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    )
    if getattr(model.config, "use_sliding_window", False):
        raise ModelError(f"{directory}: sliding-window attention is not supported by the recipe cache")
    return model.eval()


def check_files(directory: Path) -> None:
    """Raise ModelError for a missing or corrupted file of a checkpoint."""
    listed = directory.parent / "digests.json"
    if not listed.is_file():
        raise ModelError(f"{listed} is missing: the checkpoint's identity cannot be checked")
    known = {name: sha256 for name, sha256 in json.loads(listed.read_text()).items() if name.startswith(directory.name + "/")}
    errors = [] if known else [f"{listed} has no digests of `{directory.name}`"]
    for name, sha256 in known.items():
        path = directory.parent / name
        if not path.is_file():
            errors.append(f"{path} is missing")
        elif (got := digest.of_file(path)) != sha256:
            errors.append(f"{path} is corrupted: sha256 is {got[:16]}…, the recorded one {sha256[:16]}…")
    if errors:
        raise ModelError(*errors, hint="git checkout data/models")


def geometry_of(model: Any) -> Geometry:
    """What the model's attention layers store for each token."""
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Geometry(layers=config.num_hidden_layers, kv_heads=config.num_key_value_heads, head_dim=head_dim)


def prefill(model: Any, ids_BT: torch.Tensor) -> Operands:
    """Operands of a native prefill: per layer k_BHTD and v_BHTD in FP16, keys after norm and RoPE."""
    cache = RecipeCache(recipe_named("native"), geometry_of(model), None, ids_BT.shape[1])
    model(ids_BT, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return cache.operands()


def filled(model: Any, recipe: Recipe, scales: Scales | None, operands: Operands, more_tokens: int) -> RecipeCache:
    """A cache of `recipe` that holds a prefilled context and has room for `more_tokens`."""
    capacity = operands[0][0].shape[2] + more_tokens
    cache = RecipeCache(recipe, geometry_of(model), scales, capacity)
    cache.fill(operands)
    return cache


def score(model: Any, cache: RecipeCache, last_B1: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
    """loss_nats_BT of each target, decoded through the cache.

    `last_B1` is the context's last token, which was kept out of the prefill: it goes through the cache as well, so that
    the first target, too, depends on the recipe.
    """
    fed_BT = torch.cat([last_B1, targets_BT[:, :-1]], dim=1)
    logits_BTV = model(fed_BT, past_key_values=cache, use_cache=True).logits.float()
    losses = cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="none")
    return losses.view_as(targets_BT)


def generate(model: Any, cache: RecipeCache, question_BT: torch.Tensor, cap_tokens: int, stop_id: int) -> list[list[int]]:
    """Greedy answers: feed the question through the cache, then one token at a time until all rows stopped.

    A row ends with `stop_id`, included, or after `cap_tokens` tokens; a finished row stays in the batch and its further
    tokens are dropped.
    """
    ids_BT, columns = question_BT, []
    stopped_B = torch.zeros(question_BT.shape[0], dtype=torch.bool)
    while len(columns) < cap_tokens and not bool(stopped_B.all()):
        ids_BT = model(ids_BT, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1:].argmax(-1)
        columns.append(ids_BT)
        stopped_B |= ids_BT[:, 0] == stop_id
    rows: list[list[int]] = torch.cat(columns, dim=1).tolist()
    return [row[: row.index(stop_id) + 1] if stop_id in row else row for row in rows]


def forced(model: Any, cache: RecipeCache, last_B1: torch.Tensor, steps: int) -> torch.Tensor:
    """ids_BT of `steps` greedy tokens, none of which ends a row: the decode loop that timing measures."""
    ids_BT, columns = last_B1, []
    for _ in range(steps):
        ids_BT = model(ids_BT, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1:].argmax(-1)
        columns.append(ids_BT)
    return torch.cat(columns, dim=1)
