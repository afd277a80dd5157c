"""The oracle of a worker: clean where all is right, and every planted fault is found."""

import math

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from kassay_vllm.attend import attend

from kassay.backend.vllm_oracle import Oracle
from tests.vllm.pools import D, G, H, drawn, slots_of_new, step_of, varlen
from tests.vllm.test_attend import TABLE, filled


def oracle_of(recipe: str) -> Oracle:
    """After a mixed step of two decodes and two prompts."""
    cache, plans = filled(recipe, [30, 17], observe=True)
    new, lengths = [1, 1, 20, 9], [31, 18, 20, 9]
    q, k, v = drawn(31, H, D, seed=3), drawn(31, G, D, seed=4), drawn(31, G, D, seed=5)
    cache.write(k, v, slots_of_new(new, lengths, TABLE))
    attend(cache, q, k, v, torch.empty_like(q), step_of(new, lengths, TABLE), plans, varlen)
    return Oracle(arm=recipe, traffic="mixed", layer=0, cache=cache, plans=plans)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("recipe", ["native", "k16v8-f", "k16v8-d", "k8v8-d"])
def test_right_bytes_and_outputs_pass_and_every_fault_is_found(recipe: str) -> None:
    oracle = oracle_of(recipe)
    clean = oracle.written(31) + oracle.decoded(2) + oracle.fresh(29)
    assert all(one.passed for one in clean), clean
    assert {one.what for one in clean} >= {"keys: codes", "values: codes", "output"}
    oracle.cache.write(*(oracle.kept("write", 31, name)[:2] for name in ("k", "v", "slots")))
    before = oracle.cache.pages.clone()
    faults = oracle.planted(2)
    assert len(faults) == (6 if recipe != "native" else 5)
    assert all(one.planted and one.passed for one in faults), faults
    assert torch.equal(before, oracle.cache.pages), "a planted fault was left behind"


@pytest.mark.usefixtures("interpreted")
def test_a_wrong_pool_and_nan_do_not_pass() -> None:
    oracle = oracle_of("k16v8-d")
    slot = int(oracle.kept("write", 31, "slots")[3])
    oracle.cache.layer.values.scale_PHSG[slot // 16, 1, slot % 16] *= 1.0001
    assert [one.what for one in oracle.written(31) if not one.passed] == ["values: scales"]
    oracle.kept("decode", 2, "out")[1, 0, 0] = math.nan
    assert [one.passed for one in oracle.decoded(2)] == [False]
