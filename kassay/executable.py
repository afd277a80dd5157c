"""The outcome of a stage that is a plain executable (`argv:`): it knows nothing of us, so the driver writes it.

Exit status 0 and every declared output: passed. Anything else is a crash, as an exit status says nothing of gates.
"""

import signal
from pathlib import Path
from typing import Any

from kassay import digest, identity, paths
from kassay.engine import Ended, Job
from kassay.entry import IN_ARGV, Stage
from kassay.identity import Input
from kassay.outcome import Artifact


def argv_of(stage: Stage, inputs: dict[str, Input]) -> tuple[str, ...]:
    """The words of the command, each `{in.<input>}` replaced by the input's path."""
    return tuple(IN_ARGV.sub(lambda match: str(inputs[match[1]].path), word) for word in stage.argv)


def why_not(stage: Stage, directory: Path, ended: Ended) -> str:
    """Why it did not do what it is for, or an empty string."""
    if ended.exit_code != 0:
        return how(ended)
    gone = [file for file in stage.outputs.values() if not (directory / file).is_file()]
    return f"left no {', '.join(f'`{file}`' for file in gone)}" if gone else ""


def how(ended: Ended) -> str:
    """An exit status in words; of a KILL, which may be the kernel's for want of memory, with the peak."""
    code = ended.exit_code or 0
    if code >= 0:
        return f"exit status {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    memory = f" at a peak of {ended.peak_bytes / 2**30:.2f} GiB" if ended.peak_bytes and -code == signal.SIGKILL else ""
    return f"ended by {name}{memory}"


def artifacts_of(stage: Stage, directory: Path) -> dict[str, Artifact]:
    """What it left, by the names of its outputs."""
    found = {}
    for name, file in stage.outputs.items():
        path = directory / file
        found[name] = Artifact(file=file, sha256=digest.of_file(path), bytes=path.stat().st_size)
    return found


def receipt_of(job: Job) -> dict[str, Any]:
    """What really ran: the executable file, as far as the driver's host can tell."""
    place = identity.which(job.argv[0])
    return {
        "schema": "kassay.receipt/1",
        "python": None,
        "argv0": job.argv[0],
        "executable": place,
        "argv_sha256": digest.of_value(job.argv),
        "packages": {},
        "host": None,
        "shared_objects": {},
        "jit_products": {},
        "code": {},
        "code_changed": [],
        "foundations": {} if place is None else {place: digest.of_file(Path(place))},
        "asks_again": "",
    }


def write_receipt(job: Job) -> dict[str, Any]:
    """Write receipt.json beside what it left, and give it."""
    receipt = receipt_of(job)
    digest.write_new(f"{job.directory}/{paths.RECEIPT}", receipt)
    return receipt
