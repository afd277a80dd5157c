"""How an audit compares two sets of records, and what it counts without the code that it checks."""

import subprocess
import sys
from pathlib import Path

from kassay import paths
from kassay.audit import compare, files, recount
from tests.audit.fabricated import rewrite


def test_values_are_compared_to_the_bit_but_where_a_tolerance_is_stated() -> None:
    gate = {"schema": "kassay.gate/2", "upper": 0.1, "reason": "at most 0.1", "n": 3, "verdict": "pass"}
    near = gate | {"upper": 0.1 + 1e-15, "reason": f"at most {0.1 + 1e-15}"}
    told = compare.records("x", [gate], [near])
    assert (told.differences, told.loose) == ([], 2)
    for change in (
        {"upper": 0.1 + 1e-7},
        {"reason": "at least 0.1"},
        {"n": 3.0},
        {"verdict": "fails"},
        {"upper": None},
    ):
        assert compare.records("x", [gate], [gate | change]).differences, change
    exact = {"schema": "kassay.contrast/2", "p": 0.1}
    assert compare.records("x", [exact], [exact | {"p": 0.1 + 1e-15}]).differences
    assert not compare.same(0.0, -0.0) and compare.same(0.1, 0.1) and not compare.same(1, True)
    first, second = exact | {"candidate": "a"}, exact | {"candidate": "b"}
    assert [d.field for d in compare.records("x", [first, second], [second, first]).differences] == ["order"]
    assert [d.field for d in compare.records("x", [first, first], [first]).differences] == ["presence"]


def test_the_recount_shares_no_code_with_what_it_checks() -> None:
    program = "import sys, kassay.audit.recount; print(sorted(n for n in sys.modules if n.startswith('kassay.stats')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=paths.ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_the_recount_knows_published_bounds() -> None:
    assert abs(recount.tail(17, 1319, 0.01927) / 0.05 - 1) < 3e-3  # 1.927 %
    assert abs(recount.score(3, 7, 1319, -0.011131335) - 2.497705) < 1e-4
    assert abs(recount.score(19, 17, 1319, -0.010629534) - 2.497705) < 1e-4


def test_an_answer_that_its_text_does_not_give_is_found(run_dir: Path) -> None:
    path = run_dir / "stages" / "quality.robust" / paths.RECORDS
    rewrite(path, lambda bodies: [bodies[0] | {"outcome": "correct"}, bodies[1] | {"parsed": "9"}, *bodies[2:]])
    told = [d.line() for d in recount.run(files.load(run_dir))[1] if d.stage == "quality.robust"]
    assert told[0].endswith("answer retrieval-000 under native: correct: recorded true, derived false")
    assert any("answer retrieval-001 under native: parsed: recorded 9, derived 7" in line for line in told)
