"""What a stage needs of its host, and what of it is lacking: asked by `make doctor` for all stages, and by each stage
before it begins, on the host where it runs.

    host: {gpu_memory_gib: 70, capability: "9.0", tools: [nvcc, g++], disk_gib: 100, tokens: [HF_TOKEN]}

How many GPUs it gets is one of its resources; `lacks` is told of it under `gpus`. A token is told by name only; its
value is never read into anything.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from kassay import gpus, paths

MIB_PER_GIB = 1024
TOOLKITS = ("CUDA_HOME", "CUDA_PATH")  # whose bin/ has the compiler
KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "gpu_memory_gib": ((int, float), "a number above 0"),
    "capability": ((str,), 'a text such as "9.0"'),
    "disk_gib": ((int, float), "a number above 0"),
    "tools": ((list,), "a list of names"),
    "tokens": ((list,), "a list of names of environment variables"),
}


def malformed(needs: dict[str, Any]) -> list[str]:
    """What is wrong with the form of a stage's `host`."""
    found = [f"unknown need `{key}`, allowed are {', '.join(sorted(KINDS))}" for key in sorted(set(needs) - set(KINDS))]
    for key, (kinds, allowed) in KINDS.items():
        value = needs.get(key)
        if value is None:
            continue
        right = type(value) in kinds and (isinstance(value, str | list) or value > 0)
        if isinstance(value, list):
            right = right and all(isinstance(item, str) and item for item in value)
        if key == "capability" and right:
            right = all(part.isdigit() for part in str(value).split(".")) and str(value).count(".") == 1
        if not right:
            found.append(f"need `{key}` is `{value}`, allowed is {allowed}")
    return found


def lacks(needs: dict[str, Any]) -> list[str]:
    """What this host lacks of it, exactly; empty if it has all. `gpus` is the number that the stage asks for."""
    found = lacking_gpus(needs) if {"gpus", "gpu_memory_gib", "capability"} & set(needs) else []
    found += [f"tool `{tool}` is not on PATH" for tool in needs.get("tools", []) if not has_tool(tool)]
    if "disk_gib" in needs:
        found += lacking_disk(float(needs["disk_gib"]))
    return found + [f"token `{name}` is not set" for name in needs.get("tokens", []) if not os.environ.get(name)]


def lacking_gpus(needs: dict[str, Any]) -> list[str]:
    """What the GPUs that may be used lack."""
    wanted = int(needs.get("gpus", 1))
    there = gpus.inventory()
    if there.state == "error":
        return [f"the GPUs cannot be asked: {there.error}"]
    if there.state == "absent":
        return [f"{needed(wanted)}, and there is no nvidia-smi"]
    usable, seen = gpus.usable(there), len(gpus.visible(there, os.environ.get(gpus.VISIBLE)))
    if seen < wanted:
        hidden = f" ({gpus.VISIBLE}=`{os.environ[gpus.VISIBLE]}`)" if gpus.VISIBLE in os.environ else ""
        return [f"{needed(wanted)}, {seen} of {len(there.gpus)} may be used{hidden}"]
    found = []
    memory_gib = float(needs.get("gpu_memory_gib", 0))
    for gpu in usable[:wanted]:
        if memory_gib and gpu.memory_mib is None:
            found.append(f"GPU {gpu.index} ({gpu.name}) does not tell its memory; {memory_gib:g} GiB are needed")
        elif memory_gib and (gpu.memory_mib or 0) < memory_gib * MIB_PER_GIB:
            has = (gpu.memory_mib or 0) / MIB_PER_GIB
            found.append(f"GPU {gpu.index} ({gpu.name}) has {has:.1f} GiB, {memory_gib:g} are needed")
        if (asked := needs.get("capability")) and not reaches(gpu.capability, asked):
            found.append(f"GPU {gpu.index} ({gpu.name}) has compute capability {gpu.capability}, {asked} is needed")
    return found


def needed(gpus: int) -> str:
    """`1 GPU is needed`, `2 GPUs are needed`."""
    return "1 GPU is needed" if gpus == 1 else f"{gpus} GPUs are needed"


def reaches(capability: str | None, wanted: str) -> bool:
    """Whether a compute capability is at least the wanted one, compared as numbers: 12.0 is above 9.0."""
    if capability is None:
        return False
    return [int(part) for part in capability.split(".")] >= [int(part) for part in wanted.split(".")]


def has_tool(name: str) -> bool:
    """Whether a program is on PATH or in a CUDA toolkit that the environment names."""
    places = [Path(os.environ[key]) / "bin" / name for key in TOOLKITS if os.environ.get(key)]
    return shutil.which(name) is not None or any(os.access(place, os.X_OK) for place in places)


def lacking_disk(wanted_gib: float) -> list[str]:
    """What the disk lacks on which environments, sources and mirrors are made."""
    place = paths.build()
    while not place.exists():
        place = place.parent
    free_gib = shutil.disk_usage(place).free / 2**30
    if free_gib >= wanted_gib:
        return []
    return [f"{paths.shown(paths.build())} has {free_gib:.1f} GiB free, {wanted_gib:g} are needed"]
