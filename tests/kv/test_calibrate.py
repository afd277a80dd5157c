"""Folding: the order and the cut of the batches do not matter, and nothing is made up for a layer without evidence."""

import numpy as np
import pytest

from kassay.errors import KassayError
from kassay.kv.calibrate import AmaxFold
from kassay.kv.formats import E4M3FN, scale_of

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


def test_a_layer_of_zeros_is_refused():
    fold = folded([OPERAND])
    fold.add("k", 1, np.zeros((2, 3), np.float16))
    with pytest.raises(KassayError, match="layer 1, component `k`: nothing but zeros in 6 operands"):
        fold.scales(2)


def test_a_layer_that_saw_nothing_is_refused():
    with pytest.raises(KassayError, match="layer 1, component `k`: nothing but zeros in 0 operands"):
        folded([OPERAND]).scales(2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused(bad):
    operand = OPERAND.copy()
    operand[0, 0, 0, 0] = bad
    with pytest.raises(KassayError, match="layer 2, component `v`: an operand is not finite"):
        AmaxFold().add("v", 2, operand)
