"""Freeze the sources of a stack: what they are, exactly, before anything is made from them.

Writes a source record each, `sources.json` (evidence: url, ref asked, commit, tree, submodules, digest) and `pins.json`
(only what a stack's environment is made from, so that an edit in our tree does not rebuild it; stages record the code
that they load). A branch or tag is asked again by a new run; a resumed one keeps the commit that it froze, and says if
it moved.
"""

import json
from pathlib import Path
from typing import Any

from kassay import digest, paths
from kassay.errors import SourceError
from kassay.kinds.source import SourceRecord
from kassay.source import freeze
from kassay.source.command import Unreachable
from kassay.source.gitmirror import remote_of
from kassay.stage import Metrics, Rejection, Stage, Unmet, main


def run(stage: Stage) -> Metrics | Rejection:
    """Freeze every source of the stack file; rejected if it must be pinned and is not."""
    sources: dict[str, dict[str, Any]] = stage.params["sources"]
    freeze.check(sources)
    pinned = stage.params["require_pinned"]
    if pinned and (loose := freeze.unpinned(sources, stage.params["requirements"])):
        return stage.rejected("; ".join(loose))
    frozen = freeze_all(stage, sources)
    for name, one in frozen.items():
        stage.append(SourceRecord(name=name, **one.facts))
    if pinned and (loose := uncommitted(frozen)):
        return stage.rejected("; ".join(loose))
    facts = {name: one.facts for name, one in frozen.items()}
    stage.write_json("sources", {"sources": facts, "digest": digest.of_value(facts)})
    for name, members in roles_of(stage, frozen).items():
        stage.write_json(name, pins(stage, sources, {role: frozen[source] for role, source in members.items()}))
    for one in frozen.values():
        if one.path is not None:
            stage.add_foundation(one.path / ".git" / "HEAD")  # a checkout that is gone is made again
    if moving := sorted(name for name, one in frozen.items() if one.moves):
        stage.ask_again(f"asks again where the ref of {', '.join(moving)} is")
    return metrics(facts)


def freeze_all(stage: Stage, sources: dict[str, dict[str, Any]]) -> dict[str, freeze.Frozen]:
    """Every source, made exact. Raises Unmet if a remote does not answer, SourceError with all other faults."""
    remote = remote_of(stage.params)
    book = stage.run_dir / paths.FROZEN
    earlier = json.loads(book.read_bytes()) if book.is_file() else {}
    found: dict[str, freeze.Frozen] = {}
    faults: list[str] = []
    away: list[str] = []
    for done, (name, source) in enumerate(sources.items()):
        stage.progress(done, len(sources), name)
        try:
            if source["kind"] == "git":
                kept = earlier.get(name)
                kept = kept if kept and kept["asked"] == asked(source) else None
                found[name] = freeze.freeze_git(name, source, remote, paths.build() / "sources", kept)
            elif source["kind"] == "release":
                found[name] = freeze.freeze_release(source)
            else:
                found[name] = freeze.freeze_tree(stage.inputs["tree"], source)
        except Unreachable as error:
            away.append(f"source `{name}`: {error.messages[0]}")
        except SourceError as error:
            faults += [f"source `{name}`: {message}" for message in error.messages]
    if faults:
        raise SourceError(*faults)
    keep(book, sources, found)
    if away:
        raise Unmet("; ".join(away))
    return found


def asked(source: dict[str, Any]) -> list[str]:
    """What decides which commit a source is."""
    return [source["url"], source["ref"], source.get("branch", "")]


def keep(book: Path, sources: dict[str, dict[str, Any]], frozen: dict[str, freeze.Frozen]) -> None:
    """Note the commits of moving refs in the run, so that a resumed run stays at them."""
    kept = {
        name: {"asked": asked(sources[name]), "kind": one.facts["ref_kind"], "commit": one.facts["commit"]}
        for name, one in frozen.items()
        if one.moves
    }
    if kept:
        digest.write_json(book, kept)


def uncommitted(frozen: dict[str, freeze.Frozen]) -> list[str]:
    """Trees of this project that no single commit names."""
    found = []
    for name, one in frozen.items():
        if one.facts["kind"] == "tree" and one.facts["commit"] is None:
            found.append(f"source `{name}` has no commit")
        elif one.facts["dirty"]:
            found.append(f"source `{name}` has {len(one.facts['dirty'])} changes that no commit holds")
    return found


def roles_of(stage: Stage, frozen: dict[str, freeze.Frozen]) -> dict[str, dict[str, str]]:
    """Artifact -> (what it is called there -> source) of each stack: `pins`, or `pins-<role>` for each role."""
    git = {name: name for name, one in frozen.items() if one.path is not None}
    roles: dict[str, dict[str, str]] = stage.params.get("roles") or {}
    gone = sorted({source for members in roles.values() for source in members.values()} - set(git))
    if gone:
        raise SourceError(*(f"a role names source `{name}`, which is no git source" for name in gone))
    return {f"pins-{role}": members for role, members in roles.items()} or {"pins": git}


def pins(stage: Stage, sources: dict[str, dict[str, Any]], members: dict[str, freeze.Frozen]) -> dict[str, Any]:
    """What a stack is made from; `members` are its git sources."""
    releases = [freeze.requirement_of(source) for source in sources.values() if source["kind"] == "release"]
    git = {
        name: {
            "commit": one.facts["commit"],
            "tree": one.facts["tree"],
            "path": str(one.path),
            "distribution": one.source["distribution"],
            "module": one.source["module"],
            "version": one.source.get("version") or None,
        }
        for name, one in members.items()
    }
    told = ("python", "install", "build_requirements", "variables")
    more = {key: stage.params[key] for key in told if key in stage.params}
    return {
        "requirements": [*stage.params["requirements"], *releases],
        "modules": stage.params["modules"],
        "sources": git,
        **more,
    }


def metrics(facts: dict[str, dict[str, Any]]) -> Metrics:
    """What the report shows of each source."""
    found: Metrics = {f"{name} commit": one["commit"] for name, one in facts.items() if one["kind"] != "release"}
    found |= {f"{name} dirty files": len(one["dirty"]) for name, one in facts.items() if one["kind"] == "tree"}
    return found | {f"{name} note": one["note"] for name, one in facts.items() if one["note"]}


if __name__ == "__main__":
    main(run)
