"""Blocks and comparisons of timing counted once more, by plain code that shares nothing with kassay.validity.

Which blocks count is decided again from the raw cells and the conditions around them, rule by rule; ratios are taken
again from the stamps, wins counted, the sign test summed with whole numbers, Holm stepped down by hand. The interval of
the median is not drawn again here (kassay.audit.rederive does).
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

from kassay import paths
from kassay.audit import compare, drafted
from kassay.audit.checks import Body, bodies, check
from kassay.audit.files import Run
from kassay.entry import Stage

CAP = ({"sw_power_cap"}, {"power"})  # reasons at a moment, and policies whose times add up
SLOW = (
    {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"},
    {"thermal", "board_limit", "reliability"},
)
OWN_CONTEXT = 1 << 26  # bytes; less than a context takes
Place = tuple[str, int, int, str]  # load, block, position, recipe


def recount(run: Run, stage: Stage, told: compare.Compared) -> None:
    """Every block, comparison and guard of a stage `contrast`."""
    made, raw = run.folder(stage.name) / paths.RECORDS, run.artifact(stage.inputs["timing"])
    if raw is None:
        raise ValueError("the timing stage left no records")
    study, cells = stage.params["study"], cells_of(raw)
    path = run.artifact(stage.inputs["orders"])
    if path is None:
        raise ValueError("the timing stage left no orders")
    planned = json.loads(path.read_bytes())
    for load, orders in ({"timed": planned["orders"]} | planned.get("guards", {})).items():
        recount_design(told, load, cells[load], orders)
    good = {load: recount_blocks(told, raw, load, own, study["timing"], made) for load, own in cells.items()}
    recount_family(told, list(bodies(made, "contrast")), cells["timed"], good.get("timed", []), study)
    for guard in bodies(made, "guard"):
        name, load = f"guard {guard['guard']}", guard["guard"]
        ratios = ratios_of(cells[load], good.get(load, []), guard["candidate"], guard["control"])
        check(told, name, "ratios", guard["ratios"], ratios)
        check(told, name, "median", guard["median"], statistics.median(ratios) if ratios else None)
        check(told, name, "verdict", guard["verdict"], "descriptive")


def cells_of(raw: Path) -> dict[str, list[Body]]:
    """Load -> its cells, pilots left out."""
    found: dict[str, list[Body]] = defaultdict(list)
    for cell in bodies(raw, "timing_cell"):
        if not cell["pilot"]:
            found[cell["load"]].append(cell)
    return found


def recount_blocks(
    told: compare.Compared, raw: Path, load: str, cells: list[Body], timing: Body, made: Path,
    drafts: Body | None = None,
) -> list[int]:  # fmt: skip
    """The blocks of one load that count, each held against its record; `drafts`: `speculation` of the study."""
    around = conditions(bodies(raw, "host_state"), bodies(raw, "gpu_state"))
    limits = timing.get("conditions")
    if limits and "throttled_percent" in limits:
        raise ValueError("its plan froze one limit, `throttled_percent`, for power and slowdowns; this kassay has two")
    told_of = drafted.by_cell(bodies(raw, "speculation_cell"))
    bad = {block: broken(rows, around, limits, told_of, drafts) for block, rows in by_block(cells).items()}
    recorded = {one["block"]: one for one in bodies(made, "block") if one["load"] == load}
    check(told, f"blocks of {load}", "presence", sorted(recorded), sorted(bad))
    for block, rules in bad.items():
        name, one = f"block {block} of {load}", recorded.get(block, {"valid": None, "faults": []})
        check(told, name, "valid", one["valid"], not rules)
        check(told, name, "rules", sorted({fault["rule"] for fault in one["faults"]}), sorted(rules))
    return [block for block, rules in sorted(bad.items()) if not rules]


def recount_design(told: compare.Compared, load: str, cells: list[Body], orders: list[list[str]]) -> None:
    """Every planned cell once and no other, each with the load's model and prompts."""
    planned = [(block, at, arm) for block, order in enumerate(orders) for at, arm in enumerate(order)]
    there = sorted((cell["block"], cell["position"], cell["recipe"]) for cell in cells)
    check(told, f"cells of {load}", "presence", there, sorted(planned))
    alike = {(cell["model"], cell["prompts_sha256"], cell["batch"], cell["output_tokens"]) for cell in cells}
    check(told, f"cells of {load}", "alike", len(alike), 1)


def needed_of(timing: Body) -> int:
    """How many blocks of a load must count where it has a median of its own."""
    asked = (timing.get("conditions") or {}).get("valid_blocks")
    return max(2, int(timing["blocks"] if asked is None else asked))


def by_block(cells: Iterable[Body]) -> dict[int, list[Body]]:
    """The cells of each block."""
    found: dict[int, list[Body]] = defaultdict(list)
    for cell in cells:
        found[cell["block"]].append(cell)
    return found


def conditions(hosts: Iterable[Body], gpus: Iterable[Body]) -> dict[tuple[Place, str], dict[str, list[Body]]]:
    """(cell, `host` or a GPU) -> `before` and `after` -> records, as they were left."""
    found: dict[tuple[Place, str], dict[str, list[Body]]] = defaultdict(lambda: defaultdict(list))
    for body in (*hosts, *gpus):
        if not body["pilot"]:
            found[place(body), body.get("device", "host")][body["when"]].append(body)
    return found


def place(body: Body) -> Place:
    """What says which cell it is."""
    return body["load"], body["block"], body["position"], body["recipe"]


def broken(
    cells: list[Body], around: dict[Any, dict[str, list[Body]]], limits: Body | None,
    told_of: drafted.ByCell | None = None, drafts: Body | None = None,
) -> set[str]:  # fmt: skip
    """The rules that a block breaks; `told_of`: the records of drafts of each cell."""
    rules: set[str] = set()
    clocks: dict[str, list[float]] = defaultdict(list)
    pids = [cell["pid"] for cell in cells]
    for cell in cells:
        rules |= evidence(cell) | ({"process"} if pids.count(cell["pid"]) > 1 else set())
        if not drafted.torn(cell):
            rules |= drafted.faults(cell, (told_of or {}).get(place(cell), []), drafts, cells)
        own = {what: ends for (of, what), ends in around.items() if of == place(cell)}
        whole = {what: ends for what, ends in own.items() if [len(ends["before"]), len(ends["after"])] == [1, 1]}
        pairs = {what: (ends["before"][0], ends["after"][0]) for what, ends in whole.items()}
        if "host" not in pairs or len(pairs) != len(own):
            rules.add("conditions")
        if "host" in pairs:
            stamps = [*cell["started_ns"], *cell["ended_ns"]]
            if [at for at in stamps if not pairs["host"][0]["at_ns"] <= at <= pairs["host"][1]["at_ns"]]:
                rules.add("conditions")
            clocks["host"].append(pairs["host"][1]["core_mhz"] or 0)
        for what, pair in pairs.items():
            if what != "host":
                clocks[what].append(pair[1]["sm_mhz"] or 0)
        if limits:
            rules |= beyond(cell, pairs, limits)
    most = (limits or {}).get("drift_percent")
    spreads = [sorted(mhz for mhz in seen if mhz) for seen in clocks.values()]
    if most is not None and any(seen and 100 * (seen[-1] / seen[0] - 1) > most for seen in spreads):
        rules.add("drift_percent")
    return rules


def evidence(cell: Body) -> set[str]:
    """What a cell lacks of its own."""
    if drafted.torn(cell):
        return {"stamps"}
    found = set()
    times = [at for pair in zip(cell["started_ns"], cell["ended_ns"], strict=True) for at in pair]
    if len(set(times)) != len(times) or times != sorted(times):
        found.add("stamps")
    if any(tokens != [cell["output_tokens"]] * cell["batch"] for tokens in cell["request_tokens"]):
        found.add("completion")
    digests = cell["prompt_sha256s"]
    if len(set(digests)) != cell["batch"] or "" in (*digests, cell["prompts_sha256"]):
        found.add("prompts")
    return found | ({"preemption"} if sum(map(abs, cell["preemptions"])) else set())


def beyond(cell: Body, pairs: dict[str, tuple[Body, Body]], limits: Body) -> set[str]:
    """The frozen limits that the conditions around a cell break."""
    found = set()
    planned = cell["batch"] * cell["context_tokens"]
    if limits["cached_tokens"] is not None and min(cell["prefilled_tokens"], default=planned) < (
        planned - limits["cached_tokens"]
    ):
        found.add("cached_tokens")
    if "host" not in pairs:
        return found
    before, after = pairs["host"]
    if (most := limits["foreign_cpu_percent"]) is not None:
        ends = [before["busy_s"], before["stolen_s"], after["busy_s"], after["stolen_s"]]
        took_s = (after["at_ns"] - before["at_ns"]) / 1e9
        if None in ends or not took_s > 0:
            found.add("foreign_cpu_percent")
        else:
            own = after["own_s"] - before["own_s"]
            used = (after["busy_s"] - before["busy_s"]) + (after["stolen_s"] - before["stolen_s"])
            if not 100 * (used - own) / took_s <= most + 1e-9:
                found.add("foreign_cpu_percent")
    heat = (after["throttled"] or 0) > (before["throttled"] or 0)
    gpus = [pair for what, pair in pairs.items() if what != "host"]
    if (most := limits["power_capped_percent"]) is not None and any(slowed(*pair, most, *CAP) for pair in gpus):
        found.add("power_capped_percent")
    if (most := limits["slowdown_percent"]) is not None and (
        heat or any(braked(*pair) or slowed(*pair, most, *SLOW) for pair in gpus)
    ):
        found.add("slowdown_percent")
    if (most := limits["foreign_gpu_processes"]) is not None and any(strangers(*pair) > most for pair in gpus):
        found.add("foreign_gpu_processes")
    return found


def slowed(before: Body, after: Body, most: float, reasons: set[str], policies: set[str]) -> bool:
    """Whether one kind of cause held clocks of a GPU down beyond its limit."""
    spans = [before["slowed_ns"] or {}, after["slowed_ns"] or {}]
    if told := policies & spans[0].keys() & spans[1].keys():
        longest = max(spans[1][name] - spans[0][name] for name in told)
        return not 100 * longest <= most * max(1, after["at_ns"] - before["at_ns"])
    words = [before["slowed_by"], after["slowed_by"]]
    return None in words or bool(reasons & {word for said in words for word in said})


def braked(*ends: Body) -> bool:
    """Whether a power brake was on at either moment."""
    return any("hw_power_brake_slowdown" in (end["slowed_by"] or ()) for end in ends)


def strangers(before: Body, after: Body) -> float:
    """How many processes on a GPU were not the cell's; infinitely many where nothing is told."""
    if before["processes"] is None and before["used_bytes"] is None:
        return float("inf")
    early = {one["pid"] for one in before["processes"] or [] if not one["own"]}
    late = {one["pid"] for one in after["processes"] or [] if not one["own"]} - early
    unnumbered = bool(after["processes"]) and not any(one["own"] for one in after["processes"])
    count = len(early) + max(0, len(late) - unnumbered)
    return count or int((before["used_bytes"] or 0) > OWN_CONTEXT)


def ratios_of(cells: list[Body], good: list[int], candidate: str, control: str) -> list[float]:
    """Ratios of the blocks that count, from the stamps."""
    rates = {(cell["block"], cell["recipe"]): rate(cell) for cell in cells if cell["block"] in good}
    return [rates[block, candidate] / rates[block, control] for block in good]


def rate(cell: Body) -> float:
    """Tokens per second after the warm-ups."""
    kept = range(cell["warmups"], len(cell["started_ns"]))
    tokens = sum(sum(cell["request_tokens"][at]) for at in kept)
    return float(tokens * 1e9 / sum(cell["ended_ns"][at] - cell["started_ns"][at] for at in kept))


def recount_family(told: compare.Compared, made: list[Body], cells: list[Body], good: list[int], study: Body) -> None:
    """Every comparison of the family: ratios, wins, p, Holm, and whether its verdict follows."""
    timing = study["timing"]
    needed = (timing.get("conditions") or {}).get("valid_blocks", timing["blocks"])
    p_values: dict[str, Fraction] = {}
    for one in made:
        name = f"contrast {one['contrast']}"
        ratios = ratios_of(cells, good, one["candidate"], one["control"])
        check(told, name, "valid_blocks", one["valid_blocks"], good)
        check(told, name, "needed_blocks", one["needed_blocks"], needed)
        check(told, name, "ratios", one["ratios"], ratios if len(ratios) > 1 else None)
        wins = sum(ratio > 1 for ratio in ratios)
        if one["ratios"] is not None:
            check(told, name, "wins", one["wins"], wins)
            check(told, name, "median", one["median"], statistics.median(ratios))
        counts = len(ratios) > 1 and len(good) >= needed and one["certificate"] == "pass"
        p_values[name] = Fraction(tail(wins, len(ratios)), 2 ** len(ratios)) if counts else Fraction(1)
    adjusted = holm(p_values)
    for one in made:
        name = f"contrast {one['contrast']}"
        check(told, name, "holm_p", one["holm_p"], float(adjusted[name]))
        check(told, name, "verdict", one["verdict"], verdict(one, adjusted[name], good, needed))


def tail(wins: int, n: int) -> int:
    """Outcomes of n fair coins with so many heads or more."""
    return sum(comb(n, k) for k in range(wins, n + 1))


def holm(p_values: dict[str, Fraction]) -> dict[str, Fraction]:
    """Step-down: the largest so far of (m - rank) p, at most 1."""
    found: dict[str, Fraction] = {}
    largest = Fraction(0)
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(Fraction(1), (len(p_values) - rank) * p))
        found[name] = largest
    return found


def verdict(one: Body, p: Fraction, good: list[int], needed: int) -> str:
    """The verdict of a comparison from its numbers."""
    return "invalidated" if len(good) < needed else of_certified(one, p)


def of_certified(one: Body, p: Fraction) -> str:
    """The verdict of a comparison whose blocks count: what its certificate allows, then the test and the screen."""
    if one["certificate"] == "ineligible":
        return "ineligible"
    if one["ratios"] is None:
        return "not run"
    if one["certificate"] != "pass":
        return "descriptive"
    gain = p <= Fraction(one["alpha"]) and one["median"] >= one["screen_ratio"]
    return "gain confirmed" if gain else "no confirmed gain"
