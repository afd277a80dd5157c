"""The GPUs of this host as nvidia-smi tells them, and which of them CUDA_VISIBLE_DEVICES leaves.

A missing value is null: neither 0 nor "no GPU". A tool that fails is an error with its text, not an empty machine.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

FACTS = "index,name,memory.total"
MORE = "index,uuid,driver_version,compute_cap"
TIMEOUT_S = 30.0
PHYSICAL = re.compile(r"GPU \d+: .*\(UUID: (?P<uuid>[^)]+)\)")
INSTANCE = re.compile(r"\s+MIG .*\(UUID: (?P<uuid>[^)]+)\)")
LEADING = re.compile(r"\s*(-?\d+)")  # CUDA reads an index as C's atoi does: `1gpu2` is 1
VISIBLE = "CUDA_VISIBLE_DEVICES"
NOT_TOLD = "not told"
KINDS: dict[tuple[str | None, str | None], list[str]] = {}  # by PATH and CUDA_VISIBLE_DEVICES: what `kinds` found


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One physical GPU."""

    index: int
    name: str
    memory_mib: int | None  # null where the driver does not tell, as on unified memory
    uuid: str | None
    capability: str | None  # compute capability, `9.0`
    driver: str | None
    instances: tuple[str, ...]  # UUIDs of its MIG instances


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """What was found, or why nothing can be said."""

    state: str  # present, absent (no nvidia-smi) or error
    gpus: tuple[Gpu, ...]
    error: str  # exit status and text of a failed nvidia-smi


def inventory() -> Inventory:
    """All GPUs of the host, whatever is visible."""
    if shutil.which("nvidia-smi") is None:
        return Inventory(state="absent", gpus=(), error="")
    try:
        facts = rows(asked(f"--query-gpu={FACTS}", "--format=csv,noheader,nounits"))
        more = {
            row[0]: row for row in rows(asked(f"--query-gpu={MORE}", "--format=csv,noheader,nounits"), strict=False)
        }
        instances = by_gpu(asked("-L"))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Inventory(state="error", gpus=(), error=str(error))
    made = []
    for row in facts:
        extra = more.get(row[0], [])
        known = extra if len(extra) == len(MORE.split(",")) else [row[0], "", "", ""]
        made.append(
            Gpu(
                index=int(row[0]),
                name=", ".join(row[1:-1]),  # a name may hold a comma
                memory_mib=int(row[-1]) if row[-1].isdigit() else None,
                uuid=told(known[1]),
                driver=told(known[2]),
                capability=told(known[3]),
                instances=instances.get(known[1], ()),
            )
        )
    return Inventory(state="present", gpus=tuple(made), error="")


def asked(*words: str) -> str:
    """What nvidia-smi printed. Raises ValueError with its exit status and text if it failed."""
    done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        text = " ".join((done.stdout + done.stderr).split())
        raise ValueError(f"nvidia-smi ended with {done.returncode}: {text}")
    return done.stdout


def rows(text: str, strict: bool = True) -> list[list[str]]:
    """Comma-separated lines that begin with an index. Raises ValueError for another line, unless it is optional."""
    found = []
    for line in filter(None, text.splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        if cells[0].isdigit() and len(cells) >= 3:
            found.append(cells)
        elif strict:
            raise ValueError(f"nvidia-smi printed `{line}`, which is no GPU")
    return found


def told(text: str) -> str | None:
    """A value that the driver knows; `[N/A]` and the like are none."""
    return None if not text or text.startswith("[") else text


def by_gpu(listed: str) -> dict[str, tuple[str, ...]]:
    """UUID of a physical GPU -> UUIDs of its MIG instances, from `nvidia-smi -L`."""
    found: dict[str, tuple[str, ...]] = {}
    current = ""
    for line in listed.splitlines():
        if match := PHYSICAL.match(line):
            current = match["uuid"]
            found[current] = ()
        elif (match := INSTANCE.match(line)) and current:
            found[current] += (match["uuid"],)
    return found


def visible(there: Inventory, setting: str | None) -> list[str]:
    """What a program would see: indices or UUIDs, in order. `setting` is CUDA_VISIBLE_DEVICES, None if it is unset.

    As CUDA reads it: the list ends at the first entry that names nothing, and a device named twice leaves none.
    """
    if setting is None:
        return [str(gpu.index) for gpu in there.gpus]
    found: list[str] = []
    for entry in setting.split(","):
        name = named(there, entry)
        if name is None:
            break
        found.append(name)
    return found if len(set(found)) == len(found) else []


def named(there: Inventory, entry: str) -> str | None:
    """The device that one entry of CUDA_VISIBLE_DEVICES names, or None."""
    word = entry.strip()
    if word.startswith(("GPU-", "MIG-")):
        uuids = [uuid for gpu in there.gpus for uuid in (gpu.uuid, *gpu.instances) if uuid]
        close = [uuid for uuid in uuids if uuid.startswith(word)]
        return close[0] if len(close) == 1 else (word if not uuids else None)
    match = LEADING.match(word)
    if match is None or int(match[1]) < 0 or int(match[1]) >= max(len(there.gpus), 1):
        return None
    return match[1]


def devices(there: Inventory, name: str) -> tuple[str, ...]:
    """All that the name of a device stands for, by UUID where there is one: a GPU has its MIG instances in it.

    `name` is one of those that `visible` gave; two names of one device have something in common here.
    """
    for gpu in there.gpus:
        if name in (str(gpu.index), gpu.uuid):
            return (gpu.uuid or str(gpu.index), *gpu.instances)
    return (name,)


def kinds() -> list[str]:
    """What the GPUs are that this process may use, each kind once: `NVIDIA H200, 140 GiB, compute capability 9.0`.

    What is not told is said so: such a GPU is never known to be another's like. A process asks once, as a plan has
    many stages and nvidia-smi takes its time; what failed is asked again.
    """
    asked_of = (os.environ.get("PATH"), os.environ.get(VISIBLE))
    if asked_of not in KINDS:
        there = inventory()
        if there.state == "error":
            return [f"{NOT_TOLD}: {there.error}"]
        KINDS[asked_of] = sorted({kind(gpu) for gpu in usable(there)})
    return KINDS[asked_of]


def kind(gpu: Gpu) -> str:
    """One GPU's name, memory and compute capability, which decide what is measured on it."""
    memory = NOT_TOLD if gpu.memory_mib is None else f"{gpu.memory_mib / 1024:.0f}"
    return f"{gpu.name}, {memory} GiB, compute capability {gpu.capability or NOT_TOLD}"


def usable(there: Inventory) -> list[Gpu]:
    """The physical GPUs that this process may use, once each."""
    seen = visible(there, os.environ.get(VISIBLE))
    return [gpu for gpu in there.gpus if {str(gpu.index), gpu.uuid, *gpu.instances} & set(seen)]
