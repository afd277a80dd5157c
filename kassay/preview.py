"""`make plan`: each stage, what it reads, and whether it would run and why."""

from collections.abc import Iterator
from pathlib import Path

from kassay import identity
from kassay.identity import Input, Wanted
from kassay.outcome import Outcome, load
from kassay.plan import Plan, Stage


def preview(plan: Plan, results: Path) -> Iterator[str]:
    """Lines of text: the hash, then one line a stage in order."""
    yield f"plan {plan.hash()}"
    yield f"profile {plan.profile}, workflow {plan.workflow}, {len(plan.stages)} stages"
    current: dict[str, tuple[Path, Outcome]] = {}
    for stage in plan.stages:
        why = would_run(stage, results, current)
        state = f"up to date ({current[stage.name][0].parent.parent.name})" if why is None else f"runs: {why}"
        yield f"{stage.name:20} {why if why is not None and why.startswith('blocked: ') else state}"
        for name, reference in stage.inputs.items():
            yield f"{'':20}   {name} <- {reference}"


def would_run(stage: Stage, results: Path, current: dict[str, tuple[Path, Outcome]]) -> str | None:
    """Why the stage would run, or None; a result that is there is added to `current`."""
    if stage.after_all:
        return "after all others"
    waits = [name for name in stage.needs() if name not in current]
    if waits:
        return f"after {', '.join(waits)}"
    inputs = {}
    for name, reference in stage.inputs.items():
        if reference.startswith("tree:"):
            inputs[name] = identity.tree_input(reference)
            continue
        owner, _, artifact_name = reference.rpartition(".")
        directory, outcome = current[owner]
        if not outcome.usable:
            return f"blocked: `{owner}` was {outcome.word}"
        if artifact_name not in outcome.artifacts:
            return f"`{owner}` left no `{artifact_name}`"
        artifact = outcome.artifacts[artifact_name]
        inputs[name] = Input(path=directory / artifact.file, sha256=artifact.sha256)
    first = "never ran"
    for directory in identity.earlier_results(results, stage.name):
        why = identity.explain(directory, Wanted(stage=stage, inputs=inputs))
        outcome_there = load(directory)
        if why is None and outcome_there is not None:
            current[stage.name] = (directory, outcome_there)
            return None
        first = why if first == "never ran" and why else first
    return first
