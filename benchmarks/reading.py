"""How fast, and in how much memory, are records read: views of kassay.query beside DuckDB's own JSON reader.

    python -m benchmarks.reading [--records 5000000] [--repeats 3] [--folder <folder>]

One file of `answer` records with every tenth a `document_loss`, as a stage of quality leaves them, and one question
over every column of the answers. Each reading is a process of its own; readings take turns, so that whatever else the
host does meets all of them, and what is told is the ratio within a turn. Peaks are largest resident sets.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kassay import digest, paths
from kassay.kinds.quality import Answer, DocumentLoss
from kassay.plan import Plan
from kassay.record import Writer

TARGETS = 8
EVERY = 10  # a loss among as many records
COLUMNS = (
    "schema, model, recipe, task, split, item_id, item_digest, expected, text, parsed, outcome: VARCHAR, tokens: BIGINT"
)
QUESTION = """SELECT outcome, count(*), sum(tokens), max(model), max(recipe), max(task), max(split), max(item_id),
 max(item_digest), max(expected), max(text), max(parsed) FROM ({source}) GROUP BY outcome ORDER BY outcome"""
READINGS = (
    "duckdb, types given",
    "duckdb, types detected",
    "kassay.query, first",
    "kassay.query, again",
    "kassay.read",
)


def main() -> int:
    """Make the file, take turns, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one[0], Path(given.one[1]))))
        return 0
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        results = Path(folder) / "results"
        file = make(results, given.records)
        print(f"{given.records:,} records, {file.stat().st_size / 1e9:.2f} GB, {os.cpu_count()} cores", flush=True)
        turns = [{name: one(name, results) for name in READINGS} for _ in range(given.repeats)]
    for line in table(turns):
        print(line)
    return 0


def make(results: Path, records: int) -> Path:
    """A run directory with one stage and its records."""
    directory = results / "reading-20261130T000000Z-00000000" / "stages" / "quality"
    directory.mkdir(parents=True)
    plan = Plan(profile="reading", workflow="reading", stages=(), config={})
    (directory.parent.parent / paths.PLAN).write_text(plan.text(), encoding="utf-8")
    digest.write_json(directory.parent.parent / paths.MANIFEST, {"schema": "kassay.manifest/1"})
    writer = Writer(directory / paths.RECORDS)
    drawn = random.Random(7)
    for number in range(records):
        writer.append(loss(number, drawn) if number % EVERY == EVERY - 1 else answer(number))
    writer.close()
    (directory / paths.OUTCOME).write_text("{}")  # nobody writes to it any more
    return directory / paths.RECORDS


def answer(number: int) -> Answer:
    """One answer."""
    said = str(number % 997)
    return Answer(
        model="robust", recipe=f"recipe-{number % 7}", task="retrieval", split="confirmation",
        item_id=f"retrieval-confirmation-{number:09d}", item_digest=f"{number:064x}", expected=said, text=said,
        parsed=said, outcome="wrong" if number % 13 == 0 else "correct", tokens=number % 32,
    )  # fmt: skip


def loss(number: int, drawn: random.Random) -> DocumentLoss:
    """One document."""
    return DocumentLoss(
        model="robust", recipe=f"recipe-{number % 7}", split="confirmation", item_id=f"document-{number:09d}",
        item_digest=f"{number:064x}", context_tokens=1000, loss_nats=[drawn.expovariate(2.0) for _ in range(TARGETS)],
    )  # fmt: skip


def one(name: str, results: Path) -> dict[str, float]:
    """A reading in a process of its own."""
    if name == "kassay.query, first":  # what a file holds is not known yet
        (paths.build() / "kinds-of-files.json").unlink(missing_ok=True)
    argv = [sys.executable, "-m", "benchmarks.reading", "--one", name, str(results)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=paths.ROOT)
    print(f"  {name}: {done.stdout.strip()}", file=sys.stderr, flush=True)
    return dict(json.loads(done.stdout))


def measured(name: str, results: Path) -> dict[str, float]:
    """Seconds of the reading, imports left out, its peak in MiB, and a check sum of what was read."""
    import duckdb

    import kassay.read

    file = next(results.glob("*/stages/*/records.jsonl"))
    started = time.perf_counter()
    if name.startswith("duckdb"):
        connection = duckdb.connect(config={"memory_limit": "1GB", "threads": len(os.sched_getaffinity(0))})
        given = f", format = 'newline_delimited', columns = {types()}" if name.endswith("given") else ""
        rows = connection.execute(
            QUESTION.format(source=f"SELECT * FROM read_json('{file}'{given}) WHERE schema = 'kassay.answer/1'")
        ).fetchall()
        total = sum(row[2] for row in rows)
    else:
        with kassay.read.runs(results) as found:
            if name.startswith("kassay.query"):
                rows = list(found.sql(QUESTION.format(source="SELECT * FROM answer")).rows())
                total = sum(row["sum(tokens)"] for row in rows)
            else:  # every row through Arrow batches
                total = sum(sum(batch.column("tokens").to_pylist()) for batch in found.view("answer").batches())
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "total": total}


def types() -> str:
    """The columns of an answer as DuckDB takes them."""
    names = COLUMNS.partition(":")[0].split(", ")
    return "{" + ", ".join(f"{name}: 'VARCHAR'" for name in names) + ", tokens: 'BIGINT'}"


def table(turns: list[dict[str, dict[str, float]]]) -> list[str]:
    """A line a reading: the median seconds, the range of the ratio to DuckDB with types given, the largest peak."""
    if len({turn[name]["total"] for turn in turns for name in READINGS}) != 1:
        raise SystemExit("error: two readings read different things")
    lines = ["", "| reading | seconds | ratio (least to most) | peak MiB |", "|---|---|---|---|"]
    for name in READINGS:
        seconds = statistics.median(turn[name]["seconds"] for turn in turns)
        ratios = sorted(turn[name]["seconds"] / turn[READINGS[0]]["seconds"] for turn in turns)
        peak = max(turn[name]["peak_mib"] for turn in turns)
        told = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        lines.append(f"| {name} | {seconds:.1f} | {told} | {peak:.0f} |")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
