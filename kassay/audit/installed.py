"""The checks of a vLLM worker concluded once more from their records, by plain code of their own.

A receipt says what was found of an engine: formats, scales, routes, graphs, memory, text, and what the oracle compared.
Each finding is taken again from the records of engine, repetitions, requests, tokens and comparisons, and from the
scales that the stage was given; `passed` is all of them. A comparison's own word follows from what it counted: bytes
that differ, an error beyond its limit or none that could be told; a planted fault is right where it was found.
"""

import json
from itertools import pairwise
from typing import Any

from kassay import digest, paths
from kassay.audit import compare
from kassay.audit.checks import Body, bodies, check
from kassay.audit.files import Run
from kassay.entry import Stage

RECEIPTS = {"vllm_smoke": "install", "vllm_check": "check"}  # program -> artifact and folder of its receipt
SIXTEEN = ("fp16", "bf16")
NEEDED = ("vllm_engine", "vllm_span", "vllm_output", "vllm_rest", "vllm_finding")
KINDS = (*NEEDED, "vllm_request", "vllm_check")


def recount(run: Run, stage: Stage, told: compare.Compared) -> None:
    """Every finding of one receipt, every comparison of the oracle. Raises ValueError for records that lack some."""
    folder = run.folder(stage.name)
    held = {kind: list(bodies(folder / paths.RECORDS, kind)) for kind in KINDS}
    if lacking := [kind for kind in NEEDED if not held[kind]]:
        raise ValueError(f"its records lack {', '.join(lacking)}: a run of an older kassay is judged by that one")
    outputs_are_the_requests(told, held)
    for index, one in enumerate(held["vllm_check"]):
        check(told, f"check {index} ({one['what']})", "passed", one["passed"], right(one))
    given = run.artifact(stage.inputs["scales"]) if "scales" in stage.inputs else None
    calibrated = json.loads(given.read_bytes())["scales"] if given is not None else {}
    facts = of_plug_in(held, calibrated) if stage.program == "vllm_smoke" else of_fork(held, calibrated, stage.params)
    concluded = {one["finding"]: one["passed"] for one in held["vllm_finding"]}
    for finding, holds in facts.items():
        check(told, f"finding {finding}", "passed", concluded.get(finding), holds)
    against_receipt(told, run, stage, held["vllm_engine"][-1], facts)


def against_receipt(told: compare.Compared, run: Run, stage: Stage, engine: Body, facts: dict[str, bool]) -> None:
    """The facts beside what the receipt and the outcome say."""
    name = f"{RECEIPTS[stage.program]}/receipt.json"
    receipt = json.loads((run.folder(stage.name) / name).read_bytes())
    check(told, name, "findings", sorted(receipt["findings"]), sorted(facts))
    for finding, holds in facts.items():
        check(told, name, finding, receipt["findings"].get(finding, {}).get("passed"), holds)
    for field in ("vllm", "torch", "triton", "device"):
        check(told, name, field, receipt[field], engine[field])
    whole = all(facts.values()) and not engine["dummy_weights"]
    check(told, name, "passed", receipt["passed"], whole)
    ended = run.outcomes[stage.name]
    assert ended is not None, f"{stage.name} has no outcome: this is a bug"
    check(told, paths.OUTCOME, "word", ended.word, "passed" if whole else "rejected")
    said = {finding: receipt["findings"][finding]["said"] for finding in receipt["findings"]}
    check(told, paths.OUTCOME, "metrics", ended.metrics, said)


def outputs_are_the_requests(told: compare.Compared, held: dict[str, list[Body]]) -> None:
    """Tokens of every request once, with the digest and the number that its request has."""
    tokens = {(one["repetition"], one["request"]): one["token_ids"] for one in held["vllm_output"]}
    asked = {(one["repetition"], one["request"]): one for one in held["vllm_request"]}
    check(told, "vllm_output", "presence", sorted(tokens), sorted(asked))
    for place, one in asked.items():
        row = tokens.get(place, [])
        name = f"request {place[1]} of repetition {place[0]}"
        check(told, name, "output_tokens", one["output_tokens"], len(row))
        check(told, name, "output_sha256", one["output_sha256"], digest.of_value(row))
    for span in held["vllm_span"]:
        own = sum(place[0] == span["repetition"] for place in asked)
        check(told, f"repetition {span['repetition']}", "requests", span["requests"], own)


def right(one: Body) -> bool:
    """Whether a comparison found nothing, or found the fault that was planted; an error that is no number is one."""
    off = one["error"] is None or not one["error"] <= one["limit"]
    return bool((one["differing"] > 0 or off) == one["planted"])


def of_plug_in(held: dict[str, list[Body]], calibrated: dict[str, list[float]]) -> dict[str, bool]:
    """The seven findings of the install check."""
    engine, spans = held["vllm_engine"][-1], held["vllm_span"]
    clean = [one for one in held["vllm_check"] if not one["planted"]]
    planted = [one for one in held["vllm_check"] if one["planted"]]
    errors = [one["error"] for one in clean if one["what"] == "output"]
    return {
        "physical": engine["key_format"] in SIXTEEN and engine["value_format"] == "e4m3fn",
        "scales": bound_in_time(engine) and same_scales(engine["value_scales"], calibrated.get("v"), engine["layers"]),
        "route": all(span["mixed_steps"] > 0 and span["fallbacks"] == 0 for span in spans),
        "graphs": all(len(span["replays"]) >= 2 for span in spans),
        "memory": rested(held),
        "text": repeated(held) and bool(errors) and None not in errors,
        "oracle": bool(planted)
        and all(map(right, held["vllm_check"]))
        and {"mixed", "replay"} <= {one["traffic"] for one in clean},
    }


def of_fork(held: dict[str, list[Body]], calibrated: dict[str, list[float]], params: Body) -> dict[str, bool]:
    """The five findings of a fork's check."""
    engine, recipe = held["vllm_engine"][-1], params["recipe"]
    wanted = formats(recipe, params["engine"]["sixteen"])
    fixed = recipe.endswith("-f")
    scales = {
        side: calibrated.get(side, []) if fixed and stored == "e4m3fn" else None
        for side, stored in zip(("k", "v"), wanted, strict=True)
    }
    return {
        "physical": (engine["key_format"], engine["value_format"]) == wanted,
        "scales": engine["key_scales"] == scales["k"] and engine["value_scales"] == scales["v"],
        "route": all(span["mixed_steps"] > 0 for span in held["vllm_span"]),
        "memory": rested(held),
        "text": repeated(held),
    }


def formats(recipe: str, sixteen: str) -> tuple[str, str]:
    """Stored formats of keys and values by a recipe's name, such as k16v8-f."""
    name = "k16v16" if recipe == "native" else recipe.partition("-")[0]
    keys, values = name.removeprefix("k").split("v")
    by_bits = {"16": sixteen, "8": "e4m3fn"}
    return by_bits[keys], by_bits[values]


def bound_in_time(engine: Body) -> bool:
    """Whether the scales of every layer were there when the first graph was captured, and one was."""
    there: set[str] = set()
    for event in engine["events"]:
        word, _, layer = event.partition(" ")
        if word == "captured":
            return bool(len(there) == engine["layers"])
        if word == "bound":
            there.add(layer)
    return False


def same_scales(found: list[float] | None, wanted: list[float] | None, layers: int) -> bool:
    """Whether the scales read back are those that were given, one a layer."""
    return found is not None and found == wanted and len(found) == layers


def rested(held: dict[str, list[Body]]) -> bool:
    """Whether all blocks but the null block were free at the end, nothing grew, and no request was preempted."""
    rests = sorted(held["vllm_rest"], key=lambda one: one["repetition"])
    grown = any(after["allocated_bytes"] > before["allocated_bytes"] for before, after in pairwise(rests))
    free = rests[-1]["free_blocks"] == held["vllm_engine"][-1]["blocks"] - 1
    return len(rests) > 1 and free and not grown and not any(span["preemptions"] for span in held["vllm_span"])


def repeated(held: dict[str, list[Body]]) -> bool:
    """Whether every repetition gave each request the same tokens, some, of more than one kind."""
    rows: dict[Any, dict[int, list[int]]] = {}
    for one in held["vllm_output"]:
        rows.setdefault(one["repetition"], {})[one["request"]] = one["token_ids"]
    first, *others = rows.values()
    kinds = {token for row in first.values() for token in row}
    return bool(others) and all(other == first for other in others) and len(kinds) > 1 and all(first.values())
