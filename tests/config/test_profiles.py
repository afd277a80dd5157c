"""Every shipped profile loads strictly, alone and with every fragment, and can be planned; no knob is dead."""

import re
from pathlib import Path

import pytest

from kassay import paths, plan
from kassay.config import compose, kconfig
from kassay.errors import ConfigError

PROFILES = sorted(path.name for path in paths.DEFCONFIGS.iterdir() if path.is_file())
FRAGMENTS = sorted(path.stem for path in paths.FRAGMENTS.glob("*.config"))
NAMES = PROFILES + [f"{profile}+{fragment}" for profile in PROFILES for fragment in FRAGMENTS]


def planned(name: str, config: Path, overrides: list[str]) -> plan.Plan:
    """The plan of a profile."""
    kconfig.load_profile(name, {}, paths.ROOT, config)
    settings = kconfig.load(paths.ROOT, config)
    workflow = str(settings["WORKFLOW"].value)
    composed = compose.compose(paths.WORKFLOWS / workflow, settings, overrides)
    return plan.build(name, workflow, composed, paths.ROOT)


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_can_be_planned_and_round_trips(name: str, tmp_path: Path) -> None:
    made = planned(name, tmp_path / ".config", [])
    assert len(made.stages) >= 10
    first = (tmp_path / ".config").read_bytes()
    assert planned(name, tmp_path / ".config", []).hash() == made.hash()
    assert (tmp_path / ".config").read_bytes() == first
    assert str(paths.ROOT) not in str(made.to_json()), "no path of this machine in a plan"


def test_an_override_changes_the_plan_and_a_misspelt_one_is_an_error(tmp_path: Path) -> None:
    config = tmp_path / ".config"
    plain = planned("decode-cpu", config, [])
    assert planned("decode-cpu", config, ["study.alpha=0.01"]).hash() != plain.hash()
    with pytest.raises(ConfigError, match=r"workflow\.yaml: .*alhpa"):
        planned("decode-cpu", config, ["study.alhpa=0.01"])
    with pytest.raises(ConfigError, match="study"):
        planned("decode-cpu", config, ["study=nothing"])


def test_no_dead_knobs_and_no_unanswered_references() -> None:
    texts = [path.read_text() for path in paths.WORKFLOWS.rglob("*.yaml")]
    asked = {name for text in texts for name in re.findall(r"\$\{kconfig:(\w+)\}", text)}
    code = "\n".join(path.read_text() for path in (paths.ROOT / "kassay").rglob("*.py"))
    groups = {path.name.upper() for path in paths.WORKFLOWS.glob("*/*") if path.is_dir()}
    with kconfig.tree(paths.ROOT) as kconf:
        known = {symbol.name for symbol in kconf.unique_defined_syms}
        members = {symbol.name for choice in kconf.unique_choices for symbol in choice.syms}
    assert asked <= known, f"no symbol answers {asked - known}"
    read = asked | groups | members | {name for name in known if f'"{name}"' in code}
    assert known == read & known, f"nothing reads {sorted(known - read)}"
