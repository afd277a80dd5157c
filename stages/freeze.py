"""Freeze the sources of a stack: what they are, exactly, before anything is made from them.

Writes a source record each, `sources.json` (evidence: commit, dirtiness, digest) and `pins.json` (only what a stack's
environment is made from, so that an edit in the tree does not rebuild it; stages record the code that they load).
"""

import re
from pathlib import Path
from typing import Any

from kassay import digest
from kassay.kinds.source import SourceRecord
from kassay.source.freeze import frozen_tree
from kassay.stage import Metrics, Rejection, Stage, main

PINNED = re.compile(r"[\w.-]+(\[[\w.,-]+\])?==[\w.!+-]+")


def run(stage: Stage) -> Metrics | Rejection:
    """Freeze every source of the stack file; rejected if it must be pinned and is not."""
    frozen: dict[str, dict[str, Any]] = {}
    root = stage.inputs["tree"]
    for name, source in stage.params["sources"].items():
        frozen[name] = frozen_tree((root / Path(source["path"])).resolve())
        stage.append(SourceRecord(name=name, **frozen[name]))
    if stage.params["require_pinned"] and (loose := unpinned(frozen, stage.params["requirements"])):
        return stage.rejected("; ".join(loose))
    stage.write_json("sources", {"sources": frozen, "digest": digest.of_value(frozen)})
    stage.write_json("pins", {"requirements": stage.params["requirements"], "modules": stage.params["modules"]})
    return {f"{name} commit": source["commit"] for name, source in frozen.items()} | {
        f"{name} dirty files": len(source["dirty"]) for name, source in frozen.items()
    }


def unpinned(frozen: dict[str, dict[str, Any]], requirements: list[str]) -> list[str]:
    """What no single commit or version names."""
    found = []
    for name, source in frozen.items():
        if source["commit"] is None:
            found.append(f"source `{name}` has no commit")
        elif source["dirty"]:
            found.append(f"source `{name}` has {len(source['dirty'])} changes that no commit holds")
    found += [f"requirement `{pin}` is not pinned by `==`" for pin in requirements if not PINNED.fullmatch(pin)]
    return found


if __name__ == "__main__":
    main(run)
