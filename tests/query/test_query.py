"""SQL over runs: what is in the views of runs that ended, go on, are torn, older, newer or shared; what is refused."""

import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import kassay.read
from kassay import paths, schemas
from kassay.errors import ConfigError, RecordError, RunError
from kassay.kinds.mirror import MirrorRecord
from kassay.query import index, opened
from kassay.query.asking import require_reading
from kassay.query.output import destination, write
from kassay.record import read_lines
from tests.invented import Invented, gate, run

OLDER = '{"schema": "kassay.gate/1", "gate": "of old", "upper": "text"}'
NEWER = '{"schema": "kassay.gate/99", "gate": "of later"}'
GATES = "SELECT run, candidate, upper FROM gates ORDER BY ALL"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What files hold is remembered in the test's own folder."""
    monkeypatch.setattr(paths, "build", lambda: tmp_path / "build")


def rows(results: Path, sql: str, *names: str) -> list[tuple[Any, ...]]:
    """What a query gives."""
    with kassay.read.runs(results, *names) as found:
        return [tuple(row.values()) for row in found.sql(sql).rows()]


def remarks(results: Path) -> tuple[str, ...]:
    """What is said to be in no view."""
    with kassay.read.runs(results) as found:
        return found.remarks


def test_every_view_can_be_read_with_and_without_records(judged_run: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    for results, least in ((judged_run.parent, 1000), (tmp_path / "none", 0)):
        with kassay.read.runs(results) as found:
            counts = {view: next(found.sql(f"SELECT count(*) FROM {view}").rows()) for view in found.views}
            total = sum(next(iter(count.values())) for count in counts.values())
        assert len(counts) >= len(schemas.kinds()) + 9 and (total > least if least else total == 0)


def test_a_view_says_what_the_records_say(judged_run: Path) -> None:
    for kind in ("gate", "timing_cell", "document_loss", "saturation"):
        lines = [line for path in judged_run.glob("stages/*/records.jsonl") for line in read_lines(path)]
        wanted = [line for line in lines if line["schema"].startswith(f"kassay.{kind}/")]
        with kassay.read.runs(judged_run.parent) as found:
            made = list(found.view(kind).rows())
        stripped = [{k: v for k, v in row.items() if k not in ("run", "stage", "made_in", "nonfinite")} for row in made]
        assert wanted and sorted(map(canonical, stripped)) == sorted(map(canonical, wanted))


def canonical(body: dict[str, Any]) -> str:
    """A record whatever the order of its keys."""
    return json.dumps(body, sort_keys=True)


def test_gathered_views_hold_each_block_each_repetition_and_each_fit(judged_run: Path) -> None:
    blocks = rows(
        judged_run.parent, "SELECT kind, comparison, count(*), max(block) FROM ratios GROUP BY ALL ORDER BY 2"
    )
    assert [(kind, count, last) for kind, _, count, last in blocks] == [("contrast", 6, 5), ("contrast", 6, 5)]
    cells = rows(judged_run.parent, "SELECT count(*), count_if(warmup), min(elapsed_s) > 0 FROM samples GROUP BY kind")
    assert sorted(cells) == [(18, 6, True), (36, 18, True)]
    assert rows(judged_run.parent, "SELECT law, ceiling_per_s > 0 FROM fits WHERE kind = 'saturation'")[0][1]


def test_a_filter_on_a_field_reads_no_record_of_another_kind(tmp_path: Path) -> None:
    other = '{"schema": "kassay.certificate/2", "verdict": "fails"}'
    run(
        tmp_path,
        "a-20261130T000000Z-0",
        {"certify": Invented(records=[other, gate(lower=0.03, upper=0.04, verdict="fails"), other])},
    )
    assert rows(tmp_path, "SELECT gate FROM gates WHERE verdict = 'fails'") == [("keys",)]


@pytest.mark.parametrize("word", [None, "crashed"])
def test_half_a_last_line_is_left_out_and_told(tmp_path: Path, word: str | None) -> None:
    half = gate(candidate="k8v8-f").to_json()[:-40]
    run(tmp_path, "a-20261130T000000Z-0", {"certify": Invented(records=[gate(), half], end="", word=word)})
    assert rows(tmp_path, GATES) == [("a-20261130T000000Z-0", "k16v8-f", 0.0074)]
    told = f"left out: a-20261130T000000Z-0/certify/records.jsonl: {len(half)} bytes of a line"
    assert remarks(tmp_path) == (told,)


def test_a_run_that_goes_on_is_read_as_it_is_now(tmp_path: Path) -> None:
    """What is appended after the look, even half a line, is not seen; what lacks only its newline is whole."""
    directory = run(tmp_path, "a-20261130T000000Z-0", {"certify": Invented(records=[gate()], end="", word=None)})
    with kassay.read.runs(tmp_path) as found:
        with (directory / "stages/certify/records.jsonl").open("a") as stream:
            stream.write("\n" + gate(candidate="k8v8-f").to_json()[:50])
        assert [row["candidate"] for row in found.view("gates").rows()] == ["k16v8-f"] and not found.remarks
        state = found.sql("SELECT r.state, s.state AS of_stage, s.word FROM runs r JOIN stages s USING (run)")
        assert [tuple(row.values()) for row in state.rows()] == [("lost", "lost", None)]
    with (directory / "stages/certify/records.jsonl").open("a") as stream:
        stream.write(gate(candidate="k8v8-f").to_json()[50:] + "\n")
    assert [candidate for _, candidate, _ in rows(tmp_path, GATES)] == ["k16v8-f", "k8v8-f"]


def test_a_file_that_grows_by_half_lines_is_always_whole_records(tmp_path: Path) -> None:
    """A writer that is never done with its line, as large records are while the kernel copies them."""
    directory = run(tmp_path, "a-20261130T000000Z-0", {"certify": Invented(records=[gate()], word=None)})
    line, stop = (gate(reason="x" * 20_000).to_json() + "\n").encode(), threading.Event()

    def grow() -> None:
        with (directory / "stages/certify/records.jsonl").open("ab", buffering=0) as stream:
            while not stop.is_set():
                stream.write(line[:9_000])
                time.sleep(0.01)
                stream.write(line[9_000:])

    writer = threading.Thread(target=grow)
    writer.start()
    seen: list[int] = []
    deadline = time.monotonic() + 60
    try:
        while len(seen) < 4 or (seen[0] == seen[-1] and time.monotonic() < deadline):
            seen.append(len(rows(tmp_path, "SELECT reason FROM gates")))
    finally:
        stop.set()
        writer.join()
    assert seen == sorted(seen) and 1 <= seen[0] < seen[-1]


def test_the_health_of_mirrors_is_a_view(tmp_path: Path) -> None:
    """O16: whatever a mirror did stands beside the run, and changes nothing of it."""
    directory = run(tmp_path, "a-20261130T000000Z-0", {"certify": Invented(records=[gate()])})
    health = MirrorRecord(
        mirror="wandb", at="2026-11-30T00:00:00.000Z", state="failed", events=1, reason="RuntimeError"
    )
    (directory / "mirror.jsonl").write_text(health.to_json() + "\n")
    assert rows(tmp_path, "SELECT run, mirror, state, reason FROM mirror") == [
        (directory.name, "wandb", "failed", "RuntimeError")
    ]
    assert rows(tmp_path, "SELECT state, exit_code FROM runs") == [("ended", 0)]


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    for number, (line, said) in enumerate(
        {
            '{"schema": "kassay.gate/2", "upper"': "not a JSON object",
            "[1]": "the first key of a record is `schema`",
            '{"gate": 1}': "the first key of a record is `schema`",
            "": "not a JSON object",
            '{"schema": "kassay.gate/1", "upper": NaN}': "`nan` is no number in JSON",
            '{"schema": "kassay.gate/1", "upper": [{"a": -Infinity}]}': "`-inf` is no number in JSON",
        }.items()
    ):
        results = tmp_path / str(number)
        run(results, "a-20261130T000000Z-0", {"certify": Invented(records=[gate(), line, gate()])})
        if line == "":
            assert len(rows(results, GATES)) == 2  # an empty line is no record, and holds none
            continue
        with pytest.raises(RecordError) as caught:
            rows(results, GATES)
        assert "certify/records.jsonl:2: " in caught.value.messages[0] and said in caught.value.messages[0]
    text = "a text may say NaN or Infinity"
    run(tmp_path / "text", "a-20261130T000000Z-0", {"certify": Invented(records=[gate(reason=text)])})
    assert rows(tmp_path / "text", "SELECT reason FROM gates") == [(text,)]


def test_a_record_that_lacks_a_field_or_has_another_type_is_an_error_not_a_null(tmp_path: Path) -> None:
    for number, changed in enumerate(({"upper": "low"}, {"upper": None, "lower": "x"})):
        body = {**json.loads(gate().to_json()), **changed}
        run(tmp_path / str(number), "a-20261130T000000Z-0", {"certify": Invented(records=[json.dumps(body)])})
        with pytest.raises(ConfigError, match="cast"):
            rows(tmp_path / str(number), "SELECT lower, upper FROM gates")
    lacking = json.loads(gate().to_json())
    del lacking["upper"]
    run(tmp_path / "lacks", "a-20261130T000000Z-0", {"certify": Invented(records=[json.dumps(lacking)])})
    with pytest.raises(RecordError, match=r"records.jsonl:1: record of `kassay.gate/2` lacks upper"):
        rows(tmp_path / "lacks", "SELECT upper FROM gates")
    with pytest.raises(RunError, match="no such folder of results"):
        rows(tmp_path / "nowhere", "SELECT 1")


def test_other_versions_are_in_a_view_of_their_own_and_said(tmp_path: Path) -> None:
    run(tmp_path, "a-20261130T000000Z-0", {"certify": Invented(records=[OLDER, gate(), NEWER, OLDER])})
    assert len(rows(tmp_path, GATES)) == 1
    found = rows(tmp_path, "SELECT schema, body->>'gate', count(*) FROM other_records GROUP BY ALL ORDER BY 1")
    assert found == [("kassay.gate/1", "of old", 2), ("kassay.gate/99", "of later", 1)]
    assert remarks(tmp_path) == (
        "2 records of `kassay.gate/1` are in `other_records` only: this kassay reads `kassay.gate/2`",
        "1 records of `kassay.gate/99` are in `other_records` only: this kassay reads `kassay.gate/2`",
    )


def test_a_result_of_another_run_is_read_once_and_belongs_to_both(tmp_path: Path) -> None:
    first = run(tmp_path, "a-20261130T000000Z-0", {"certify": Invented(records=[gate()])})
    second = run(tmp_path, "b-20261130T000001Z-0", {"certify": Invented(records=[gate(candidate="k8v8-f")])})
    shutil.rmtree(second / "stages/certify")
    (second / "stages/certify").symlink_to(os.path.relpath(first / "stages/certify", second / "stages"))
    (tmp_path / "latest").symlink_to(second.name)
    sql = "SELECT run, made_in, candidate FROM gates ORDER BY 1"
    assert rows(tmp_path, sql) == [(first.name, first.name, "k16v8-f"), (second.name, first.name, "k16v8-f")]
    assert rows(tmp_path, sql, second.name) == [(second.name, first.name, "k16v8-f")]
    assert rows(tmp_path, "SELECT count(*) FROM gates WHERE run = made_in") == [(1,)]
    assert [name for (name,) in rows(tmp_path, "SELECT run FROM runs")] == [second.name, first.name]
    with pytest.raises(RunError, match="no run `c`"):
        rows(tmp_path, sql, "c")


def test_names_that_a_pattern_or_a_quote_would_change(tmp_path: Path) -> None:
    results = tmp_path / "it's [1] *?"
    run(results, "a+b-20261130T000000Z-0", {"quality.it's": Invented(program="quality", records=[gate()])})
    assert rows(results, "SELECT run, stage FROM gates") == [("a+b-20261130T000000Z-0", "quality.it's")]


def test_a_number_that_was_not_finite_is_null_and_named(tmp_path: Path) -> None:
    run(tmp_path, "a-20261130T000000Z-0", {"certify": Invented(records=[gate(estimate=float("nan")), gate()])})
    assert rows(tmp_path, "SELECT estimate, nonfinite FROM gates ORDER BY 1 NULLS FIRST") == [
        (None, ["estimate: nan"]),
        (0.0, None),
    ]


def test_what_a_file_holds_is_asked_once_and_again_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = run(tmp_path, "a-20261130T000000Z-0", {"certify": Invented(records=[gate()])})
    asked: list[list[str]] = []
    count = index.count
    monkeypatch.setattr(index, "count", lambda connection, files: asked.append(files) or count(connection, files))
    for wanted in (1, 1, 2):
        assert len(rows(tmp_path, GATES)) == wanted
        if len(asked) == 2:
            with (directory / "stages/certify/records.jsonl").open("a") as stream:
                stream.write(gate().to_json() + "\n")
    named = [[Path(file).name for file in files if "certify" in file] for files in asked]
    assert named == [["records.jsonl"], [], ["records.jsonl"]]


def test_frames_are_lazy_and_agree(judged_run: Path) -> None:
    import polars

    with kassay.read.runs(judged_run.parent) as found:
        frame = found.sql("SELECT candidate, upper, losses FROM gates ORDER BY ALL")
        pandas = frame.pandas()
        lazy = frame.polars()
        batches = list(frame.batches(rows=7))
        assert isinstance(lazy, polars.LazyFrame) and max(batch.num_rows for batch in batches) <= 7
        told = [tuple(row.values()) for row in frame.rows()]
        assert [tuple(row) for row in lazy.collect().rows()] == told
        assert sum(batch.num_rows for batch in batches) == len(pandas) == len(told) > 10
        assert pandas["upper"].tolist() == [upper for _, upper, _ in told]
        assert found.columns("gates")["upper"] == "DOUBLE"
        found.sql("SELECT nothing FROM nowhere")  # asked for nothing yet
        with pytest.raises(ConfigError, match="two columns are called `n`"):
            next(found.sql("SELECT 1 AS n, 2 AS n").rows())
        with pytest.raises(ConfigError, match="nowhere"):
            found.sql("SELECT nothing FROM nowhere").pandas()


@pytest.mark.parametrize("lacking", ["duckdb", "pandas", "polars", "pyarrow"])
def test_a_library_that_lacks_is_named_with_its_extra(
    judged_run: Path, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, lacking, None)
    with pytest.raises(ConfigError) as caught, kassay.read.runs(judged_run.parent) as found:
        {"pandas": found.view("gates").pandas, "polars": found.view("gates").polars}.get(
            lacking, lambda: list(found.view("gates").batches())
        )()
    assert caught.value.messages == (f"`{lacking}` is not in this environment: it comes with the extra `read`",)


def test_only_one_question_is_taken_and_no_file_among_the_results_is_written(tmp_path: Path) -> None:
    for sql in ("DROP VIEW gates", "SELECT 1; SELECT 2", "COPY (SELECT 1) TO 'x.csv'", "", "INSTALL httpfs"):
        with pytest.raises(ConfigError, match="allowed is one SELECT"):
            require_reading(sql)
    for to, said in (("x.xls", "allowed are table"), (str(tmp_path / "a.csv"), "which are only read"),
                     ("/nowhere/a.csv", "no such folder"), ("tsv", "allowed are table")):  # fmt: skip
        with pytest.raises(ConfigError, match=said):
            destination(to, tmp_path)


def test_every_form_says_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "results", "a-20261130T000000Z-0", {"certify": Invented(records=[gate(reason='a "b", c\nd')])})
    sql = "SELECT gate, upper, reason, [1.5, 'nan'::DOUBLE] AS list, 'inf'::DOUBLE AS much, losses FROM gates;"
    found = opened(tmp_path / "results")
    try:
        for to in ("table", "csv", "json", str(tmp_path / "x.parquet")):
            write(found, sql, to, tmp_path / "results")
        told = found.connection.execute(f"SELECT gate, upper, losses FROM '{tmp_path}/x.parquet'").fetchall()
    finally:
        found.close()
    lines = capfd.readouterr().out.splitlines()
    assert lines[:2] == [
        "gate  upper   reason      list        much  losses",
        'keys  0.0074  a "b", c d  [1.5, NaN]  inf   0',
    ]
    assert lines[2:5] == ["gate,upper,reason,list,much,losses", 'keys,0.0074,"a ""b"", c', 'd","[1.5, NULL]",,0']
    wanted = {"gate": "keys", "upper": 0.0074, "reason": 'a "b", c\nd', "list": [1.5, None], "much": None, "losses": 0}
    assert json.loads(lines[5]) == wanted and told == [("keys", 0.0074, 0)]
