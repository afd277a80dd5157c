"""Quality on vLLM without a GPU: what is prefilled and what is decoded, evidence of cohorts, refusals, certificates."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kassay import paths
from kassay.backend import reference, text, vllm_quality
from kassay.backend.endpoints import Endpoints
from kassay.backend.vllm import require_scripts
from kassay.backend.vllm_arguments import sampling_arguments
from kassay.backend.vllm_forcing import SCRIPT, Teacher
from kassay.backend.vllm_quality import Questioner, cohorts, lacks, require_alike, require_felt, split
from kassay.errors import KassayError
from kassay.kinds.quality import Answer, AnswerCounts, DocumentLoss, ItemLength
from kassay.kinds.vllm import VllmCohort
from kassay.kv.recipe import recipe_named
from kassay.record import Writer
from tests.stages.test_file_tasks import ENDPOINTS as FILES
from tests.stages.test_given_model import QUALITY as GIVEN
from tests.stages.test_model_stages import QUALITY, ROBUST
from tests.vllm.standin import PREFILLED_NATS, Kept, StandIn, model_of

ENGINE: dict[str, Any] = {
    "sixteen": "fp16", "pool_mib": 64, "sequences": 32, "sequence_tokens": 512, "batched_tokens": 2048,
    "graphs": [1, 32], "prefix_caching": False, "chunked_prefill": False, "continued": "refuse", "lengths": "uneven",
    "cuts": None,
}  # fmt: skip
PARAMS: dict[str, Any] = {
    **{name: value for name, value in QUALITY.items() if name != "recipes"},
    "engine": ENGINE, "losses": "decoded", "questions": "decoded",
}  # fmt: skip
REAL = {"model": "robust", "dummy": False, "contents": {"calibration": ["d"]}}


def answered(params: dict[str, Any], engine: StandIn) -> Kept:
    """Everything that one arm answers."""
    stage = Kept(params)
    endpoints = Endpoints(stage, text.Characters(), lambda tokens: None)
    Questioner(stage, endpoints, engine, engine.arm).run()
    return stage


def test_answers_and_losses_are_those_of_the_reference(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    """The same items, the same tokens through the cache: a worker and the reference differ in their engine alone."""
    ran = run_stage("quality", QUALITY, {"model": ROBUST, "scales": robust_scales})
    model = model_of("robust")
    scales = json.loads(robust_scales.read_bytes())["scales"]
    for name in QUALITY["recipes"]:
        recipe = recipe_named(name)
        stage = answered(PARAMS, StandIn(model, recipe, name, scales if recipe.policy == "fixed" else None))
        wanted = [body for body in ran.records("answer") if body["recipe"] == name]
        assert [json.loads(one.to_json()) for one in stage.of(Answer)] == wanted
        losses = [body for body in ran.records("document_loss") if body["recipe"] == name]
        for one, body in zip(stage.of(DocumentLoss), losses, strict=True):
            assert one.loss_nats == pytest.approx(body["loss_nats"], abs=1e-4)
            assert (one.item_digest, one.context_tokens) == (body["item_digest"], body["context_tokens"])
    cohort = stage.of(VllmCohort)[0]
    assert (cohort.endpoint, cohort.requests, cohort.prompt_tokens) == ("retrieval", 2, 500)
    assert cohort.script_tokens == 2 * len(text.Characters().questions(
        "retrieval", split="development", seed=1, count=1, context_tokens=250)[0].question)  # fmt: skip
    assert stage.told[-1] == (9, 9)


def test_files_and_a_tokenizer_s_texts_are_those_of_the_reference(
    run_stage: Callable[..., Any], given_inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Items of several keys, problems of a file and windows of documents, with a checkpoint's own ends of text."""
    monkeypatch.syspath_prepend(str(paths.ROOT / "stages"))
    import vllm_quality_cell

    asked = {**GIVEN, "recipes": ["native", "k8v8-d"], "endpoints": FILES}
    ran = run_stage("quality", asked, given_inputs)
    assert ran.code == 0, ran.stderr
    words = vllm_quality_cell.words_of(given_inputs["model"])
    model = reference.read(given_inputs["model"], 1, torch.float32)
    for name in asked["recipes"]:
        stage = Kept({**PARAMS, **asked, "batch": 3})
        stage.inputs = given_inputs
        endpoints = Endpoints(stage, words, vllm_quality_cell.positions_of(given_inputs["model"]))
        Questioner(stage, endpoints, StandIn(model, recipe_named(name), name), name).run()
        for kind, record in ((Answer, "answer"), (AnswerCounts, "answer_counts")):
            wanted = sorted(one for one in map(json.dumps, ran.records(record)) if json.loads(one)["recipe"] == name)
            assert sorted(json.dumps(json.loads(one.to_json())) for one in stage.of(kind)) == wanted
        lengths = sorted(json.dumps(json.loads(one.to_json())) for one in stage.of(ItemLength))
        assert lengths == sorted(map(json.dumps, ran.records("item_length")))
        losses = {body["item_id"]: body["loss_nats"] for body in ran.records("document_loss") if body["recipe"] == name}
        assert {one.item_id: one.loss_nats for one in stage.of(DocumentLoss)} == {
            item: pytest.approx(found, abs=1e-4) for item, found in losses.items()
        }
    with pytest.raises(KassayError, match="the model has 1024 positions, and 1025 tokens are asked for"):
        vllm_quality_cell.positions_of(given_inputs["model"])(1025)


def test_what_is_prefilled_and_what_goes_through_the_cache() -> None:
    document: Any = SimpleNamespace(item_id="d")
    item: Any = None
    passage = text.Passage(document=document, context=(1, 2, 3), continuation=(4, 5))
    assert split(passage, "decoded") == split(passage, "prefilled") == ([1, 2], [3, 4, 5])
    question = text.Question(item=item, context=(1, 2), question=(3, 4))
    assert split(question, "decoded") == ([1, 2], [3, 4])
    assert split(question, "prefilled") == ([1, 2, 3, 4], [])
    assert vllm_quality.scored(passage, [PREFILLED_NATS, 1.5, -0.0]) == [1.5, 0.0]
    for losses, words in (([9.0, 1.5], "1 losses, 2 targets"), ([9.0, 1.0, float("nan")], "loss of nan"),
                          ([9.0, -1.0, 1.0], "loss of -1.0 nats")):  # fmt: skip
        with pytest.raises(KassayError, match=words):
            vllm_quality.scored(passage, losses)


def test_cohorts_are_items_in_their_order_the_last_one_shorter() -> None:
    rows: list[Any] = list(range(200))
    assert [len(one) for one in cohorts(rows, 32)] == [32] * 6 + [8]
    assert [item for one in cohorts(rows[:70], 32) for item in one] == rows[:70]
    assert list(cohorts([], 32)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"losses": "prompt"}, "prompt log-probabilities are of a prefill, which attends to its own 16-bit keys"),
        ({"questions": "cached"}, "questions are `cached`"),
        ({"questions": "prefilled", "answer_cap_tokens": 1}, "answers to retrieval, arithmetic have one token"),
        ({"engine": {**ENGINE, "prefix_caching": True}}, "no prefixes, no chunks"),
        ({"engine": {**ENGINE, "chunked_prefill": True}}, "no prefixes, no chunks"),
        ({"batch": 33}, "cohorts of 33 do not run together in an engine of 32 sequences"),
        ({"geometry": "qwen3-8b"}, "`qwen3-8b` is a geometry with drawn weights, whose text says nothing"),
    ],
)
def test_what_would_not_feel_the_cache_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    require_felt(PARAMS, REAL)
    with pytest.raises(KassayError, match="this measurement is refused") as caught:
        require_felt({**PARAMS, **change}, REAL)
    assert words in str(caught.value)


def test_scales_of_drawn_weights_and_items_that_do_not_fit_are_refused(robust_scales: Path) -> None:
    with pytest.raises(KassayError, match="calibrated on drawn weights"):
        require_felt(PARAMS, {"model": "qwen3-8b", "dummy": True})
    with pytest.raises(KassayError, match="the scales do not say over which texts they were folded"):
        require_felt(PARAMS, {**REAL, "contents": {}})
    small = {**PARAMS, "engine": {**ENGINE, "sequence_tokens": 255}}
    with pytest.raises(KassayError, match=r"an item of `retrieval` takes 3.. tokens, the engine's sequences 255"):
        answered(small, StandIn(None, recipe_named("native"), "native"))


COHORT = VllmCohort(
    model="robust", arm="a", endpoint="nll", cohort=0, requests=2, prompt_tokens=100, script_tokens=8, output_tokens=8,
    prefilled_tokens=100, decode_steps=3, mixed_steps=1, preemptions=0, replays={"2": 3}, fallbacks=0,
)  # fmt: skip
STEPS = [SimpleNamespace(completion_steps=[1, 2, 3, 4]), SimpleNamespace(completion_steps=[2, 3, 4, 5])]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"preemptions": 1}, "preempted and computed anew in 16 bits"),
        ({"prefilled_tokens": 84}, "84 of 100 prompt tokens were computed"),
        ({"fallbacks": 1}, "1 prefills continued stored tokens"),
        ({"replays": {}}, "0 of 3 decode steps replayed a graph"),
        ({"replays": {"2": 2}}, "2 of 3 decode steps replayed a graph"),
        ({"requests": 3}, "2 of 3 requests ended"),
    ],
)
def test_a_cohort_that_is_no_evidence_is_told_by_its_lack(change: dict[str, Any], words: str) -> None:
    assert lacks(COHORT, STEPS, True) == []
    assert [said for said in lacks(replace(COHORT, **change), STEPS, True) if words in said]


def test_a_request_that_skips_a_step_is_no_evidence() -> None:
    for steps in ([2, 3, 5, 6], []):
        skipping = [STEPS[0], SimpleNamespace(completion_steps=steps)]
        assert lacks(COHORT, skipping, False) == ["request 1 did not complete one token at every step"]
    assert lacks(replace(COHORT, replays={}, fallbacks=None), STEPS, False) == []


def test_a_preempted_cohort_ends_the_cell_and_keeps_its_record() -> None:
    engine = StandIn(model_of("robust"), recipe_named("native"), "native")
    engine.span = {"preemptions": 2}
    stage = Kept(PARAMS)
    endpoints = Endpoints(stage, text.Characters(), lambda tokens: None)
    with pytest.raises(KassayError, match="cohort 0 of `retrieval` is no evidence: 2 requests were preempted"):
        Questioner(stage, endpoints, engine, "native").run()
    assert [one.preemptions for one in stage.of(VllmCohort)] == [2] and not stage.of(Answer)


def test_arms_answer_the_same_cohorts() -> None:
    other = replace(COHORT, arm="b")
    require_alike([COHORT, other])
    for changed in (replace(other, requests=1), replace(other, script_tokens=7), replace(other, cohort=1)):
        with pytest.raises(KassayError, match="arms `a` and `b` answered different cohorts"):
            require_alike([COHORT, changed])
    with pytest.raises(KassayError, match="answered different cohorts"):
        require_alike([COHORT, replace(COHORT, cohort=1), other])


# Forcing


class Sampler:
    """vLLM 0.25.1's sampler by its shape: the greedy token of each row is its slot + 10."""

    def __init__(self) -> None:
        self.added: list[int] = []

    def add_request(self, req_idx: int, prompt_len: int, sampling_params: Any) -> None:
        self.added.append(req_idx)

    def sample(
        self, logits: Any, expanded_idx_mapping: Any, idx_mapping_np: Any, pos: Any, input_ids: Any,
        expanded_local_pos: Any, return_logprobs: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        return expanded_idx_mapping.long() + 10, logits


def runner(sampler: Any = None) -> SimpleNamespace:
    """A model runner of four slots."""
    return SimpleNamespace(sampler=sampler or Sampler(), max_num_reqs=4, max_model_len=16, device="cpu")


def params(script: list[int] | None) -> SimpleNamespace:
    """Sampling parameters with or without a script."""
    return SimpleNamespace(extra_args=None if script is None else {SCRIPT: script})


def chosen(made: SimpleNamespace, slots: list[int], fed: list[int]) -> list[int]:
    """Tokens that the sampler gives behind the tokens at these positions."""
    slots_B, pos_B = torch.tensor(slots, dtype=torch.int32), torch.tensor(fed)
    found: list[int] = made.sampler.sample(None, slots_B, None, pos_B, None, None, return_logprobs=True)[0].tolist()
    return found


def test_a_script_stands_in_the_place_of_sampled_tokens_and_leaves_with_its_request() -> None:
    made = runner()
    Teacher(made)
    made.sampler.add_request(0, 3, params([7, 8]))
    made.sampler.add_request(2, 5, params(None))
    assert made.sampler.added == [0, 2]
    assert chosen(made, [2, 0], [4, 2]) == [12, 7], "the last prompt token of slot 0 is at 2: the script's first"
    assert chosen(made, [0, 2], [3, 5]) == [8, 12]
    assert chosen(made, [0], [4]) == [10], "behind the script the sampler's own"
    made.sampler.add_request(0, 2, params(None))
    assert chosen(made, [0], [2]) == [10], "nothing of the slot's last request"
    made.sampler.add_request(0, 1, params([9]))
    made.sampler.add_request(3, 15, params([4]))
    assert chosen(made, [0, 3], [0, 14]) == [9, 4]


def test_another_sampler_is_refused_by_name() -> None:
    class Other(Sampler):
        def sample(self, logits: Any, sampling_metadata: Any) -> Any:  # type: ignore[override]
            return logits

    for sampler in (Other(), SimpleNamespace(), SimpleNamespace(sample=3, add_request=4)):
        with pytest.raises(KassayError, match=r"no token can be forced .* model runner v2"):
            Teacher(runner(sampler))


def test_sampling_of_scripts() -> None:
    scored = sampling_arguments(0, forced=True, script=[3, 10, 4], scored=True)
    assert (scored["max_tokens"], scored["min_tokens"], scored["ignore_eos"]) == (3, 3, True)
    assert scored["logprobs"] == 0 and scored["extra_args"] == {SCRIPT: [3, 10, 4]} and scored["temperature"] == 0
    asked = sampling_arguments(32, forced=False, stops=(10, 11), script=[3, 4])
    assert (asked["max_tokens"], asked["stop_token_ids"], asked["ignore_eos"]) == (34, [10, 11], True)
    assert "min_tokens" not in asked and "logprobs" not in asked
    own = sampling_arguments(8, forced=False)
    assert own["ignore_eos"] is False and "extra_args" not in own
    with pytest.raises(KassayError, match="token 10 of a script is one that ends an answer"):
        sampling_arguments(32, forced=False, stops=(10,), script=[3, 10])


def test_an_output_that_does_not_begin_with_its_script_is_a_bug() -> None:
    require_scripts([[1, 2], []], [[1, 2, 3], [4]])
    require_scripts([], [[5]])
    with pytest.raises(KassayError, match="request 1 did not decode the 2 tokens of its script"):
        require_scripts([[1], [2, 3]], [[1], [2, 4]])


# Certificates from these records

STUDY: dict[str, Any] = {
    "name": "tiny", "models": {"fragile": {}}, "seed": 1, "alpha": 0.05, "split": "development",
    "comparisons": {name: {"candidate": name, "control": "native"} for name in ("k16v8-d", "k8v8-d")},
    "endpoints": {"retrieval": {"measure": "retrieval", "items": 12, "context_tokens": 250}},
    "gates": {"keys": {"statistic": "gross-loss", "endpoint": "retrieval", "limit": 0.25, "native_floor": 0.9,
                       "true_rate": 0.004}},
    "certificates": {"comparisons": ["k16v8-d", "k8v8-d"], "objectives": {"preservation": ["keys"]}, "route": None,
                     "family_alpha": None, "slots": 1},
    "expected": {"fragile": {"k16v8-d": "pass", "k8v8-d": "fails"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def kept() -> dict[str, Kept]:
    """What the fragile model answers under three arms."""
    asked = {**PARAMS, "model": "fragile", "batch": 8, "endpoints": STUDY["endpoints"]}
    model = model_of("fragile")
    arms = ("native", "k16v8-d", "k8v8-d")
    return {arm: answered(asked, StandIn(model, recipe_named(arm), arm)) for arm in arms}


def certified(run_stage: Callable[..., Any], folder: Path, records: Iterable[Any]) -> Any:
    """What certify says of these records."""
    path = folder / "records.jsonl"
    path.unlink(missing_ok=True)
    writer = Writer(path)
    for record in records:
        writer.append(record)
    writer.close()
    return run_stage("certify", {"study": STUDY}, {"quality.fragile": path})


def test_the_field_s_finding_and_what_no_certificate_is_made_of(
    run_stage: Callable[..., Any], tmp_path: Path, kept: dict[str, Kept]
) -> None:
    """K8/V8 ruins the fragile model, K16/V8 does not; a lost item, a swapped arm or a missing one is no certificate."""
    require_alike([one for stage in kept.values() for one in stage.of(VllmCohort)])
    ran = certified(run_stage, tmp_path, [one for stage in kept.values() for one in stage.records])
    assert ran.code == 0, ran.outcome.reason
    found = [one for stage in kept.values() for one in stage.of(Answer)]
    swapped = {"k16v8-d": "k8v8-d", "k8v8-d": "k16v8-d"}
    ran = certified(run_stage, tmp_path, [replace(one, recipe=swapped.get(one.recipe, one.recipe)) for one in found])
    assert ran.code == 3 and "k16v8-d on fragile: fails, expected pass" in ran.outcome.reason
    other = replace(found[0], item_digest="another")
    without = [one for one in found if one.recipe != "k16v8-d"]
    for records in (found[1:], without, [other, *found[1:]], [*found, found[-1]]):
        assert certified(run_stage, tmp_path, records).code == 1


def test_without_vllm_the_stage_is_unmet_and_before_that_it_refuses(
    run_stage: Callable[..., Any], robust_scales: Path, tmp_path: Path
) -> None:
    from importlib.util import find_spec

    asked = {**PARAMS, "arms": {"native": {"recipe": "native", "attention": "flash-attn"}}}
    inputs = {"model": ROBUST, "scales": robust_scales}
    if find_spec("vllm") is None:
        ran = run_stage("vllm_quality", asked, inputs)
        assert ran.code == 4 and ran.outcome.reason == "vLLM is not installed in the stack's environment"
    ran = run_stage("vllm_quality", {**asked, "losses": "prompt"}, inputs)
    assert ran.code == 1 and "prompt log-probabilities are of a prefill" in ran.outcome.reason
    ran = run_stage("vllm_quality", asked, {**inputs, "model": paths.ROOT / "data" / "models" / "fragile"})
    assert ran.code == 1 and "calibrated on another model" in ran.outcome.reason
