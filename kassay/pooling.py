"""Records of one protocol only: what a stage that judges asks before it reads any.

Two protocols may share every measurement, and reuse by identity takes it across; a judgement over them would be one
whose rules were chosen with the results in sight. So once a protocol was frozen, records made under another are
refused, whichever of the two was frozen. Without a freeze nothing is refused: that is development.
"""

import json
from pathlib import Path
from typing import Any

from kassay import digest, paths
from kassay.errors import ProtocolError, RunError
from kassay.stage import Stage

UNKNOWN = {"sha256": "unknown", "frozen": None}


def require_own_protocol(stage: Stage) -> None:
    """Raise ProtocolError if an input was made under another protocol than the stage's own and either was frozen."""
    own = stage.request.get("protocol")
    if own is None:
        return
    strange = {}
    for name, path in stage.inputs.items():
        made = protocol_of(path)
        if made is None or made["sha256"] == own["sha256"] or own["frozen"] is made["frozen"] is None:
            continue
        strange[name] = made["sha256"]
    if strange:
        owners = sorted({stage_of(stage.inputs[name]) for name in strange})
        told = ", ".join(f"`{name}` under {sha256[:8]}" for name, sha256 in sorted(strange.items()))
        raise ProtocolError(
            f"refused: protocol {own['sha256'][:8]} judges no records of another: {told}",
            hint=f"make FORCE={','.join(owners)} measures them under this protocol",
        )


def verified_sha256(stage: Stage, name: str) -> str:
    """The digest of an input that is a file, as the request states it. Raises RunError if the file is another one."""
    stated, path = stage.input_sha256(name), stage.inputs[name]
    if (found := digest.of_file(path)) != stated:
        raise RunError(f"input `{name}`: {paths.shown(path)} has the digest {found}, asked was {stated}")
    return stated


def protocol_of(path: Path) -> dict[str, Any] | None:
    """The protocol under which an input was made; None for what no stage left."""
    request = stage_folder(path) / paths.REQUEST
    if not request.is_file():
        return None
    return json.loads(request.read_bytes()).get("protocol") or UNKNOWN


def stage_of(path: Path) -> str:
    """The stage that left an input."""
    return str(json.loads((stage_folder(path) / paths.REQUEST).read_bytes())["stage"])


def stage_folder(path: Path) -> Path:
    """The stage directory around a file, `…/stages/<stage>`; the file's own folder where there is none."""
    around = [folder for folder in path.parents if folder.parent.name == "stages"]
    return around[0] if around else path.parent
