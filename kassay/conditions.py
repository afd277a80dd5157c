"""The conditions around a timed cell: the host's, and those of each GPU that it runs on, right before and right after.

    host    load, clock, temperature, busy time of its cores, own processor time, thermal throttling   (kassay.host)
    GPU     clocks, temperature, power, what holds clocks down and for how long, processes, memory in use   (NVML)

Times that add up (busy, own, held down) are kept as they stand; what lies between `before` and `after` is a
difference, and others' use of the processor is (busy - own) / time. What cannot be read is null with its reason, never
zero. Nothing is judged here: which conditions invalidate a block is the study's rule (kassay.validity).

NVML numbers processes as the host does. In a container they may be other numbers than ours, or none; the memory in use
before the cell has a context of its own tells of foreign processes whatever their numbers.
"""

import importlib
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kassay import gpus, host
from kassay.kinds.timing import GpuState, HostState
from kassay.memory_sources import MODULE, uuid_of

MILLI = 1e-3
REASONS = {  # NVML's bits of what holds clocks down
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
POLICIES = {0: "power", 1: "thermal", 2: "sync_boost", 3: "board_limit", 4: "low_utilization", 5: "reliability"}


def host_state(place: dict[str, Any], when: str) -> HostState:
    """The host now. `place` is load, block, pilot, position and recipe of the cell."""
    times, mhz, throttled = host.processor_times(), host.core_mhz(), host.throttle_count()
    temperature = host.temperature_c()
    lacks = {"busy and stolen time": times, "clock of the cores": mhz, "temperature of the processor": temperature}
    lacks |= {"thermal throttling": throttled}
    return HostState(
        **place,
        when=when,
        at_ns=time.monotonic_ns(),
        load_1min=host.load_1min(),
        core_mhz=mhz,
        temperature_c=temperature,
        busy_s=None if times is None else times[0],
        stolen_s=None if times is None else times[1],
        own_s=host.own_time(),
        throttled=throttled,
        absent=[f"{name}: the host does not tell" for name, value in lacks.items() if value is None],
    )


class Gpus:
    """The GPUs that this process may use, as NVML knows them; `lack` says why none can be asked, else it is empty."""

    def __init__(self) -> None:
        self.lack = ""
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        there = gpus.inventory()
        names = gpus.visible(there, os.environ.get(gpus.VISIBLE))
        if there.state == "error" or not names:
            self.lack = there.error or "no GPU is visible"
            return
        try:
            self._nvml = importlib.import_module(MODULE)
        except ImportError:
            self.lack = "nvidia-ml-py is not installed"
            return
        try:
            self._nvml.nvmlInit()
            uuids = [uuid_of(there, name) for name in names]
            self._handles = {uuid: self._nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids}
        except self._nvml.NVMLError as error:
            self.lack = f"NVML: {error}"

    def states(self, place: dict[str, Any], when: str) -> list[GpuState]:
        """Every GPU now."""
        return [self._state(uuid, handle, place, when) for uuid, handle in self._handles.items()]

    def _state(self, uuid: str, handle: Any, place: dict[str, Any], when: str) -> GpuState:
        """One GPU now; what NVML does not answer is null, with its words."""
        nvml, absent = self._nvml, []

        def told(name: str, ask: Callable[[], Any]) -> Any:
            try:
                return ask()
            except (nvml.NVMLError, AttributeError) as error:
                absent.append(f"{name}: {error}")
                return None

        power_mw = told("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        mask = told("reasons", lambda: reasons_mask(nvml, handle))
        return GpuState(
            **place,
            when=when,
            at_ns=time.monotonic_ns(),
            device=uuid,
            sm_mhz=told("clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            sm_limit_mhz=told("largest clock", lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_mhz=told("memory clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            temperature_c=told("temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            power_w=None if power_mw is None else power_mw * MILLI,
            slowed_by=None if mask is None else reason_words(mask),
            slowed_ns=slowed_ns(nvml, handle, told),
            processes=told("processes", lambda: processes(nvml, handle)),
            used_bytes=told("memory", lambda: used_bytes(nvml, handle)),
            absent=absent,
        )


def reasons_mask(nvml: Any, handle: Any) -> int:
    """The bits of what holds clocks down; the call had another name before."""
    ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return int((ask or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle))


def reason_words(mask: int) -> list[str]:
    """The bits in words; one that is not known is told by its number."""
    return [REASONS.get(1 << bit, f"bit_{bit}") for bit in range(mask.bit_length()) if mask >> bit & 1]


def slowed_ns(nvml: Any, handle: Any, told: Callable[[str, Callable[[], Any]], Any]) -> dict[str, int] | None:
    """Policy -> nanoseconds that it held clocks down since the driver started; None where none is told."""
    found = {}
    for policy, name in POLICIES.items():
        status = told(f"time held down by {name}", partial(nvml.nvmlDeviceGetViolationStatus, handle, policy))
        if status is not None:
            found[name] = int(status.violationTime)
    return found or None


def processes(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    """Everything with a context on the GPU, once each."""
    listed = [*nvml.nvmlDeviceGetComputeRunningProcesses(handle), *nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)]
    found = {one.pid: one.usedGpuMemory for one in listed}
    return [{"pid": pid, "bytes": held, "own": pid == os.getpid()} for pid, held in sorted(found.items())]


def used_bytes(nvml: Any, handle: Any) -> int:
    """Memory that is in use, what the driver keeps for itself left out where it is told apart."""
    version = getattr(nvml, "nvmlMemory_v2", None)
    told = nvml.nvmlDeviceGetMemoryInfo(handle) if version is None else nvml.nvmlDeviceGetMemoryInfo(handle, version)
    return int(told.used)
