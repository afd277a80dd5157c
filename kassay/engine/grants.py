"""What of this host the jobs of one driver hold: cores, memory, GPUs, and the host itself.

Between drivers there are only the locks of kassay.engine.hostlocks: two runs may share cores, but never a GPU, and none
runs beside a stage that must be alone. A job that asks for more than there is gets what there is once nothing else
holds any of it.
"""

import os

from kassay import gpus
from kassay.engine import Grant, Job, hostlocks, lacking_beside
from kassay.engine.hostlocks import HostLock

ORDER = "CUDA_DEVICE_ORDER"


class Grants:
    """The grants of the jobs that run, and the one that was given last and not used yet."""

    def __init__(self, cpus: int, memory_gib: float) -> None:
        self.cpus = cpus
        self.memory_gib = memory_gib
        self._held: dict[str, Grant] = {}  # by stage
        self._offered: tuple[str, Grant] | None = None
        self._host: HostLock | None = None
        self._locks: dict[str, list[HostLock]] = {}  # by GPU id
        self._found: gpus.Inventory | None = None
        self._ids: list[str] = []

    def grant(self, job: Job) -> Grant | None:
        """What the job gets now, kept for it until the next call; None if it has to wait."""
        self.withdraw()
        if lacking_beside(job, self._held.values(), self.cpus, self.memory_gib):
            return None
        ids = self._lock_gpus(job.gpus)
        if ids is None:
            return None
        self._host = self._host or hostlocks.acquire(hostlocks.HOST, exclusive=job.exclusive)
        if self._host is None:
            self._unlock_gpus(ids)
            return None
        granted = Grant(
            cpus=min(job.cpus, self.cpus),
            memory_gib=min(job.memory_gib, self.memory_gib),
            gpus=len(ids),
            exclusive=job.exclusive,
            gpu_ids=ids,
        )
        self._offered = job.stage, granted
        return granted

    def waits_for(self, job: Job) -> str:
        """Why the job was given nothing; what this driver has to spare is held by another."""
        if why := lacking_beside(job, self._held.values(), self.cpus, self.memory_gib):
            return why
        free = len(self._ids) - len(self._locks)
        if job.gpus and free < min(job.gpus, len(self._ids)):
            return f"{free} of {len(self._ids)} GPUs are free"
        return "another run on this host"

    def take(self, stage: str, grant: Grant) -> None:
        """The job starts with what was granted to it last."""
        if self._offered != (stage, grant):
            raise RuntimeError(f"a bug: stage `{stage}` starts with what was not granted to it last")
        self._held[stage], self._offered = grant, None

    def free(self, stage: str) -> None:
        """The job has ended, with all that it started."""
        self._give_back(self._held.pop(stage))

    def clear(self) -> None:
        """Nothing runs any more."""
        for stage in list(self._held):
            self.free(stage)

    def withdraw(self) -> None:
        """Take back a grant that was not used."""
        if self._offered is not None:
            (_, grant), self._offered = self._offered, None
            self._give_back(grant)

    def environment(self, grant: Grant) -> dict[str, str]:
        """What tells a stage its GPUs. Indices are nvidia-smi's, unless the caller counts by CUDA's own order."""
        told = {gpus.VISIBLE: ",".join(grant.gpu_ids or ())}
        ours = grant.gpus and gpus.VISIBLE not in os.environ and ORDER not in os.environ
        return {**told, ORDER: "PCI_BUS_ID"} if ours else told

    def _give_back(self, grant: Grant) -> None:
        self._unlock_gpus(grant.gpu_ids or ())
        if not self._held and self._host is not None:
            self._host.release()
            self._host = None

    def _lock_gpus(self, wanted: int) -> tuple[str, ...] | None:
        """So many GPUs, or all there are if there are fewer; None if others hold them."""
        if not wanted:
            return ()
        if self._found is None:
            self._found = gpus.inventory()
            self._ids = gpus.visible(self._found, os.environ.get(gpus.VISIBLE))
        wanted = min(wanted, len(self._ids))
        taken: list[str] = []
        for name in self._ids:
            if len(taken) == wanted:
                break
            if name not in self._locks and (locks := self._locks_of(self._found, name)) is not None:
                self._locks[name] = locks
                taken.append(name)
        if len(taken) == wanted:
            return tuple(taken)
        self._unlock_gpus(taken)
        return None

    def _locks_of(self, found: gpus.Inventory, name: str) -> list[HostLock] | None:
        """The locks of all that a GPU id stands for, or None if another driver has one of them."""
        held: list[HostLock] = []
        for device in gpus.devices(found, name):
            if (lock := hostlocks.acquire(f"gpu-{device}.lock", exclusive=True)) is None:
                for other in held:
                    other.release()
                return None
            held.append(lock)
        return held

    def _unlock_gpus(self, names: tuple[str, ...] | list[str]) -> None:
        for name in names:
            for lock in self._locks.pop(name):
                lock.release()
