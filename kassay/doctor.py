"""`make doctor`: what the plan needs and this host lacks, stage by stage, before anything is built or fetched."""

from collections.abc import Iterator
from typing import Any

from kassay import gpus, needs
from kassay.entry import Stage
from kassay.errors import SourceError
from kassay.plan import Plan
from kassay.source import gitmirror
from kassay.source.address import FULL, checked_ref
from kassay.source.command import Unreachable
from kassay.source.freeze import check
from kassay.source.gitmirror import Remote, remote_of
from kassay.source.uv import program as uv_program

ALWAYS = ("git",)  # what the framework itself calls


def examine(plan: Plan) -> dict[str, list[str]]:
    """Stage -> what it lacks; the framework's own lacks stand under an empty name."""
    own = [f"tool `{tool}` is not on PATH" for tool in ALWAYS if not needs.has_tool(tool)]
    try:
        uv_program()
    except SourceError as error:
        own.append(error.messages[0])
    return {"": own} | {stage.name: lacking(stage) for stage in plan.stages}


def lacking(stage: Stage) -> list[str]:
    """What one stage lacks: of its host, and of the remotes of its sources."""
    sources = stage.params.get("sources")
    if not isinstance(sources, dict) or "source_mirror" not in stage.params:
        return needs.lacks(stage.host_needs())
    remote = remote_of(stage.params)
    try:
        check(sources)
    except SourceError as error:
        return list(error.messages)
    told = [(name, source_fault(remote, source)) for name, source in sources.items() if source["kind"] == "git"]
    return needs.lacks(stage.host_needs()) + [f"source `{name}`: {fault}" for name, fault in told if fault]


def source_fault(remote: Remote, source: dict[str, Any]) -> str:
    """Why a git source could not be frozen now, or an empty string. A commit's id can only be asked for by a fetch."""
    url, ref = source["url"], source["ref"]
    try:
        checked_ref(ref)
        if gitmirror.holds(remote, url, ref):
            return ""
        if remote.offline and not remote.mirrors:
            return f"OFFLINE, and no mirror holds `{ref}` of {url}"
        names = ref_names(source, ref)
        tips = {name: gitmirror.tip_of(remote, url, name) for name in names}
        gone = sorted(name for name, tip in tips.items() if not tip)
        return f"{url} has no branch or tag {', '.join(f'`{name}`' for name in gone)}" if gone else ""
    except (SourceError, Unreachable) as error:
        return error.messages[0]


def ref_names(source: dict[str, Any], ref: str) -> list[str]:
    """What a remote can be asked for by name: the branch of an id, or the ref itself."""
    looks_like_an_id = FULL.fullmatch(ref) or all(letter in "0123456789abcdef" for letter in ref)
    return [source["branch"]] if source.get("branch") else ["HEAD"] if looks_like_an_id else [ref]


def lines(plan: Plan) -> Iterator[str]:
    """What `make doctor` prints: the host, then every stage."""
    there = gpus.inventory()
    usable = {gpu.index for gpu in gpus.usable(there)}
    yield f"profile {plan.profile}, workflow {plan.workflow}, {len(plan.stages)} stages"
    if there.state != "present":
        yield f"gpus: {there.state}{': ' + there.error if there.error else ''}"
    for gpu in there.gpus:
        memory = f"{gpu.memory_mib} MiB" if gpu.memory_mib is not None else "memory unknown"
        driver = f"driver {gpu.driver or 'unknown'}, compute capability {gpu.capability or 'unknown'}"
        yield f"gpu {gpu.index}: {gpu.name}, {memory}, {driver}{'' if gpu.index in usable else ', not visible'}"


def verdict(found: dict[str, list[str]]) -> Iterator[str]:
    """A line for each stage and each thing that it lacks."""
    for name, lacks in found.items():
        if not name and not lacks:
            continue
        yield f"{name or 'kassay':20} {'ok' if not lacks else 'lacks'}"
        for lack in lacks:
            yield f"{'':20}   {lack}"
