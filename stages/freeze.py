"""Freeze the sources of a stack: what they are, exactly, before anything is made from them.

Writes a source record each, `sources.json` (evidence: commit, dirtiness, digest) and `pins.json` (only what a stack's
environment is made from, so that an edit in the tree does not rebuild it; stages record the code that they load).
"""

from pathlib import Path

from kassay import digest
from kassay.kinds.source import SourceRecord
from kassay.source.freeze import frozen_tree
from kassay.stage import Metrics, Stage, main


def run(stage: Stage) -> Metrics:
    """Freeze every source of the stack file."""
    frozen = {}
    root = stage.inputs["tree"]
    for name, source in stage.params["sources"].items():
        frozen[name] = frozen_tree((root / Path(source["path"])).resolve())
        stage.append(SourceRecord(name=name, **frozen[name]))
    stage.write_json("sources", {"sources": frozen, "digest": digest.of_value(frozen)})
    stage.write_json("pins", {"requirements": stage.params["requirements"], "modules": stage.params["modules"]})
    return {f"{name} commit": source["commit"] for name, source in frozen.items()} | {
        f"{name} dirty files": len(source["dirty"]) for name, source in frozen.items()
    }


if __name__ == "__main__":
    main(run)
