"""`make plan`: each stage, what it reads, and whether it would run and why."""

from collections.abc import Iterator
from pathlib import Path

from kassay import identity, paths
from kassay.identity import Wanted
from kassay.outcome import Outcome, load
from kassay.plan import Plan, Stage
from kassay.rundir import earlier_run


def preview(plan: Plan, results: Path) -> Iterator[str]:
    """Lines of text: the hash, then one line a stage in order."""
    yield f"plan {plan.hash()}"
    yield f"profile {plan.profile}, workflow {plan.workflow}, {len(plan.stages)} stages"
    for stage in plan.stages:
        yield from sources_of(stage)
    current: dict[str, tuple[Path, Outcome]] = {}
    own = earlier_run(plan, results)
    for stage in plan.stages:
        why = would_run(stage, results, own, current)
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


def would_run(stage: Stage, results: Path, own: Path | None, current: dict[str, tuple[Path, Outcome]]) -> str | None:
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
    why = identity.NEVER_RAN if own is None else identity.explain(paths.stage_dir(own, stage.name), wanted)
    directory = None if own is None or why is not None else paths.stage_dir(own, stage.name)
    if why is not None:
        directory, why = identity.find_earlier(results, wanted, why)
    outcome = None if directory is None else load(directory)
    if directory is None or outcome is None:
        return why
    current[stage.name] = (directory, outcome)
    return None
