"""What this machine is, for the manifest of a run and the identity of what was measured on it; and how it fares now.

How it fares is Linux's word: /proc/stat for busy and stolen time (it counts in hundredths of a second for each core),
/sys or /proc/cpuinfo for clocks, /sys for temperature and thermal throttling. What a host does not tell is None.
"""

import functools
import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

from kassay import gpus

# A caller's repository (a git hook sets these) or interpreter must not answer for ours.
REDIRECTS = (
    "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_COMMON_DIR "
    "GIT_NAMESPACE GIT_PREFIX GIT_SHALLOW_FILE GIT_GRAFT_FILE GIT_REPLACE_REF_BASE PYTHONHOME PYTHONSTARTUP"
).split()

PROC, SYS_CPU = Path("/proc"), Path("/sys/devices/system/cpu")
SYS_HWMON = Path("/sys/class/hwmon")
PROCESSOR_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")  # Intel, AMD, AMD's other driver, Arm boards


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


def fingerprint(*, with_gpus: bool = False) -> dict[str, Any]:
    """What a measurement depends on: equal fingerprints mean that timings may be compared.

    `with_gpus`: the kinds of GPUs that this process may use, too, for what is measured on one.
    """
    found: dict[str, Any] = {
        "processor": processor(),
        "cpus": usable_cpus(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "machine": platform.machine(),
    }
    return {**found, "gpus": gpus.kinds()} if with_gpus else found


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


def processor_times(proc: Path = PROC) -> tuple[float, float] | None:
    """Seconds that all cores together were busy since the host started, and that a hypervisor took from them."""
    try:
        words = (proc / "stat").read_text().split("\n", 1)[0].split()
        user, nice, system, _idle, _wait, irq, softirq, stolen = map(int, words[1:9])
    except (OSError, ValueError):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / ticks, stolen / ticks


def own_time() -> float:
    """Processor seconds of this process, all threads, and of its children that have ended."""
    told = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in told)


def core_mhz(sys_cpu: Path = SYS_CPU, proc: Path = PROC) -> float | None:
    """Mean clock in MHz of the cores that this process may run on, as the kernel last knew it."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    try:
        found = [int((sys_cpu / f"cpu{core}/cpufreq/scaling_cur_freq").read_text()) / 1000 for core in sorted(cores)]
    except (OSError, ValueError):
        found = told_mhz(cores, proc)
    return sum(found) / len(found) if found else None


def told_mhz(cores: set[int], proc: Path) -> list[float]:
    """The clocks of some cores as /proc/cpuinfo has them; none where it does not."""
    try:
        parts = (proc / "cpuinfo").read_text().split("\n\n")
    except OSError:
        return []
    found = []
    for part in parts:
        facts = dict(line.split(":", 1) for line in part.splitlines() if ":" in line)
        told = {name.strip(): text.strip() for name, text in facts.items()}
        if told.get("processor", "").isdigit() and int(told["processor"]) in cores and "cpu MHz" in told:
            found.append(float(told["cpu MHz"]))
    return found


def temperature_c(sys_hwmon: Path = SYS_HWMON) -> float | None:
    """The hottest sensor of the processor in degrees Celsius; a virtual machine has none."""
    found = []
    for name in sys_hwmon.glob("hwmon*/name"):
        try:
            if name.read_text().strip() in PROCESSOR_SENSORS:
                found += [int(sensor.read_text()) / 1000 for sensor in name.parent.glob("temp*_input")]
        except (OSError, ValueError):
            continue  # a sensor that cannot be read is none
    return max(found, default=None)


def throttle_count(sys_cpu: Path = SYS_CPU) -> int | None:
    """Times that any core or package was throttled for heat since the host started."""
    counters = [*sys_cpu.glob("cpu*/thermal_throttle/core_throttle_count")]
    counters += sys_cpu.glob("cpu*/thermal_throttle/package_throttle_count")
    try:
        return sum(int(path.read_text()) for path in counters) if counters else None
    except (OSError, ValueError):
        return None
