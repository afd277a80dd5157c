"""What a vLLM server did between two looks at it, and why its loads are invalid. No model and no vLLM."""

import reprlib
from collections.abc import Sequence
from typing import Any

from kassay.kinds.serving import OK
from kassay.kinds.vllm_serving import VllmServer, unlike
from kassay.serving.client import Answer
from kassay.serving.vllm_told import COUNTED, FINISHED

SILENT = "the server did not attest after its loads"


def record(
    place: dict[str, Any], first: dict[str, Any], last: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> VllmServer:
    """What a server did between two looks at it."""
    done: dict[str, Any] = {name: int(after[name] - before[name]) for name in COUNTED}
    reasons = {reason: int(count - before[FINISHED].get(reason, 0)) for reason, count in after[FINISHED].items()}
    counts = since(first["counts"], last["counts"])
    engine, later = first["engine"], last["engine"]
    changed = unlike(engine, later)
    faults = [
        f"its engine changed `{name}` from {reprlib.repr(engine[name])} to {reprlib.repr(later.get(name))}"
        for name in changed
    ]
    if done["cached_tokens"]:
        faults.append(f"{done['cached_tokens']} prompt tokens came from a cache")
    if counts["fallbacks"]:
        faults.append(f"{counts['fallbacks']} prefills took the fallback")
    return VllmServer(
        **place, **done, finished={reason: count for reason, count in reasons.items() if count},
        **counts, attested_before=engine, attested_after=later, changed=changed, faults=faults,
    )  # fmt: skip


def since(first: dict[str, Any] | None, last: dict[str, Any] | None) -> dict[str, Any]:
    """The plug-in's counts of a cell; nulls where another backend serves."""
    if first is None or last is None:
        return {"routes": None, "replays": None, "fallbacks": None}
    more = {
        name: {key: left for key, count in last[name].items() if (left := count - first[name].get(key, 0))}
        for name in ("routes", "replays")
    }
    return {**more, "fallbacks": last["fallbacks"] - first["fallbacks"]}


def faults(told: Sequence[VllmServer] | None) -> list[str]:
    """Why the loads of a server are invalid; nothing where no vLLM server served them."""
    if told is None:
        return []
    return [fault for one in told for fault in one.faults] if told else [SILENT]


def miscounts(told: Sequence[VllmServer] | None, answers: Sequence[Answer]) -> list[str]:
    """The same, and where the engine counted other tokens than its clients were told, of all its answers together."""
    found = faults(told)
    if told and all(one.status == OK for one in answers):
        for name, field in (("generated_tokens", "output_tokens"), ("prompt_tokens", "prompt_tokens")):
            own, theirs = getattr(told[0], name), sum(getattr(one, field) or 0 for one in answers)
            if own != theirs:
                found.append(f"the engine counted {own} {field.replace('_', ' ')}, its clients were told {theirs}")
    return found
