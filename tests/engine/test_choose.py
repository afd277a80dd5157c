"""Which engine a configuration gets."""

from pathlib import Path
from typing import Any

import pytest

from kassay import host
from kassay.config.setting import Setting
from kassay.engine.choose import engine_of
from kassay.engine.local import LocalEngine
from kassay.engine.slurm import SlurmEngine
from kassay.errors import RunError
from tests.engine.conftest import Faked


def settings(**values: Any) -> dict[str, Setting]:
    """A configuration; what a test does not say is the default."""
    defaults = {"ENGINE": "local", "MAX_CPUS": 0, "SLURM_PARTITION": "", "SLURM_ACCOUNT": "", "SLURM_POLL_S": 5}
    return {name: Setting(value=value, origin="user", where="") for name, value in {**defaults, **values}.items()}


@pytest.mark.parametrize(("max_cpus", "cpus"), [(0, host.usable_cpus()), (3, 3)])
def test_the_local_engine_has_the_cores_that_are_asked_for(max_cpus: int, cpus: int) -> None:
    engine = engine_of(settings(MAX_CPUS=max_cpus))
    assert isinstance(engine, LocalEngine) and engine.cpus == cpus


def test_the_slurm_engine_has_what_is_asked_for(faked: Faked) -> None:
    engine = engine_of(settings(ENGINE="slurm", MAX_CPUS=6, SLURM_PARTITION="gpu", SLURM_ACCOUNT="lab", SLURM_POLL_S=7))
    assert isinstance(engine, SlurmEngine)
    assert (engine.max_cpus, engine.partition, engine.account, engine.poll_s) == (6, "gpu", "lab", 7.0)


def test_no_limit_of_its_own_on_a_cluster(faked: Faked) -> None:
    engine = engine_of(settings(ENGINE="slurm"))
    assert isinstance(engine, SlurmEngine) and engine.max_cpus == float("inf")


def test_without_slurm_it_says_what_is_missing_and_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError) as caught:
        engine_of(settings(ENGINE="slurm"))
    assert caught.value.messages == ("ENGINE is `slurm`, but `sbatch`, `squeue`, `scancel` is not on PATH",)
    assert caught.value.hint == "make ENGINE_LOCAL=y, or run it on a host that submits to the cluster"
