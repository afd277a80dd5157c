"""What workflow `speculation` carries out of a study, and the faults that it tells before anything is measured."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.config import compose, kconfig
from kassay.study import examine, speculation

WORKFLOW = paths.ROOT / "workflows" / "speculation"


def study(**changed: Any) -> dict[str, Any]:
    """The study of the profile with other values at dotted keys."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / ".config"
        kconfig.load_profile("speculation-cpu", {}, config)
        made = compose.compose(WORKFLOW, kconfig.load(config), [])["study"]
    for key, value in changed.items():
        at = made
        *parents, last = key.split(".")
        for word in parents:
            at = at[word]
        at[last] = value
    for section in [name for name, value in made.items() if value is None and name in ("speculation", "calibration")]:
        del made[section]  # left out
    return dict(made)


def faults(**changed: Any) -> dict[str, str]:
    """Key -> why the workflow cannot do it; the form of the study must be right."""
    found = examine(study(**changed))
    assert found.study is not None and found.wrong == {}, found.wrong
    return speculation.faults(found.study)


def test_the_shipped_study_is_carried_out() -> None:
    assert faults() == {}


@pytest.mark.parametrize(
    ("changed", "key", "words"),
    [
        ({"speculation": None}, "speculation", "workflow `speculation` needs it"),
        ({"calibration": None}, "calibration", "workflow `speculation` needs it"),
        ({"arms.native-ngram.keys": "e4m3fn"}, "arms.native-ngram", "its keys are `e4m3fn`, and recipe `native`"),
        ({"arms.k8v8-d.scales": "fixed"}, "arms.k8v8-d", "its scales are `fixed`"),
        ({"timing.arms": ["native", "k8v8-d", "native-ngram"]}, "timing.arms", "others than the roles"),
        ({"workloads.one.load": "closed-loop"}, "workloads.one", "times batches of forced length"),
        ({"workloads.one.output_tokens": None}, "workloads.one", "times batches of forced length"),
        ({"speculation.shortest_ngram": 5}, "speculation.shortest_ngram", "is 5, and `longest_ngram` is 4"),
        ({"speculation.arms.native-ngram": "k8v8-d-ngram"}, "speculation.arms.native-ngram", "an arm without drafts"),
        ({"speculation.arms.native-ngram": "k8v8-d"}, "speculation.composition", "speculative with plain"),
        ({"speculation.composition.plain": "k8v8-d"}, "speculation.composition", "speculative with plain"),
        ({"speculation.acceptance.recipes": ["k8v8-t"]}, "speculation.acceptance.recipes", "what one write brings"),
        ({"speculation.acceptance.recipes": ["k9"]}, "speculation.acceptance.recipes", "unknown recipe `k9`"),
        ({"speculation.acceptance.batches": [1, 3]}, "speculation.acceptance.batches", "3 does not divide 8 requests"),
    ],
)
def test_what_cannot_be_carried_out_is_told_by_its_key(changed: dict[str, Any], key: str, words: str) -> None:
    assert words in faults(**changed)[key]


def test_a_draft_of_an_unknown_kind_is_a_fault_of_form() -> None:
    assert "allowed are ngram" in examine(study(**{"speculation.drafts": "tree"})).wrong["speculation.drafts"]
