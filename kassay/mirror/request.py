"""What a mirror is asked to do, where its files lie in the run directory, and which packages its environment holds.

<run>/mirror.jsonl                health, one record a step
<run>/mirror/<name>.request.json  what is asked; <name>.cursor.json what has arrived; <name>.lock held while it works
<run>/mirror/wandb/ trackio/      what the services themselves keep on this disk
<run>/mirror/making/              what W&B writes while it is at work; scratch/ its settings, caches and logs
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kassay import digest, paths
from kassay.kinds.mirror import MirrorRecord, State
from kassay.record import Writer
from kassay.stage import utc_now

if TYPE_CHECKING:
    from kassay.config.setting import Setting

FOLDER = "mirror"
RECORDS = "mirror.jsonl"
SCHEMA = "kassay.mirror_request/1"
PINS: dict[str, dict[str, list[str]]] = {
    "wandb": {"requirements": ["wandb==0.31.0"], "modules": ["wandb"]},
    "trackio": {"requirements": ["trackio==0.43.0"], "modules": ["trackio"]},
}
# Exit statuses of a mirror's process that wrote its last record itself; any other is recorded by who started it.
EXIT_SENT = 0
EXIT_TOLD = 3


@dataclass(frozen=True, kw_only=True)
class Request:
    """One mirror of one run."""

    mirror: str  # wandb or trackio
    mode: str  # online or offline
    project: str
    entity: str  # empty: the service's default
    run_dir: str
    stacks: str  # folder of the mirrors' environments
    offline: bool  # whether its environment, too, is made without the network

    @property
    def folder(self) -> Path:
        """Where the mirrors of the run keep their files."""
        return Path(self.run_dir) / FOLDER

    @property
    def online(self) -> bool:
        """Whether it sends over the network."""
        return self.mode == "online"

    def place(self) -> list[str]:
        """Where the copy goes; what arrived in one place has not arrived in another."""
        return [self.mode, self.entity, self.project]

    def save(self) -> Path:
        """Write the request file and tell where it is."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{self.mirror}.request.json"
        digest.write_json(path, {"schema": SCHEMA, **dataclasses.asdict(self)})
        return path


def load(path: Path) -> Request:
    """The request in a file."""
    body = json.loads(path.read_bytes())
    return Request(**{name: body[name] for name in Request.__dataclass_fields__})


def asked(run_dir: Path, settings: "dict[str, Setting]") -> list[Request]:
    """The mirrors that the settings ask for."""
    common: dict[str, Any] = {"run_dir": str(run_dir.resolve()), "stacks": str(paths.build() / FOLDER)}
    common["offline"] = bool(settings["OFFLINE"].value)
    found = []
    if settings["WANDB"].value:
        mode, project, entity = (str(settings[name].value) for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY"))
        found.append(Request(mirror="wandb", mode=mode, project=project, entity=entity, **common))
    if settings["TRACKIO"].value:
        mode, project = (str(settings[name].value) for name in ("TRACKIO_MODE", "TRACKIO_PROJECT"))
        found.append(Request(mirror="trackio", mode=mode, project=project, entity="", **common))
    return found


def append_health(request: Request, state: State, events: int, reason: str) -> None:
    """Append one record to mirror.jsonl."""
    writer = Writer(Path(request.run_dir) / RECORDS)
    writer.append(
        MirrorRecord(mirror=request.mirror, at=utc_now(), state=state, events=events, reason=reason),
    )
    writer.close()
