"""Every shipped profile loads strictly, alone and with every fragment, and can be planned; no knob is dead."""

from pathlib import Path

import pytest

from kassay import paths, plan
from kassay.config import compose, explain, kconfig, profiles
from kassay.config.tree import tree
from kassay.errors import ConfigError, KassayError

PROFILES = list(profiles.profiles())
FRAGMENTS = list(profiles.fragments())
NAMES = PROFILES + [f"{profile}+{fragment}" for profile in PROFILES for fragment in FRAGMENTS]


def planned(name: str, config: Path, overrides: list[str]) -> plan.Plan:
    """The plan of a profile."""
    kconfig.load_profile(name, {}, config)
    settings = kconfig.load(config)
    workflow = str(settings["WORKFLOW"].value)
    composed = compose.compose(paths.place(f"{paths.WORKFLOWS}/{workflow}"), settings, overrides)
    return plan.build(name, workflow, composed)


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


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("study.alpha=low", "`study.alpha` is a float in the files, an override made it `low`, which is a string"),
        ("study.retrieval.items=many", "`study.retrieval.items` is an int in the files"),
        ("study.retrieval.items=1.5", "which is a float"),
        ("study.recipes=native", "`study.recipes` is a list in the files"),
        ("stages.timing.resources.exclusive=1", "`stages.timing.resources.exclusive` is a bool in the files"),
        ("study.alpha=nan", "`study.alpha` holds a number that is not finite"),
    ],
)
def test_an_override_of_another_type_is_an_error(override: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(KassayError) as caught:
        planned("decode-cpu", tmp_path / ".config", [override])
    assert said in str(caught.value) and "workflow" in str(caught.value)


def test_an_int_for_a_float_and_new_keys_are_no_mistake(tmp_path: Path) -> None:
    made = planned("decode-cpu", tmp_path / ".config", ["study.alpha=1", "+study.more=x", "study=smoke"])
    assert (made.config["study"]["alpha"], made.config["study"]["more"], made.config["study"]["name"]) == (
        1,
        "x",
        "smoke",
    )


@pytest.mark.parametrize("ref", ["7315208644e3", "0008812", "1e10", "y", "null", "4419027", "café"])
def test_a_symbol_reaches_yaml_in_its_own_type(ref: str, tmp_path: Path) -> None:
    settings = {
        name: kconfig.Setting(value=value, origin="user", where="")
        for name, value in {"REF": ref, "N": 16, "B": True}.items()
    }
    (tmp_path / "workflow.yaml").write_text('ref: ${kconfig:REF}\nn: "${kconfig:N}"\nb: ${kconfig:B}\n')
    assert compose.compose(tmp_path, settings, []) == {"ref": ref, "n": 16, "b": True}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "is not YAML"),
        ("a: ${kconfig:NOPE}", "no Kconfig symbol `NOPE`"),
        ("a: ???", "a"),
        ("a: ${nowhere}", "nowhere"),
        (None, "workflow"),
    ],
)
def test_a_broken_workflow_file_is_one_message(text: str | None, said: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "workflow.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        compose.compose(tmp_path, {}, [])
    assert said in str(caught.value) and tmp_path.name in str(caught.value)


def test_no_dead_knobs_and_no_unanswered_references() -> None:
    with tree() as kconf:
        assert explain.unanswered(kconf) == []
        assert explain.unread(kconf) == []
