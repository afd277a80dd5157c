"""Invented timing cells that have all of their evidence, and the quiet host around them."""

from typing import Any

from kassay.kinds.timing import GpuState, HostState, TimingCell

NS = 1_000_000_000


def cell(**changes: Any) -> TimingCell:
    """A cell of one warm-up and one repetition of a second, complete in every respect; what follows from sizes fits."""
    given: dict[str, Any] = {
        "load": "timed", "block": 0, "pilot": False, "position": 0, "model": "toy", "recipe": "native", "batch": 4,
        "context_tokens": 8, "output_tokens": 4, "warmups": 1, "started_ns": [1 * NS, 10 * NS],
        "ended_ns": [9 * NS, 11 * NS], "prompts_sha256": "same",
    } | changes  # fmt: skip
    count, batch, output = len(given["started_ns"]), given["batch"], given["output_tokens"]
    made: dict[str, Any] = {
        "request_tokens": [[output] * batch] * count,
        "prefilled_tokens": [batch * given["context_tokens"]] * count,
        "decode_steps": [output] * count,
        "full_steps": [output] * count,
        "preemptions": [0] * count,
        "prompt_sha256s": [f"prompt {row}" for row in range(batch)],
        "output_sha256s": ["x"] * count,
        "pid": 1000 + 10 * given["block"] + given["position"],
    }
    return TimingCell(**made | given)


def host(of: TimingCell, when: str, **changes: Any) -> HostState:
    """The host at one end of a cell: nobody else there, one core busy with the cell in between."""
    own_s = (of.ended_ns[-1] - of.started_ns[0]) / NS if when == "after" else 0.0
    given: dict[str, Any] = {
        **place(of), "when": when, "at_ns": of.ended_ns[-1] if when == "after" else of.started_ns[0],
        "load_1min": 0.4, "core_mhz": 2600.0, "temperature_c": None, "busy_s": 5000.0 + own_s, "stolen_s": 1.0,
        "own_s": 3.0 + own_s, "throttled": 0, "absent": [],
    }  # fmt: skip
    return HostState(**given | changes)


def gpu(of: TimingCell, when: str, **changes: Any) -> GpuState:
    """A GPU at one end of a cell: nobody else on it, nothing held down."""
    own = [{"pid": of.pid, "bytes": 1 << 30, "own": True}] if when == "after" else []
    given: dict[str, Any] = {
        **place(of), "when": when, "at_ns": of.ended_ns[-1] if when == "after" else of.started_ns[0],
        "device": "GPU-a", "sm_mhz": 1980, "sm_limit_mhz": 1980, "memory_mhz": 3201, "temperature_c": 40,
        "power_w": 300.0, "slowed_by": [], "slowed_ns": dict.fromkeys(("power", "thermal", "board_limit"), 7),
        "processes": own, "used_bytes": 1 << 30 if own else 0, "absent": [],
    }  # fmt: skip
    return GpuState(**given | changes)


def place(of: TimingCell) -> dict[str, Any]:
    """What says of which cell a condition is."""
    return {name: getattr(of, name) for name in ("load", "block", "pilot", "position", "recipe")}


def around(cells: list[TimingCell]) -> list[HostState]:
    """The host before and after every cell."""
    return [host(one, when) for one in cells for when in ("before", "after")]
