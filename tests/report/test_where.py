"""A page names the GPUs that its numbers are of."""

from pathlib import Path

from kassay import digest
from kassay.kinds.device import DeviceRecord
from tests.report.fabricate import FakeRun

DEVICE = DeviceRecord(
    index=0,
    name="Example GPU",
    capability="9.0",
    multiprocessors=4,
    memory_bytes=1 << 30,
    driver="580.1",
    torch="2.13.0",
    cuda=None,
    copy_gb_per_s=100.0,
    copy_repetitions_s=[0.01],
)
KIND = "NVIDIA <X>, 80 GiB, compute capability 9.0"


def test_the_gpus_of_the_receipts_are_told_once(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    assert "<dt>GPUs</dt>" not in run.rendered()["report.html"]
    for name in ("timing", "sweep"):
        receipt = run.directory / "stages" / name / "receipt.json"
        receipt.parent.mkdir(exist_ok=True)
        digest.write_json(receipt, {"schema": "kassay.receipt/1", "host": {"cpus": 8, "gpus": [KIND]}})
    page = run.rendered()["report.html"]
    assert "<dt>GPUs</dt><dd>NVIDIA &lt;X&gt;, 80 GiB, compute capability 9.0</dd>" in page


def test_a_run_of_before_names_them_by_its_device_records(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    run.end("build", records=[DEVICE, DEVICE])
    assert "<dt>GPUs</dt><dd>Example GPU, driver 580.1</dd>" in run.rendered()["report.html"]
