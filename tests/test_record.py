"""Records: what is written is what is read, and nothing else is accepted."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from kassay.errors import RecordError
from kassay.record import Record, Writer, doc, read_kind, read_lines, set_aside_torn_tail


@dataclass(frozen=True, kw_only=True)
class Toy(Record):
    """A record of the test."""

    schema: ClassVar[str] = "kassay.toy/2"

    name: str = doc("A name.")
    values: list[float] = doc("Values.")


def written(path: Path, *records: Toy) -> Path:
    """A file with these records."""
    writer = Writer(path)
    for record in records:
        writer.append(record)
    writer.close()
    return path


def test_round_trip_with_any_text(tmp_path: Path) -> None:
    toys = [Toy(name=name, values=[0.1, 1e300]) for name in ("a", 'q"\\', "line\nbreak", "\u2028 café λ", "")]
    path = written(tmp_path / "r.jsonl", *toys)
    assert read_kind(path, Toy) == toys
    assert len(path.read_bytes().split(b"\n")) == len(toys) + 1
    assert next(iter(json.loads(path.read_text().split("\n")[0]))) == "schema"


def test_a_nonfinite_number_is_null_and_named(tmp_path: Path) -> None:
    body = next(read_lines(written(tmp_path / "r.jsonl", Toy(name="x", values=[1.0, float("nan"), float("inf")]))))
    assert body["values"] == [1.0, None, None] and body["nonfinite"] == ["values[1]: nan", "values[2]: inf"]


def test_numpys_scalars_mean_pythons(tmp_path: Path) -> None:
    values = [np.bool_(True), np.float32(0.1), np.int64(3), np.float64("nan"), np.float32("inf"), 9007199254740993]
    (line,) = written(tmp_path / "r.jsonl", Toy(name="x", values=values)).read_text().splitlines()
    body = json.loads(line, parse_constant=lambda word: pytest.fail(f"a bare {word}"))
    assert body["values"] == [True, 0.10000000149011612, 3, None, None, 9007199254740993]
    assert [type(value) for value in body["values"][:3]] == [bool, float, int]
    assert body["nonfinite"] == ["values[3]: nan", "values[4]: inf"]


@pytest.mark.parametrize("value", [np.zeros(1), {1.5: "x"}, {None: "x"}, {True: "x"}, b"x", {"x"}, "\udce9", 1j])
def test_what_json_does_not_have_is_refused(value: object) -> None:
    with pytest.raises(RecordError, match="values"):
        Toy(name="x", values=value).to_json()  # type: ignore[arg-type]


def test_types_that_json_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"`name` is of type `\w*Path`"):
        Toy(name=tmp_path, values=[]).to_json()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"schema": "kassay.toy/3", "name": "x", "values": []}\n', "newer"),
        (b'{"schema": "kassay.toy/2", "name": "x"}\n', r"lacks \['values'\]"),
        (b'{"schema": "kassay.toy/2", "name": "x", "values": [], "more": 1}\n', r"does not know \['more'\]"),
        (b'{"schema": "kassay.toy/2", "na', "torn"),
        (b"[1]\n", "first key"),
        (b'{"name": "x", "schema": "kassay.toy/2", "values": []}\n', "first key"),
        (b"nonsense\n", "r.jsonl:1: not a JSON object"),
    ],
)
def test_bad_lines_are_errors(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(line)
    with pytest.raises(RecordError, match=said):
        read_kind(path, Toy)


def test_a_torn_tail_is_set_aside_at_every_length_and_nothing_else(tmp_path: Path) -> None:
    whole = written(tmp_path / "w.jsonl", Toy(name="a", values=[]), Toy(name="λ", values=[1.0])).read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first + 1, len(whole)):
        path = tmp_path / f"{cut}.jsonl"
        path.write_bytes(whole[:cut])
        complete = cut == len(whole) - 1  # it lacks its newline only
        assert set_aside_torn_tail(path) == (None if complete else 2)
        written(path, Toy(name="next", values=[]))
        assert [toy.name for toy in read_kind(path, Toy)] == (["a", "λ", "next"] if complete else ["a", "next"])
        torn = tmp_path / f"{cut}.jsonl.torn"
        assert not torn.exists() if complete else torn.read_bytes() == whole[first:cut] + b"\n"
    assert set_aside_torn_tail(tmp_path / "w.jsonl") is None
    assert set_aside_torn_tail(tmp_path / "none.jsonl") is None


def test_a_bad_line_in_the_middle_is_an_error_not_a_torn_tail(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", Toy(name="a", values=[]))
    path.write_bytes(b'{"schema": "kassay.toy/2", "na\n' + path.read_bytes())
    assert set_aside_torn_tail(path) is None
    with pytest.raises(RecordError, match=r"r\.jsonl:1: not a JSON object"):
        read_kind(path, Toy)


def test_a_short_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path / "r.jsonl")
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:5]))
    with pytest.raises(RecordError, match=r"only 5 of \d+ bytes were written"):
        writer.append(Toy(name="a", values=[]))
    writer.close()
