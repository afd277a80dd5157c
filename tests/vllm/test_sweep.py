"""A sweep on vLLM without a GPU: an engine that only schedules, its windows, and what makes a point none."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import digest, paths
from kassay.backend.vllm_arguments import Asked, engine_arguments
from kassay.backend.vllm_geometry import GEOMETRIES, geometry_of
from kassay.backend.vllm_sweep import PREFILL_TOKENS, Point, elapsed_ns, held, require_short
from kassay.errors import KassayError
from kassay.kinds.timing import SweepCell
from kassay.kinds.vllm import VllmRequest, VllmSpan
from kassay.kv.geometry import Geometry
from tests.stages.conftest import runner
from tests.vllm.test_arguments import engine as attested
from tests.vllm.test_profiles import stages_of

STEP_NS = 7_000_000
ARMS = {
    "native": {"recipe": "native", "attention": "flash-attn"},
    "k16v8-d": {"recipe": "k16v8-d", "attention": "plug-in"},
}
PARAMS = {
    "model": "", "geometry": "qwen3-8b", "arms": ARMS, "rounds": 2, "contexts_tokens": [2048, 8192],
    "batches": [1, 2, 4, 8, 16, 32, 64], "largest_batch": 32, "output_tokens": 4, "repetitions": 3, "seed": 1,
    "engine": {"sixteen": "fp16", "pool_mib": 20480, "prefix_caching": False, "chunked_prefill": False,
               "continued": "refuse", "lengths": "equal", "cuts": None},
}  # fmt: skip


@dataclass
class Scheduler:
    """Steps as vLLM 0.25.1 plans them: what runs decodes first, then whole prompts as far as the step's tokens go.

    `late` steps pass before a step's tokens are out, as with asynchronous scheduling. A decode step of B sequences
    takes 1 + B / 8 times as long as one of none.
    """

    step_tokens: int
    late: int = 0

    def serve(self, prompts: Sequence[Sequence[int]], tokens: int, **given: Any) -> SimpleNamespace:
        """The records of a repetition."""
        due = given["arrivals"] or [0] * len(prompts)
        made: list[list[int]] = [[] for _ in prompts]
        step_ns, now, step, full, mixed = [0] * self.late, 0, 0, 0, 0
        while any(len(one) < tokens for one in made):
            running = [index for index, one in enumerate(made) if 0 < len(one) < tokens]
            left, fresh = self.step_tokens - len(running), []
            for index, prompt in enumerate(prompts):
                if made[index] or due[index] > step:
                    continue
                if len(prompt) > left:
                    break
                fresh.append(index)
                left -= len(prompt)
            for index in [*running, *fresh]:
                made[index].append(step + self.late)
            full += len(running) == len(prompts)
            mixed += bool(running and fresh)
            now += STEP_NS + STEP_NS * len(running) // 8 + STEP_NS * len(fresh)
            step_ns.append(now)
            step += 1
        span = VllmSpan(
            arm="native", repetition=given["repetition"], warmup=given["warmup"], requests=len(prompts), started_ns=0,
            ended_ns=now, prefilled_tokens=sum(map(len, prompts)), decode_steps=step, full_steps=full,
            mixed_steps=mixed, preemptions=0, replays={}, fallbacks=None, step_ns=step_ns,
        )  # fmt: skip
        requests = [
            VllmRequest(
                arm="native", repetition=given["repetition"], warmup=given["warmup"], request=index,
                prompt_tokens=len(prompts[index]), prompt_sha256=digest.of_value(list(prompts[index])), submitted_ns=0,
                first_ns=0, ended_ns=0, output_tokens=tokens, completion_steps=steps, output_sha256="",
                finished_by="length",
            )
            for index, steps in enumerate(made)
        ]  # fmt: skip
        return SimpleNamespace(span=span, requests=requests)


def served(point: Point, scheduler: Scheduler) -> Any:
    """A point's records."""
    rows = [[index] * tokens for index, tokens in enumerate(point.prompt_tokens)]
    return scheduler.serve(rows, point.forced_tokens, repetition=1, warmup=False, arrivals=point.arrivals)


def point(batch: int, context_tokens: int = 1024) -> Point:
    """A point of short windows."""
    return Point(batch=batch, context_tokens=context_tokens, output_tokens=4, repetitions=3)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(
    ("batch", "context_tokens"), [(1, 64), (2, 1024), (8, 1024), (33, 1024), (256, 1024), (5, 9000)]
)
def test_every_sequence_is_of_one_length_when_the_windows_begin(batch: int, context_tokens: int, late: int) -> None:
    """The arithmetic of the prompts is that of the scheduler, whether its tokens come at once or a step later."""
    made = point(batch, context_tokens)
    one = served(made, Scheduler(step_tokens=max(PREFILL_TOKENS, made.sequence_tokens) + batch, late=late))
    assert elapsed_ns(made, one.span, one.requests) == [4 * (STEP_NS + STEP_NS * batch // 8)] * 4
    first = max(request.completion_steps[0] for request in one.requests)
    begins = first + made.output_tokens  # the warm-up is over
    lengths = {r.prompt_tokens + sum(step <= begins for step in r.completion_steps) - 1 for r in one.requests}
    assert lengths == {context_tokens}
    assert max(r.prompt_tokens + r.output_tokens for r in one.requests) == made.sequence_tokens
    assert made.cached_tokens == context_tokens + 12 <= made.sequence_tokens


def test_a_prompt_that_waits_for_a_later_step_makes_no_point() -> None:
    """A step of fewer tokens than planned prefills fewer prompts, and sequences are of different lengths."""
    made = point(32)
    one = served(made, Scheduler(step_tokens=PREFILL_TOKENS - 2048))
    with pytest.raises(KassayError, match="not served as planned") as caught:
        elapsed_ns(made, one.span, one.requests)
    assert "planned were 1020" in str(caught.value)


FAULTS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda one: replace(one.span, preemptions=1), "1 preemptions"),
    (lambda one: replace(one.span, prefilled_tokens=one.span.prefilled_tokens - 16), "prompt tokens were computed"),
    (lambda one: replace(one.span, full_steps=one.span.full_steps - 1), "16 full steps by stamps, 15 by the scheduler"),
    (lambda one: replace(one.span, requests=7), "8 requests left a record"),
]


@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_what_the_scheduler_did_otherwise_makes_no_point(fault: Callable[[Any], Any], said: str) -> None:
    made = point(8)
    one = served(made, Scheduler(step_tokens=PREFILL_TOKENS + 8))
    assert elapsed_ns(made, one.span, one.requests)
    with pytest.raises(KassayError, match=said):
        elapsed_ns(made, fault(one), one.requests)
    with pytest.raises(KassayError, match="7 requests left a record"):
        elapsed_ns(made, one.span, one.requests[1:])
    short = [replace(one.requests[0], completion_steps=one.requests[0].completion_steps[:-1]), *one.requests[1:]]
    with pytest.raises(KassayError, match="outputs are not all of 17 tokens"):
        elapsed_ns(made, one.span, short)


def test_the_grid_is_what_the_pool_holds_in_16_bits() -> None:
    qwen = Geometry(layers=36, kv_heads=8, head_dim=128)
    block = 16 * 4096 * 36
    points = [point(batch) for batch in (1, 2, 4)]
    needed = 2 * -(-(1024 + 12) // 16)
    assert held(points, qwen, block * (needed + 1)) == points[:2]
    assert held(points, qwen, block * (needed + 1) - 1) == points[:1], "one of the blocks is vLLM's null block"
    with pytest.raises(KassayError, match="holds 1 blocks of 16-bit keys and values, and no batch of 1 at 1024"):
        held(points, qwen, 2 * block)
    require_short(point(1))
    with pytest.raises(KassayError, match="would begin 8 tokens behind 256, allowed are 2%"):
        require_short(point(1, 256))
    with pytest.raises(KassayError, match="begin with a prompt of 15, allowed are 16 and more"):
        _ = point(1, 19).prompt_tokens


def test_a_models_own_geometry() -> None:
    robust = paths.ROOT / "data" / "models" / "robust"
    told = json.loads((robust / "config.json").read_bytes())
    found = geometry_of(robust)
    assert (found.layers, found.kv_heads) == (told["num_hidden_layers"], told["num_key_value_heads"])


class Made:
    """A stage's directory and what it appended; an engine that schedules only."""

    def __init__(self, directory: Path, params: dict[str, Any]) -> None:
        self.directory, self.params, self.records = directory, params, []
        self.inputs = {"scales": directory / "scales.json"}
        self.append = self.records.append
        self.progress = lambda *told: None

    def engine(self, asked: Asked, arm: str) -> Any:
        """What stands in for the engine."""
        self.asked = asked
        engine_arguments(asked)
        told = attested(arm=arm, dummy_weights=asked.dummy, graph_batches=list(asked.graphs))
        return SimpleNamespace(
            serve=lambda prompts, tokens, **given: Scheduler(asked.batched_tokens).serve(
                prompts, tokens, **{"arrivals": None, **given}
            ),
            attest=lambda: told, attested=told,
        )  # fmt: skip


def cell_of(directory: Path, monkeypatch: pytest.MonkeyPatch, arm: str) -> Made:
    """A cell that ran."""
    monkeypatch.syspath_prepend(str(paths.ROOT / "stages"))
    import vllm_sweep_cell

    stage = Made(directory, {**PARAMS, "arm": arm, "round": 0, "position": 0})
    monkeypatch.setattr(vllm_sweep_cell, "Engine", stage.engine)
    told = vllm_sweep_cell.run(stage)
    assert told["drawn weights"] is True
    return stage


def test_a_cell_times_every_point_of_one_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = cell_of(tmp_path, monkeypatch, "native")
    cells = [one for one in stage.records if isinstance(one, SweepCell)]
    grid = [(one.context_tokens, one.batch) for one in cells]
    assert grid == [(2048, b) for b in (1, 2, 4, 8, 16, 32)] + [(8192, b) for b in (1, 2, 4, 8, 16)]
    for one in cells:
        assert one.elapsed_ns == [4 * (STEP_NS + STEP_NS * one.batch // 8)] * 4 and one.warmups == 1
        assert one.shared_prefix_tokens < 16 and (one.model, one.recipe) == ("qwen3-8b", "native")
    assert len({one.prompts_sha256 for one in cells}) == len(cells)
    spans = [one for one in stage.records if isinstance(one, VllmSpan)]
    assert [one.warmup for one in spans] == [True] + [False] * len(cells)
    assert [one.repetition for one in spans] == list(range(len(cells) + 1))
    assert stage.asked.graphs == (1, 2, 4, 8, 16, 32) and stage.asked.dummy
    other = cell_of(tmp_path, monkeypatch, "k16v8-d")
    assert [one.prompts_sha256 for one in other.records if isinstance(one, SweepCell)] == [
        one.prompts_sha256 for one in cells
    ], "all arms are asked the same"


def test_rounds_become_one_record_and_saturation_fits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {arm: cell_of(tmp_path, monkeypatch, arm).records for arm in ARMS}
    import vllm_sweep

    lines = []
    for arm, records in parts.items():
        for one in [record for record in records if isinstance(record, SweepCell)]:
            later = replace(one, elapsed_ns=[ns + 1000 for ns in one.elapsed_ns])
            made = vllm_sweep.joined([replace(one, recipe=arm), replace(later, recipe=arm)], 2)
            first = one.elapsed_ns[0]
            assert (made.warmups, made.elapsed_ns) == (2, [first, first + 1000] + [first] * 3 + [first + 1000] * 3)
            lines.append(made.to_json())
            with pytest.raises(KassayError, match="1 of 2 rounds, 1 sets of prompts"):
                vllm_sweep.joined([one], 2)
            with pytest.raises(KassayError, match="2 of 2 rounds, 2 sets of prompts"):
                vllm_sweep.joined([one, replace(later, prompts_sha256="other")], 2)
    swept = tmp_path / "records.jsonl"
    swept.write_text("\n".join(lines) + "\n")
    ran = runner(tmp_path)("saturation", {"study": {"sweep": {"alpha": 0.05}}, "residuals": "log"}, {"sweep": swept})
    assert (ran.code, ran.outcome.word) == (0, "passed"), ran.stderr
    fits = ran.records("saturation")
    assert {(one["recipe"], one["context_tokens"]) for one in fits} == {(arm, t) for arm in ARMS for t in (2048, 8192)}
    assert all(one["rates_per_s"][0] == pytest.approx(1e9 / STEP_NS / 1.125, rel=1e-3) for one in fits)


def test_it_is_unmet_without_vllm(tmp_path: Path) -> None:
    if find_spec("vllm") is not None:
        pytest.skip("vLLM is installed here")
    ran = runner(tmp_path)("vllm_sweep", PARAMS, {})
    assert ran.code == 4 and ran.outcome.reason == "vLLM is not installed in the stack's environment"
    assert not (ran.directory / "cells").exists()


def test_the_shipped_sweep_is_allowed_and_reaches_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(paths.ROOT / "stages"))
    import vllm_sweep_cell

    found = stages_of("vllm-release", tmp_path / ".config")
    params = found["sweep"]
    assert params["geometry"] in GEOMETRIES and found["saturation"]["residuals"] == "log"
    (tmp_path / "config.json").write_text(json.dumps(GEOMETRIES[params["geometry"]]))
    plan = vllm_sweep_cell.points_of(params, tmp_path)
    largest = {t: max(p.batch for p in plan if p.context_tokens == t) for t in params["contexts_tokens"]}
    assert largest == {1024: 256, 8192: 32}
    for arm in params["arms"]:
        stage: Any = SimpleNamespace(params={**params, "arm": arm}, inputs={"scales": "s"})
        assert engine_arguments(vllm_sweep_cell.asked(stage, tmp_path, plan))["max_num_seqs"] == 256
    orders = params["rounds"] % len(params["arms"])
    assert orders == 0, "every arm stands in every place as often"
