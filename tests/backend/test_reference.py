"""The reference backend on small models with random weights: loading, prefill, scoring, generation.

Axes: B sequences, T tokens, V vocabulary.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import log_softmax
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from kassay import digest
from kassay.backend import reference
from kassay.backend.reference import ModelError
from kassay.kv.cache import RecipeCache
from kassay.kv.geometry import Geometry
from kassay.kv.recipe import RECIPES, Recipe, recipe_named

GEOMETRY = Geometry(layers=2, kv_heads=2, head_dim=16)
SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,
}
KINDS = ("qwen2", "qwen3", "llama")
SCALES = {"k": [0.031, 0.027], "v": [0.011, 0.013]}
CONTEXT_TOKENS = 37
# FP32 logits of a chunk and of single steps differ by the order of sums only; logits are of size 10.
STEP_TOLERANCE = 2e-4
every_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)


def write_model(folder: Path, kind: str, **changes: Any) -> Path:
    """A random model of one architecture with its digests beside it; returns its directory."""
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(SIZES | changes)))
    directory = folder / kind
    model.save_pretrained(directory)
    listed = {f"{kind}/{path.name}": digest.of_file(path) for path in sorted(directory.iterdir())}
    (folder / "digests.json").write_text(json.dumps(listed))
    return directory


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each small model, loaded as a stage loads it."""
    before, threads = torch.is_grad_enabled(), torch.get_num_threads()
    yield reference.load(write_model(tmp_path_factory.mktemp("models"), request.param), 1)
    torch.set_grad_enabled(before)
    torch.set_num_threads(threads)


def ids(tokens: int, seed: int) -> torch.Tensor:
    """ids_BT of three random sequences."""
    return torch.randint(1, SIZES["vocab_size"], (3, tokens), generator=torch.Generator().manual_seed(seed))


def cache_of(model: Any, recipe: Recipe, more_tokens: int) -> RecipeCache:
    """A recipe's cache that holds the test's context."""
    operands = reference.prefill(model, ids(CONTEXT_TOKENS, 0))
    return reference.filled(model, recipe, SCALES, operands, more_tokens)


def test_a_loaded_model_is_ready(model: Any) -> None:
    assert model.dtype == torch.float32 and not model.training
    assert model.config._attn_implementation == "sdpa"
    assert reference.geometry_of(model) == GEOMETRY


def test_prefill_gives_the_operands_of_transformers_own_cache(model: Any) -> None:
    theirs = DynamicCache()
    model(ids(CONTEXT_TOKENS, 0), past_key_values=theirs, use_cache=True)
    for (k, v), layer in zip(reference.prefill(model, ids(CONTEXT_TOKENS, 0)), theirs.layers, strict=True):
        assert k.dtype == v.dtype == torch.float16
        assert k.shape == (3, 2, CONTEXT_TOKENS, 16)
        for ours, full in ((k, layer.keys), (v, layer.values)):
            # the first layer's operands are rounded once; later layers read what earlier ones rounded
            assert not bool(((ours.float() - full).abs() > 2e-3 * full.abs().max()).any())


@every_recipe
def test_a_chunk_equals_single_steps(model: Any, recipe: Recipe) -> None:
    """Logits within FP32 noise; codes equal, or neighbours where that noise crosses a rounding boundary."""
    more_BT = ids(6, 1)
    chunked, stepped = cache_of(model, recipe, 6), cache_of(model, recipe, 6)
    whole_BTV = model(more_BT, past_key_values=chunked, use_cache=True).logits
    steps = [model(more_BT[:, [t]], past_key_values=stepped, use_cache=True).logits for t in range(6)]
    same = True
    for one, other in zip(chunked.storages(), stepped.storages(), strict=True):
        if one.tensor.dtype == torch.uint8:
            apart = (one.tensor.int() - other.tensor.int()).abs()
            assert int(apart.max()) <= 1, "codes of a chunk and of steps are further apart than neighbours"
            assert float((apart > 0).float().mean()) < 1e-3
            same = same and not bool(apart.any())
        elif one.tensor.dim():
            torch.testing.assert_close(one.tensor, other.tensor, rtol=2**-9, atol=2e-5)
    if same:
        torch.testing.assert_close(torch.cat(steps, dim=1), whole_BTV, rtol=0, atol=STEP_TOLERANCE)
    # the context's part was written once from the same operands, so it is equal to the last bit
    for one, other in zip(chunked.storages(), stepped.storages(), strict=True):
        if one.tensor.dim():
            assert torch.equal(one.tensor[:, :, :CONTEXT_TOKENS], other.tensor[:, :, :CONTEXT_TOKENS])


def test_the_native_loss_is_that_of_the_model_without_a_cache(model: Any) -> None:
    targets_BT = ids(9, 2)
    context_BT = ids(CONTEXT_TOKENS + 1, 0)
    cache = reference.filled(
        model, recipe_named("native"), None, reference.prefill(model, context_BT[:, :-1]), 9
    )
    loss_BT = reference.score(model, cache, context_BT[:, -1:], targets_BT)
    logits_BTV = model(torch.cat([context_BT, targets_BT], dim=1)).logits[:, CONTEXT_TOKENS:-1]
    wanted_BT = -log_softmax(logits_BTV.double(), -1).gather(-1, targets_BT[..., None])[..., 0]
    assert loss_BT.shape == targets_BT.shape
    # keys and values rounded to FP16 are what separates the two
    torch.testing.assert_close(loss_BT.double(), wanted_BT, rtol=0.02, atol=0.02)


@every_recipe
def test_every_target_depends_on_the_recipe(model: Any, recipe: Recipe) -> None:
    targets_BT, last_B1 = ids(4, 2), ids(1, 3)
    native_BT = reference.score(model, cache_of(model, recipe_named("native"), 4), last_B1, targets_BT)
    loss_BT = reference.score(model, cache_of(model, recipe, 4), last_B1, targets_BT)
    assert bool(torch.isfinite(loss_BT).all()) and bool((loss_BT >= 0).all())
    changed_BT = loss_BT != native_BT
    assert bool(changed_BT.all()) if recipe.policy != "none" else not bool(changed_BT.any())


@every_recipe
def test_generation_ends_at_the_stop_or_at_the_cap(model: Any, recipe: Recipe) -> None:
    question_BT = ids(5, 4)
    free = reference.generate(model, cache_of(model, recipe, 5 + 12), question_BT, 12, stop_id=-1)
    assert [len(row) for row in free] == [12, 12, 12]
    stop_id = free[1][3]
    rows = reference.generate(model, cache_of(model, recipe, 5 + 12), question_BT, 12, stop_id)
    for row, unstopped in zip(rows, free, strict=True):
        ended = unstopped.index(stop_id) + 1 if stop_id in unstopped else len(unstopped)
        assert row == unstopped[:ended]


def test_generation_is_greedy_and_deterministic(model: Any) -> None:
    question_BT, native = ids(5, 4), recipe_named("native")
    rows = reference.generate(model, cache_of(model, native, 10), question_BT, 5, stop_id=-1)
    assert rows == reference.generate(model, cache_of(model, native, 10), question_BT, 5, stop_id=-1)
    cache = cache_of(model, native, 5)
    first_BV = model(question_BT, past_key_values=cache, use_cache=True).logits[:, -1]
    assert [row[0] for row in rows] == first_BV.argmax(-1).tolist()


def test_forced_steps_never_stop(model: Any) -> None:
    found_BT = reference.forced(model, cache_of(model, recipe_named("k8v8-d"), 7), ids(1, 3), 7)
    assert found_BT.shape == (3, 7)


def test_a_corrupted_checkpoint_is_refused_before_it_is_read(tmp_path: Path) -> None:
    directory = write_model(tmp_path, "qwen3")
    weights = directory / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ModelError, match=r"model\.safetensors is corrupted: sha256 is [0-9a-f]{16}…"):
        reference.load(directory, 1)


def test_all_missing_and_unlisted_files_are_reported_together(tmp_path: Path) -> None:
    directory = write_model(tmp_path, "qwen3")
    (directory / "model.safetensors").rename(directory / "other.safetensors")
    (directory / "config.json").unlink()
    with pytest.raises(ModelError) as caught:
        reference.load(directory, 1)
    said = str(caught.value)
    assert "model.safetensors is missing" in said and "config.json is missing" in said
    assert "other.safetensors has no digest" in said


@pytest.mark.parametrize(
    ("listed", "said"),
    [(None, "digests.json is missing"), ("{", "is no JSON"), ("{}", "has no digests of `qwen3`")],
)
def test_a_checkpoint_without_identity_is_refused(tmp_path: Path, listed: str | None, said: str) -> None:
    directory = write_model(tmp_path, "qwen3")
    (tmp_path / "digests.json").unlink()
    if listed is not None:
        (tmp_path / "digests.json").write_text(listed)
    with pytest.raises(ModelError, match=said):
        reference.load(directory, 1)


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    directory = write_model(tmp_path, "qwen3")
    shutil.rmtree(directory)
    with pytest.raises(ModelError, match="is missing"):
        reference.load(directory, 1)


def test_sliding_windows_are_refused_by_name(tmp_path: Path) -> None:
    changes = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
    with pytest.raises(ModelError, match="`sliding_attention` are not supported"):
        reference.load(write_model(tmp_path, "qwen3", **changes), 1)
    with pytest.raises(ModelError, match=r"sliding-window attention \(16 tokens\)"):
        reference.load(write_model(tmp_path, "mistral", sliding_window=16), 1)
