"""A run of 100,000 records is rendered in bounded time and memory, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kassay import paths
from kassay.kinds.quality import Answer
from kassay.record import Record
from tests.report.fabricate import MODELS, SHA, FakeRun, oracle_records, records_of, timing_records

RECORDS = 100_000
MOST_S, MOST_MIB = 5.0, 300  # processor time of one core, and the largest resident size
MOST_READS = 20  # where a core is slower: that of so many times parsing the same lines and no more; it takes 14
PROGRAM = """
import json, sys, time
from pathlib import Path
from kassay.report import render_run
written = render_run(Path(sys.argv[1]))
largest = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
told = {"s": time.process_time(), "mib": int(largest.split()[1]) / 1024}
for path in Path(sys.argv[1]).glob("stages/*/records.jsonl"):
    for line in path.open():
        json.loads(line)
told["read_s"] = time.process_time() - told["s"]
print(json.dumps({**told, "bytes": sum(path.stat().st_size for path in written)}))
"""


pytestmark = [
    pytest.mark.clock,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the largest size is read from /proc"),
]


def large_run(root: Path) -> tuple[FakeRun, int]:
    """A full run with so many records, nine of ten of kinds that the report reads; and how many there are."""
    run = FakeRun(root).full()
    cases = oracle_records("robust")
    for model in MODELS:
        lines = "".join(case.to_json() + "\n" for case in oracle_records(model))
        write(run, f"oracle.{model}", lines * (40_000 // len(cases)))
    answer: Record = Answer(
        model="robust", recipe="native", task="retrieval", split="confirmation", item_id="item", item_digest=SHA,
        expected="one", text="one", parsed="one", outcome="correct", tokens=3,
    )  # fmt: skip
    quality = "".join(record.to_json() + "\n" for record in records_of("quality.robust"))
    write(run, "quality.robust", quality + (answer.to_json() + "\n") * 10_000)
    blocks = 10_000 * 13 // len(timing_records())
    write(run, "timing", "".join(record.to_json() + "\n" for record in timing_records(blocks)))
    stages = (run.directory / "stages").glob("*/records.jsonl")
    return run, sum(path.read_bytes().count(b"\n") for path in stages)


def write(run: FakeRun, stage: str, lines: str) -> None:
    """Put these records in the place of a stage's own."""
    (run.directory / "stages" / stage / "records.jsonl").write_text(lines, encoding="utf-8")


def test_a_hundred_thousand_records(tmp_path: Path) -> None:
    run, count = large_run(tmp_path)
    assert count >= RECORDS
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}  # as make sets it
    environment = {**os.environ, **one_thread, "PYTHONPATH": str(paths.ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(run.directory)], env=environment, check=True, capture_output=True, text=True
    )
    told = json.loads(done.stdout)
    assert told["s"] < max(MOST_S, MOST_READS * told["read_s"]), told
    assert told["mib"] < MOST_MIB and told["bytes"] < 3_000_000, told
    body = json.loads((run.directory / "report.json").read_bytes())
    assert sum(file["records"] for file in body["files"]) == count
