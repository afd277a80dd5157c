"""What this machine is, for the manifest of a run and for the identity of what was measured on it."""

import functools
import os
import platform
import sys
from typing import Any

# A caller's repository (a git hook sets these) or interpreter must not answer for ours.
REDIRECTS = (
    "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_COMMON_DIR "
    "GIT_NAMESPACE GIT_PREFIX GIT_SHALLOW_FILE GIT_GRAFT_FILE GIT_REPLACE_REF_BASE PYTHONHOME PYTHONSTARTUP"
).split()


def usable_cpus() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def processor() -> str:
    """The processor's own name."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: the platform's name below is all there is
    return platform.processor() or platform.machine()


def fingerprint() -> dict[str, Any]:
    """What a measurement depends on: equal fingerprints mean that timings may be compared."""
    return {
        "processor": processor(),
        "cpus": usable_cpus(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "machine": platform.machine(),
    }


def describe() -> dict[str, Any]:
    """The fingerprint and what else a reader wants to know of the host."""
    return {
        **fingerprint(),
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
    }


def load_1min() -> float:
    """The host's one-minute load average right now."""
    return os.getloadavg()[0]
