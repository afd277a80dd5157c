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
from tests.kinds.case import Values, values_of
from tests.kinds.judged import JUDGED, NONE, VOID
from tests.kinds.measured import MEASURED

COUNTED = [1, 3]
RATIOS: Values = {"ratios": [1.1, 1.3]}


def filled(kind: type[Record], **told: Any) -> Record:
    """A legal record with these values."""
    names = [field.name for field in fields(kind)]
    ours = {name: value for name, value in {"model": "m", "candidate": "a", "control": "b"}.items() if name in names}
    return kind(**values_of(kind, (JUDGED | MEASURED)[kind].base, ours | told))


def test_a_ratio_has_the_number_of_its_block_where_others_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "build", lambda: tmp_path / "build")
    told: dict[str, Any] = {"blocks": 4, "valid_blocks": COUNTED, "ratios": [1.1, 1.3]}
    made = [filled(ContrastRecord, contrast="c", **told), filled(GuardRecord, **told)]
    blocks = [
        filled(BlockRecord, load="busy", block=block, valid=block in COUNTED, faults=[{}] * (block not in COUNTED))
        for block in range(4)
    ]
    lines = [
        filled(MatrixRow, workload=load, comparison="c", **row)
        for load, row in (("busy", RATIOS), ("calm", RATIOS), ("busy", {**NONE, "verdict": "not run"}))
    ]
    composed = [
        filled(CompositionRecord, load="busy", blocks=4, valid_blocks=COUNTED, rhos=[0.9, 0.8]),
        filled(CompositionRecord, **VOID | {"load": "void", "valid_blocks": [2]}),
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
    wanted = [("contrast", None), ("guard", "x"), ("matrix_row", "busy")]
    assert rows == [
        ("composition", "busy", 1, 0.9),
        ("composition", "busy", 3, 0.8),
        *((*whose, *pair) for whose in wanted for pair in ((1, 1.1), (3, 1.3))),
        ("matrix_row", "calm", 0, 1.1),  # of a matrix that tells of no blocks
        ("matrix_row", "calm", 1, 1.3),
    ]
    assert counted_blocks(directory) == {"contrast m c: median": COUNTED, "matrix_row busy m c: median": COUNTED}
