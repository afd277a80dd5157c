"""Ratios of blocks of which some do not count: each has the number of its own, in the view and from night to night."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import kassay.read
from kassay import paths
from kassay.kinds.composition import CompositionRecord
from kassay.kinds.matrix import MatrixRow
from kassay.kinds.timing import BlockRecord
from kassay.kinds.verdict import ContrastRecord, GuardRecord
from kassay.nightly.watched import counted_blocks
from kassay.record import Record
from tests.invented import Invented, run

COUNTED = [1, 3]


def filled(kind: type[Record], **told: Any) -> Record:
    """A record of which the rest is null."""
    ours = {"model": "m", "candidate": "a", "control": "b"}
    return kind(**dict.fromkeys(field.name for field in fields(kind)) | ours | told)


def test_a_ratio_has_the_number_of_its_block_where_others_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "build", lambda: tmp_path / "build")
    told = {"contrast": "c", "blocks": 4, "valid_blocks": COUNTED, "ratios": [1.1, 1.3]}
    made = [
        filled(ContrastRecord, **told),
        filled(GuardRecord, **{key: told[key] for key in ("blocks", "valid_blocks", "ratios")}),
    ]
    blocks = [
        BlockRecord(model="m", load="busy", block=block, order=["a", "b"], valid=block in COUNTED, faults=[])
        for block in range(4)
    ]
    lines = [
        filled(MatrixRow, workload=load, comparison="c", ratios=ratios)
        for load, ratios in (("busy", [1.1, 1.3]), ("calm", [1.1, 1.3]), ("busy", None))
    ]
    names = [field.name for field in fields(CompositionRecord)]
    composed = [
        CompositionRecord(**dict.fromkeys(names) | {"model": "m", "load": load, "valid_blocks": counted, "rhos": rhos})
        for load, counted, rhos in (("busy", COUNTED, [0.9, 0.8]), ("void", [2], []))
    ]
    stages = {
        "composition": Invented(program="composition", records=composed),
        "contrast": Invented(program="contrast", records=made),
        "matrix": Invented(program="matrix", records=[*blocks, *lines]),
    }
    directory = run(tmp_path, "a-20261130T000000Z-0", stages, created_at="2026-11-30T00:00:00.000Z")
    with kassay.read.runs(tmp_path) as found:
        asked = found.sql("SELECT kind, load, block, ratio FROM ratios ORDER BY ALL")
        rows = [tuple(row.values()) for row in asked.rows()]
    wanted = [("contrast", None), ("guard", None), ("matrix_row", "busy")]
    assert rows == [
        ("composition", "busy", 1, 0.9),
        ("composition", "busy", 3, 0.8),
        *((*whose, *pair) for whose in wanted for pair in ((1, 1.1), (3, 1.3))),
        ("matrix_row", "calm", 0, 1.1),  # of a matrix that tells of no blocks
        ("matrix_row", "calm", 1, 1.3),
    ]
    assert counted_blocks(directory) == {"contrast m c: median": COUNTED, "matrix_row busy m c: median": COUNTED}
