"""Our kernels behind transformers' attention interface, under Triton's interpreter: the same tokens, or a refusal."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

if not find_spec("triton"):
    pytest.skip("the kernels need triton", allow_module_level=True)
import tests.backend.test_fused as on_kernels  # noqa: F401  first: it asks for the interpreter
from kassay.backend import fused_attention, reference
from kassay.backend.structure import ModelError
from kassay.errors import KassayError
from kassay.kv.recipe import Recipe, recipe_named
from tests.backend.test_fused import LARGE, ids, interpreted, saved  # noqa: F401  an autouse fixture
from tests.tiny import torch_as_it_was  # noqa: F401  an autouse fixture

LOGITS = 5e-3  # of the largest logit


@pytest.mark.parametrize(("family", "recipe"), [("qwen3", "k16v8-d"), ("qwen2", "prebias-k8v8-d")])
def test_a_model_of_transformers_runs_on_our_kernels(tmp_path: Path, family: str, recipe: str) -> None:
    model = reference.load(saved(tmp_path, family, key_bias=LARGE), 1)
    check_runs(model, recipe_named(recipe), ids(2, 8))


def check_runs(model: Any, recipe: Recipe, ids_BT: torch.Tensor) -> None:
    """A prompt, a chunk and a step over a KernelCache against the reference cache, and a cache that is too short."""
    context = reference.prefill(model, ids_BT[:, :5])
    cache = reference.filled(model, recipe, None, context, 5)
    wanted = model(ids_BT[:, 5:], past_key_values=cache, use_cache=True).logits
    wanted_BT = reference.forced(model, cache, wanted[:, -1:].argmax(-1), 1)
    model.set_attn_implementation(fused_attention.NAME)
    own = fused_attention.KernelCache(model, recipe, None, 12)
    model(ids_BT[:, :5], past_key_values=own, use_cache=True)  # fresh: native operands
    got = model(ids_BT[:, 5:], past_key_values=own, use_cache=True).logits  # a chunk, each token in the pages
    assert (got - wanted).abs().max() < LOGITS * wanted.abs().max()
    assert torch.equal(reference.forced(model, own, wanted[:, -1:].argmax(-1), 1), wanted_BT)
    assert own.get_seq_length() == 9
    with pytest.raises(ModelError, match="2 sequences of 14 tokens, this cache was made for 2 of up to 12"):
        model(ids_BT[:, :5], past_key_values=own, use_cache=True)


def test_what_the_kernels_do_not_compute_is_refused_by_name(tmp_path: Path) -> None:
    model = reference.load(saved(tmp_path, "llama"), 1)
    model.set_attn_implementation(fused_attention.NAME)
    with pytest.raises(ModelError, match="needs a KernelCache"):
        model(ids(1, 4))
    with pytest.raises(ModelError, match="does not support padding"):
        cache = fused_attention.KernelCache(model, recipe_named("native"), None, 8)
        model(ids(2, 4), attention_mask=torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]]), past_key_values=cache)
    plain = reference.load(saved(tmp_path / "plain", "mistral"), 1)
    with pytest.raises(ModelError, match="pre-bias needs a key bias in each of 2 layers, the model has 0"):
        fused_attention.KernelCache(plain, recipe_named("prebias-k8v16-d"), None, 8)
    with pytest.raises(ModelError, match=r"a mask of its own, dropout of 0.1, logits scaled by 1, .*a soft cap"):
        fused_attention.refuse(torch.zeros(1, 1, 1, 64), torch.zeros(1), 1.0, 0.1, {"softcap": 30.0})
    narrow = reference.load(saved(tmp_path / "narrow", "llama", head_dim=32), 1)
    with pytest.raises(KassayError, match="head dim 32"):
        fused_attention.KernelCache(narrow, recipe_named("native"), None, 8)
