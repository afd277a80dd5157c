"""The traffic of the two checks of an engine, driven on a stand-in: no vLLM, no GPU."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay.backend import vllm_prompts, vllm_traffic
from kassay.kinds.vllm import VllmOutput, VllmRest
from kassay.paths import ROOT

ROBUST = ROOT / "data" / "models" / "robust"
TOLD = {"key_format": "fp16", "value_format": "e4m3fn", "scale_policy": "fixed", "backend": "KassayBackend"}


class Engine:
    """Answers with the number of the repetition, and keeps how it was asked."""

    def __init__(self) -> None:
        self.arm, self.asked = "candidate", []

    def serve(self, prompts: list[list[int]], tokens: int, **given: Any) -> SimpleNamespace:
        self.asked.append((prompts, tokens, given))
        number = given["repetition"]
        return SimpleNamespace(span=f"span {number}", requests=[f"request {number}"], outputs=[[number]])

    def attest(self) -> SimpleNamespace:
        return SimpleNamespace(**TOLD, vllm="0.25.1", token_layer_bytes=3072)

    def free_blocks(self) -> int:
        return 7


class Stage:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.params, self.records, self.attested, self.told = {"seed": 5, "output_tokens": 24}, [], {}, []

    def append(self, record: Any) -> None:
        self.records.append(record)

    def attest(self, arm: str, **effective: Any) -> None:
        self.attested[arm] = effective

    def progress(self, *told: Any) -> None:
        self.told.append(told)


@pytest.mark.parametrize("watched", [True, False])
def test_the_same_requests_twice_watched_the_first_time_only(watched: bool) -> None:
    engine, stage = Engine(), Stage()
    watch = SimpleNamespace(between=object(), checks=["checked"]) if watched else None
    seen = vllm_traffic.served(stage, engine, vllm_prompts.text_of(Path(ROBUST)), {"k": [1.0]}, watch)
    (prompts, tokens, first), (again, _, second) = engine.asked
    assert prompts == again and tokens == 24
    assert [len(row) for row in prompts] == [40 + 13 * index for index in range(len(vllm_traffic.ARRIVALS))]
    assert first["between"] is (watch.between if watch else None) and second["between"] is None
    assert (first["forced"], first["warmup"], first["arrivals"]) == (True, False, vllm_traffic.ARRIVALS)
    tokens_of = [VllmOutput(arm="candidate", repetition=number, request=0, token_ids=[number]) for number in (0, 1)]
    rests = [VllmRest(arm="candidate", repetition=n, free_blocks=7, allocated_bytes=0) for n in (0, 1)]
    first_of = ["span 0", "request 0", tokens_of[0], rests[0]]
    assert stage.records == [*first_of, "span 1", "request 1", tokens_of[1], rests[1], seen.engine]
    assert stage.attested["candidate"]["values"] == "e4m3fn"
    assert seen.outputs == [[[0]], [[1]]] and seen.checks == (["checked"] if watched else [])
    assert (seen.free_blocks, seen.calibrated, len(seen.allocated_bytes)) == (7, {"k": [1.0]}, 2)
