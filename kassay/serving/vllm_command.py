"""The command of a vLLM server: from a cell's recipe to the words of `vllm serve` (0.25.1) and what is around them.

The engine is asked for what an offline cell asks for (kassay.backend.vllm_arguments), so that arms and sizes mean the
same. It listens on loopback, in its stack's interpreter; its worker has methods that tell what it uses. An arm on the
plug-in finds it as every user's vLLM does, by an entry point: a folder with the tree's own, before what is installed. A
native arm is started without plug-ins at all.

A model without a tokenizer (the shipped ones, and a geometry) gets one whose tokens are characters: id 1 in front, as
the model was trained, then the ASCII codes; ids beyond are characters of the supplementary planes, so that whatever
drawn weights say is a text.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kassay import digest, paths
from kassay.backend.vllm import ENVIRONMENT
from kassay.backend.vllm_arguments import Asked, engine_arguments
from kassay.backend.vllm_serve_worker import EXTENSION
from kassay.kv.tasks import vocabulary
from kassay.serving import process, tools

MODULE = "vllm.entrypoints.cli.main"
PLUG_IN = paths.ROOT / "plugins" / "vllm"
NOT_SERVED = ("model", "skip_tokenizer_init", "disable_log_stats")  # the server's own: a place, a tokenizer, statistics
NOT_SET = ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_LOGGING_LEVEL")  # a served engine has a process of its own
FIRST_OTHER = 0x10000  # character of id 0 of a larger vocabulary, from which ids count on


def serve_words(asked: Asked, *, python: str, name: str, port: int, tokenizer: Path | None) -> list[str]:
    """The command. Raises KassayError for a cell that is refused."""
    words = [python, "-m", MODULE, "serve", asked.model]
    words += ["--host", process.HOST, "--port", str(port), "--served-model-name", name]
    words += ["--worker-extension-cls", EXTENSION, "--generation-config", "vllm", "--disable-uvicorn-access-log"]
    if tokenizer is not None:
        words += ["--tokenizer", str(tokenizer)]
    for argument, value in engine_arguments(asked).items():
        if argument not in NOT_SERVED:
            words += flag(argument, value)
    return words


def flag(argument: str, value: Any) -> list[str]:
    """One engine argument as words: a switch, JSON, or text."""
    name = argument.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", json.dumps(value) if isinstance(value, dict | list) else str(value)]


def environment(asked: Asked, entry: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: this tree's code, its plug-in or none, and the routes that ask the worker."""
    own = {name: value for name, value in ENVIRONMENT.items() if name not in NOT_SET}
    found = {**own, **inherited, **dict(asked.variables), "VLLM_SERVER_DEV_MODE": "1"}
    found.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    places = [str(paths.ROOT), inherited.get("PYTHONPATH", "")]
    if asked.attention == "plug-in":
        places = [str(entry), str(PLUG_IN), *places]
    return found | {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, places))),
        "VLLM_PLUGINS": "kassay" if asked.attention == "plug-in" else "",
    }


def written_entry_point(folder: Path) -> Path:
    """`folder` with the metadata of the tree's plug-in, as an installer leaves it: importlib finds it on a path."""
    told = tomllib.loads((PLUG_IN / "pyproject.toml").read_text())["project"]
    made = folder / f"{told['name'].replace('-', '_')}-{told['version']}.dist-info"
    made.mkdir(parents=True, exist_ok=True)
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {told['name']}\nVersion: {told['version']}\n")
    lines = []
    for group, entries in told["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (made / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def written_tokenizer(folder: Path, size: int) -> Path:
    """A tokenizer of characters with `size` ids in a new folder, begin-of-text in front of every text."""
    path = tools.write_character_tokenizer(folder) / "tokenizer.json"
    whole = json.loads(path.read_bytes())
    vocab = whole["model"]["vocab"]
    vocab |= {chr(FIRST_OTHER + token): token for token in range(vocabulary.SIZE, size)}
    begin = next(word for word, token in vocab.items() if token == vocabulary.BEGIN)
    first = {"SpecialToken": {"id": begin, "type_id": 0}}
    one, other = ({"Sequence": {"id": name, "type_id": 0}} for name in ("A", "B"))
    whole["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, one],
        "pair": [first, one, other],
        "special_tokens": {begin: {"id": begin, "ids": [vocabulary.BEGIN], "tokens": [begin]}},
    }
    digest.write_json(path, whole)
    return folder
