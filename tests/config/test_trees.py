"""Trees of KASSAY_PATH: their workflows, stages, profiles and fragments take part; a name means one thing."""

import gc
import json
import os
import shutil
import warnings
from pathlib import Path

import pytest

from kassay import identity, loaded, paths, plan
from kassay.config import compose, kconfig, profiles
from kassay.errors import ConfigError, KassayError

KCONFIG = """choice WORKFLOW
config WORKFLOW_MINE
	bool "mine"
endchoice
config WORKFLOW
	default "mine" if WORKFLOW_MINE
config MINE_SIZE
	int "size"
	depends on WORKFLOW_MINE
	range 1 9
	default 3
"""
YAML = """stages:
  one:
    program: mine
    inputs: {data: "tree:extra/data.txt"}
    params: {size: "${kconfig:MINE_SIZE}"}
    resources: {cpus: 1, memory_gib: 0.1}
"""


def make_tree(root: Path) -> Path:
    """A tree with one of everything."""
    for folder in ("workflows/mine", "stages", "defconfigs/fragments", "extra"):
        (root / folder).mkdir(parents=True)
    (root / "workflows/mine/Kconfig").write_text(KCONFIG)
    (root / "workflows/mine/workflow.yaml").write_text(YAML)
    (root / "stages/mine.py").write_text("from kassay.stage import main\nmain(lambda stage: {})\n")
    (root / "extra/data.txt").write_text("data\n")
    (root / "defconfigs/mine").write_text("# purpose: mine; hardware: any; time: 1 s\nCONFIG_WORKFLOW_MINE=y\n")
    (root / "defconfigs/fragments/big.config").write_text("CONFIG_MINE_SIZE=9\n")
    return root


@pytest.fixture
def mine(ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of one's own that KASSAY_PATH names."""
    made = make_tree(tmp_path / "my tree")
    monkeypatch.setenv(paths.OUTSIDE, str(made))
    return made


def planned(config: Path, name: str) -> plan.Plan:
    """The plan of a profile."""
    kconfig.load_profile(name, {}, config)
    settings = kconfig.load(config)
    folder = paths.place(f"{paths.WORKFLOWS}/{settings['WORKFLOW'].value}")
    return plan.build("mine", str(settings["WORKFLOW"].value), compose.compose(folder, settings, []))


def test_a_tree_outside_brings_workflow_stage_profile_and_fragment(ours: Path, mine: Path) -> None:
    made = planned(ours / ".config", "mine+big")
    assert [(stage.program, stage.params) for stage in made.stages] == [("mine", {"size": 9})]
    assert str(mine) not in json.dumps(made.to_json()), "no path of a machine in a plan"
    assert paths.program("mine") == mine / "stages/mine.py"
    assert identity.tree_input("tree:extra/data.txt").path == mine / "extra/data.txt"
    assert {"mine", "decode-cpu"} <= profiles.profiles().keys() and {"big", "smoke"} <= profiles.fragments().keys()
    settings = kconfig.load(ours / ".config")
    assert settings["MINE_SIZE"].origin == "fragment" and settings["MINE_SIZE"].where.endswith("big.config:1")


def test_our_own_profiles_mean_the_same_with_a_tree_outside(
    ours: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_it = planned(ours / ".config", "decode-cpu").hash()
    monkeypatch.delenv(paths.OUTSIDE)
    assert planned(ours / ".config", "decode-cpu").hash() == with_it


def test_without_the_path_its_config_is_an_error_that_names_the_way_out(
    ours: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(ours / ".config", "mine")
    before = (ours / ".config").read_bytes()
    monkeypatch.delenv(paths.OUTSIDE)
    with pytest.raises(ConfigError, match=r"unknown symbol `WORKFLOW_MINE`(.|\n)*need KASSAY_PATH"):
        kconfig.load(ours / ".config")
    assert (ours / ".config").read_bytes() == before


@pytest.mark.parametrize(
    ("relative", "said"),
    [
        ("stages/freeze.py", None),  # a program of ours that nothing here names: no harm
        ("stages/mine.py", "`stages/mine.py` is in two trees"),
        ("defconfigs/mine", "profile `mine` is in two trees"),
        ("defconfigs/fragments/big.config", "fragment `big` is in two trees"),
        ("extra/data.txt", "`extra/data.txt` is in two trees"),
        ("workflows/mine/workflow.yaml", "`workflows/mine` is in two trees"),
    ],
)
def test_a_name_in_two_trees_is_an_error_not_a_pick(
    ours: Path, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: str, said: str | None
) -> None:
    other = tmp_path / "other"
    (other / "stages").mkdir(parents=True)
    (other / relative).parent.mkdir(parents=True, exist_ok=True)
    (other / relative).write_text("# purpose: other\n")
    monkeypatch.setenv(paths.OUTSIDE, f"{mine}{os.pathsep}{other}")
    if said is None:
        assert planned(ours / ".config", "mine+big").stages
        return
    with pytest.raises(KassayError) as caught:
        planned(ours / ".config", "mine+big")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("/nowhere", "holds none of workflows, stages, defconfigs"),
        ("{tmp}/a$b", "holds '$'"),
        ("{tmp}/a*", "holds '*'"),
    ],
)
def test_an_entry_that_is_no_tree_is_an_error(
    ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, said: str
) -> None:
    path = entry.format(tmp=tmp_path)
    if path.startswith(str(tmp_path)):
        (Path(path) / "stages").mkdir(parents=True)
    monkeypatch.setenv(paths.OUTSIDE, path)
    with pytest.raises(ConfigError) as caught:
        kconfig.load_profile("decode-cpu", {}, ours / ".config")
    assert said in str(caught.value)


def test_an_empty_path_and_our_own_tree_twice_change_nothing(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", os.pathsep, f"{ours}{os.pathsep}{ours}"):
        monkeypatch.setenv(paths.OUTSIDE, value)
        assert paths.trees() == [ours]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("config BROKEN\n", "BROKEN"),
        ('config X\n\tint "x"\n\tdefault 3\n\tdepends on NOWHERE\n', "NOWHERE"),
        ("config\n", "workflows/mine/Kconfig:1"),
        ('config X\n\tint "x"\n\trange 1 5\n\tdefault 9\n', "X"),
    ],
)
def test_a_fault_of_a_kconfig_file_is_one_clear_error(ours: Path, mine: Path, text: str, said: str) -> None:
    (mine / "workflows/mine/Kconfig").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # kconfiglib leaves a broken file open
        with pytest.raises(ConfigError) as caught:
            kconfig.load_profile("decode-cpu", {}, ours / ".config")
        message = str(caught.value)
        del caught
        gc.collect()
    assert said in message and not (ours / ".config").exists()


def test_the_code_of_both_trees_counts_for_reuse(ours: Path, mine: Path, tmp_path: Path) -> None:
    import sys
    import types

    module = types.ModuleType("mine_stage")
    module.__file__ = str(mine / "stages/mine.py")
    sys.modules["mine_stage"] = module
    try:
        assert loaded.code(paths.trees())["stages/mine.py"] == mine / "stages/mine.py"
    finally:
        del sys.modules["mine_stage"]
    receipt = {"code_changed": [], "code": {"stages/mine.py": "0" * 64}}
    assert identity.changed_code(receipt) == "code stages/mine.py changed"
    shutil.rmtree(mine / "stages")
    assert identity.changed_code(receipt) == "code stages/mine.py is gone"
