"""Every rule that invalidates a block, broken one at a time; and what the host and NVML are asked."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import conditions, gpus, host
from kassay.kinds.timing import GpuState, HostState, TimingCell
from kassay.stats import InvalidData
from kassay.validity import CONTEXT_BYTES, Evidence, Fault, faults, foreign_cpu, valid_blocks
from tests import timed
from tests.timed import NS

LIMITS: dict[str, Any] = {
    "cached_tokens": 0, "power_capped_percent": 0, "slowdown_percent": 0, "foreign_gpu_processes": 0,
    "foreign_cpu_percent": 50, "drift_percent": 10, "valid_blocks": 2,
}  # fmt: skip
NO_LIMITS = {**dict.fromkeys(LIMITS), "valid_blocks": 2}
CELLS = [
    timed.cell(block=block, position=place, recipe=arm) for block in (0, 1) for place, arm in enumerate(("a", "b"))
]


def evidence(
    cell: Callable[[TimingCell], TimingCell] = lambda one: one,
    state: Callable[[HostState], HostState | None] = lambda one: one,
    gpu: Callable[[GpuState], GpuState | None] | None = None,
) -> Evidence:
    """Two blocks of two arms; the first cell of block 1 and what is around it may be changed."""

    def first(one: Any) -> bool:
        return (one.block, one.position) == (1, 0)

    cells = [cell(one) if first(one) else one for one in CELLS]
    hosts = [state(one) if first(one) else one for one in timed.around(CELLS)]
    made = [timed.gpu(one, when) for one in CELLS for when in ("before", "after")] if gpu else []
    changed = [gpu(one) if first(one) and gpu else one for one in made]
    return Evidence(
        cells=tuple(cells),
        hosts=tuple(one for one in hosts if one is not None),
        gpus=tuple(one for one in changed if one is not None),
    )


def found(made: Evidence, limits: dict[str, Any] | None = LIMITS) -> list[Fault]:
    """The faults, all of which must be of block 1: another block is never touched."""
    told = faults(made, limits)
    assert {fault.block for fault in told} <= {1} and valid_blocks(2, told) == ([0] if told else [0, 1])
    return told


def test_complete_cells_on_a_quiet_host_count() -> None:
    assert found(evidence()) == [] and found(evidence(gpu=lambda one: one)) == []


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("stamps", {"ended_ns": [9 * NS]}),
        ("stamps", {"started_ns": [], "ended_ns": []}),
        ("stamps", {"warmups": 2}),
        ("stamps", {"ended_ns": [9 * NS, 10 * NS]}),
        ("stamps", {"started_ns": [1 * NS, 8 * NS]}),
        ("stamps", {"request_tokens": []}),
        ("stamps", {"output_sha256s": []}),
        ("completion", {"request_tokens": [[4] * 4, [4, 4, 4, 3]]}),
        ("completion", {"request_tokens": [[4] * 4, [4, 4, 8]]}),
        ("prompts", {"prompt_sha256s": []}),
        ("prompts", {"prompt_sha256s": ["a", "b", "c", "c"]}),
        ("prompts", {"prompts_sha256": ""}),
        ("schedule", {"decode_steps": [4, 5]}),
        ("schedule", {"full_steps": [4, 3]}),
        ("preemption", {"preemptions": [0, 1]}),
    ],
)
def test_a_cell_that_lacks_evidence_is_invalid_whatever_the_study_says(rule: str, changes: dict[str, Any]) -> None:
    for limits in (LIMITS, NO_LIMITS, None):
        told = found(evidence(cell=lambda one: replace(one, **changes)), limits)
        assert {(fault.rule, fault.recipe, fault.position) for fault in told} == {(rule, "a", 0)}, told


def test_two_cells_of_a_block_in_one_process_are_both_named() -> None:
    told = found(evidence(cell=lambda one: replace(one, pid=CELLS[3].pid)), None)
    assert [(fault.rule, fault.recipe) for fault in told] == [("process", "a"), ("process", "b")]


@pytest.mark.parametrize(
    "state",
    [
        lambda one: None,
        lambda one: one if one.when == "before" else None,
        lambda one: replace(one, when="before"),
        lambda one: replace(one, at_ns=one.at_ns + (NS if one.when == "before" else 0)),
        lambda one: replace(one, load="small"),
    ],
)
def test_conditions_that_are_not_those_around_the_cell_are_none(state: Callable[[HostState], HostState | None]) -> None:
    assert {fault.rule for fault in found(evidence(state=state), None)} == {"conditions"}


def after(**changes: Any) -> Callable[[Any], Any]:
    """Change what stands after the cell."""
    return lambda one: replace(one, **changes) if one.when == "after" else one


def before(**changes: Any) -> Callable[[Any], Any]:
    """Change what stood before it."""
    return lambda one: replace(one, **changes) if one.when == "before" else one


@pytest.mark.parametrize(
    ("rule", "made", "words"),
    [
        ("cached_tokens", evidence(cell=lambda one: replace(one, prefilled_tokens=[32, 24])), "8 of 32 prompt tokens"),
        ("foreign_cpu_percent", evidence(state=after(busy_s=5016.0)), "others took 60 % of a core, allowed are 50 %"),
        ("foreign_cpu_percent", evidence(state=after(stolen_s=7.0)), "others took 60 % of a core"),
        ("foreign_cpu_percent", evidence(state=after(busy_s=None)), "does not tell how busy"),
        ("slowdown_percent", evidence(state=after(throttled=2)), "throttled for heat 2 times"),
        ("drift_percent", evidence(state=after(core_mhz=2300.0)), "2300 to 2600 MHz"),
        ("power_capped_percent", evidence(gpu=after(slowed_ns={"power": 7 + NS, "thermal": 7})), "10.00 % of the time"),
        ("slowdown_percent", evidence(gpu=after(slowed_ns={"power": 7, "thermal": 7 + NS})), "(thermal 1000.0 ms)"),
        ("slowdown_percent", evidence(gpu=before(slowed_by=["hw_power_brake_slowdown"])), "hw_power_brake_slowdown"),
        (
            "power_capped_percent",
            evidence(gpu=lambda one: replace(one, slowed_ns=None, slowed_by=["sw_power_cap"])),
            "sw_p",
        ),
        ("slowdown_percent", evidence(gpu=lambda one: replace(one, slowed_ns=None, slowed_by=["hw_slowdown"])), "hw_"),
        ("slowdown_percent", evidence(gpu=after(slowed_ns={"power": 7}, slowed_by=None)), "does not tell"),
        ("foreign_gpu_processes", evidence(gpu=before(processes=[{"pid": 7, "bytes": 1, "own": False}])), "pid 7"),
        (
            "foreign_gpu_processes",
            evidence(gpu=after(processes=[{"pid": n, "bytes": 1, "own": n == 1} for n in (1, 2)])),
            "pid 2",
        ),
        (
            "foreign_gpu_processes",
            evidence(gpu=after(processes=[{"pid": n, "bytes": 1, "own": False} for n in (1, 2)])),
            "pid 2",
        ),
        ("foreign_gpu_processes", evidence(gpu=before(used_bytes=CONTEXT_BYTES + 1)), "64 MiB in use by processes"),
        ("foreign_gpu_processes", evidence(gpu=before(used_bytes=None, processes=None)), "does not tell its processes"),
        ("drift_percent", evidence(gpu=after(sm_mhz=1500)), "clocks of GPU-a were 1500 to 1980 MHz"),
        ("conditions", evidence(gpu=lambda one: one if one.when == "after" else None), "a GPU was not recorded"),
    ],
)
def test_a_condition_beyond_its_frozen_limit_invalidates_by_name(rule: str, made: Evidence, words: str) -> None:
    told = found(made)
    assert {fault.rule for fault in told} == {rule} and words in told[0].said, told
    assert rule == "conditions" or not found(made, NO_LIMITS), "without a limit it is recorded and decides nothing"


def test_the_limits_themselves_are_allowed() -> None:
    assert found(evidence(state=after(busy_s=5015.0))) == [], "exactly half a core"
    capped = {**LIMITS, "power_capped_percent": 10}
    assert found(evidence(gpu=after(slowed_ns={"power": 7 + NS, "thermal": 7})), capped) == []
    hot = found(evidence(gpu=after(slowed_ns={"power": 7 + NS, "thermal": 8})), {**LIMITS, "power_capped_percent": 100})
    assert {fault.rule for fault in hot} == {"slowdown_percent"}, "what allows the power cap allows no heat"
    untold = found(evidence(gpu=lambda one: replace(one, slowed_ns=None, slowed_by=None)))
    assert {fault.rule for fault in untold} == {"power_capped_percent", "slowdown_percent"}
    assert found(evidence(gpu=after(slowed_by=["gpu_idle"]))) == []
    told = found(evidence(gpu=after(processes=[{"pid": 5, "bytes": None, "own": False}])))
    assert told == [], "one process that is not numbered as ours is the cell's, as the host numbers it"
    unlike = evidence(state=lambda one: replace(one, core_mhz=None, throttled=None))
    assert found(unlike) == [], "few virtual machines tell a processor's clocks"


def test_a_plan_with_one_limit_for_power_and_heat_is_refused() -> None:
    older = {name: most for name, most in LIMITS.items() if name not in ("power_capped_percent", "slowdown_percent")}
    with pytest.raises(InvalidData, match="lacks `power_capped_percent`, `slowdown_percent`"):
        faults(evidence(), {**older, "throttled_percent": 0})


def test_foreign_use_is_what_the_cell_did_not_take() -> None:
    ends = [timed.host(CELLS[0], when) for when in ("before", "after")]
    assert foreign_cpu(*ends) == 0.0
    assert foreign_cpu(ends[0], replace(ends[1], own_s=ends[1].own_s - 4)) == 0.4
    assert foreign_cpu(ends[0], replace(ends[1], at_ns=ends[0].at_ns)) is None


# --- what is asked


def test_the_kernels_account_of_its_cores(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 20 30 4000 50 6 7 80 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert host.processor_times(tmp_path) == (1.63, 0.8)
    assert host.processor_times(tmp_path / "none") is None
    (tmp_path / "cpuinfo").write_text("".join(f"processor\t: {n}\ncpu MHz\t\t: {1000 + n}.5\n\n" for n in range(999)))
    mean = host.core_mhz(tmp_path / "none", tmp_path)
    assert mean is not None and 1000 <= mean < 1999
    assert host.core_mhz(tmp_path / "none", tmp_path / "none") is None and host.throttle_count(tmp_path) is None
    for core, count in ((0, 3), (1, 4)):
        (tmp_path / f"cpu{core}" / "thermal_throttle").mkdir(parents=True)
        (tmp_path / f"cpu{core}" / "thermal_throttle" / "core_throttle_count").write_text(f"{count}\n")
    assert host.throttle_count(tmp_path) == 7


def test_the_hottest_sensor_of_the_processor_is_its_temperature(tmp_path: Path) -> None:
    assert host.temperature_c(tmp_path) is None, "a virtual machine has no sensor"
    chips = {"nvme": [91000], "coretemp": [41000, 47500, 44000], "k10temp": [46000], "acpitz": [99000]}
    for number, (chip, sensors) in enumerate(chips.items()):
        folder = tmp_path / f"hwmon{number}"
        folder.mkdir()
        (folder / "name").write_text(f"{chip}\n")
        for at, value in enumerate(sensors, start=1):
            (folder / f"temp{at}_input").write_text(f"{value}\n")
    assert host.temperature_c(tmp_path) == 47.5
    (tmp_path / "hwmon1" / "temp2_input").write_text("\n")
    assert host.temperature_c(tmp_path) == 46.0, "a chip that cannot be read whole is left out"


class NVMLError(Exception):
    """As pynvml has it."""


def fake_nvml() -> Any:
    """A driver that tells clocks, reasons and processes, and of held times that of power alone; no power in watts."""

    def refused(*words: Any) -> None:
        raise NVMLError("Not Supported")

    def violation(handle: str, policy: int) -> Any:
        return SimpleNamespace(violationTime=12) if policy == 0 else refused()

    listed = [SimpleNamespace(pid=99, usedGpuMemory=None)]
    return SimpleNamespace(
        NVMLError=NVMLError, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0, nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid, nvmlDeviceGetPowerUsage=refused,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x1 | 0x40 | 0x800,
        nvmlDeviceGetClockInfo=lambda handle, kind: 1000 * kind, nvmlDeviceGetMaxClockInfo=lambda handle, kind: 1980,
        nvmlDeviceGetTemperature=lambda handle, kind: 41, nvmlDeviceGetViolationStatus=violation,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: listed,
        nvmlDeviceGetGraphicsRunningProcesses=lambda handle: listed,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=5),
    )  # fmt: skip


def test_what_the_driver_does_not_tell_is_null_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    one = gpus.Gpu(index=0, name="x", memory_mib=1, uuid="GPU-a", capability=None, driver=None, instances=())
    monkeypatch.setattr(gpus, "inventory", lambda: gpus.Inventory(state="present", gpus=(one,), error=""))
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    monkeypatch.setattr(conditions.importlib, "import_module", lambda name: fake_nvml())
    asked = conditions.Gpus()
    (state,) = asked.states(timed.place(CELLS[0]), "before")
    assert (asked.lack, state.device, state.sm_mhz, state.memory_mhz, state.temperature_c) == (
        "",
        "GPU-a",
        1000,
        2000,
        41,
    )
    assert (state.power_w, state.slowed_by, state.slowed_ns) == (
        None, ["gpu_idle", "hw_thermal_slowdown", "bit_11"], {"power": 12},
    )  # fmt: skip
    assert state.processes == [{"pid": 99, "bytes": None, "own": False}] and state.used_bytes == 5
    assert "power: Not Supported" in state.absent and len(state.absent) == 1 + 5


def test_without_a_driver_to_ask_the_lack_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "inventory", lambda: gpus.Inventory(state="absent", gpus=(), error=""))
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    assert conditions.Gpus().lack == "no GPU is visible" and conditions.Gpus().states({}, "before") == []
