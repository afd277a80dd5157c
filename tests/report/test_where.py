"""A page names the GPUs that its numbers are of."""

from pathlib import Path

from kassay import digest
from tests.report.fabricate import FakeRun

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
