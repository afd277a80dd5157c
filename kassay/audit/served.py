"""Serving counted once more from the record of every request, by plain code that shares nothing with kassay.serving.

`recount_loads` takes every load of a stage `serving` from its requests: what failed and was empty, window, rates, times
of the successful ones, pace, and why the load is invalid. `recount_verdicts` takes gates and comparisons of a stage
`serving_verdict` from the same requests, never from the loads: ratios within blocks, wins, sign test, Holm, verdict.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from kassay import digest, paths
from kassay.audit import compare
from kassay.audit.blocks import holm, of_certified, tail
from kassay.audit.checks import Body, bodies, check, close
from kassay.audit.files import Run
from kassay.entry import Stage

GROWING = ("events", "cuts")  # of what an engine attests, which the work adds to
ROUNDING = 1e-12  # relative error of a mean of a few thousand times
PERCENTS = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}
STANDARD_ERRORS, PACE_SHARE, LEAST_CV = 4, 0.02, 0.1  # of a pace that counts as kept
Cell = tuple[str, int, bool, str]  # arm, block, pilot, load


def recount_loads(run: Run, stage: Stage, told: compare.Compared) -> None:
    """Every load of a stage, from its requests."""
    made = run.folder(stage.name) / paths.RECORDS
    sent, noted = requests(run, stage.name), {one["request_id"]: one for one in bodies(made, "server_request")}
    planned = {load["name"]: load for load in stage.params["served"]["loads"]}
    recorded = {cell_of(one): one for one in bodies(made, "served_load")}
    check(told, "loads", "presence", sorted(recorded), sorted(sent))
    for cell, own in sent.items():
        if (one := recorded.get(cell)) is None:
            continue
        name, derived = f"load {cell[3]} of {cell[0]} in block {cell[1]}", figures(own)
        for field, value in derived.items():
            same(told, name, field, one[field], value)
        check(told, name, "prompts_sha256", one["prompts_sha256"], digest.of_value([r["prompt_sha256"] for r in own]))
        derived_faults = faults(stage.params, planned[cell[3]], own, noted) + of_vllm(run, stage.name, cell)
        check(told, name, "faults", len(one["faults"]), derived_faults)


def requests(run: Run, name: str) -> dict[Cell, list[Body]]:
    """The requests of each load that count, in the order in which they were planned."""
    found: dict[Cell, list[Body]] = defaultdict(list)
    for body in bodies(run.folder(name) / paths.RECORDS, "served_request"):
        if not body["warmup"]:
            found[cell_of(body)].append(body)
    return found


def cell_of(body: Body) -> Cell:
    """Which load of which server it is."""
    return body["arm"], body["block"], body["pilot"], body["load"]


def same(told: compare.Compared, name: str, field: str, recorded: Any, derived: Any) -> None:
    """One value; numbers up to rounding, the numbers of a mapping one by one."""
    if isinstance(derived, dict) and isinstance(recorded, dict) and recorded.keys() == derived.keys():
        for key, value in derived.items():
            same(told, name, f"{field}.{key}", recorded[key], value)
    elif isinstance(derived, float) and isinstance(recorded, float):
        close(told, name, field, recorded, derived, ROUNDING * abs(derived))
    else:
        check(told, name, field, recorded, derived)


def figures(own: Sequence[Body]) -> dict[str, Any]:
    """The numbers of a load."""
    good = [one for one in own if one["status"] == "ok"]
    window_s = (max(one["ended_ns"] for one in own) - min(one["started_ns"] for one in own)) / 1e9
    tokens = sum(one["output_tokens"] for one in good)
    errors = Counter(one["error"] for one in own if one["status"] == "failed")
    first = [(one["token_ns"][0] - one["started_ns"]) / 1e9 for one in good]
    later = [
        (one["token_ns"][-1] - one["token_ns"][0]) / 1e9 / (one["output_tokens"] - 1)
        for one in good
        if one["output_tokens"] > 1 and len(one["token_ns"]) > 1
    ]
    return {
        "requests": len(own),
        "completed": len(good),
        "failed": sum(errors.values()),
        "empty": sum(one["status"] == "empty" for one in own),
        "errors": {error: errors[error] for error in sorted(errors)},
        "window_s": window_s,
        "output_tokens": tokens,
        "tokens_per_s": tokens / window_s,
        "completed_per_s": len(good) / window_s,
        "most_in_flight": max(flying(own, one["started_ns"]) for one in own),
        "ttft_s": times(first),
        "tpot_s": times(later),
        "latency_s": times([(one["ended_ns"] - one["started_ns"]) / 1e9 for one in good]),
        **pace_of(own),
    }


def flying(own: Sequence[Body], at_ns: int) -> int:
    """Requests in flight right after a moment."""
    return sum(one["started_ns"] <= at_ns < one["ended_ns"] for one in own)


def times(values: Sequence[float]) -> dict[str, Any]:
    """n, mean, percentiles and largest."""
    if not values:
        return {"n": 0, "mean": None, **dict.fromkeys(PERCENTS), "largest": None}
    shares = [values[0]] * 99 if len(values) == 1 else statistics.quantiles(values, n=100, method="inclusive")
    told = {name: shares[percent - 1] for name, percent in PERCENTS.items()}
    return {"n": len(values), "mean": math.fsum(values) / len(values), **told, "largest": max(values)}


def pace_of(own: Sequence[Body]) -> dict[str, Any]:
    """Rates, gap variations and lateness of an open loop; null of a closed one."""
    names = ("schedule_per_s", "achieved_per_s", "schedule_gap_cv", "achieved_gap_cv", "largest_lag_s")
    if any(one["scheduled_ns"] is None for one in own):
        return dict.fromkeys(names)
    planned, kept = pace([one["scheduled_ns"] for one in own]), pace([one["started_ns"] for one in own])
    late = max(one["started_ns"] / 1e9 - one["scheduled_ns"] / 1e9 for one in own)
    return dict(zip(names, (planned[0], kept[0], planned[1], kept[1], late), strict=True))


def pace(moments_ns: Sequence[int]) -> tuple[float | None, float | None]:
    """Moments a second, and the deviation of their gaps over the mean gap."""
    ordered = [at / 1e9 for at in sorted(moments_ns)]
    gaps = [ordered[at + 1] - ordered[at] for at in range(len(ordered) - 1)]
    if not sum(gaps) > 0:
        return None, None
    mean = sum(gaps) / len(gaps)
    return 1 / mean, statistics.pstdev(gaps, mean) / mean if len(gaps) > 1 else None


def faults(params: Body, load: Body, own: Sequence[Body], noted: dict[str, Body]) -> int:
    """How many reasons make a load invalid."""
    served = params["served"]
    good = [one for one in own if one["status"] == "ok"]
    said = [any(one["output_tokens"] != load["output_tokens"] for one in good)]
    if not served["command"]:
        if not served.get("vllm"):
            told = [(one["prompt_tokens"], one["output_tokens"]) for one in good]
            seen = [noted.get(one["request_id"]) or {} for one in good]
            said.append(told != [(one.get("prompt_tokens"), one.get("output_tokens")) for one in seen])
        if served["backend"]["checkpoint"] == "shipped":
            said.append(any(one["prompt_tokens"] != load["context_tokens"] for one in good))
    return sum(said) + (off_pace(params, load, own) if "per_minute" in load else 0)


def of_vllm(run: Run, name: str, cell: Cell) -> int:
    """How many more reasons the server itself gives where it is vLLM: by its own record, over all loads of the cell."""
    if not run.plan.stage(name).params["served"].get("vllm"):
        return 0
    made, place = run.folder(name) / paths.RECORDS, cell[:3]
    servers = [one for one in bodies(made, "vllm_server") if (one["arm"], one["block"], one["pilot"]) == place]
    if len(servers) != 1:
        return 1
    server, every = servers[0], [one for one in bodies(made, "served_request") if cell_of(one)[:3] == place]
    was, became = server["attested_before"], server["attested_after"]
    said = sum(was[name] != became.get(name) for name in was if name not in GROWING)
    said += (server["cached_tokens"] > 0) + bool(server["fallbacks"])
    if all(one["status"] == "ok" for one in every):
        said += server["generated_tokens"] != sum(one["output_tokens"] for one in every)
        said += server["prompt_tokens"] != sum(one["prompt_tokens"] for one in every)
    return int(said)


def off_pace(params: Body, load: Body, own: Sequence[Body]) -> int:
    """How many reasons make the pace of an open loop another one than was offered."""
    found, offered = pace_of(own), load["per_minute"] / 60
    planned, kept = found["schedule_per_s"], found["achieved_per_s"]
    said = int(not found["largest_lag_s"] <= params["lag_limit_s"])
    if planned is not None:
        random = load["arrivals"] == "poisson"
        spread = STANDARD_ERRORS / math.sqrt(len(own) - 1) if random else PACE_SHARE
        said += not abs(offered / planned - 1) <= spread
        cv = found["schedule_gap_cv"]
        said += cv is not None and not abs(cv - random) <= max(spread, LEAST_CV)
    return said + bool(planned and kept and not abs(kept / planned - 1) <= PACE_SHARE)


def recount_verdicts(run: Run, stage: Stage, told: compare.Compared) -> None:
    """Every gate and comparison of a stage, from the requests of the stage that served."""
    made, source = run.folder(stage.name) / paths.RECORDS, stage.inputs["serving"].rpartition(".")[0]
    sent = {cell: own for cell, own in requests(run, source).items() if not cell[2]}
    for gate in bodies(made, "serving_gate"):
        name, pair = f"gate of {gate['arm']} under {gate['load']}", (gate["arm"], gate["load"])
        own = [one for cell, part in sent.items() if (cell[0], cell[3]) == pair for one in part]
        for field, value in {"requests": len(own), "failed": of(own, "failed"), "empty": of(own, "empty")}.items():
            check(told, name, field, gate[field], value)
        check(told, name, "verdict", gate["verdict"], "pass" if of(own, "ok") == len(own) else "fails")
    contrasts = list(bodies(made, "serving_contrast"))
    p_values, invalid = {}, {}
    for one in contrasts:
        name = f"contrast {one['contrast']}"
        invalid[name] = void(run, source, sent, one)
        bad = {arm: bad_of(sent, arm, one["load"]) for arm in (one["candidate"], one["control"])}
        check(told, name, "failed", one["failed"], bad)
        if one["ratios"] is not None:
            derived = ratios(sent, one)
            same(told, name, "ratios", dict(enumerate(one["ratios"])), dict(enumerate(derived)))
            check(told, name, "wins", one["wins"], sum(ratio > 1 for ratio in derived))
        counts = one["ratios"] is not None and one["certificate"] == "pass" and not any(bad.values())
        n = len(one["ratios"] or ())
        p_values[name] = Fraction(tail(one["wins"], n), 2**n) if counts else Fraction(1)
    adjusted = holm(p_values)
    for one in contrasts:
        name = f"contrast {one['contrast']}"
        check(told, name, "holm_p", one["holm_p"], float(adjusted[name]))
        check(told, name, "screen_ratio", one["screen_ratio"], stage.params["study"]["screen_ratio"])
        derived_verdict = "invalidated" if invalid[name] else verdict(one, adjusted[name])
        check(told, name, "verdict", one["verdict"], derived_verdict)


def void(run: Run, source: str, sent: dict[Cell, list[Body]], one: Body) -> bool:
    """Whether a comparison is invalid: by a load's own faults, prompts that differ or repeat, or a server that died."""
    params, records = run.plan.stage(source).params, run.folder(source) / paths.RECORDS
    load = next(load for load in params["served"]["loads"] if load["name"] == one["load"])
    noted = {made["request_id"]: made for made in bodies(records, "server_request")}
    arms = (one["candidate"], one["control"])
    own = {cell: part for cell, part in sent.items() if cell[0] in arms and cell[3] == one["load"]}
    prompts: dict[int, set[str]] = defaultdict(set)
    for cell, part in own.items():
        prompts[cell[1]].add(digest.of_value([request["prompt_sha256"] for request in part]))
    every = [text for block in prompts.values() for text in block]
    dead = any(
        server["died"] and server["arm"] in arms for server in bodies(records, "server_run") if not server["pilot"]
    )
    unlike = any(len(block) > 1 for block in prompts.values()) or len(set(every)) != len(every)
    told = any(of_vllm(run, source, cell) for cell in own)
    return dead or unlike or told or any(faults(params, load, part, noted) for part in own.values())


def of(own: Sequence[Body], status: str) -> int:
    """Requests of one status."""
    return sum(one["status"] == status for one in own)


def bad_of(sent: dict[Cell, list[Body]], arm: str, load: str) -> int:
    """Failed and empty requests of an arm under a load."""
    return sum(one["status"] != "ok" for cell, own in sent.items() if (cell[0], cell[3]) == (arm, load) for one in own)


def ratios(sent: dict[Cell, list[Body]], one: Body) -> list[float]:
    """Candidate over control in each block, above 1 where the candidate is better."""
    blocks = sorted({cell[1] for cell in sent if cell[3] == one["load"]})
    values = {
        (block, arm): quantity(figures(sent[arm, block, False, one["load"]]), one["quantity"])
        for block in blocks
        for arm in (one["candidate"], one["control"])
    }
    return [values[block, one["candidate"]] / values[block, one["control"]] for block in blocks]


def quantity(found: dict[str, Any], name: str) -> float:
    """A rate as it is, a time as one over it."""
    field, _, statistic = name.partition(".")
    return float(1 / found[field][statistic] if statistic else found[field])


def verdict(one: Body, p: Fraction) -> str:
    """The verdict of a comparison from its numbers."""
    if any(one["failed"].values()):
        return "no confirmed gain"
    return of_certified(one, p)
