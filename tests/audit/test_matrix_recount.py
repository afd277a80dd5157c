"""A matrix and a composition counted again from raw records: clean runs agree, every edit is found where it stands."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kassay import audit, paths
from kassay.audit import compare, files, recount
from kassay.record import read_lines
from tests import matrix_run
from tests.audit.fabricated import reseal, rewrite

Bodies = list[dict[str, Any]]
JUDGED = ("matrix", "composition")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as it was made; tests only read it."""
    return matrix_run.fabricate(tmp_path_factory.mktemp("results"))


@pytest.fixture
def run_dir(clean: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(clean, tmp_path / clean.name))


def counted(run_dir: Path) -> list[str]:
    """What the recounts find: stage, record and field."""
    audited, found = recount.run(files.load(run_dir))
    assert [one.stage for one in audited] == list(JUDGED)
    return [f"{one.stage}: {one.record}: {one.field}: {one.recorded} / {one.derived}" for one in found]


def body(run_dir: Path, stage: str, kind: str, **place: Any) -> dict[str, Any]:
    """The one record of a kind at a place."""
    lines = read_lines(run_dir / "stages" / stage / paths.RECORDS)
    own = [one for one in lines if one["schema"].startswith(f"kassay.{kind}/")]
    (found,) = [one for one in own if all(one[key] == value for key, value in place.items())]
    return found


def test_every_verdict_of_a_family_follows_from_its_raw_records(clean: Path) -> None:
    """The whole audit, in processes of its own: derived bit for bit, and counted by other code."""
    found = audit.audit(clean)
    assert found.exit_code == 0 and found.differences == () and found.open == ()
    lines = found.lines()
    assert [line.partition(" values")[0].rpartition(" ")[0] for line in lines] == [
        "matrix: rederived:",
        "composition: rederived:",
        "matrix: recounted:",
        "composition: recounted:",
    ]
    values = {one.stage: one.values for one in found.audited if one.how == "recounted"}
    assert values["matrix"] > 8 * 17 and values["composition"] > 2 * 15
    rows = [one for one in read_lines(clean / "stages" / "matrix" / paths.RECORDS) if "matrix_row" in one["schema"]]
    assert {(one["workload"], one["comparison"]): one["verdict"] for one in rows} == matrix_run.VERDICTS
    gain = body(clean, "matrix", "matrix_row", workload="alpha-b8", comparison="k16v8")
    assert (gain["wins"], gain["p"], gain["holm_p"], gain["family_size"]) == (8, 1 / 256, 10 / 256, 10)
    assert gain["as_expected"] is True and gain["median"] == pytest.approx(1.05)
    small = body(clean, "matrix", "matrix_row", workload="alpha-b32", comparison="k16v8")
    assert (small["wins"], len(small["ratios"]), small["holm_p"]) == (7, 7, 8 / 128)
    made = body(clean, "composition", "composition", load="alpha-b32")
    assert made["valid_blocks"] == [0, 1, 3, 4, 5, 6, 7] and made["median"] == pytest.approx(1.02 / (1.05 * 1.005))


def of(kind: str, change: Callable[[dict[str, Any]], dict[str, Any]], **place: Any) -> Callable[[Bodies], Bodies]:
    """Change the first record of a kind at a place."""

    def apply(bodies: Bodies) -> Bodies:
        at = next(
            index
            for index, one in enumerate(bodies)
            if one["schema"].startswith(f"kassay.{kind}/") and all(one[key] == value for key, value in place.items())
        )
        return [*bodies[:at], bodies[at] | change(bodies[at]), *bodies[at + 1 :]]

    return apply


B8 = {"workload": "alpha-b8", "comparison": "k16v8"}
ROW = "row k16v8 at alpha-b8"
BETA = {"workload": "beta-b8", "comparison": "k16v8"}
EDITS: list[tuple[str, Callable[[Bodies], Bodies], str]] = [
    ("matrix", of("matrix_row", lambda one: {"verdict": "no confirmed gain"}, **B8), f"{ROW}: verdict"),
    ("matrix", of("matrix_row", lambda one: {"as_expected": False}, **B8), f"{ROW}: as_expected"),
    ("matrix", of("matrix_row", lambda one: {"ratios": [1.3, *one["ratios"][1:]]}, **B8), f"{ROW}: ratios"),
    ("matrix", of("matrix_row", lambda one: {"median": None, "nonfinite": ["median"]}, **B8), f"{ROW}: median"),
    ("matrix", of("matrix_row", lambda one: {"wins": 7}, **B8), f"{ROW}: wins"),
    ("matrix", of("matrix_row", lambda one: {"p": 1 / 512}, **B8), f"{ROW}: p"),
    ("matrix", of("matrix_row", lambda one: {"holm_p": 8 / 256}, **B8), f"{ROW}: holm_p"),
    ("matrix", of("matrix_row", lambda one: {"verdicts": ["pass", "fails"]}, **B8), f"{ROW}: verdicts"),
    ("matrix", of("matrix_row", lambda one: {"verdict": "gain confirmed"}, **BETA), "row k16v8 at beta-b8: verdict"),
    ("matrix", of("matrix_row", lambda one: {"workload": "alpha-b8"}, workload="gamma-b8"), "rows: presence"),
    ("matrix", lambda bodies: bodies[:-1], "rows: presence"),
    (
        "matrix",
        of("block", lambda one: {"valid": True, "faults": []}, block=2, load="alpha-b32"),
        "block 2 of alpha-b32: valid",
    ),
    (
        "matrix",
        of("block", lambda one: {"load": "alpha-b32", "block": 9}, load="alpha-b8"),
        "blocks of alpha-b8: presence",
    ),
    ("composition", of("composition", lambda one: {"median": 0.9}, load="alpha-b8"), "composition of alpha-b8: median"),
    ("composition", of("composition", lambda one: {"rhos": one["rhos"][1:]}, load="alpha-b8"), "alpha-b8: rhos"),
    ("composition", of("composition", lambda one: {"interval_class": "undecided"}), "interval_class"),
    ("composition", of("composition", lambda one: {"plain": "k8v8"}), "alpha-b8: plain"),
    (
        "composition",
        of("composition", lambda one: {"valid_blocks": list(range(8))}, load="alpha-b32"),
        "alpha-b32: valid_blocks",
    ),
    (
        "production",
        of("case_gate", lambda one: {"passed": 40, "verdict": "pass"}, model="gamma"),
        "at gamma-b8: verdicts",
    ),
    ("production", of("case_gate", lambda one: {"passed": 0}, model="alpha"), f"{ROW}: timed though"),
    ("production", of("case_gate", lambda one: {"cases": 0, "passed": 0}, model="alpha"), f"{ROW}: timed though"),
    (
        "panel",
        of("gate", lambda one: {"upper": 0.06}, model="alpha", candidate="k8v8"),
        "k8v8 at alpha-b8: timed though",
    ),
    ("panel", of("gate", lambda one: {"native_score": 0.4}, model="alpha", candidate="k16v8"), f"{ROW}: verdicts"),
    ("panel", lambda bodies: bodies[1:], f"{ROW}: verdicts"),
    (
        "timing.alpha-b8",
        of("timing_cell", lambda one: {"ended_ns": [9 * 10**9, 10**11]}, recipe="k16v8", block=3),
        f"{ROW}: wins",
    ),
    (
        "timing.alpha-b8",
        of("timing_cell", lambda one: {"preemptions": [0, 1]}, block=0, pilot=False),
        "block 0 of alpha-b8: valid",
    ),
    (
        "timing.alpha-b8",
        of("timing_cell", lambda one: {"recipe": "both"}, block=4, recipe="native"),
        "cells of alpha-b8: presence",
    ),
    ("timing.alpha-b8", of("timing_cell", lambda one: {"model": "beta"}, block=4), "cells of alpha-b8: alike"),
    (
        "timing.alpha-b8",
        of("timing_cell", lambda one: {"prompts_sha256": "other"}, block=4),
        "cells of alpha-b8: alike",
    ),
    (
        "timing.alpha-b32",
        of("gpu_state", lambda one: {"slowed_ns": {"power": 7, "thermal": 7}}, block=2, position=1, when="after"),
        "block 2 of alpha-b32: valid",
    ),
    (
        "timing.beta-b8",
        of("host_state", lambda one: {"busy_s": 1e9}, block=0, when="after", pilot=False),
        "block 0 of beta-b8: valid",
    ),
]


@pytest.mark.parametrize(("stage", "change", "said"), EDITS, ids=[f"{stage}-{said}" for stage, _, said in EDITS])
def test_an_edit_anywhere_is_found_in_the_rows_that_hang_on_it(
    run_dir: Path, stage: str, change: Callable[[Bodies], Bodies], said: str
) -> None:
    assert counted(run_dir) == []
    rewrite(run_dir / "stages" / stage / paths.RECORDS, change)
    assert any(said in one for one in counted(run_dir)), counted(run_dir)


def test_cells_that_are_of_no_load_are_a_difference_and_no_crash(run_dir: Path) -> None:
    """Every cell of a load says another one: nothing is left that its rows or its rho could come from."""

    def elsewhere(bodies: Bodies) -> Bodies:
        return [one | ({"load": "x"} if "timing_cell" in one["schema"] else {}) for one in bodies]

    rewrite(run_dir / "stages" / "timing.alpha-b8" / paths.RECORDS, elsewhere)
    told = counted(run_dir)
    assert any(one.startswith("matrix: cells of alpha-b8: presence") for one in told), told
    assert any(one.startswith("composition: cells of alpha-b8: presence") for one in told), told


def test_a_forger_of_raw_records_is_found_by_both(run_dir: Path) -> None:
    """Digests made to fit again: the capped block is said to have been calm."""
    calm = of("gpu_state", lambda one: {"slowed_ns": {"power": 7}}, block=1, position=1, when="after")
    rewrite(run_dir / "stages" / "timing.beta-b8" / paths.RECORDS, calm)
    reseal(run_dir)
    found = audit.audit(run_dir)
    lines = [one.line() for one in found.differences]
    assert found.exit_code == 3 and any("block 1 of beta-b8: valid" in line for line in lines)
    assert any(line.startswith("matrix: kassay.matrix_row") and "verdict" in line for line in lines), lines


def test_an_input_that_is_gone_is_no_agreement(run_dir: Path) -> None:
    (run_dir / "stages" / "timing.alpha-b8" / paths.RECORDS).unlink()
    assert any("content" in one and "matrix" in one for one in counted(run_dir))


def test_the_recount_of_a_matrix_shares_no_judgement() -> None:
    """Neither kassay.matrix nor kassay.stats nor kassay.validity is behind it."""
    told = compare.Compared(stage="matrix")
    assert told.values == 0
    for name in ("matrix", "composed", "blocks", "gates"):
        text = (paths.ROOT / "kassay" / "audit" / f"{name}.py").read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line.startswith(("from ", "import "))]
        assert not [line for line in lines if "kassay.stats" in line or "kassay.validity" in line]
        assert not [line for line in lines if "kassay.judging" in line or "kassay.matrix" in line]
