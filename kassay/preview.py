"""`make plan`: each stage, what it reads, and whether it would run and why."""

from collections.abc import Iterator
from pathlib import Path

from kassay import identity, protocol
from kassay.entry import Stage
from kassay.identity import Wanted
from kassay.outcome import Outcome
from kassay.plan import Plan
from kassay.reuse import Reuse
from kassay.rundir import earlier_run

NO_RUN = ".no-run"  # a folder that is never there


def preview(plan: Plan, results: Path) -> Iterator[str]:
    """Lines of text: the hash, then one line a stage in order."""
    yield f"plan {plan.hash()}"
    yield f"profile {plan.profile}, workflow {plan.workflow}, {len(plan.stages)} stages"
    if (own := protocol.state_of(plan)) is not None:
        yield f"protocol {own.words or f'{own.name} {own.sha256[: protocol.SHOWN]}, not frozen'}"
    for stage in plan.stages:
        yield from sources_of(stage)
    run_dir = earlier_run(plan, results)
    there = Reuse(run_dir or results / NO_RUN, results, frozenset(), frozenset())
    current: dict[str, Path] = {}
    outcomes: dict[str, Outcome] = {}
    for stage in plan.stages:
        why = would_run(stage, plan.read_of(stage.name), there, current, outcomes)
        state = f"up to date ({current[stage.name].parent.parent.name})" if why is None else f"runs: {why}"
        yield f"{stage.name:20} {why if why is not None and why.startswith('blocked: ') else state}"
        for name, reference in stage.inputs.items():
            yield f"{'':20}   {name} <- {reference}"


def sources_of(stage: Stage) -> Iterator[str]:
    """A line for each source that a stage freezes: what is asked for, exactly as it will be."""
    sources = stage.params.get("sources")
    for name, source in sources.items() if isinstance(sources, dict) else ():
        kind = source.get("kind")
        if kind == "git":
            branch = f" on {source['branch']}" if source.get("branch") else ""
            yield f"source {name:14} {source['url']} {source['ref']}{branch}"
        elif kind == "release":
            yield f"source {name:14} {source['distribution']}=={source['version']}"


def would_run(
    stage: Stage, read: dict[str, str], there: Reuse, current: dict[str, Path], outcomes: dict[str, Outcome]
) -> str | None:
    """Why the stage would run, or None; where a result that answers lies and what it is goes into the last two.

    `read` is what others read of it.
    """
    if stage.after_all:
        return "after all others"
    if stage.stop:
        return f"blocked: {stage.stop}"
    if waits := [name for name in stage.needs() if name not in current]:
        return f"after {', '.join(waits)}"
    if reason := identity.unusable(stage, outcomes):
        return f"blocked: {reason}"
    left = {name: (current[name], outcomes[name]) for name in stage.needs()}
    found = there.find(Wanted(stage=stage, inputs=identity.resolve(stage, left)), read)
    if isinstance(found, str):
        return found
    current[stage.name], outcomes[stage.name] = found.directory, found.outcome
    return None
