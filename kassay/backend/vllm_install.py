"""The install check: is what a worker runs K16/V8 with calibrated scales, by the routes that it claims? Pure.

Six findings, all of which must hold (the sources' install check; it qualifies nothing and measures no speed):

physical      keys in 16 bits and values in E4M3 in the live tensors
scales        fixed scales read back from the GPU equal the calibration's, bound in every layer before the first graph
route         prompts were prefilled beside decodes, freshly, and no prefill took the fallback
graphs        decode graphs of at least two batches were replayed
memory        all blocks are free again, and a second repetition allocated nothing
text          finite outputs, the same tokens twice, of more than one kind

and, as seventh, the oracle: what it checked passed, and every planted fault was found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kassay.kinds.vllm import VllmCheck, VllmEngine, VllmFinding, VllmSpan
from kassay.kv.recipe import Recipe

SCHEMA, FORK_SCHEMA = "kassay.vllm_install/1", "kassay.vllm_fork/1"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was seen of one engine."""

    engine: VllmEngine  # as it was after the traffic
    calibrated: dict[str, list[float]]  # component -> scale a layer, as the file has them
    spans: Sequence[VllmSpan]  # repetitions of the same traffic
    outputs: Sequence[Sequence[Sequence[int]]]  # of each repetition: tokens of each request
    checks: Sequence[VllmCheck]
    free_blocks: int  # after the traffic
    allocated_bytes: Sequence[int]  # by torch, after each repetition


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One of the seven."""

    name: str
    passed: bool
    said: str


def findings(seen: Evidence) -> list[Finding]:
    """All seven."""
    return [physical(seen), scales(seen), route(seen), graphs(seen), memory(seen), text(seen), oracle(seen)]


def records(found: Sequence[Finding], arm: str) -> list[VllmFinding]:
    """The findings as records."""
    return [VllmFinding(arm=arm, finding=one.name, passed=one.passed, said=one.said) for one in found]


def receipt(found: Sequence[Finding], engine: VllmEngine, count: int = 7) -> dict[str, Any]:
    """What receipt.json holds; `passed` only if everything was seen."""
    return {
        "schema": SCHEMA,
        "passed": all(one.passed for one in found) and len(found) == count and not engine.dummy_weights,
        "vllm": engine.vllm,
        "torch": engine.torch,
        "triton": engine.triton,
        "device": engine.device,
        "findings": {one.name: {"passed": one.passed, "said": one.said} for one in found},
    }


def findings_of_fork(seen: Evidence, recipe: Recipe) -> list[Finding]:
    """What can be seen of an engine that does not tell its routes and copies no operands: five.

    What is not told is no finding: UNSEEN names it, and a fork's receipt says so beside `passed`.
    """
    return [stored(seen, recipe), loaded(seen, recipe), admitted(seen), memory(seen), repeated(seen)]


UNSEEN = ("whether a prefill took a fallback", "operands in the worker: no oracle", "which graphs were replayed")


def receipt_of_fork(found: Sequence[Finding], engine: VllmEngine) -> dict[str, Any]:
    """What receipt.json of a fork holds."""
    return receipt(found, engine, count=5) | {"schema": FORK_SCHEMA, "not_told": list(UNSEEN)}


def stored(seen: Evidence, recipe: Recipe) -> Finding:
    """Formats of the live tensors are those of the recipe."""
    got = (seen.engine.key_format, seen.engine.value_format)
    right = got == (recipe.key_format, recipe.value_format)
    said = f"keys in {got[0]}, values in {got[1]}, {seen.engine.token_layer_bytes:g} bytes a token and layer"
    return Finding(name="physical", passed=right, said=said)


def loaded(seen: Evidence, recipe: Recipe) -> Finding:
    """Scales read back from the layers are the calibration's; a native arm has none."""
    found, said = [], []
    sides = (("k", recipe.key_format, seen.engine.key_scales), ("v", recipe.value_format, seen.engine.value_scales))
    for component, form, got in sides:
        wanted = seen.calibrated.get(component, []) if recipe.policy_of(form) == "fixed" else None
        found.append(got == wanted)
        said.append(
            f"{component}: {'none' if got is None else f'{len(got)} read back'}{'' if found[-1] else ', others'}"
        )
    return Finding(name="scales", passed=all(found), said="; ".join(said))


def admitted(seen: Evidence) -> Finding:
    """Prompts were prefilled beside decodes."""
    mixed = min((span.mixed_steps for span in seen.spans), default=0)
    return Finding(name="route", passed=mixed > 0, said=f"{mixed} mixed steps a repetition; fallbacks are not told")


def repeated(seen: Evidence) -> Finding:
    """The same tokens twice, of more than one kind, some in every request."""
    same = len(seen.outputs) > 1 and all(list(one) == list(seen.outputs[0]) for one in seen.outputs)
    kinds = len({token for row in seen.outputs[0] for token in row}) if seen.outputs else 0
    said = f"{kinds} kinds of token, {'the same' if same else 'not the same'} twice"
    return Finding(name="text", passed=same and kinds > 1 and all(map(len, seen.outputs[0])), said=said)


def physical(seen: Evidence) -> Finding:
    """Formats of the live tensors."""
    keys, values = seen.engine.key_format, seen.engine.value_format
    right = keys in ("fp16", "bf16") and values == "e4m3fn"
    said = f"keys in {keys}, values in {values}, {seen.engine.token_layer_bytes:g} bytes a token and layer"
    return Finding(name="physical", passed=right, said=said)


def scales(seen: Evidence) -> Finding:
    """Scales that were there before the first capture, and are the calibration's."""
    engine, wanted = seen.engine, seen.calibrated.get("v", [])
    first = next((at for at, event in enumerate(engine.events) if event.startswith("captured")), len(engine.events))
    bound = {event.partition(" ")[2] for event in engine.events[:first] if event.startswith("bound")}
    late = engine.layers - len(bound)
    same = engine.value_scales is not None and engine.value_scales == wanted and len(wanted) == engine.layers
    captured = first < len(engine.events)
    said = (
        f"{len(bound)} of {engine.layers} layers bound before the first graph, scales {'equal' if same else 'differ'}"
    )
    return Finding(name="scales", passed=same and not late and captured, said=said)


def route(seen: Evidence) -> Finding:
    """Mixed steps, and no fallback."""
    mixed = min((span.mixed_steps for span in seen.spans), default=0)
    fallbacks = [span.fallbacks for span in seen.spans]
    passed = mixed > 0 and bool(fallbacks) and all(count == 0 for count in fallbacks)
    return Finding(name="route", passed=passed, said=f"{mixed} mixed steps a repetition, fallbacks {fallbacks}")


def graphs(seen: Evidence) -> Finding:
    """Replays of different graphs in every repetition."""
    sizes = [sorted(map(int, span.replays)) for span in seen.spans]
    passed = bool(sizes) and all(len(one) > 1 for one in sizes)
    return Finding(name="graphs", passed=passed, said=f"batches replayed: {sizes}")


def memory(seen: Evidence) -> Finding:
    """Free blocks (all but vLLM's null block), and no growth."""
    grown = [after - before for before, after in zip(seen.allocated_bytes, seen.allocated_bytes[1:], strict=False)]
    free = seen.free_blocks == seen.engine.blocks - 1
    passed = free and bool(grown) and all(count <= 0 for count in grown) and not any(s.preemptions for s in seen.spans)
    said = f"{seen.free_blocks} of {seen.engine.blocks} blocks free, grown by {grown} bytes"
    return Finding(name="memory", passed=passed, said=said)


def text(seen: Evidence) -> Finding:
    """The same finite outputs twice."""
    same = len(seen.outputs) > 1 and all(
        list(map(list, one)) == list(map(list, seen.outputs[0])) for one in seen.outputs
    )
    rows = [row for row in seen.outputs[0]] if seen.outputs else []
    kinds = len({token for row in rows for token in row})
    outputs = [one.error for one in seen.checks if one.what == "output" and not one.planted]
    finite = bool(outputs) and all(error is not None and error < float("inf") for error in outputs)
    passed = same and finite and kinds > 1 and all(len(row) > 0 for row in rows)
    said = f"{len(rows)} requests, {kinds} kinds of token, {'the same' if same else 'not the same'} twice"
    return Finding(name="text", passed=passed, said=said)


def oracle(seen: Evidence) -> Finding:
    """Everything that was checked, and every fault."""
    clean, planted = ([one for one in seen.checks if one.planted is kind] for kind in (False, True))
    missed = sorted({one.what for one in planted if not one.passed})
    wrong = sorted({f"{one.traffic}: {one.what}" for one in clean if not one.passed})
    kinds = {one.traffic for one in clean}
    passed = bool(planted) and not missed and not wrong and {"mixed", "replay"} <= kinds
    said = f"{len(clean)} checks of {sorted(kinds)}, wrong {wrong}; {len(planted)} planted faults, missed {missed}"
    return Finding(name="oracle", passed=passed, said=said)
