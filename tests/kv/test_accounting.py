"""Bytes counted once; audits and ceilings, each corrupted in every way that must not pass."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kassay.backend import holdings
from kassay.errors import KassayError
from kassay.kv.accounting import Held, accounted, cache_parts
from kassay.kv.audit import FAILS, PASS, UNMEASURED, ArmMemory, ceiling, equal_blocks, equal_bytes, equal_slots


def view(part: str, pointer: int, storage: int, *, offset: int = 0, size: int | None = None, payload: int) -> Held:
    """A tensor on one device."""
    return Held(
        part=part,
        device="cuda:0",
        pointer=pointer,
        storage_bytes=storage,
        offset_bytes=offset,
        view_bytes=storage - offset if size is None else size,
        payload_bytes=payload,
    )


def sizes(*held: Held) -> dict[str, tuple[int, int, int]]:
    """Payload, backing and number of storages by part."""
    return {part.part: (part.payload_bytes, part.backing_bytes, part.storages) for part in accounted(held)}


def test_parts_stand_apart_and_each_storage_counts_once() -> None:
    keys = view("keys", 100, 64, payload=48)
    found = sizes(keys, view("values", 200, 32, payload=32), keys, view("weights", 300, 8, payload=8))
    assert found == {"keys": (48, 64, 1), "values": (32, 32, 1), "weights": (8, 8, 1)}


def test_the_same_address_on_another_device_is_another_storage() -> None:
    here = view("keys", 100, 64, payload=64)
    assert sizes(here, replace(here, device="cuda:1"))["keys"] == (128, 128, 2)


def test_two_views_of_one_storage_share_its_backing() -> None:
    halves = [view("keys", 100, 64, offset=at, size=32, payload=32) for at in (0, 32)]
    assert sizes(*halves)["keys"] == (64, 64, 1)


def test_a_storage_of_two_parts_is_booked_under_both_names_once() -> None:
    held = [view("values", 100, 64, offset=32, size=32, payload=30), view("keys", 100, 64, size=32, payload=20)]
    assert sizes(*held) == {"keys+values": (50, 64, 1)}
    assert [part.part for part in cache_parts(accounted(held))] == ["keys+values"]
    mixed = accounted([*held, view("scratch", 100, 64, offset=8, size=8, payload=8)])
    assert cache_parts(mixed) == ()


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ([view("keys", 100, 64, payload=64), view("values", 100, 64, offset=1, payload=63)], "counts twice"),
        ([view("keys", 100, 64, payload=64), view("values", 100, 64, payload=64)], "counted twice"),
        ([view("keys", 100, 64, payload=8), view("keys", 100, 128, offset=8, payload=8)], "has sizes"),
        ([view("cache", 100, 64, payload=64)], "no part of memory"),
        ([view("keys", 0, 64, payload=64)], "no address"),
        ([view("keys", 100, 64, size=32, payload=33)], "holds more than itself"),
        ([view("keys", 100, 64, offset=40, size=32, payload=3)], "does not lie"),
    ],
)
def test_what_would_be_added_twice_or_is_not_there_is_refused(held: list[Held], said: str) -> None:
    with pytest.raises(KassayError, match=said):
        accounted(held)


def test_empty_storages_share_the_pointer_0() -> None:
    assert accounted([view("keys", 0, 0, payload=0), view("values", 0, 0, payload=0)]) == ()


def test_torchs_views_and_ties_are_told_apart() -> None:
    whole = torch.zeros(4, 8, dtype=torch.float16)
    (part,) = accounted([holdings.held("keys", whole[:2]), holdings.held("keys", whole[2:])])
    assert (part.payload_bytes, part.backing_bytes, part.storages) == (64, 64, 1)
    tied = torch.nn.Parameter(torch.zeros(10))
    model = SimpleNamespace(parameters=lambda: [tied, tied], buffers=lambda: [torch.zeros(1).expand(1000)])
    (part,) = accounted(holdings.weights_held(model))
    assert (part.payload_bytes, part.backing_bytes, part.storages) == (44, 44, 2)


# --- the allocator's own numbers


def segment(pool: tuple[int, int], total: int, active: int, device: int = 0) -> dict[str, Any]:
    """A segment as torch.cuda.memory_snapshot tells it, what is not used left out."""
    return {"device": device, "segment_pool_id": pool, "total_size": total, "active_size": active}


STATS = {
    "allocated_bytes.all.current": 50,
    "allocated_bytes.all.peak": 90,
    "reserved_bytes.all.current": 300,
    "reserved_bytes.all.peak": 400,
}


def test_graph_pools_and_inactive_bytes_stand_apart() -> None:
    segments = [segment((0, 0), 100, 60), segment((0, 0), 100, 0), segment((0, 3), 100, 30), segment((0, 0), 7, 7, 1)]
    state = holdings.state_of(STATS, segments, 0)
    pools = (state.pool_active_bytes, state.pool_inactive_bytes, state.graph_active_bytes, state.graph_inactive_bytes)
    assert pools == (60, 140, 30, 70) and sum(pools) == state.reserved_bytes == 300
    assert (state.allocated_peak_bytes, state.reserved_peak_bytes) == (90, 400)


def test_segments_that_do_not_sum_up_are_refused() -> None:
    with pytest.raises(KassayError, match="hold 100 bytes"):
        holdings.state_of(STATS, [segment((0, 0), 100, 60)], 0)


def test_the_processor_has_no_allocator_and_says_so() -> None:
    assert "no caching allocator" in holdings.absent_allocator(torch.device("cpu"))
    assert holdings.absent_allocator(torch.device("cuda")) == ""


# --- audits

NATIVE = ArmMemory(
    arm="native", slots=160, planned_bytes=1600, payload_bytes=1600, backing_bytes=1600, page_bytes=160, tail_bytes=10
)
COMPACT = replace(NATIVE, arm="compact", planned_bytes=1200, payload_bytes=1200, backing_bytes=1205, page_bytes=120)
FULL = replace(
    COMPACT, slots=208, planned_bytes=1560, payload_bytes=1560, backing_bytes=1560
)  # at 120 a page of 16: the budget of 1,650 has room for 13 pages


def verdicts(found: Any) -> list[str]:
    return [one.verdict for one in found]


def test_equal_slots_hold_whatever_the_bytes() -> None:
    found = equal_slots([NATIVE, COMPACT])
    assert verdicts(found) == [PASS, PASS] and found[1].observed == found[1].limit == 160


@pytest.mark.parametrize(
    "change",
    [
        {"slots": 161},
        {"payload_bytes": 1199},
        {"payload_bytes": 1201},
        {"backing_bytes": 1199},
        {"backing_bytes": 1211},
        {"planned_bytes": 1},
    ],
)
def test_another_slot_or_byte_fails_the_audit(change: dict[str, int]) -> None:
    arms = [NATIVE, replace(COMPACT, **change)]
    assert verdicts(equal_slots(arms)) == [PASS, FAILS]
    assert verdicts(equal_blocks(arms, blocks=10, page_tokens=16)) == [PASS, FAILS]


def test_equal_blocks_are_those_asked_for_and_no_others() -> None:
    """Arms that agree with each other and not with the study fail, all of them."""
    assert verdicts(equal_blocks([NATIVE, COMPACT], blocks=10, page_tokens=16)) == [PASS, PASS]
    assert verdicts(equal_blocks([NATIVE, COMPACT], blocks=20, page_tokens=8)) == [PASS, PASS]
    found = equal_blocks([NATIVE, COMPACT], blocks=11, page_tokens=16)
    assert verdicts(found) == [FAILS, FAILS] and (found[0].observed, found[0].limit) == (160, 176)
    assert found[1].reason == "160 slots, 11 blocks of 16 tokens are 176"
    for asked in ({"blocks": 0, "page_tokens": 16}, {"blocks": 10, "page_tokens": 0}):
        with pytest.raises(KassayError, match="allowed is 1 up"):
            equal_blocks([NATIVE, COMPACT], **asked)


def test_equal_bytes_are_filled_to_the_last_page() -> None:
    assert verdicts(equal_bytes([NATIVE, FULL], budget_bytes=1650)) == [PASS, PASS]
    assert verdicts(equal_bytes([NATIVE, COMPACT], budget_bytes=1650)) == [PASS, FAILS], "three pages more would fit"
    assert verdicts(equal_bytes([NATIVE, FULL], budget_bytes=1599)) == [FAILS, PASS]
    over = replace(FULL, backing_bytes=1651, tail_bytes=100)
    assert verdicts(equal_bytes([NATIVE, over], budget_bytes=1650)) == [PASS, FAILS], "actual backing decides"


@pytest.mark.parametrize("arms", [[], [NATIVE], [NATIVE, NATIVE], [NATIVE, replace(COMPACT, slots=0)]])
def test_a_dropped_or_repeated_arm_is_no_audit(arms: list[ArmMemory]) -> None:
    for audit in (
        equal_slots,
        lambda arms: equal_bytes(arms, budget_bytes=1),
        lambda arms: equal_blocks(arms, blocks=10, page_tokens=16),
    ):
        with pytest.raises(KassayError):
            audit(arms)


@pytest.mark.parametrize(
    ("observed", "fault", "verdict"),
    [
        (100, "", PASS),
        (101, "", FAILS),
        (None, "", UNMEASURED),
        (99, "the gap is 600 ms", UNMEASURED),
        (101, "the gap is 600 ms", FAILS),
    ],
)
def test_a_ceiling_passes_only_on_evidence(observed: int | None, fault: str, verdict: str) -> None:
    found = ceiling("device ceiling", observed_bytes=observed, limit_bytes=100, fault=fault, sampled=True)
    assert found.verdict == verdict
    if verdict == PASS:
        assert "sample" in found.reason and "no continuous maximum" in found.reason
