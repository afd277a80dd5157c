"""O22: the GPU inventory keeps values of one GPU together, tells a failure as one, and reads CUDA's own variable."""

import os
from pathlib import Path

import pytest

from kassay import gpus
from kassay.gpus import Gpu, Inventory

TWO = "0, NVIDIA GB10, [N/A]\n1, NVIDIA H100 80GB HBM3, 81559\n"
LISTED = """GPU 0: NVIDIA A100 (UUID: GPU-0a1b2c3d-0000-0000-0000-000000000000)
  MIG 1g.10gb Device 0: (UUID: MIG-00112233-4455-6677-8899-aabbccddeeff)
  MIG 1g.10gb Device 1: (UUID: MIG-11112233-4455-6677-8899-aabbccddeeff)
GPU 1: NVIDIA A100 (UUID: GPU-1a1b2c3d-0000-0000-0000-000000000000)
"""
MORE = """0, GPU-0a1b2c3d-0000-0000-0000-000000000000, 580.1, 8.0
1, GPU-1a1b2c3d-0000-0000-0000-000000000000, 580.1, 8.0
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder first on PATH for a fake nvidia-smi; nothing is visible by accident."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    return tmp_path


def fake(folder: Path, body: str) -> None:
    """nvidia-smi with this body."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def printing(folder: Path, facts: str, more: str = "", listed: str = "") -> None:
    """nvidia-smi that answers each question from a file."""
    gpus.KINDS.clear()  # another host now
    for name, text in (("facts", facts), ("more", more), ("listed", listed)):
        (folder / name).write_text(text)
    cases = f"*uuid*) cat {folder}/more;; *memory*) cat {folder}/facts;; -L) cat {folder}/listed;;"
    fake(folder, f'case "$1" in {cases} esac')


def test_values_stay_with_their_gpu_and_a_missing_one_is_null(smi: Path) -> None:
    printing(smi, TWO, more=TWO, listed="")  # an old driver answers the second question with what it knows
    found = gpus.inventory()
    assert found.state == "present"
    assert [(gpu.index, gpu.name, gpu.memory_mib) for gpu in found.gpus] == [
        (0, "NVIDIA GB10", None),
        (1, "NVIDIA H100 80GB HBM3", 81559),
    ]


def test_a_failing_tool_is_an_error_with_its_text_not_no_gpu(smi: Path) -> None:
    fake(smi, 'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18')
    found = gpus.inventory()
    assert (found.state, found.gpus) == ("error", ())
    assert found.error == "nvidia-smi ended with 18: Failed to initialize NVML: Driver/library version mismatch"


def test_words_in_place_of_gpus_are_an_error(smi: Path) -> None:
    printing(smi, "No devices were found\n")
    assert gpus.inventory().state == "error"


def test_no_tool_is_absent(smi: Path) -> None:
    assert gpus.inventory() == Inventory(state="absent", gpus=(), error="")


def test_instances_belong_to_their_gpu(smi: Path) -> None:
    printing(smi, "0, NVIDIA A100, 40960\n1, NVIDIA A100, 40960\n", MORE, LISTED)
    found = gpus.inventory()
    assert [len(gpu.instances) for gpu in found.gpus] == [2, 0]
    assert [(gpu.uuid or "")[:12] for gpu in found.gpus] == ["GPU-0a1b2c3d", "GPU-1a1b2c3d"]
    assert (found.gpus[0].capability, found.gpus[0].driver) == ("8.0", "580.1")


def test_each_kind_that_may_be_used_is_told_once(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printing(smi, "0, NVIDIA A100, 40960\n1, NVIDIA A100, 40960\n", MORE, LISTED)
    assert gpus.kinds() == ["NVIDIA A100, 40 GiB, compute capability 8.0"]
    printing(smi, TWO, more=TWO, listed="")
    assert gpus.kinds() == [
        "NVIDIA GB10, not told GiB, compute capability not told",
        "NVIDIA H100 80GB HBM3, 80 GiB, compute capability not told",
    ]
    monkeypatch.setenv(gpus.VISIBLE, "1")
    assert gpus.kinds() == ["NVIDIA H100 80GB HBM3, 80 GiB, compute capability not told"]
    fake(smi, "exit 18")
    assert gpus.kinds() == ["NVIDIA H100 80GB HBM3, 80 GiB, compute capability not told"], "a process asks once"
    gpus.KINDS.clear()
    assert gpus.kinds() == ["not told: nvidia-smi ended with 18: "]
    printing(smi, TWO, more=TWO, listed="")
    assert len(gpus.kinds()) == 1, "what failed is asked again"


def test_no_gpu_is_of_no_kind(smi: Path) -> None:
    assert gpus.kinds() == []


def four() -> Inventory:
    """Four GPUs, the first with an instance."""
    made = [
        Gpu(
            index=index,
            name="x",
            memory_mib=1,
            uuid=f"GPU-{index}a1b2c3d-9",
            capability=None,
            driver=None,
            instances=("MIG-00112233-4455-6677-8899-aabbccddeeff",) if index == 0 else (),
        )
        for index in range(4)
    ]
    return Inventory(state="present", gpus=tuple(made), error="")


@pytest.mark.parametrize(
    ("name", "made_of"),
    [
        ("0", ("GPU-0a1b2c3d-9", "MIG-00112233-4455-6677-8899-aabbccddeeff")),
        ("GPU-0a1b2c3d-9", ("GPU-0a1b2c3d-9", "MIG-00112233-4455-6677-8899-aabbccddeeff")),
        ("MIG-00112233-4455-6677-8899-aabbccddeeff", ("MIG-00112233-4455-6677-8899-aabbccddeeff",)),
        ("2", ("GPU-2a1b2c3d-9",)),
        ("7", ("7",)),
    ],
)
def test_what_a_name_stands_for(name: str, made_of: tuple[str, ...]) -> None:
    assert gpus.devices(four(), name) == made_of


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        ("0,-1,1", ["0"]),
        ("0,1,0", []),
        ("1gpu2,2ampere", ["1", "2"]),
        ("", []),
        ("GPU-0a1b2c3d", ["GPU-0a1b2c3d-9"]),
        ("MIG-00112233-4455-6677-8899-aabbccddeeff", ["MIG-00112233-4455-6677-8899-aabbccddeeff"]),
        (None, ["0", "1", "2", "3"]),
        ("3, 1", ["3", "1"]),
        ("9", []),
        ("0,9,1", ["0"]),
        ("none", []),
        ("GPU-", []),
    ],
)
def test_what_is_visible(setting: str | None, seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus.visible(four(), setting) == seen
    if setting is None:
        monkeypatch.delenv(gpus.VISIBLE, raising=False)
    else:
        monkeypatch.setenv(gpus.VISIBLE, setting)
    assert len(gpus.usable(four())) == len(seen)
