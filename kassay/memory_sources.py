"""What a sampler can ask for memory: a process's resident set, and each visible GPU as its driver sees it.

    resident   /proc/<pid>/statm by one read of an open descriptor, else psutil: that process alone
    device     NVML through nvidia-ml-py: total - free, all processes and the driver's own share included

nvidia-ml-py is optional. Where a GPU is visible and it is not installed, or NVML does not come up, the source is
absent and the reason is said: an absent source is no zero and no pass. A MIG instance is asked by its own UUID.
"""

import ctypes
import importlib
import os
import struct
import weakref
from dataclasses import dataclass
from typing import Any

from kassay import gpus
from kassay.telemetry import QueryFailed, Source

MODULE = "pynvml"  # of the distribution nvidia-ml-py
PROC = "/proc"
STATM_BYTES = 256
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NVML_MEMORY = struct.Struct("=3Q")  # nvmlMemory_t: total, free and used bytes


class ResidentMemory:
    """Resident memory of one process, by default of this one."""

    name = "resident"
    device = "host"

    def __init__(self, pid: int | None = None, proc: str = PROC) -> None:
        self.pid = os.getpid() if pid is None else pid
        self.words: tuple[str, ...] = (self.name, str(self.pid))
        self._process: Any = None
        self._statm: int | None = None
        self._lost: tuple[type[Exception], ...] = (OSError,)
        statm = f"{proc}/{self.pid}/statm"  # pages: size, resident, …
        if os.path.exists(statm):
            self._statm = os.open(statm, os.O_RDONLY)  # a query is one call
            weakref.finalize(self, os.close, self._statm)
            return
        import psutil  # not Linux; it takes longer to load than all the rest

        self._process, self._lost = psutil.Process(self.pid), (OSError, psutil.Error)

    def ask(self) -> object:
        """The line of /proc, or resident bytes where there is none. Raises QueryFailed."""
        try:
            if self._statm is None:
                return int(self._process.memory_info().rss)
            return os.pread(self._statm, STATM_BYTES, 0)
        except self._lost as error:
            raise QueryFailed(f"resident memory: {error}") from error

    def bytes_of(self, answer: Any) -> int:
        """Resident bytes. Raises QueryFailed for a line that says none."""
        if isinstance(answer, int):
            return answer
        try:
            return int(answer.split()[1]) * PAGE_BYTES
        except (IndexError, ValueError) as error:
            raise QueryFailed(f"resident memory: {answer!r} tells none") from error


class DeviceMemory:
    """Memory in use on one GPU or MIG instance, whoever holds it.

    A query is one call of NVML itself into one buffer. The wrapper of nvidia-ml-py looks the call up and makes an
    object of the answer each time (docs/findings/2026-11-30-sampler.md has what that took).
    """

    name = "device"

    def __init__(self, nvml: Any, uuid: str) -> None:
        self.device = uuid
        self.words: tuple[str, ...] = (self.name, uuid)
        self._nvml = nvml
        try:
            self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        except nvml.NVMLError as error:
            raise QueryFailed(f"NVML knows no device {uuid}: {error}") from error
        self._call = nvml.nvmlLib.nvmlDeviceGetMemoryInfo
        self._buffer = ctypes.create_string_buffer(NVML_MEMORY.size)
        self._place = ctypes.byref(self._buffer)

    def ask(self) -> object:
        """What NVML tells of the memory, as it lies in its structure. Raises QueryFailed."""
        if code := self._call(self._handle, self._place):
            raise QueryFailed(f"NVML: {self._nvml.NVMLError(code)}")
        return self._buffer.raw

    def bytes_of(self, answer: Any) -> int:
        """Bytes that are not free."""
        total, free, _ = NVML_MEMORY.unpack(answer)
        return int(total) - int(free)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What can be sampled here, and what cannot and why."""

    sources: tuple[Source, ...]
    absent: tuple[str, ...]


def sources() -> Found:
    """The resident source, and a device source for each GPU that this process may use."""
    there = gpus.inventory()
    if there.state == "error":
        return Found(sources=(ResidentMemory(),), absent=(f"device memory: {there.error}",))
    names = gpus.visible(there, os.environ.get(gpus.VISIBLE))
    if not names:
        return Found(sources=(ResidentMemory(),), absent=("device memory: no GPU is visible",))
    try:
        nvml = importlib.import_module(MODULE)
    except ImportError:
        return Found(sources=(ResidentMemory(),), absent=("device memory: nvidia-ml-py is not installed",))
    devices, absent = device_sources(nvml, [uuid_of(there, name) for name in names])
    return Found(sources=(ResidentMemory(), *devices), absent=absent)


def device_sources(nvml: Any, uuids: list[str]) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    """One source for each device that NVML answers for, and why it does not for the others."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return (), (f"device memory: NVML does not come up: {error}",)
    made: list[Source] = []
    absent = []
    for uuid in uuids:
        try:
            made.append(DeviceMemory(nvml, uuid))
        except QueryFailed as failed:
            absent.append(f"device memory: {failed}")
    return tuple(made), tuple(absent)


def uuid_of(there: gpus.Inventory, name: str) -> str:
    """The UUID of a visible device, by which NVML knows it whatever the order of indices."""
    known = {str(gpu.index): gpu.uuid for gpu in there.gpus if gpu.uuid}
    return known.get(name, name)


def told(name: str, which: str) -> Source:
    """The source of these words in this process. Raises QueryFailed for a device that NVML does not know."""
    if name == ResidentMemory.name:
        return ResidentMemory(int(which))
    nvml = importlib.import_module(MODULE)
    nvml.nvmlInit()
    return DeviceMemory(nvml, which)
