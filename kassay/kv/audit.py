"""Do the arms of a memory study hold equal slots, or equal bytes, and did anything exceed a ceiling?

    equal slots   every arm has room for the same tokens; bytes may differ, and are what the formats make them
    equal blocks  the same at the number of blocks that a study asks for, every one of them allocated
    equal bytes   every arm has the same budget of persistent bytes (K, V, scales); slots differ
    ceiling       what was observed stays at or below a limit

They are separate questions with separate gates: one allocation cannot answer two of them, and a saving at equal slots
is no capacity at equal bytes. The bytes that decide are those of the storages (kassay.kv.accounting), not those that
were asked for. Pure functions of numbers; verdicts are `pass`, `fails` and `unmeasured`, and what was not observed, or
in a window that is no evidence, is unmeasured. A sampled peak below a ceiling says that no sample was above it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kassay.errors import KassayError

PASS, FAILS, UNMEASURED = "pass", "fails", "unmeasured"
EQUAL_SLOTS, EQUAL_BLOCKS, EQUAL_BYTES = "equal slots", "equal blocks", "equal bytes"


@dataclass(frozen=True, kw_only=True)
class ArmMemory:
    """The cache of one arm as it was allocated."""

    arm: str
    slots: int  # tokens that it has room for, over all sequences
    planned_bytes: int  # payload of these slots by the geometry's arithmetic, fixed scales included
    payload_bytes: int  # measured payload, all slots in use
    backing_bytes: int  # measured storages of K, V and scales, each once
    page_bytes: int  # payload of the next page, which an equal budget must not leave room for
    tail_bytes: int  # what the allocator may take beyond the payload


@dataclass(frozen=True, kw_only=True)
class MemoryFinding:
    """The answer of one gate about one arm, or about all where `arm` is empty."""

    gate: str  # EQUAL_SLOTS, EQUAL_BLOCKS, EQUAL_BYTES or the ceiling's name
    arm: str
    verdict: str
    observed: int | None  # what was compared: slots or bytes
    limit: int
    reason: str  # what was found, in words


def equal_slots(arms: Sequence[ArmMemory]) -> tuple[MemoryFinding, ...]:
    """One finding an arm: the slots of the first one, bytes as planned, backing within the allocator's tails."""
    require_arms(arms)
    return tuple(slots_finding(EQUAL_SLOTS, arm, arms[0].slots, f"`{arms[0].arm}` has") for arm in arms)


def equal_blocks(arms: Sequence[ArmMemory], *, blocks: int, page_tokens: int) -> tuple[MemoryFinding, ...]:
    """One finding an arm: the slots of so many blocks, whatever the others have, and bytes as planned."""
    require_arms(arms)
    if blocks < 1 or page_tokens < 1:
        raise KassayError(f"{blocks} blocks of {page_tokens} tokens are asked for, allowed is 1 up")
    words = f"{blocks} blocks of {page_tokens} tokens are"
    return tuple(slots_finding(EQUAL_BLOCKS, arm, blocks * page_tokens, words) for arm in arms)


def slots_finding(gate: str, arm: ArmMemory, slots: int, words: str) -> MemoryFinding:
    """Whether one arm has so many slots, in bytes as planned."""
    return finding(
        gate, arm, arm.slots, slots, [(arm.slots != slots, f"{arm.slots} slots, {words} {slots}"), *byte_faults(arm)]
    )


def equal_bytes(arms: Sequence[ArmMemory], *, budget_bytes: int) -> tuple[MemoryFinding, ...]:
    """One finding an arm: backing within the budget, bytes as planned, no page more would have fitted."""
    require_arms(arms)
    if budget_bytes < 1:
        raise KassayError(f"the budget is {budget_bytes} bytes, allowed is 1 or more")
    return tuple(
        finding(
            EQUAL_BYTES,
            arm,
            arm.backing_bytes,
            budget_bytes,
            [
                (arm.backing_bytes > budget_bytes, f"{arm.backing_bytes} bytes of backing exceed {budget_bytes}"),
                (
                    arm.payload_bytes + arm.page_bytes + arm.tail_bytes <= budget_bytes,
                    f"{budget_bytes - arm.payload_bytes - arm.tail_bytes} bytes are left, room for a page more",
                ),
                *byte_faults(arm),
            ],
        )
        for arm in arms
    )


def byte_faults(arm: ArmMemory) -> list[tuple[bool, str]]:
    """Whether an arm's bytes differ from what they must be, each with the words for it."""
    return [
        (arm.payload_bytes != arm.planned_bytes, f"{arm.payload_bytes} bytes, the geometry says {arm.planned_bytes}"),
        (
            not arm.payload_bytes <= arm.backing_bytes <= arm.payload_bytes + arm.tail_bytes,
            f"{arm.backing_bytes} bytes of backing behind {arm.payload_bytes}, tails of {arm.tail_bytes} are allowed",
        ),
    ]


def finding(gate: str, arm: ArmMemory, observed: int, limit: int, faults: list[tuple[bool, str]]) -> MemoryFinding:
    """The finding about one arm."""
    found = [words for holds, words in faults if holds]
    verdict = FAILS if found else PASS
    reason = "; ".join(found) or f"{arm.slots} slots in {arm.backing_bytes} bytes"
    return MemoryFinding(gate=gate, arm=arm.arm, verdict=verdict, observed=observed, limit=limit, reason=reason)


def require_arms(arms: Sequence[ArmMemory]) -> None:
    """Raise KassayError unless there are two arms or more with different names and some slots."""
    names = [arm.arm for arm in arms]
    if len(names) < 2 or len(set(names)) != len(names):
        raise KassayError(f"the arms are {names}, allowed are two or more different ones")
    for arm in arms:
        if arm.slots < 1 or arm.page_bytes < 1 or arm.tail_bytes < 0:
            raise KassayError(
                f"arm `{arm.arm}` has {arm.slots} slots, pages of {arm.page_bytes} bytes: allowed is 1 up"
            )


def ceiling(name: str, *, observed_bytes: int | None, limit_bytes: int, fault: str, sampled: bool) -> MemoryFinding:
    """Whether what was observed stays at or below a limit.

    `fault` says why the observation is no evidence; even then a value above the limit fails, for it was seen.
    """
    if limit_bytes < 1:
        raise KassayError(f"the ceiling `{name}` is {limit_bytes} bytes, allowed is 1 or more")
    kind = "the largest sample" if sampled else "the allocator's own peak"
    if observed_bytes is not None and observed_bytes > limit_bytes:
        verdict, reason = FAILS, f"{kind} is {observed_bytes} bytes"
    elif observed_bytes is None or fault:
        verdict, reason = UNMEASURED, fault or "nothing was observed"
    else:
        verdict, reason = PASS, f"{kind} is {observed_bytes} bytes" + (", no continuous maximum" if sampled else "")
    return MemoryFinding(gate=name, arm="", verdict=verdict, observed=observed_bytes, limit=limit_bytes, reason=reason)
