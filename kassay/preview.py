"""`make plan`: each stage, what it reads, and whether it would run and why."""

from collections.abc import Iterator
from pathlib import Path

from kassay import identity, paths
from kassay.earlier import Earlier
from kassay.entry import Stage
from kassay.identity import Wanted
from kassay.outcome import Outcome
from kassay.plan import Plan
from kassay.rundir import earlier_run


def preview(plan: Plan, results: Path) -> Iterator[str]:
    """Lines of text: the hash, then one line a stage in order."""
    yield f"plan {plan.hash()}"
    yield f"profile {plan.profile}, workflow {plan.workflow}, {len(plan.stages)} stages"
    for stage in plan.stages:
        yield from sources_of(stage)
    current: dict[str, tuple[Path, Outcome]] = {}
    own, earlier = earlier_run(plan, results), Earlier(results)
    for stage in plan.stages:
        why = would_run(stage, earlier, own, current)
        state = f"up to date ({current[stage.name][0].parent.parent.name})" if why is None else f"runs: {why}"
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


def would_run(stage: Stage, earlier: Earlier, own: Path | None, current: dict[str, tuple[Path, Outcome]]) -> str | None:
    """Why the stage would run, or None; a result that is there is added to `current`. `own` is this plan's run."""
    if stage.after_all:
        return "after all others"
    if stage.stop:
        return f"blocked: {stage.stop}"
    waits = [name for name in stage.needs() if name not in current]
    if waits:
        return f"after {', '.join(waits)}"
    outcomes = {name: outcome for name, (_, outcome) in current.items()}
    if reason := identity.unusable(stage, outcomes):
        return f"blocked: {reason}"
    if reason := identity.lacking(stage, outcomes):
        return reason
    wanted = Wanted(stage=stage, inputs=identity.resolve(stage, current))
    found = identity.nothing(earlier.results, identity.NEVER_RAN)
    if own is not None:
        found = identity.examine(paths.stage_dir(own, stage.name), wanted)
    if found.why is not None:
        found = earlier.find(wanted, found.why)
    if found.why is None:
        current[stage.name] = (found.directory, found.made())
    return found.why
