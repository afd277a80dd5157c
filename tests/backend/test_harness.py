"""A recipe as the harness asks it: sums of log-likelihoods, greedy answers, and scores that are descriptive."""

from pathlib import Path
from typing import Any

import pytest
import torch

from kassay.backend import checkpoint, harness, reference
from kassay.backend.harness import RecipeModel
from kassay.errors import KassayError
from kassay.kv.recipe import recipe_named
from tests import given
from tests.tiny import torch_as_it_was

__all__ = ["torch_as_it_was"]
TEXT, MORE = "the code of kef is 472. what is the code of", " kef? 472"
IDENTITY = {
    "model_sha256": "0" * 64,
    "recipe": "k8v8-d", "scales_sha256": None, "compute_dtype": "torch.float32", "harness": "0",
}  # fmt: skip


@pytest.fixture(params=[False, True], ids=["no-begin", "begin"])
def loaded(request: pytest.FixtureRequest, tmp_path: Path) -> checkpoint.Checkpoint:
    folder = given.save(tmp_path / "snapshot", begin=request.param)
    return checkpoint.given(folder, 1, torch.device("cpu"), "fp32")


def under(loaded: checkpoint.Checkpoint, name: str) -> RecipeModel:
    tokens: Any = loaded.text
    return RecipeModel(checkpoint=loaded, tokens=tokens, recipe=recipe_named(name, "fp16"), scales=None, sixteen="fp16")


def test_loglikelihood_is_the_sum_over_the_continuation(loaded: checkpoint.Checkpoint) -> None:
    model = under(loaded, "native")
    total, greedy = model.loglikelihood(TEXT, MORE)
    whole = model.prefix() + model.tokens.ids(TEXT + MORE)
    at = len(model.prefix() + model.tokens.ids(TEXT))
    logits_TV = loaded.model(loaded.rows([whole])).logits[0].float().log_softmax(-1)
    plain = sum(float(logits_TV[place - 1, whole[place]]) for place in range(at, len(whole)))
    assert total == pytest.approx(plain, abs=0.02) and not greedy, "operands of 16 bit"
    assert model.loglikelihood(TEXT + " ", MORE[1:]) == (total, greedy), "a blank belongs to what follows"
    other = under(loaded, "k8v8-d").loglikelihood(TEXT, MORE)[0]
    assert other != total and other == pytest.approx(total, abs=3)
    assert model.loglikelihood("", MORE)[0] < 0 and model.loglikelihood(TEXT, "") == (0.0, True)


def test_an_answer_ends_where_the_task_says_and_is_greedy(loaded: checkpoint.Checkpoint) -> None:
    model = under(loaded, "native")
    whole = model.generated(TEXT, {"until": [], "max_gen_toks": 8})
    assert whole and whole == model.generated(TEXT, {"max_gen_toks": 8, "do_sample": False})
    end = whole[2]
    assert model.generated(TEXT, {"until": ["never", end], "max_gen_toks": 8}) == whole.partition(end)[0]
    ids = model.prefix() + model.tokens.ids(TEXT)
    cache = model.cache(ids, 1)
    (row,) = reference.generate(loaded.model, cache, loaded.rows([ids[-1:]]), 1, model.tokens.ends)
    assert model.scored(ids, tuple(row))[1], "what is generated is the likeliest"
    with pytest.raises(KassayError, match="answers greedily"):
        model.generated(TEXT, {"do_sample": True})
    with pytest.raises(KassayError, match="1024 positions"):
        model.generated(TEXT, {"max_gen_toks": 1024})


def test_scores_are_descriptive_records() -> None:
    found = {
        "results": {"mine": {"alias": "mine", "acc,none": 0.5, "acc_stderr,none": "N/A", "samples": 4}},
        "versions": {"mine": 1.0},
        "n-samples": {"mine": {"original": 9, "effective": 4}},
    }
    (score,) = harness.scores(found, **IDENTITY)
    assert (score.metric, score.value, score.items, score.standing) == ("acc,none", 0.5, 4, "descriptive")


def test_without_the_harness_it_says_what_to_install(
    loaded: checkpoint.Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lm_eval.api.model", None)
    with pytest.raises(KassayError, match=r"not installed\nhint: pip install 'kassay\[lm-eval\]'"):
        harness.language_model(under(loaded, "native"))


def test_the_harness_own_requests(loaded: checkpoint.Checkpoint) -> None:
    pytest.importorskip("lm_eval")
    from lm_eval.api.instance import Instance

    model = under(loaded, "k8v8-d")
    words = harness.language_model(model)

    def asked(kind: Any, *arguments: Any) -> list[Any]:
        return [Instance(request_type=kind, doc={}, arguments=arguments, idx=0)]

    assert words.loglikelihood(asked("loglikelihood", TEXT, MORE)) == [model.loglikelihood(TEXT, MORE)]
    assert words.loglikelihood_rolling(asked("loglikelihood_rolling", TEXT))[0] < 0
    (said,) = words.generate_until(asked("generate_until", TEXT, {"until": ["\n"], "max_gen_toks": 4}))
    assert said == model.generated(TEXT, {"until": ["\n"], "max_gen_toks": 4})
