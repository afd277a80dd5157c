"""Gates of memory concluded once more from what was recorded, by plain code of its own.

Windows are made anew from their queries: how many there were, the largest answer, the longest time that the answered
ones leave open, and whether that is evidence. Gates at equal slots, blocks and bytes follow from the numbers of each
cache; a ceiling from the samples of all windows of a device, or from the allocator's own peaks. What a cache's bytes
must be by the geometry is the stage's word here: the audit has no model.
"""

from collections import defaultdict
from itertools import pairwise
from typing import Any

from kassay import paths
from kassay.audit import compare
from kassay.audit.checks import Body, bodies, check
from kassay.audit.files import Run
from kassay.entry import Stage

PLACE = ("model", "recipe", "phase", "source", "device")  # of a window and its queries
CACHES = ("equal slots", "equal blocks", "equal bytes")


def recount(run: Run, stage: Stage, told: compare.Compared) -> None:
    """Every window and gate of a stage. Raises ValueError for records that lack what the gates compare."""
    made = run.folder(stage.name) / paths.RECORDS
    windows = [window(told, body, queries) for body, queries in with_queries(list(bodies(made, "memory_window")), made)]
    (limits,) = bodies(made, "memory_limits")
    caches: dict[str, list[Body]] = defaultdict(list)
    for body in bodies(made, "memory_arm"):
        caches[body["gate"]].append(body)
    if not caches:
        raise ValueError("its records lack memory_arm: a run of an older kassay is judged by that one")
    peaks = [body["reserved_peak_bytes"] for body in bodies(made, "allocator") if not body["absent"]]
    gates = list(bodies(made, "memory_gate"))
    expected = sorted((gate, body["recipe"]) for gate, own in caches.items() for body in own)
    check(told, "gates", "caches", sorted((g["gate"], g["recipe"]) for g in gates if g["gate"] in CACHES), expected)
    for name, derived in of_ceilings(limits, windows, peaks).items():
        recorded = [(gate["observed"], gate["verdict"]) for gate in gates if gate["gate"] == name]
        check(told, name, "observed and verdict", sorted(recorded, key=str), sorted(derived, key=str))
        check(told, name, "limit", {g["limit"] for g in gates if g["gate"] == name} <= {limits[key_of(name)]}, True)
    for gate in gates:
        name = f"{gate['gate']} of {gate['recipe']}"
        if gate["gate"] in CACHES:
            of_cache(told, name, gate, caches[gate["gate"]], limits)
        elif gate["gate"] == "allocated parts":
            check(told, name, "verdict", gate["verdict"], "pass" if gate["observed"] <= gate["limit"] else "fails")
    ended = run.outcomes[stage.name]
    assert ended is not None, f"{stage.name} has no outcome: this is a bug"
    whole = all(gate["verdict"] == "pass" for gate in gates)
    check(told, paths.OUTCOME, "word", ended.word, "passed" if whole else "rejected")


def with_queries(windows: list[Body], made: Any) -> list[tuple[Body, list[Body]]]:
    """Each window with its queries in their order."""
    queries: dict[tuple[Any, ...], list[Body]] = defaultdict(list)
    for body in bodies(made, "memory_sample"):
        queries[place(body)].append(body)
    return [(body, sorted(queries[place(body)], key=lambda one: int(one["started_ns"]))) for body in windows]


def place(body: Body) -> tuple[Any, ...]:
    """What tells one window from another."""
    return tuple(body[name] for name in PLACE)


def window(told: compare.Compared, body: Body, queries: list[Body]) -> Body:
    """A window held against its queries; what it is by them."""
    name = f"window of {body['recipe']}, {body['phase']}, {body['source']}"
    answers = [one for one in queries if one["used_bytes"] is not None]
    gap = None
    if len(answers) > 1:
        inside = [after["ended_ns"] - before["started_ns"] for before, after in pairwise(answers)]
        gap = max(answers[0]["ended_ns"] - body["opened_ns"], body["closed_ns"] - answers[-1]["started_ns"], *inside)
    bound = body["longest_gap_ns"]
    derived = {
        "queries": len(queries),
        "answered": len(answers),
        "gap_ns": gap,
        "largest_bytes": max((one["used_bytes"] for one in answers), default=None),
        "valid": gap is not None and (bound is None or gap <= bound),
    }
    for field, value in derived.items():
        check(told, name, field, body[field], value)
    return {**body, **derived}


def of_cache(told: compare.Compared, name: str, gate: Body, caches: list[Body], limits: Body) -> None:
    """A gate at equal slots, blocks or bytes, from the numbers of its cache."""
    own = next((one for one in caches if one["recipe"] == gate["recipe"]), None)
    if own is None:
        check(told, name, "cache", "none", gate["recipe"])
        return
    slots, payload, backing = own["slots"], own["payload_bytes"], own["backing_bytes"]
    good = payload == own["planned_bytes"] and 0 <= backing - payload <= own["tail_bytes"]
    if gate["gate"] == "equal bytes":
        observed, limit = backing, limits["budget_bytes"]
        good = good and backing <= limit < payload + own["page_bytes"] + own["tail_bytes"]
    else:
        blocks = limits["equal_slots_blocks"]
        limit = caches[0]["slots"] if gate["gate"] == "equal slots" else blocks * limits["page_tokens"]
        observed, good = slots, good and slots == limit
    pairs = {"slots": slots, "observed": observed, "limit": limit, "verdict": "pass" if good else "fails"}
    for field, value in pairs.items():
        check(told, name, field, gate[field], value)


def of_ceilings(limits: Body, windows: list[Body], peaks: list[int]) -> dict[str, list[tuple[int | None, str]]]:
    """Ceiling -> what was observed and its verdict: of each device by its windows' samples, of the allocator's peaks.

    None is asked for where the limits name none.
    """
    found: dict[str, list[tuple[int | None, str]]] = {"device ceiling": [], "reserved ceiling": []}
    if (limit := limits[key_of("device ceiling")]) is not None:
        by_device: dict[str, list[Body]] = defaultdict(list)
        for one in windows:
            if one["source"] == "device":
                by_device[one["device"]].append(one)
        for own in by_device.values():
            largest = max((one["largest_bytes"] for one in own if one["largest_bytes"] is not None), default=None)
            found["device ceiling"].append((largest, below(largest, limit, all(one["valid"] for one in own))))
    if (limit := limits[key_of("reserved ceiling")]) is not None:
        peak = max(peaks, default=None)
        found["reserved ceiling"].append((peak, below(peak, limit, True)))
    return found


def key_of(ceiling: str) -> str:
    """The field of the limits."""
    return f"{ceiling.replace(' ', '_')}_bytes"


def below(observed: int | None, limit: int, sound: bool) -> str:
    """The verdict of a ceiling: what was seen above it was seen, whatever the windows are worth."""
    if observed is not None and observed > limit:
        return "fails"
    return "pass" if observed is not None and sound else "unmeasured"
