"""Requests behind a shared prefix under Triton's interpreter: transformers' own tokens, one softmax, refusals."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

if not find_spec("triton"):
    pytest.skip("the kernels need triton", allow_module_level=True)
import tests.backend.test_fused as on_kernels  # noqa: F401  first: it asks for the interpreter
from kassay.backend import fused, fused_arms, fused_prefix, fused_tuning, fused_weights, reference
from kassay.backend.fused_prefix import Operands, Prefix
from kassay.errors import KassayError
from kassay.kernels.cartridge import Cartridge, Shared
from kassay.kv.cache import Prefilled
from kassay.kv.plane import decode, encode, scale_of
from kassay.kv.recipe import recipe_named
from tests.backend.test_fused import CPU, ids, interpreted, saved  # noqa: F401  an autouse fixture
from tests.tiny import torch_as_it_was  # noqa: F401  an autouse fixture

PAGE, POSITIONS, STEPS = 8, 24, 2
LOGITS = 2e-3  # of the largest logit, as for a native cache in test_fused


class Text:
    """One prefix, two requests behind it, and a tiny model in both backends."""

    def __init__(self, folder: Path, family: str = "qwen3") -> None:
        directory = saved(folder, family)
        self.model = reference.load(directory, 1)
        self.weights = fused_weights.read(directory, torch.float32, CPU)
        both = ids(3, POSITIONS + 7)
        self.prefix_T, self.own_BT = both[0, :POSITIONS], both[1:, :7]
        self.operands = fused_arms.operands_of(self.weights, self.prefix_T, "fp16")

    def frozen(self, recipe: str) -> Prefix:
        """The prefix as that recipe stores it."""
        return fused_prefix.frozen(
            recipe_named(recipe), self.operands, query_heads=4, page_tokens=PAGE, scales=None
        )  # fmt: skip

    def decoder(self, own: str, prefix: Prefix | None) -> fused.Decoder:
        """A decoder of both requests."""
        tokens = 7 + STEPS + (0 if prefix else POSITIONS)
        plan = fused.Plan(batch=2, row_tokens=tokens, steps=STEPS, page_tokens=PAGE)
        return fused.Decoder(self.weights, recipe_named(own), plan, prefix=prefix)

    def wanted(self, rounded: bool) -> torch.Tensor:
        """transformers' logits of the next tokens, the prefix's values rounded to E4M3 or not."""
        context = reference.prefill(self.model, self.prefix_T[None])
        operands = [(k, rounded_values(v) if rounded else v) for k, v in context.operands]
        both = [(k.expand(2, -1, -1, -1), v.expand(2, -1, -1, -1)) for k, v in operands]
        cache = reference.made(self.model, recipe_named("native"), None, POSITIONS + 7)
        cache.fill(Prefilled(operands=both))
        self.model(self.own_BT[:, :-1], past_key_values=cache, use_cache=True)
        logits: torch.Tensor = self.model(self.own_BT[:, -1:], past_key_values=cache, use_cache=True).logits[:, -1]
        return logits


def rounded_values(v_BHTD: torch.Tensor) -> torch.Tensor:
    """What K16/V8 with a scale a token and head holds of values, in 16 bits."""
    scale = scale_of(v_BHTD.float().abs().amax(-1, keepdim=True))
    return decode(encode(v_BHTD.float(), scale, "e4m3fn"), scale, "e4m3fn").half()


def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest, of the largest logit."""
    return float((got - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize(("family", "recipe"), [("qwen3", "native"), ("llama", "native"), ("qwen3", "k16v8-d")])
def test_prompts_and_steps_behind_a_prefix_are_those_of_transformers(tmp_path: Path, family: str, recipe: str) -> None:
    text = Text(tmp_path, family)
    prefix = text.frozen(recipe)
    before = prefix.digest()
    decoder = text.decoder("native", prefix)
    decoder.admit(text.own_BT, STEPS)
    wanted = text.wanted(rounded=recipe != "native")
    assert error(decoder.logits(2), wanted) < LOGITS
    assert isinstance(decoder.attends[2], Shared) and list(decoder.cuts()) == [2]
    assert prefix.digest() == before, "a prefix is frozen"
    decoder.run(STEPS)
    assert torch.equal(decoder.collect()[0], wanted.argmax(-1))


def test_behind_a_prefix_a_request_says_what_it_says_after_its_copy(tmp_path: Path) -> None:
    text = Text(tmp_path)
    shared = text.decoder("k16v8-d", text.frozen("k16v8-d"))
    shared.admit(text.own_BT, STEPS)
    wanted = shared.logits(2)
    alone = text.decoder("k16v8-d", None)
    rows = alone.cache.admit([POSITIONS + 7 + STEPS] * 2)
    fused_prefix.copied(alone.cache, alone.host, 2, text.operands)
    for index, layer in enumerate(alone.cache.layers):  # the own tokens too: what the shared decoder stored of them
        for plane, theirs in ((layer.keys, shared.cache.layers[index].keys),
                              (layer.values, shared.cache.layers[index].values)):  # fmt: skip
            for row in rows:
                mine = alone.cache.held[row][POSITIONS // PAGE :]
                own = shared.cache.held[row]
                plane.data_PSHW[mine] = theirs.data_PSHW[own]
                if plane.scale_PHSG is not None and theirs.scale_PHSG is not None:
                    plane.scale_PHSG[mine] = theirs.scale_PHSG[own]
    for state, given in ((alone.ids_B, text.own_BT[:, -1]), (alone.positions_B, POSITIONS + 6),
                         (alone.lengths_B, POSITIONS + 7)):  # fmt: skip
        state[:] = given
    assert error(alone.logits(2), wanted) < 1e-3  # a weight is rounded to 16 bits in other parts


def without(prefix: Prefix, operands: Operands) -> Prefix:
    """Half of the prefix is not there."""
    halves = tuple(Cartridge(one.layer, one.pages[:1], PAGE) for one in prefix.cartridges)
    return replace(prefix, cartridges=halves)


def of_another_layer(prefix: Prefix, operands: Operands) -> Prefix:
    """Layers' cartridges in each other's places."""
    return replace(prefix, cartridges=prefix.cartridges[::-1])


def a_page_from_elsewhere(prefix: Prefix, operands: Operands) -> Prefix:
    """One page twice, another one lost."""
    for one in prefix.cartridges:
        for plane in (one.layer.keys, one.layer.values):
            plane.data_PSHW[1] = plane.data_PSHW[0]
    return prefix


def values_of_keys(prefix: Prefix, operands: Operands) -> Prefix:
    """Keys and values in each other's planes."""
    for one in prefix.cartridges:
        one.layer.keys.data_PSHW, one.layer.values.data_PSHW = one.layer.values.data_PSHW, one.layer.keys.data_PSHW
    return prefix


@pytest.mark.parametrize("fault", [without, of_another_layer, a_page_from_elsewhere, values_of_keys])
def test_a_prefix_that_is_not_the_one_is_noticed(tmp_path: Path, fault: object) -> None:
    text = Text(tmp_path)
    decoder = text.decoder("native", fault(text.frozen("native"), text.operands))  # type: ignore[operator]
    decoder.admit(text.own_BT, STEPS)
    assert not error(decoder.logits(2), text.wanted(rounded=False)) < LOGITS


def test_positions_count_from_the_end_of_the_prefix(tmp_path: Path) -> None:
    text = Text(tmp_path)
    decoder = text.decoder("native", text.frozen("native"))
    decoder.step.turns = decoder.step.turns.roll(1, dims=0)  # one token off
    decoder.admit(text.own_BT, STEPS)
    assert not error(decoder.logits(2), text.wanted(rounded=False)) < LOGITS


@pytest.mark.parametrize("recipe", [None, "k16v8-d"])
def test_the_fastest_cut_is_taken_and_every_one_attends_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str | None
) -> None:
    text = Text(tmp_path)
    decoder = text.decoder("native", None if recipe is None else text.frozen(recipe))
    decoder.admit(text.own_BT, STEPS)
    outputs = []

    def one(call: Any, calls: int) -> Any:
        for at in range(3):
            call(at)
        outputs.append((call.kernel, call.outs[0].clone()))
        return call

    monkeypatch.setattr(fused_tuning, "captured", one)
    monkeypatch.setattr(
        fused_tuning, "interleaved", lambda graphs, calls, rounds: {name: [9.0 - int(name)] * 3 for name in graphs}
    )
    fused_tuning.tune(decoder, 2, 3)
    assert decoder.attends[2] is outputs[-1][0] and len(outputs) > 1, "the last one was said to be the fastest"
    assert all(torch.allclose(out, outputs[0][1], atol=1e-3) for _, out in outputs)
    assert list(decoder.cuts()) == [2]


def test_what_a_prefix_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    text = Text(tmp_path)
    with pytest.raises(KassayError, match="24 positions does not end at a boundary of pages of 16"):
        fused_prefix.frozen(recipe_named("native"), text.operands, query_heads=4, page_tokens=16, scales=None)
    with pytest.raises(KassayError, match="needs a scale of component `k` for layer 0"):
        fused_prefix.frozen(recipe_named("k16v8-f"), text.operands, query_heads=4, page_tokens=8, scales=None)
    prefix = text.frozen("native")
    with pytest.raises(KassayError, match="a prefix of 1 layers, the model has 2"):
        text.decoder("native", replace(prefix, cartridges=prefix.cartridges[:1]))
    plan = fused.Plan(batch=1, row_tokens=8, steps=1)
    with pytest.raises(KassayError, match="a prefix in pages of 8 tokens, the own pages have 16"):
        fused.Decoder(text.weights, recipe_named("native"), plan, prefix=prefix)
    with pytest.raises(KassayError, match="512 positions, and 520 are asked for"):
        plan = fused.Plan(batch=1, row_tokens=496, steps=1, page_tokens=8)
        fused.Decoder(text.weights, recipe_named("native"), plan, prefix=prefix)
    own = text.decoder("native", None).shape
    with pytest.raises(KassayError, match="in 16 bits on a GPU, and these weights are FP32"):
        fused_prefix.check_room(prefix, 2, own, torch.float32, torch.device("cuda"))
