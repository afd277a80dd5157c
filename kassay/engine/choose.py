"""Which engine the configuration asks for: the one module that knows all of them."""

import shutil
from typing import TYPE_CHECKING

from kassay import host
from kassay.engine import Engine
from kassay.engine.local import LocalEngine
from kassay.errors import RunError

if TYPE_CHECKING:
    from kassay.config.setting import Setting

COMMANDS = ("sbatch", "squeue", "scancel")


def engine_of(settings: "dict[str, Setting]") -> Engine:
    """The engine of a configuration. Raises RunError if this host cannot reach a Slurm cluster that is asked for."""
    max_cpus = int(settings["MAX_CPUS"].value)
    if settings["ENGINE"].value == "local":
        return LocalEngine(cpus=max_cpus or host.usable_cpus(), memory_gib=host.fingerprint()["memory_gib"])
    from kassay.engine.slurm import SlurmEngine  # only where it is asked for: the local engine starts without it

    if lacking := [command for command in COMMANDS if shutil.which(command) is None]:
        raise RunError(
            f"ENGINE is `slurm`, but {', '.join(f'`{command}`' for command in lacking)} is not on PATH",
            hint="make ENGINE_LOCAL=y, or run it on a host that submits to the cluster",
        )
    return SlurmEngine(
        max_cpus=max_cpus,
        partition=str(settings["SLURM_PARTITION"].value),
        account=str(settings["SLURM_ACCOUNT"].value),
        poll_s=float(settings["SLURM_POLL_S"].value),
    )
