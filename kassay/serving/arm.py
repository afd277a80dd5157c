"""One arm's server for one cell: the in-tree one as a stage program of its own, vLLM, or what command the plan names.

A directory `servers/<cell>` keeps its log, and for the in-tree server its request, records and receipt: it can be run
again by hand, and the code that it loaded becomes part of the stage's identity. A vLLM server attests what it runs and
its own code (kassay.serving.vllm_server). A foreign server's code is not seen; its command is a parameter of the stage,
and its digest in the record.

One granted core is the client's, which runs in the stage itself; the in-tree server has the others, one at least.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kassay import digest, host, paths
from kassay.kinds.serving import ServerRequest, ServerRun
from kassay.kinds.vllm_serving import VllmServer
from kassay.record import read_kind
from kassay.serving import process
from kassay.serving.client import Answer, Target
from kassay.serving.process import Server
from kassay.serving.stream import Limits
from kassay.stage import Stage

PROGRAM = "serving_server"
LOG = "server.log"


@dataclass(kw_only=True)
class Arm:
    """A server that runs, and after its end what it left."""

    name: str
    target: Target
    server: Server
    counted: list[ServerRequest] = field(default_factory=list)  # by the in-tree server, once it has ended
    own: bool = True  # whether it is the in-tree server
    told: list[VllmServer] | None = None  # of a vLLM server: what it did, once its loads are over

    @property
    def counts(self) -> bool:
        """Whether its token counts are known to be those of the model's own tokens: a foreign server's are not."""
        return self.own or self.told is not None


@contextmanager
def serving(stage: Stage, name: str, place: dict[str, Any]) -> Iterator[Arm]:
    """The healthy server of an arm; its record is written when it has ended."""
    params, port = stage.params["served"], process.free_port()
    directory = stage.directory / "servers" / name
    directory.mkdir(parents=True)
    argv, environment = launch(stage, directory, place["arm"], port)
    load_before = host.load_1min()
    running = process.running(
        argv,
        port=port,
        log=directory / LOG,
        ready_timeout_s=params["ready_timeout_s"],
        grace_s=params["grace_s"],
        environment=environment,
    )
    with running as server:
        made = Arm(name=place["arm"], target=target_of(params, port), server=server)
        made.own = not params["command"] and not params.get("vllm")
        with attesting(stage, place, server) as made.told:
            yield made
    stage.append(record_of(place, server, fingerprint(argv, port), load_before))
    if made.own:
        stage.add_child(json.loads((directory / paths.RECEIPT).read_bytes()))
        records = directory / paths.RECORDS
        made.counted = read_kind(records, ServerRequest) if records.is_file() else []


def launch(stage: Stage, directory: Path, arm: str, port: int) -> tuple[list[str], dict[str, str]]:
    """The command of an arm's server, and its environment."""
    params = stage.params["served"]
    if params.get("vllm"):
        from kassay.serving import vllm_server  # its code is no part of other servers' cells

        return vllm_server.command(stage, arm, port)
    argv = words(stage, arm, port) if params["command"] else own(stage, directory, arm, port)
    return argv, dict(os.environ)


def attesting(stage: Stage, place: dict[str, Any], server: Server) -> AbstractContextManager[list[VllmServer] | None]:
    """Around the loads: what asks a vLLM server; nothing is asked of others."""
    if not stage.params["served"].get("vllm"):
        return nullcontext()
    from kassay.serving import vllm_server

    return vllm_server.attested(stage, place, server)


def own(stage: Stage, directory: Path, recipe: str, port: int) -> list[str]:
    """The command of the in-tree server, its request written."""
    params, grant = stage.params["served"], stage.request["grant"]
    argv = [sys.executable, str(paths.program(PROGRAM)), str(directory)]
    asked = {name: params[name] for name in ("model", "sixteen", "largest_cohort", "most_waiting", "backend")}
    asked |= {"recipe": recipe, "port": port, "output_tokens": most_output_tokens(params)}
    request = {**stage.request, "stage": directory.name, "params": asked, "argv": argv, "host": {}}
    request["grant"] = {**grant, "cpus": max(1, grant["cpus"] - 1)}
    digest.write_json(directory / paths.REQUEST, request)
    return argv


def most_output_tokens(params: dict[str, Any]) -> int:
    """The longest output of any load."""
    return int(max(load["output_tokens"] for load in params["loads"]))


def words(stage: Stage, recipe: str, port: int) -> list[str]:
    """The command of a foreign server."""
    served = stage.params["served"]
    values = {"port": str(port), "model": str(stage.inputs["model"]), "name": served["model"]}
    return process.words_of(served["command"], {**values, "recipe": recipe, "python": sys.executable})


def fingerprint(argv: Sequence[str], port: int) -> str:
    """Digest of a command without what differs from start to start."""
    return digest.of_value([word.replace(str(port), "{port}") for word in argv])


def target_of(params: dict[str, Any], port: int) -> Target:
    """Where the client sends requests."""
    return Target(
        host=process.HOST,
        port=port,
        model=params["model"],
        chat=params["chat"],
        output_tokens=most_output_tokens(params),
        limits=Limits(connect_s=params["connect_s"], stall_s=params["stall_s"], request_s=params["request_s"]),
    )


def record_of(place: dict[str, Any], server: Server, argv_sha256: str, load_before: float) -> ServerRun:
    """How a server ran."""
    return ServerRun(
        **place,
        argv_sha256=argv_sha256,
        pid=server.process.pid,
        ready_s=server.ready_s,
        died=server.died,
        stopped_by=server.stopped_by,
        exit_code=server.process.returncode,
        load_before=load_before,
        load_after=host.load_1min(),
    )


def disagreements(answers: Sequence[Answer], counted: Sequence[ServerRequest]) -> list[str]:
    """Where what the in-tree server told in `usage` is not what it noted itself."""
    by_id = {one.request_id: one for one in counted}
    wrong = 0
    for answer in answers:
        if answer.status == "ok":
            noted = by_id.get(answer.request_id)
            told = (answer.prompt_tokens, answer.output_tokens)
            wrong += noted is None or told != (noted.prompt_tokens, noted.output_tokens)
    return [f"{wrong} requests have other token counts in the server's own records"] if wrong else []
