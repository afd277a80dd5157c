"""The services: opening a run's copy, sending a row, confirming. Only this module knows wandb and trackio.

Nothing arrives twice because a row's step is its event's number and each service is asked, or made to begin anew:

wandb online   the run id is derived from the run; `resume` makes W&B tell its last step, and what is below is not sent.
               The client itself drops rows below that step, and the server places rows by their line number.
wandb offline  W&B cannot resume a local copy, and `wandb sync` of a run that exists overwrites it. So the one copy in
               mirror/wandb is written whole, aside, and replaces the one before when it is finished.
trackio        a table on this disk, written in order and in transactions; its last step is read before and after.
trackio online rows go to the server one by one, each with an id made of the run and its number: the server takes an id
               once. Its own client would keep what failed and send it later under other ids, so it is not used here.
"""

import importlib
import os
import shutil
import time
from pathlib import Path
from typing import Any, Protocol

from kassay import digest
from kassay.errors import KassayError
from kassay.mirror.cursor import Cursor
from kassay.mirror.request import Request
from kassay.mirror.rows import Row, summary_of

ID_CHARS = 16
SETTLE_S = 5.0  # how long a server may take to write what it has taken
SETTLE_PERIOD_S = 0.1
WITHHELD = "withheld"  # in place of names of the machine and its user
# What W&B would collect otherwise: console output, code, git state, jobs, machine, packages, system metrics, account.
QUIET: dict[str, Any] = {
    "console": "off",
    "save_code": False,
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_disable_stats": True,
    "x_disable_viewer": True,
    "x_save_requirements": False,
    "host": WITHHELD,
    "username": WITHHELD,
    "email": WITHHELD,
    "program": "kassay",
    "silent": True,
    "symlink": False,
}


class Undelivered(KassayError):
    """A service took rows, and does not have them."""


class Service(Protocol):
    """The copy of one run in one service."""

    held: int  # events that are there already; sending begins with the next

    def send(self, row: Row) -> None:
        """Hand over one row; it need not have arrived on return."""

    def close(self, crashed: bool) -> str:
        """Wait until all has arrived; the copy's folder, if it is one. `crashed`: a stage of the run crashed."""


class Wandb:
    """A run at W&B, or a copy on this disk that `wandb sync` can bring there."""

    def __init__(self, request: Request, cursor: Cursor) -> None:
        wandb = importlib.import_module("wandb")
        self.request = request
        config = summary_of(Path(request.run_dir))
        making = request.folder / "making"
        shutil.rmtree(making, ignore_errors=True)  # what a mirror that died had begun: it is sent again, or known
        making.mkdir(exist_ok=True)
        resume = ("must" if cursor.events else "allow") if request.online else None
        self.run = wandb.init(
            mode=request.mode,
            project=request.project,
            entity=request.entity or None,
            id=id_of(config),
            name=config["run"],
            config=config,
            dir=str(making),
            resume=resume,
            settings=wandb.Settings(root_dir=str(making), **QUIET),
        )
        # Not run.step: it is 0 until the first row of this process, also where the server holds rows (0.31.0).
        self.held = int(self.run.starting_step) if request.online else 0

    def send(self, row: Row) -> None:
        """Log the row at the step of its number."""
        self.run.log(row.values, step=row.number, commit=True)

    def close(self, crashed: bool) -> str:
        """Finish the run; an offline copy takes its place now that it is whole."""
        self.run.finish(exit_code=int(crashed))
        if self.request.online:
            return ""
        (made,) = (self.request.folder / "making" / "wandb").glob(f"offline-run-*-{self.run.id}")
        home = self.request.folder / "wandb"
        home.mkdir(exist_ok=True)
        for other in home.glob(f"offline-run-*-{self.run.id}"):
            shutil.rmtree(other)  # the new one holds all of it; without a copy the cursor counts for nothing
        os.replace(made, home / made.name)
        shutil.rmtree(self.request.folder / "making")
        return f"wandb/{made.name}"


class Trackio:
    """A run in trackio's table in the run directory."""

    def __init__(self, request: Request, cursor: Cursor) -> None:
        self.trackio = importlib.import_module("trackio")
        self.storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
        config = summary_of(Path(request.run_dir))
        self.project, self.name = request.project, config["run"]
        self.trackio.init(
            project=self.project,
            name=self.name,
            config=config,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        self.held = self.arrived()
        self.sent = self.held

    def arrived(self) -> int:
        """How many events the table holds."""
        last = self.storage.get_last_step(self.project, self.name)
        return 0 if last is None else int(last) + 1

    def send(self, row: Row) -> None:
        """Queue the row at the step of its number."""
        self.trackio.log(row.values, step=row.number)
        self.sent = row.number + 1

    def close(self, crashed: bool) -> str:
        """Wait for the table and read it: trackio warns of errors where others raise them."""
        self.trackio.finish()
        if self.arrived() != self.sent:
            raise Undelivered(f"trackio holds {self.arrived()} of {self.sent} events")
        return "trackio"


class TrackioServer:
    """A run on a trackio server."""

    def __init__(self, request: Request, cursor: Cursor) -> None:
        remote = importlib.import_module("trackio.remote_client")
        self.config = summary_of(Path(request.run_dir))
        self.project, self.id = request.project, id_of(self.config)
        self.client = remote.RemoteClient(
            os.environ["TRACKIO_SERVER_URL"], write_token=os.environ["TRACKIO_WRITE_TOKEN"]
        )
        self.held = self.sent = self.arrived()

    def arrived(self) -> int:
        """How many events the server holds from the first on; with a hole among them all are offered again."""
        told = self.client.predict(api_name="/get_run_summary", project=self.project, run_id=self.id)
        return int(told["num_logs"]) if told["num_logs"] and told["num_logs"] == told["last_step"] + 1 else 0

    def send(self, row: Row) -> None:
        """Send one row and wait for the answer."""
        entry = {
            "project": self.project,
            "run": self.config["run"],
            "run_id": self.id,
            "metrics": row.values,
            "step": row.number,
            "config": self.config,
            "log_id": f"{self.id}-{row.number}",
        }
        self.client.predict(api_name="/bulk_log", logs=[entry], hf_token=None)
        self.sent = row.number + 1

    def close(self, crashed: bool) -> str:
        """Ask the server what it holds: it may queue what it has taken."""
        deadline = time.monotonic() + SETTLE_S
        while (arrived := self.arrived()) != self.sent:
            if time.monotonic() > deadline:
                raise Undelivered(f"the trackio server holds {arrived} of {self.sent} events")
            time.sleep(SETTLE_PERIOD_S)
        return ""


def id_of(config: dict[str, Any]) -> str:
    """The id of a run in a service, the same for every mirror of it."""
    return digest.of_value([config["run"], config["created_at"], config["plan_hash"]])[:ID_CHARS]


def service_of(request: Request, cursor: Cursor) -> Service:
    """The copy that a request asks for, opened."""
    if request.mirror == "wandb":
        return Wandb(request, cursor)
    return TrackioServer(request, cursor) if request.online else Trackio(request, cursor)
