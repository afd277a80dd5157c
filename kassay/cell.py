"""Cells: a stage's own subprocesses, each fresh, each in a directory that keeps the stage's contract.

A timing block needs every cell in a process of its own. The cell's program reads request.json and writes records.jsonl
and outcome.json as any stage does, so that it can be run again by hand from its directory alone.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kassay import digest, outcome, paths
from kassay.errors import RunError
from kassay.stage import Stage, Unmet


def run_cell(stage: Stage, name: str, program: str, params: dict[str, Any], python: str = sys.executable) -> Path:
    """Run <program>.py, a neighbour of the stage's program, in `<stage>/cells/<name>` and return that directory.

    `python`: of an environment of the cell's own, where a stage compares several. The code that the cell loaded becomes
    part of the stage's identity. Raises Unmet where the host lacks what the cell
    needs, else RunError unless the cell passed.
    """
    directory = stage.directory / "cells" / name
    directory.mkdir(parents=True)
    argv = [python, str(Path(sys.argv[0]).with_name(f"{program}.py")), str(directory)]
    digest.write_json(directory / paths.REQUEST, {**stage.request, "stage": name, "params": params, "argv": argv})
    with (directory / paths.STDOUT).open("wb") as out, (directory / paths.STDERR).open("wb") as err:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=False)
    ended = outcome.load(directory)
    if ended is not None and ended.word == "unmet":
        raise Unmet(f"cell `{name}`: {ended.reason}")
    if ended is None or ended.word != "passed" or done.returncode != 0:
        why = ended.reason if ended else f"exit status {done.returncode} without an outcome"
        raise RunError(f"cell `{name}`: {why}", hint=f"its log is {directory / paths.STDERR}")
    stage.add_child(json.loads((directory / paths.RECEIPT).read_bytes()))
    return directory
