"""Whose time a step is, of kernels that overlap: the product of made spans, without a GPU."""

import pytest

pytest.importorskip("torch", reason="the module asks torch's profiler")

from kassay.backend.fused_parts import alone_us, part_of


def test_a_kernel_that_waits_inside_another_has_only_what_comes_after_it() -> None:
    """A merge of 4 us, launched while its splits run: seen on a GPU, where both had 8.8 ms of a step of 13.6."""
    spans = [(0.0, 100.0, "split"), (1.0, 104.0, "merge"), (110.0, 150.0, "gemm"), (150.0, 160.0, "split")]
    own, idle = alone_us(spans)
    assert own == {"split": 110.0, "merge": 4.0, "gemm": 40.0}
    assert idle == 6.0
    assert sum(own.values()) + idle == 160.0  # all of it is the step


def test_a_kernel_inside_another_has_none_and_order_is_that_of_time() -> None:
    own, idle = alone_us([(5.0, 20.0, "later"), (0.0, 30.0, "first"), (30.0, 31.0, "later")])
    assert own == {"first": 30.0, "later": 1.0}
    assert idle == 0.0


def test_parts_are_found_by_a_kernel_s_name() -> None:
    names = {
        "attention_merge": "attention",
        "nvjet_sm90_hsh_64x32": "product",
        "turn_and_store": "rows",
        "sin": "other",
    }
    assert {name: part_of(name) for name in names} == names
