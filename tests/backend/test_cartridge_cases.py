"""The oracle of a shared prefix under the interpreter: clean cases hold, faults are caught, a wrong route fails."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch

if not find_spec("triton"):
    pytest.skip("the kernels need triton", allow_module_level=True)
import tests.backend.test_fused as on_kernels  # noqa: F401  first: it asks for the interpreter
from kassay.backend import cartridge_cases, cartridge_pools, kernel_cases, kernel_operands
from kassay.backend.judging import Verdict
from kassay.kernels.cartridge import Cartridge, Shared
from kassay.kernels.native import Merge
from kassay.kv.mutation import MUTATIONS
from kassay.kv.recipe import recipe_named
from tests.backend.test_fused import interpreted  # noqa: F401  an autouse fixture
from tests.backend.test_kernel_cases import Kept

REFUSED = {"prefix_inside_a_page", "prefix_pages_of_a_request", "prefix_of_other_pages", "prefix_page_twice"}


def judged(monkeypatch: pytest.MonkeyPatch, own: str, prefix: str, *, heads: tuple[int, int, int]) -> dict[str, Any]:
    """The verdict on one arm."""
    monkeypatch.setattr(cartridge_pools, "LENGTHS", (1, 17))
    verdict = Verdict(Kept())  # type: ignore[arg-type]
    given = kernel_operands.drawn(heads, "fp16", torch.device("cpu"), 2, 34)
    cartridge_cases.judge_cartridge(verdict, recipe_named(own), recipe_named(prefix), 0, given, 8, 32, "cartridge")
    return verdict.body()


@pytest.mark.parametrize(
    ("own", "prefix", "heads"), [("native", "k16v8-d", (2, 1, 64)), ("k16v8-f", "k16v8-f", (4, 2, 64))]
)
def test_clean_cases_hold_and_every_fault_is_caught(
    monkeypatch: pytest.MonkeyPatch, own: str, prefix: str, heads: tuple[int, int, int]
) -> None:
    body = judged(monkeypatch, own, prefix, heads=heads)
    assert body["passed"], (body["missed"], body["escaped"])
    named = {row["mutation"] for row in body["mutations"]}
    assert {one.name for one in cartridge_pools.SHARING_FAULTS} | REFUSED <= named
    own_faults = {one.name for one in MUTATIONS if one.applies(recipe_named(prefix))}
    unheld = {"keys_and_values_swapped", *kernel_cases.NOT_OF_DECODE}  # a plane of codes holds no 16-bit numbers
    unheld |= {"neighbour_scale"} if prefix.endswith("f") else set()  # K16 has no scale that could be the other's
    assert own_faults - unheld <= named


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No faults are planted: what is wrong is the code."""
    monkeypatch.setattr(cartridge_cases, "SHARING_FAULTS", ())
    monkeypatch.setattr(cartridge_cases, "MUTATIONS", ())


def test_a_route_that_errs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)
    call = Shared.__call__

    def off(self: Shared, q: Any, cartridge: Any, *rest: Any) -> Any:
        out, lse = call(self, q, cartridge, *rest)
        if self.parts > 1 or self.own.cut.splits > 1:
            out.mul_(1.004)
        return out, lse

    monkeypatch.setattr(Shared, "__call__", off)
    body = judged(monkeypatch, "native", "native", heads=(2, 1, 64))
    assert body["missed"] == ["native, layer 0, cartridge-4: output"]


def test_prompts_that_do_not_see_the_prefix_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)
    monkeypatch.setattr(Merge, "add", lambda *_: None)
    body = judged(monkeypatch, "native", "native", heads=(2, 1, 64))
    assert body["missed"] == ["native, layer 0, cartridge-prompt: output"]


def test_a_rule_that_is_gone_and_a_prefix_that_is_written_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)
    monkeypatch.setattr(Cartridge, "check_apart", lambda *_: None)
    call = Shared.__call__

    def writes(self: Shared, q: Any, cartridge: Cartridge, *rest: Any) -> Any:
        got = call(self, q, cartridge, *rest)
        if self.own.cut.splits > 1:
            cartridge.layer.keys.data_PSHW[cartridge.pages[0], 0, 0, 0] += 1
        return got

    monkeypatch.setattr(Shared, "__call__", writes)
    body = judged(monkeypatch, "native", "native", heads=(2, 1, 64))
    assert body["escaped"] == ["native, layer 0: prefix_pages_of_a_request"]
    assert "native, layer 0, cartridge-frozen: codes" in body["missed"]
