"""The reference backend on tiny random models of three architectures: files, cache, chunks and stopping."""

import pytest
import torch
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from kassay.backend import reference, structure
from kassay.backend.reference import ModelError
from kassay.kv.calibrate import AmaxFold, by_component
from kassay.kv.recipe import RECIPES, recipe_named
from tests import tiny
from tests.tiny import torch_as_it_was  # noqa: F401  an autouse fixture

ARCHITECTURES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
CHUNK_TOLERANCE = 1e-3  # of the largest logit: a matmul of another shape may move an operand across a rounding edge


def save(folder, name, **changes):
    """A checkpoint of `name` with its digests beside it, as data/models has them."""
    return tiny.save(folder, name, *ARCHITECTURES[name], **{"tie_word_embeddings": True, **changes})


@pytest.fixture(params=ARCHITECTURES)
def model(request, tmp_path):
    return reference.load(save(tmp_path, request.param), 1)


def ids(batch, tokens, seed=3):
    return torch.randint(0, 128, (batch, tokens), generator=torch.Generator().manual_seed(seed))


def calibrated(operands):
    fold = AmaxFold()
    for layer, (k, v) in enumerate(operands.operands):
        fold.add("k", layer, k.numpy())
        fold.add("v", layer, v.numpy())
        fold.add("k_residual", layer, k.numpy())  # too wide a scale, which holds every residual
    return by_component(fold.scales(len(operands.operands), ("k", "v", "k_residual")))


def fits(model, recipe):
    """Skip a pre-bias recipe on a model without a bias, once its refusal was seen."""
    if recipe.prebias and model.config.model_type != "qwen2":
        with pytest.raises(ModelError, match="pre-bias"):
            reference.filled(model, recipe, {}, reference.prefill(model, ids(1, 4)), 1)
        pytest.skip("the model has no key bias")


class RoundedCache(DynamicCache):
    """transformers' own cache of keys and values rounded to FP16."""

    def update(self, key_states, value_states, *args, **kwargs):
        return super().update(key_states.half().float(), value_states.half().float(), *args, **kwargs)


def test_load_gives_an_fp32_model_and_its_geometry(model):
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    geometry = structure.geometry_of(model)
    assert (geometry.layers, geometry.kv_heads, geometry.head_dim) == (2, 2, 32)


def test_a_corrupted_file_is_named(tmp_path):
    weights = save(tmp_path, "qwen3") / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ModelError, match=r"qwen3/model\.safetensors is corrupted: sha256 is"):
        reference.load(weights.parent, 1)


def test_missing_files_are_named_together(tmp_path):
    directory = save(tmp_path, "qwen3")
    for name in ("model.safetensors", "config.json"):
        (directory / name).unlink()
    with pytest.raises(ModelError) as raised:
        reference.load(directory, 1)
    assert "model.safetensors is missing" in str(raised.value)
    assert "config.json is missing" in str(raised.value)


def test_digests_are_needed(tmp_path):
    directory = save(tmp_path, "qwen3")
    (tmp_path / "digests.json").write_text("{}")
    with pytest.raises(ModelError, match="has no digests of `qwen3`"):
        reference.load(directory, 1)
    (tmp_path / "digests.json").unlink()
    with pytest.raises(ModelError, match=r"digests\.json is missing"):
        reference.load(directory, 1)


def test_sliding_windows_are_refused(tmp_path):
    directory = save(tmp_path, "qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=0)
    with pytest.raises(ModelError, match="sliding"):
        reference.load(directory, 1)


def test_native_equals_the_dynamic_cache_of_rounded_operands(model):
    context_BT, chunk_BT = ids(2, 21), ids(2, 6, seed=4)
    operands = reference.prefill(model, context_BT)
    ours = reference.filled(model, recipe_named("native"), None, operands, 6)
    got = model(chunk_BT, past_key_values=ours, use_cache=True).logits
    theirs = RoundedCache()
    model(context_BT, past_key_values=theirs, use_cache=True)
    wanted = model(chunk_BT, past_key_values=theirs, use_cache=True).logits
    assert torch.equal(got, wanted)


def test_prefill_gives_the_rounded_operands(model):
    context_BT = ids(2, 9)
    theirs = RoundedCache()
    model(context_BT, past_key_values=theirs, use_cache=True)
    for (k, v), layer in zip(reference.prefill(model, context_BT).operands, theirs.layers, strict=True):
        assert torch.equal(k, layer.keys.half())
        assert torch.equal(v, layer.values.half())


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_chunk_equals_token_by_token(model, recipe):
    if recipe.policy == "tensor":
        pytest.skip("the one policy whose scale is for a whole write")
    fits(model, recipe)
    operands, chunk_BT = reference.prefill(model, ids(2, 21)), ids(2, 6, seed=4)
    scales = calibrated(operands)
    whole = reference.filled(model, recipe, scales, operands, 6)
    chunk = model(chunk_BT, past_key_values=whole, use_cache=True).logits
    cache = reference.filled(model, recipe, scales, operands, 6)
    steps = [model(chunk_BT[:, t : t + 1], past_key_values=cache, use_cache=True).logits for t in range(6)]
    error = float((torch.cat(steps, dim=1) - chunk).abs().max() / chunk.abs().max())
    assert error <= CHUNK_TOLERANCE


@pytest.mark.parametrize("recipe", RECIPES[1:], ids=lambda recipe: recipe.name)
def test_a_quantized_recipe_differs_from_native(model, recipe):
    fits(model, recipe)
    operands, chunk_BT = reference.prefill(model, ids(2, 21)), ids(2, 6, seed=4)
    logits = [
        model(
            chunk_BT,
            past_key_values=reference.filled(model, one, calibrated(operands), operands, 6),
            use_cache=True,
        ).logits
        for one in (recipe_named("native"), recipe)
    ]
    assert float((logits[0] - logits[1]).abs().max()) > CHUNK_TOLERANCE * float(logits[0].abs().max())


def test_score_is_the_loss_of_each_target(model):
    rows_BT = ids(2, 30)
    operands = reference.prefill(model, rows_BT[:, :19])
    cache = reference.filled(model, recipe_named("native"), None, operands, 11)
    got = reference.score(model, cache, rows_BT[:, 19:20], rows_BT[:, 20:])
    everything = model(rows_BT, past_key_values=RoundedCache(), use_cache=True).logits.log_softmax(-1)
    wanted = -everything[:, 19:-1].gather(-1, rows_BT[:, 20:, None])[..., 0]
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)


def greedy(model, steps):
    operands = reference.prefill(model, ids(3, 12))
    cache = reference.filled(model, recipe_named("native"), None, operands, 4 + steps)
    return operands, reference.generate(model, cache, ids(3, 4, seed=5), steps, stop_id=-1)


def test_generate_stops_rows_one_by_one(model):
    operands, free = greedy(model, 8)
    assert [len(row) for row in free] == [8, 8, 8]
    stop_id = free[0][2]
    cache = reference.filled(model, recipe_named("native"), None, operands, 12)
    stopped = reference.generate(model, cache, ids(3, 4, seed=5), 8, stop_id)
    for row, whole in zip(stopped, free, strict=True):
        assert row == (whole[: whole.index(stop_id) + 1] if stop_id in whole else whole)
    assert stopped[0][-1] == stop_id


def test_generate_ends_when_all_rows_stopped(model):
    operands = reference.prefill(model, ids(1, 12))
    first = greedy(model, 1)[1][0]
    cache = reference.filled(model, recipe_named("native"), None, operands, 12)
    question_BT = ids(3, 4, seed=5)[:1]
    found = reference.generate(model, cache, question_BT, 8, stop_id=-1)[0][0]
    cache = reference.filled(model, recipe_named("native"), None, operands, 12)
    assert reference.generate(model, cache, question_BT, 8, found) == [[found]]
    assert cache.get_seq_length() == 16
    assert len(first) == 1


def test_forced_never_stops(model):
    operands = reference.prefill(model, ids(2, 12))
    cache = reference.filled(model, recipe_named("native"), None, operands, 5)
    assert reference.forced(model, cache, ids(2, 1), 5).shape == (2, 5)
    assert cache.get_seq_length() == 17
