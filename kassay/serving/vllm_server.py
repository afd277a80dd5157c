"""A vLLM server behind a cell: what it is started with, and what its engine says of itself around the loads.

A command is no evidence of what serves. The engine is asked over HTTP before the first load, and the cell does not
begin unless it is what the arm asks for; after the last load it is asked again, and what it and its metrics counted
meanwhile becomes a record. Loads of a server that changed, took prompts from a cache or a fallback, counted other
tokens than its clients were told, or does not answer any more, are invalid.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kassay import paths
from kassay.backend.text import TOKENIZER_FILES
from kassay.backend.vllm import require_vllm
from kassay.backend.vllm_arguments import Asked, arm_arguments, cell_of
from kassay.backend.vllm_attest import effective, lacks
from kassay.backend.vllm_geometry import model_folder
from kassay.backend.vllm_serve_worker import ATTEST, REFILL
from kassay.errors import KassayError
from kassay.kinds.vllm import VllmEngine
from kassay.kinds.vllm_serving import VllmServer
from kassay.serving import process, vllm_command
from kassay.serving.vllm_counts import record
from kassay.serving.vllm_told import call, settled
from kassay.stage import Stage


def command(stage: Stage, arm: str, port: int) -> tuple[list[str], dict[str, str]]:
    """Words and environment of an arm's server. Raises Unmet where no engine can run here."""
    require_vllm()
    served, around = stage.params["served"], stage.directory / "served"
    around.mkdir(exist_ok=True)
    asked = asked_of(stage, arm)
    tokenizer = tokenizer_of(Path(asked.model), around / "tokenizer", geometry=bool(served["vllm"]["geometry"]))
    words = vllm_command.serve_words(asked, python=sys.executable, name=served["model"], port=port, tokenizer=tokenizer)
    return words, vllm_command.environment(asked, vllm_command.written_entry_point(around / "plug-in"), os.environ)


def tokenizer_of(model: Path, made: Path, *, geometry: bool) -> Path | None:
    """A tokenizer of characters in `made`, written once; None for a model that has its own."""
    if not geometry and any((model / name).is_file() for name in TOKENIZER_FILES):
        return None
    if not made.is_dir():
        size = json.loads((model / "config.json").read_bytes())["vocab_size"]
        vllm_command.written_tokenizer(made, size)
    return made


def asked_of(stage: Stage, arm: str) -> Asked:
    """What an arm's engine is asked for."""
    told = stage.params["served"]["vllm"]
    one, geometry = told["arms"][arm], told["geometry"]
    folder = model_folder(geometry, stage.directory / "served") if geometry else stage.inputs["model"]
    longest = max(load["context_tokens"] + load["output_tokens"] for load in stage.params["served"]["loads"])
    sizes = {"sequence_tokens": longest, "batched_tokens": longest + told["engine"]["sequences"]}
    return cell_of(
        told["engine"] | sizes, model=str(folder), dummy=bool(geometry), **arm_arguments(one, stage.inputs),
        seed=stage.params["served"]["seed"] % 2**31,
    )  # fmt: skip


@contextmanager
def attested(stage: Stage, place: dict[str, Any], server: process.Server) -> Iterator[list[VllmServer]]:
    """Around the loads of a cell: a list that holds what the server did once they are over, if it still tells.

    Raises KassayError unless the engine attests that it is what the arm asks for.
    """
    asked, arm, told = asked_of(stage, place["arm"]), place["arm"], list[VllmServer]()
    if asked.dummy:
        call(server.port, REFILL)
    first = call(server.port, ATTEST, arm=arm)
    found = VllmEngine(**first["engine"])
    if missing := lacks(asked, found):
        raise KassayError(
            f"the server of arm `{arm}` is invalid, for what was asked for is not what runs: " + "; ".join(missing)
        )
    stage.append(found)
    stage.attest(arm, **effective(found))
    before = settled(server.port)
    yield told
    if process.ended(server.process) or not process.healthy(server.port):
        return
    last = call(server.port, ATTEST, arm=arm)
    stage.add_child({"code": last["code"], "code_changed": changed(stage, last["code"])})
    made = record(place, first, last, before, settled(server.port))
    stage.append(made)
    told.append(made)


def changed(stage: Stage, code: dict[str, str]) -> list[str]:
    """Files that were edited since the request: which of their versions the server runs cannot be told."""
    asked_ns = (stage.directory / paths.REQUEST).stat().st_mtime_ns
    return [name for name in code if (paths.ROOT / name).stat().st_ctime_ns > asked_ns]
