"""Cells with drafts counted once more, by plain code that shares nothing with kassay.speculated; and acceptance.

A cell's passes are played through: of each request the pass in which it ends follows from how many it took, so the
requests of every pass are known, and with them how many steps there were and how many served all.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain

from kassay import paths
from kassay.audit import compare
from kassay.audit.checks import Body, bodies, check
from kassay.audit.files import Run
from kassay.entry import Stage

ByCell = dict[tuple[str, int, int, str], list[Body]]  # load, block, position, recipe -> its drafts


def by_cell(records: Iterable[Body]) -> ByCell:
    """The records of drafts of each cell, pilots left out."""
    found: ByCell = defaultdict(list)
    for one in records:
        if not one["pilot"]:
            found[one["load"], one["block"], one["position"], one["recipe"]].append(one)
    return found


def torn(cell: Body) -> bool:
    """Whether a cell does not tell of every repetition, or measured none."""
    names = ("ended_ns", "request_tokens", "prefilled_tokens", "decode_steps", "full_steps", "preemptions")
    count = len(cell["started_ns"])
    return count <= cell["warmups"] or any(len(cell[name]) != count for name in (*names, "output_sha256s"))


def faults(cell: Body, told: list[Body], section: Body | None, block: list[Body]) -> set[str]:
    """The rules that a cell's steps break; `told`: the records of its drafts."""
    base = (section or {}).get("arms", {}).get(cell["recipe"])
    if section is None or base is None:
        plain = {*cell["decode_steps"], *cell["full_steps"]} == {cell["output_tokens"]}
        return (set() if plain else {"schedule"}) | ({"drafts"} if told else set())
    if len(told) != 1 or not asked_for(cell, told[0], section) or not whole(cell, told[0]):
        return {"drafts"}
    found = set()
    if not adds_up(told[0]):
        found.add("drafts")
    if not all(played(cell, told[0], repetition) for repetition in range(len(cell["started_ns"]))):
        found.add("schedule")
    if section["same_tokens"]:
        outputs = [set(one["output_sha256s"]) for one in block if one is cell or one["recipe"] == base]
        if len(outputs) != 2 or len(set.union(*outputs)) != 1:
            found.add("outputs")
    return found


def asked_for(cell: Body, drafts: Body, section: Body) -> bool:
    """Whether drafts were made as the study says, for this cell's batch and output."""
    of_study = all(drafts[name] == section[name] for name in ("draft_tokens", "longest_ngram", "shortest_ngram"))
    of_cell = all(drafts[name] == cell[name] for name in ("batch", "output_tokens"))
    return of_study and of_cell and drafts["base"] == section["arms"][cell["recipe"]]


def whole(cell: Body, drafts: Body) -> bool:
    """Whether every repetition is told of, request by request and pass by pass."""
    repetitions = len(cell["started_ns"])
    by_request = [drafts[name] for name in ("passes", "drafted", "accepted")]
    by_pass = [drafts[name] for name in ("pass_requests", "pass_tokens")]
    if any(len(told) != repetitions for told in (*by_request, *by_pass)):
        return False
    if any(len(row) != cell["batch"] for row in chain.from_iterable(by_request)):
        return False
    return [len(row) for row in by_pass[0]] == [len(row) for row in by_pass[1]]


def adds_up(drafts: Body) -> bool:
    """Whether each request's tokens are its passes and its accepted ones, and no draft was too long."""
    flat = [chain.from_iterable(drafts[name]) for name in ("passes", "drafted", "accepted")]
    return all(
        passes == drafts["output_tokens"] - accepted and accepted >= 0 and drafted - accepted >= 0
        and drafted <= passes * drafts["draft_tokens"]
        for passes, drafted, accepted in zip(*flat, strict=True)
    )  # fmt: skip


def played(cell: Body, drafts: Body, repetition: int) -> bool:
    """Whether the passes of a repetition served just those who had not ended, in widths that held their drafts."""
    ending = Counter(drafts["passes"][repetition])
    there, alive = [], cell["batch"] - ending.pop(0, 0)
    for step in range(1, max(drafts["passes"][repetition]) + 1):
        there.append(alive)
        alive -= ending[step]
    full = sum(requests == cell["batch"] for requests in there)
    widths = drafts["pass_tokens"][repetition]
    drafted = sum(drafts["drafted"][repetition])
    return (
        drafts["pass_requests"][repetition] == there
        and cell["decode_steps"][repetition] == len(there)
        and cell["full_steps"][repetition] == full
        and all(0 < width <= drafts["draft_tokens"] + 1 for width in widths)
        and drafted <= sum(width * requests for width, requests in zip(widths, there, strict=True)) - sum(there)
    )


def recount_acceptance(run: Run, stage: Stage, told: compare.Compared) -> None:
    """Every record of a stage `acceptance`: its point is one of the grid, and its shares follow from its requests."""
    section = stage.params["speculation"]
    asked = section["acceptance"]
    points = []
    for one in bodies(run.folder(stage.name) / paths.RECORDS, "acceptance"):
        point = (one["context_tokens"], one["batch"], one["recipe"], one["draft_tokens"])
        points.append(point)
        name = f"acceptance of {one['recipe']}, batch {one['batch']}, {point[0]} tokens, drafts of {point[3]}"
        passes, drafted, accepted = (sum(one[field]) for field in ("passes", "drafted", "accepted"))
        check(told, name, "tokens", passes + accepted, one["requests"] * one["output_tokens"])
        share = accepted / drafted if drafted else None
        check(told, name, "acceptance", one["acceptance"], share)
        tokens = one["requests"] * one["output_tokens"]
        check(told, name, "tokens_per_pass", one["tokens_per_pass"], tokens / passes)
        for field in ("requests", "output_tokens", "rounding_tolerance"):
            check(told, name, field, one[field], asked[field])
        for field in ("longest_ngram", "shortest_ngram"):
            check(told, name, field, one[field], section[field])
    grid = [
        (context, batch, recipe, tokens)
        for context in asked["contexts_tokens"]
        for batch in asked["batches"]
        for recipe in asked["recipes"]
        for tokens in asked["draft_tokens"]
    ]
    check(told, "acceptance", "points", sorted(points), sorted(grid))
