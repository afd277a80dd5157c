"""The reference backend: transformers' own models, FP32 compute, any recipe's cache. No claim of speed.

Axes: B sequences, T tokens, V vocabulary. A context is prefilled natively once; its operands then fill a
cache of each recipe, and what follows (question, answer, scored text) is decoded through that cache, its own
keys and values stored by the recipe too. A chunk of several tokens through the cache equals one token at a
time, because codes and scales of a token depend on that token alone.
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

LOADED_SUFFIXES = (
    ".safetensors",
    ".json",
    ".bin",
    ".pt",
    ".py",
)  # what transformers may read from a checkpoint


class ModelError(KassayError):
    """A checkpoint is missing or corrupted, or its geometry is not supported."""


def load(directory: Path, threads: int) -> Any:
    """The model of a local directory in FP32; its files are compared with digests.json beside it first.

    Raises ModelError for a missing, corrupted or unlisted file and for a geometry that recipes do not cover.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    check_files(directory)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    )
    geometry_of(model)
    return model.eval()  # type: ignore[no-untyped-call]


def check_files(directory: Path) -> None:
    """Raise ModelError for a missing, corrupted or unlisted file of a checkpoint, all at once."""
    known = listed_digests(directory)
    errors = []
    for name, sha256 in known.items():
        path = directory.parent / name
        if not path.is_file():
            errors.append(f"{path} is missing")
        elif (got := digest.of_file(path)) != sha256:
            errors.append(f"{path} is corrupted: sha256 is {got[:16]}…, the recorded one {sha256[:16]}…")
    for path in sorted(directory.rglob("*")):
        if path.suffix in LOADED_SUFFIXES and str(path.relative_to(directory.parent)) not in known:
            errors.append(f"{path} has no digest in digests.json, so it may not be loaded")
    if errors:
        raise ModelError(*errors, hint="git checkout data/models")


def listed_digests(directory: Path) -> dict[str, str]:
    """`<model>/<file>` -> SHA-256 of this model in digests.json. Raises ModelError if there is none."""
    listed = directory.parent / "digests.json"
    if not listed.is_file():
        raise ModelError(f"{listed} is missing: the checkpoint's identity cannot be checked")
    try:
        everything: dict[str, str] = json.loads(listed.read_text())
    except ValueError as error:
        raise ModelError(f"{listed} is no JSON: {error}") from error
    known = {name: sha256 for name, sha256 in everything.items() if name.startswith(directory.name + "/")}
    if not known:
        raise ModelError(f"{listed} has no digests of `{directory.name}`")
    return known


def geometry_of(model: Any) -> Geometry:
    """What the model's attention layers store for each token. Raises ModelError for sliding windows."""
    config = model.config
    if others := set(getattr(config, "layer_types", None) or []) - {"full_attention"}:
        raise ModelError(f"layers of type `{'`, `'.join(sorted(others))}` are not supported, only `full_attention`")
    window = getattr(config, "sliding_window", None)
    if window is not None and getattr(config, "use_sliding_window", True):
        raise ModelError(f"sliding-window attention ({window} tokens) is not supported by the recipe cache")
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

    `last_B1` is the context's last token, which was kept out of the prefill: it goes through the cache as
    well, so that the first target, too, depends on the recipe.
    """
    fed_BT = torch.cat([last_B1, targets_BT[:, :-1]], dim=1)
    logits_BTV = model(fed_BT, past_key_values=cache, use_cache=True).logits.float()
    losses = cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="none")
    return losses.view_as(targets_BT)


def generate(
    model: Any, cache: RecipeCache, question_BT: torch.Tensor, cap_tokens: int, stop_id: int
) -> list[list[int]]:
    """Greedy answers: feed the question through the cache, then one token at a time until all rows stopped.

    A row ends with `stop_id`, included, or after `cap_tokens` tokens; a finished row stays in the batch and
    its further tokens are dropped.
    """
    ids_BT = question_BT
    columns: list[torch.Tensor] = []
    stopped_B = torch.zeros(question_BT.shape[0], dtype=torch.bool)
    while len(columns) < cap_tokens and not bool(stopped_B.all()):
        ids_BT = model(ids_BT, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1:].argmax(-1)
        columns.append(ids_BT)
        stopped_B |= ids_BT[:, 0] == stop_id
    rows: list[list[int]] = torch.cat(columns, dim=1).tolist()
    return [row[: row.index(stop_id) + 1] if stop_id in row else row for row in rows]


def forced(model: Any, cache: RecipeCache, last_B1: torch.Tensor, steps: int) -> torch.Tensor:
    """ids_BT of `steps` greedy tokens, none of which ends a row: the decode loop that timing measures."""
    ids_BT = last_B1
    columns: list[torch.Tensor] = []
    for _ in range(steps):
        ids_BT = model(ids_BT, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1:].argmax(-1)
        columns.append(ids_BT)
    return torch.cat(columns, dim=1)
