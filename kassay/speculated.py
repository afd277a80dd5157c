"""What a timed cell with drafts lacks of its evidence: the counterpart of the rules on decode steps of plain cells.

    plain         one step a token, every step serves every request:     decode_steps = full_steps = output_tokens
    with drafts   of each request      passes + accepted = output_tokens, accepted <= drafted <= draft_tokens passes
                  of each step p       it serves just the requests with more than p passes, as the model's own door saw
                  of the repetition    decode_steps = the most passes of any request, full_steps = the fewest

`drafts` says that a cell lacks the record of its drafts, or that its numbers do not add up; `schedule` that a step
served others than it had to; `outputs`, where the study asks for the same tokens, that they are not those of the arm of
the same cache without drafts in the same block. Acceptance itself breaks no rule, and no rate is looked at.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kassay.kinds.speculation import SpeculationCell
from kassay.kinds.timing import TimingCell

Section = Mapping[str, Any]  # `speculation` of a study
PER_REPETITION = ("passes", "drafted", "accepted", "pass_requests", "pass_tokens")
OF_STUDY = ("draft_tokens", "longest_ngram", "shortest_ngram")
Fault = tuple[str, str]  # rule and words


def base_of(section: Section | None, arm: str) -> str | None:
    """The arm of the same cache without drafts; None for an arm that decodes plainly."""
    return None if section is None else section["arms"].get(arm)


def lacks(
    cell: TimingCell, told: Sequence[SpeculationCell], section: Section, block: Sequence[TimingCell]
) -> Iterator[Fault]:
    """What a cell with drafts lacks; `told`: the records of its drafts, `block`: the cells of its block."""
    if len(told) != 1:
        yield "drafts", f"its drafts were recorded {len(told)} times, once is needed"
        return
    drafts = told[0]
    if fault := another(cell, drafts, section) or misshapen(cell, drafts):
        yield "drafts", fault
        return
    if fault := miscounted(drafts):
        yield "drafts", fault
    if fault := misscheduled(cell, drafts):
        yield "schedule", fault
    if section["same_tokens"]:
        base = [one for one in block if one.recipe == drafts.base]
        if len(base) != 1 or {*cell.output_sha256s} != {*base[0].output_sha256s} or len({*cell.output_sha256s}) != 1:
            yield "outputs", f"they are not those of `{drafts.base}` in its block, token by token"


def another(cell: TimingCell, drafts: SpeculationCell, section: Section) -> str:
    """That the record is of another cell, or of drafts that the study did not ask for; empty if it is this cell's."""
    wanted = {name: section[name] for name in OF_STUDY} | {"base": section["arms"][cell.recipe]}
    wanted |= {"batch": cell.batch, "output_tokens": cell.output_tokens}
    other = [f"{name} {getattr(drafts, name)}" for name, value in wanted.items() if getattr(drafts, name) != value]
    return f"its drafts were recorded with {', '.join(other)}, planned was another" if other else ""


def misshapen(cell: TimingCell, drafts: SpeculationCell) -> str:
    """That drafts are not told of every repetition and every request; empty if they are."""
    count = len(cell.started_ns)
    if short := [name for name in PER_REPETITION if len(getattr(drafts, name)) != count]:
        return f"{count} repetitions, and not as many of: {', '.join(short)}"
    for name in ("passes", "drafted", "accepted"):
        if any(len(of_requests) != cell.batch for of_requests in getattr(drafts, name)):
            return f"{name} is not told of each of {cell.batch} requests"
    if any(len(ones) != len(others) for ones, others in zip(drafts.pass_requests, drafts.pass_tokens, strict=True)):
        return "requests and tokens are not told of the same passes"
    return ""


def miscounted(drafts: SpeculationCell) -> str:
    """The first request whose passes, drafts and tokens do not add up; empty if all do."""
    for repetition, of_requests in enumerate(zip(drafts.passes, drafts.drafted, drafts.accepted, strict=True)):
        for request, (passes, drafted, accepted) in enumerate(zip(*of_requests, strict=True)):
            if not 0 <= accepted <= drafted <= drafts.draft_tokens * passes or (
                passes + accepted != drafts.output_tokens
            ):
                return (
                    f"repetition {repetition}, request {request}: {passes} passes, {accepted} of {drafted} draft "
                    f"tokens accepted do not make {drafts.output_tokens} tokens with drafts of {drafts.draft_tokens}"
                )
    return ""


def misscheduled(cell: TimingCell, drafts: SpeculationCell) -> str:
    """The first repetition whose steps served others than they had to; empty if none."""
    for repetition, passes in enumerate(drafts.passes):
        due = [sum(own > step for own in passes) for step in range(max(passes, default=0))]
        seen, widths = drafts.pass_requests[repetition], drafts.pass_tokens[repetition]
        if seen != due:
            return f"repetition {repetition}: its steps served {seen} requests, {due} were due"
        steps, full = cell.decode_steps[repetition], cell.full_steps[repetition]
        if (steps, full) != (len(due), min(passes, default=0)):
            return f"repetition {repetition}: {full} full of {steps} steps, {min(passes)} of {len(due)} were due"
        if not all(1 <= width <= 1 + drafts.draft_tokens for width in widths):
            return f"repetition {repetition}: steps of {min(widths)} to {max(widths)} tokens a request"
        room = sum(requests * (width - 1) for requests, width in zip(seen, widths, strict=True))
        if sum(drafts.drafted[repetition]) > room:
            return f"repetition {repetition}: {sum(drafts.drafted[repetition])} draft tokens in steps that had {room}"
    return ""
