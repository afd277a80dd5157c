"""The benchmark measures what it says: which stages ran in each phase, for kassay on shapes of a few stages."""

from pathlib import Path

import pytest

from benchmarks import row
from benchmarks.bar import missed
from benchmarks.kassay_tool import kassay
from benchmarks.shape import Shape, chain, diamonds, fan
from benchmarks.table import markdown


@pytest.mark.parametrize(("shape", "after_leaf"), [(fan(3), 1), (chain(3), 1), (diamonds(1, 2), 2)])
def test_what_runs_in_each_phase(tmp_path: Path, shape: Shape, after_leaf: int) -> None:
    rows = list(row.rows_of(kassay(tmp_path / "kassay"), shape, 0, tmp_path))
    assert [one.phase for one in rows] == list(row.PHASES)
    assert [one.fault for one in rows] == [""] * len(rows)
    ran = {one.phase: one.ran for one in rows}
    assert ran == {"cold": shape.count(), "noop": 0, "again": 0, "fresh": 0, "plan": 0, "leaf": after_leaf}
    assert all(one.wall_s > 0 and one.driver_bytes > 0 for one in rows)
    assert any("Bars" in line for line in markdown(rows))
    assert missed(rows), "what was not measured is no bar that is met"
