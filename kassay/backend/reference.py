"""The reference backend: transformers' own models, any recipe's cache. No claim of speed.

Axes: B sequences, T tokens, V vocabulary. A context is prefilled natively once; its operands then fill a
cache of each recipe, and what follows (question, answer, scored text) is decoded through that cache, its own
keys and values stored by the recipe too. A chunk of several tokens through the cache equals one token at a
time, because codes and scales of a token depend on that token alone.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from kassay import digest
from kassay.backend import structure
from kassay.backend.structure import ModelError
from kassay.kv.cache import Prefilled, RecipeCache, Scales
from kassay.kv.recipe import NATIVE, Recipe

LOADED_SUFFIXES = (
    ".safetensors",
    ".json",
    ".bin",
    ".pt",
    ".py",
)  # what transformers may read from a checkpoint


def load(directory: Path, threads: int, compute: torch.dtype = torch.float32) -> Any:
    """The model of a local directory; its files are compared with digests.json beside it first.

    Raises ModelError for a missing, corrupted or unlisted file and for a geometry that recipes do not cover.
    """
    check_files(directory)
    return read(directory, threads, compute)


def read(directory: Path, threads: int, compute: torch.dtype) -> Any:
    """The model of a local directory, nothing of its files checked. Raises ModelError for an unsupported geometry."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=compute, attn_implementation="sdpa", local_files_only=True
    )
    structure.geometry_of(model)
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


def prefill(model: Any, ids_BT: torch.Tensor, sixteen: str = "fp16") -> Prefilled:
    """What a native prefill leaves: per layer k_BHTD and v_BHTD in 16 bit, keys after norm and RoPE."""
    cache = made(model, NATIVE.on(sixteen), None, ids_BT.shape[1])
    model(ids_BT, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return cache.prefilled()


def filled(
    model: Any,
    recipe: Recipe,
    scales: Scales | None,
    context: Prefilled,
    more_tokens: int,
    layers: Mapping[int, Recipe] | None = None,
) -> RecipeCache:
    """A cache of `recipe` that holds a prefilled context and has room for `more_tokens`; `layers` differ from it."""
    cache = made(model, recipe, scales, context.tokens + more_tokens, layers)
    cache.fill(context)
    return cache


def made(
    model: Any, recipe: Recipe, scales: Scales | None, capacity_tokens: int, layers: Mapping[int, Recipe] | None = None
) -> RecipeCache:
    """An empty cache of `recipe` for the model. Raises ModelError for a pre-bias recipe that does not fit it."""
    geometry, kinds = structure.geometry_of(model), structure.kinds_of(model)
    biased = any(each.prebias for each in (recipe, *(layers or {}).values()))
    key_bias = structure.key_bias_of(model) if biased else None
    return RecipeCache(recipe, geometry, scales, capacity_tokens, layers=layers, kinds=kinds, key_bias=key_bias)


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
    model: Any, cache: RecipeCache, question_BT: torch.Tensor, cap_tokens: int, stop_id: int | Collection[int]
) -> list[list[int]]:
    """Greedy answers: feed the question through the cache, then one token at a time until all rows stopped.

    A row ends with `stop_id`, or with one of several, included, or after `cap_tokens` tokens; a finished row stays in
    the batch and its further tokens are dropped.
    """
    stops = {stop_id} if isinstance(stop_id, int) else set(stop_id)
    stops_S = torch.tensor(sorted(stops), device=question_BT.device)
    ids_BT = question_BT
    columns: list[torch.Tensor] = []
    stopped_B = torch.zeros(question_BT.shape[0], dtype=torch.bool, device=question_BT.device)
    while len(columns) < cap_tokens and not bool(stopped_B.all()):
        ids_BT = model(ids_BT, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1:].argmax(-1)
        columns.append(ids_BT)
        stopped_B |= torch.isin(ids_BT[:, 0], stops_S)
    rows: list[list[int]] = torch.cat(columns, dim=1).tolist()
    return [until(row, stops) for row in rows]


def until(row: list[int], stops: Collection[int]) -> list[int]:
    """The row up to its first stop, included; the whole row if it has none."""
    return next((row[: at + 1] for at, token in enumerate(row) if token in stops), row)


def forced(model: Any, cache: RecipeCache, last_B1: torch.Tensor, steps: int) -> torch.Tensor:
    """ids_BT of `steps` greedy tokens, none of which ends a row: the decode loop that timing measures."""
    ids_BT = last_B1
    columns: list[torch.Tensor] = []
    for _ in range(steps):
        ids_BT = model(ids_BT, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1:].argmax(-1)
        columns.append(ids_BT)
    return torch.cat(columns, dim=1)
