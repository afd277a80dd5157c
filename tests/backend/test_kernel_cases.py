"""The oracle on our kernels, under Triton's interpreter: clean cases hold, faults are caught, a wrong kernel fails."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

if not find_spec("triton"):
    pytest.skip("the kernels need triton", allow_module_level=True)
import tests.backend.test_fused as on_kernels  # noqa: F401  first: it asks for the interpreter
from kassay.backend import kernel_cases, kernel_operands
from kassay.backend.judging import Verdict
from kassay.kernels.split import Cut
from kassay.kv.mutation import MUTATIONS
from kassay.kv.recipe import recipe_named
from kassay.record import Record
from tests.backend.test_fused import interpreted  # noqa: F401  an autouse fixture

LENGTHS = (1, 15, 17)  # and the two whole requests; a swap of whole pages is no fault, so one ends in its second of 8


class Kept:
    """A stage that keeps its records."""

    def __init__(self) -> None:
        self.params = {"model": "drawn"}
        self.request: dict[str, Any] = {"inputs": {"model": {"sha256": "x"}}}
        self.records: list[Record] = []

    def append(self, record: Record) -> None:
        self.records.append(record)


def judged(monkeypatch: pytest.MonkeyPatch, name: str, page_tokens: int = 16) -> dict[str, Any]:
    """The verdict on one recipe."""
    monkeypatch.setattr(kernel_cases, "LENGTHS", LENGTHS)
    verdict = Verdict(Kept())  # type: ignore[arg-type]
    given = kernel_operands.drawn((2, 1, 64), "fp16", torch.device("cpu"), 2, 34)
    given = kernel_operands.biased(given) if recipe_named(name).prebias else given
    kernel_cases.judge_kernels(verdict, recipe_named(name), 0, given, page_tokens, "kernel")
    return verdict.body()


def test_clean_cases_hold_and_every_fault_that_a_kernel_can_be_given_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    body = judged(monkeypatch, "k16v8-d")
    assert body["passed"], (body["missed"], body["escaped"])
    named = {row["mutation"] for row in body["mutations"]}
    own = {one.name for one in MUTATIONS if one.applies(recipe_named("k16v8-d"))}
    unheld = {"keys_and_values_swapped", *kernel_cases.NOT_OF_DECODE}  # a plane of codes holds no 16-bit numbers
    assert own - unheld <= named and {"pages_swapped", "newest_token_missing"} <= named


@pytest.mark.parametrize("page_tokens", [1, 8, 32])
def test_every_page_size_has_the_faults_that_are_faults_there(
    page_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the profile's oracle has them: in pages of one a swap is no fault, and no slot lies behind the last token."""
    body = judged(monkeypatch, "k8v16-f", page_tokens)
    assert body["passed"], (body["missed"], body["escaped"])
    named = {row["mutation"] for row in body["mutations"]}
    both = {"pages_swapped", "one_slot_too_many"}
    assert named & both == (set() if page_tokens == 1 else both)
    assert {"page_of_another_request", "table_row_off_by_one", "newest_token_missing"} <= named


@pytest.mark.parametrize("recipe", ["prebias-k8v8-d", "prebias-k8v16-f"])
def test_pre_biased_keys_hold_and_a_bias_that_is_forgotten_or_late_is_caught(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = judged(monkeypatch, recipe)
    assert body["passed"], (body["missed"], body["escaped"])
    assert {"bias_forgotten", "bias_late", "newest_token_missing"} <= {row["mutation"] for row in body["mutations"]}


def test_a_kernel_that_errs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    attended = kernel_cases.KernelPool.attended

    def off(self: Any, batch: Any, cut: Cut, layer: Any = None) -> tuple[np.ndarray, np.ndarray]:
        out, lse = attended(self, batch, cut, layer)
        return out * (1.002 if cut.splits > 1 else 1.0), lse

    monkeypatch.setattr(kernel_cases.KernelPool, "attended", off)
    monkeypatch.setattr(kernel_cases, "faults_in", lambda page_tokens: [])
    monkeypatch.setattr(kernel_cases, "MUTATIONS", ())
    body = judged(monkeypatch, "native")
    assert not body["passed"] and body["missed"] == ["native, layer 0, kernel-4: output"]
