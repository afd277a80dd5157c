"""What probes say: formulas by hand, thresholds at their edges, and refusals where a number would be noise."""

import math

import pytest

from kassay.stats import InvalidData, probes

NATIVE = [[1.0, 2.0], [3.0, 2.0]]


def test_a_change_by_hand():
    found = probes.change(NATIVE, [[1.0, 2.5], [3.0, 2.3]], [2, 1], [0.25, 0.75])
    assert (found.texts, found.targets, found.agreement, found.logit_error) == (2, 4, 0.75, 0.5)
    assert found.relative_loss_change == pytest.approx(0.1)
    assert found.perplexity_ratio == pytest.approx(math.exp(0.2))
    assert found.label == "catastrophic"


@pytest.mark.parametrize(
    ("change", "ratio", "agreement", "label"),
    [
        (0.0049, 1.0, 0.98, "tolerant"),
        (-0.3, 0.5, 1.0, "tolerant"),
        (0.005, 1.0, 1.0, "material"),
        (0.0, 1.0, 0.979, "material"),
        (0.05, 2.0, 0.80, "material"),
        (0.0501, 1.0, 1.0, "catastrophic"),
        (0.0, 2.01, 1.0, "catastrophic"),
        (0.0, 1.0, 0.799, "catastrophic"),
    ],
)
def test_classes_at_their_edges(change, ratio, agreement, label):
    assert probes.label_of(change, ratio, agreement) == label


@pytest.mark.parametrize(
    "arm", [[[1.0, 2.0]], [[1.0], [3.0, 2.0]], [[1.0, math.nan], [3.0, 2.0]], [[1.0, math.inf], [3.0, 2.0]]]
)
def test_texts_that_do_not_pair_or_are_no_numbers_are_refused(arm):
    with pytest.raises(InvalidData):
        probes.change(NATIVE, arm, [2, 2], [0.1, 0.1])


def test_the_screen_is_a_mean_of_ratios_and_not_a_ratio_of_means():
    ratio, label = probes.error_ratio([6.0, 1.0], [1.0, 1.0])
    assert (ratio, label) == (3.5, "flagged")
    assert probes.error_ratio([10.0, 2.0], [10.0, 0.5]) == (2.5, "not flagged")
    assert probes.error_ratio([3.0], [1.0]) == (3.0, "not flagged")  # above tau, not at it


@pytest.mark.parametrize(("coarse", "fine"), [([1.0], [0.0]), ([math.nan], [1.0]), ([], []), ([1.0], [1.0, 2.0])])
def test_a_screen_that_cannot_be_computed_is_refused(coarse, fine):
    with pytest.raises(InvalidData):
        probes.error_ratio(coarse, fine)


def test_recovery_and_its_classes():
    assert probes.recovery(1.0, 0.3) == (0.7, "substantial")
    assert probes.recovery(1.0, 0.5) == (0.5, "partial")
    assert probes.recovery(1.0, 0.71)[1] == "negligible"
    assert probes.recovery(1.0, 1.5) == (-0.5, "negligible")
    with pytest.raises(InvalidData, match="nothing to recover"):
        probes.recovery(0.004, 0.0)


def test_concentration():
    assert probes.concentration([0.1, -5.0, 0.3]) == (pytest.approx(0.75), 2)
    with pytest.raises(InvalidData, match=r"all layers together cost 0\.002"):
        probes.concentration([0.001, 0.001, -0.5])
