"""The composed plan is taken from its file only while everything that it is composed of is the same."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kassay import cache, paths, planned
from kassay.words import Given
from tests.commandline import kassay

NOTHING = Given(symbols={}, arguments={}, overrides="")


@pytest.fixture
def composed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """How often the long way was gone, in a tree that is configured."""
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    monkeypatch.setattr(paths, "ROOT", tree)
    gone: list[str] = []
    real = planned.composed

    def counted(text: str) -> planned.Planned:
        gone.append(text)
        return real(text)

    monkeypatch.setattr(planned, "composed", counted)
    yield gone


def test_the_second_plan_is_the_first_and_is_not_composed(composed: list[str]) -> None:
    first, second = planned.planned(NOTHING), planned.planned(NOTHING)
    assert composed == [""]
    assert second == first and second.plan.hash() == first.plan.hash()
    assert second.settings["TIMING_BLOCKS"].value == first.settings["TIMING_BLOCKS"].value


def test_every_ingredient_counts(composed: list[str], tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned.planned(NOTHING)
    workflow = "workflows/decode"
    edited = [f"{workflow}/workflow.yaml", f"{workflow}/Kconfig", "Kconfig", "defconfigs/decode-cpu", ".config"]
    for count, name in enumerate(edited, start=2):
        with (tree / name).open("a") as stream:
            stream.write("# another comment\n")
        planned.planned(NOTHING)
        assert len(composed) == count, name
    planned.planned(Given(symbols={}, arguments={}, overrides="study.alpha=0.01"))
    (tree / "stages" / "more.py").touch()
    planned.planned(NOTHING)
    monkeypatch.setattr(planned, "libraries", lambda: ["another-1.0.dist-info"])
    planned.planned(NOTHING)
    assert len(composed) == len(edited) + 4


def test_a_file_of_the_tree_that_is_gone_is_told_before_anything_runs(composed: list[str], tree: Path) -> None:
    planned.planned(NOTHING)
    (tree / "data").unlink()
    with pytest.raises(Exception, match="does not exist in the project"):
        planned.planned(NOTHING)


@pytest.mark.parametrize("cut", [0, 1, 64, 65, 200, -1])
def test_a_cut_file_is_composed_again(composed: list[str], tree: Path, cut: int) -> None:
    planned.planned(NOTHING)
    (file,) = (tree / "build" / "plans").glob("*.json")
    whole = file.read_bytes()
    file.write_bytes(whole[:cut])
    planned.planned(NOTHING)
    assert len(composed) == 2 and file.read_bytes() == whole


def test_only_so_many_plans_are_kept(composed: list[str], tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "KEPT_PLANS", 2)
    for alpha in ("0.01", "0.02", "0.03"):
        planned.planned(Given(symbols={}, arguments={}, overrides=f"study.alpha={alpha}"))
    assert len(list((tree / "build" / "plans").iterdir())) == 2


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache.write(tmp_path / "file" / "below.json", {})
    assert cache.read(tmp_path / "file" / "below.json") is None
    assert cache.read(tmp_path) is None


def test_a_run_with_nothing_to_do_imports_neither_hydra_nor_rich_nor_kconfiglib(tree: Path) -> None:
    entry = "workflows/decode/workflow.yaml"
    (tree / entry).write_text(
        "defaults:\n  - study: ???\n  - fill: ???\n  - models: ???\n  - stack: ???\n  - _self_\n"
        "stages:\n  a: {argv: ['true'], resources: {cpus: 1, memory_gib: 0.1}}\n"
    )
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    assert kassay(tree, "run").returncode == 0
    script = (
        "import sys; from kassay import cli; sys.argv = ['kassay', 'run']; code = cli.main()\n"
        "heavy = set('hydra omegaconf yaml kconfiglib rich numpy git filelock importlib.metadata'.split())\n"
        "assert code == 0 and not heavy & set(sys.modules), (code, heavy & set(sys.modules))\n"
    )
    (tree / "idle.py").write_text(script)
    done = subprocess.run(
        [*python(), str(tree / "idle.py")], cwd=tree, env={"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "nothing to do: all 1 stage are up to date" in done.stderr


def python() -> list[str]:
    """This interpreter."""
    import sys

    return [sys.executable]


def test_what_is_kept_says_what_it_is(composed: list[str], tree: Path) -> None:
    planned.planned(NOTHING)
    (file,) = (tree / "build" / "plans").glob("*.json")
    told = json.loads(file.read_bytes().partition(b"\n")[2])
    assert set(told) == {"plan", "settings", "overrides"} and told["plan"]["workflow"] == "decode"
