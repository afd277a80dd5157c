"""Folding: the order and the cut of the batches do not matter, and nothing is made up for a layer without evidence."""

import numpy as np
import pytest

from kassay.errors import KassayError
from kassay.kv import calibrate
from kassay.kv.calibrate import AmaxFold
from kassay.kv.formats import E4M3FN, decode, encode, scale_of

OPERAND = np.random.default_rng(3).normal(size=(6, 2, 9, 8)).astype(np.float16)


def folded(batches, layers=1):
    fold = AmaxFold()
    for batch in batches:
        for component in ("k", "v"):
            for layer in range(layers):
                fold.add(component, layer, batch)
    return fold


def test_folding_over_batches_is_one_fold():
    whole = folded([OPERAND]).scales(1)
    for cuts in ([1, 4], [2, 3, 5]):
        batches = np.split(OPERAND, cuts)
        assert folded(batches).scales(1) == whole
        assert folded(batches[::-1]).scales(1) == whole


def test_a_scale_is_the_rule_of_the_largest_operand():
    operand = OPERAND.copy()
    operand[3, 1, 4, 5] = -70.0
    found = folded([operand]).scales(1)[0]
    assert (found.component, found.layer, found.amax, found.elements) == ("k", 0, 70.0, operand.size)
    assert found.scale == float(scale_of(E4M3FN, np.array([70.0], np.float32))[0])


def test_components_and_layers_are_apart():
    fold = AmaxFold()
    for number, (component, layer) in enumerate([("k", 0), ("k", 1), ("v", 0), ("v", 1)], start=1):
        fold.add(component, layer, np.full((2, 3), number, np.float16))
    assert [(s.component, s.layer, s.amax) for s in fold.scales(2)] == [
        ("k", 0, 1.0),
        ("k", 1, 2.0),
        ("v", 0, 3.0),
        ("v", 1, 4.0),
    ]


def test_zeros_are_counted():
    fold = folded([np.array([0.0, -0.0, 2.0], np.float16), np.array([0.0, 1.0], np.float16)])
    assert {(s.zeros, s.elements) for s in fold.scales(1)} == {(3, 5)}


def test_a_layer_of_zeros_is_flagged_and_its_codes_are_zero():
    """O19 (a)."""
    fold = folded([OPERAND])
    fold.add("k", 1, np.zeros(3, np.float16))
    fold.add("v", 1, OPERAND)
    found = {(scale.component, scale.layer): scale for scale in fold.scales(2)}
    assert [place for place, scale in found.items() if scale.all_zero] == [("k", 1)]
    scale = np.array([found["k", 1].scale], np.float32)
    assert 0 < scale[0] < 1e-12
    codes = encode(E4M3FN, np.zeros(3, np.float16), scale, saturate=True)
    assert codes.tolist() == [0, 0, 0] and decode(E4M3FN, codes, scale).tolist() == [0.0, 0.0, 0.0]


def test_a_layer_that_saw_nothing_is_refused():
    with pytest.raises(KassayError, match="layer 1, component `k` saw no operand"):
        folded([OPERAND]).scales(2)


def test_all_batches_are_folded():
    """O19 (c): with the first batch alone 100 comes back as 44.8."""
    first, second = np.array([44.8, -10, 3], np.float32), np.array([100, -5], np.float32)
    both = folded([first, second]).scales(1)[0].scale
    alone = folded([first]).scales(1)[0].scale
    assert both == pytest.approx(100 / 448, rel=1e-6)
    everything = np.concatenate([first, second])
    scale = np.array([both], np.float32)
    back = decode(E4M3FN, encode(E4M3FN, everything, scale, saturate=True), scale)
    assert back == pytest.approx([46.42857142857143, -9.821428571428571, back[2], 100.0, -4.910714285714286], rel=1e-6)
    assert (calibrate.saturated(everything, both), calibrate.saturated(everything, alone)) == (0, 1)
    narrow = np.array([alone], np.float32)
    cut = decode(E4M3FN, encode(E4M3FN, everything, narrow, saturate=True), narrow)
    assert cut[3] == pytest.approx(44.8, rel=1e-6)


def made(**changes):
    given = {"schema": calibrate.SCHEMA, "model": "a", "model_sha256": "0" * 64, "sixteen": "fp16"}
    return given | {"scales": {"k": [0.1], "v": [0.2]}} | changes


def test_scales_of_something_else_are_refused():
    own = {"model_sha256": "0" * 64, "sixteen": "fp16"}
    assert calibrate.own_scales(made(), **own) == {"k": [0.1], "v": [0.2]}
    for changes, said in (
        ({"model_sha256": "1" * 64}, "another model: `a`, 1111111111111111…"),
        ({"sixteen": "bf16"}, "calibrated on bf16 operands, these are fp16"),
        ({"schema": "kassay.scales/1"}, "the scales are `kassay.scales/1`, this version reads kassay.scales/2"),
    ):
        with pytest.raises(KassayError, match=said):
            calibrate.own_scales(made(**changes), **own)


def test_splits_that_share_a_text_are_refused():
    splits = {"calibration": ["a" * 64, "b" * 64], "development": ["c" * 64, "c" * 64], "confirmation": ["d" * 64]}
    assert calibrate.check_disjoint(splits) == {"calibration": 2, "development": 1, "confirmation": 1}
    with pytest.raises(KassayError, match="1 texts are in both `calibration` and `confirmation`, such as bbbb"):
        calibrate.check_disjoint(splits | {"confirmation": ["b" * 64]})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused(bad):
    operand = OPERAND.copy()
    operand[0, 0, 0, 0] = bad
    with pytest.raises(KassayError, match="layer 2, component `v`: an operand is not finite"):
        AmaxFold().add("v", 2, operand)
