"""Every shipped profile loads strictly, alone and with every fragment, and can be planned; no knob is dead."""

from pathlib import Path

import pytest

from kassay import paths, plan
from kassay.config import compose, explain, kconfig, profiles
from kassay.config.setting import Setting, Value
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


def workflow_of(fragment: str) -> str:
    """The workflow that a fragment is for, as its head says; empty if it is for all."""
    return profiles.head_comment(profiles.fragments()[fragment][0]).get("workflow", "")


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_can_be_planned_and_round_trips(name: str, tmp_path: Path) -> None:
    profile, _, fragment = name.partition("+")
    if fragment and (only := workflow_of(fragment)) and only != planned(profile, tmp_path / ".config", []).workflow:
        with pytest.raises(ConfigError, match=rf"depends on `WORKFLOW_{only.upper()}`"):
            planned(name, tmp_path / ".config", [])
        return
    made = planned(name, tmp_path / ".config", [])
    assert made.stages[-1].program == "report"
    if made.workflow != "published":  # it has no stack: nothing to freeze
        assert len(made.stages) >= 4 and made.stages[0].program == "freeze"
    first = (tmp_path / ".config").read_bytes()
    assert planned(name, tmp_path / ".config", []).hash() == made.hash()
    assert (tmp_path / ".config").read_bytes() == first
    assert str(paths.ROOT) not in str(made.to_json()), "no path of this machine in a plan"


@pytest.mark.parametrize("profile", PROFILES)
def test_refs_of_the_command_line_beat_every_profile(profile: str, tmp_path: Path) -> None:
    """What the predecessor ignored in 18 of 18 cases."""
    config = tmp_path / ".config"
    plain = planned(profile, config, [])
    if plain.workflow != "worker":
        return
    given = {"VLLM_REF": "0008812", "VLLM_BRANCH": "", "FLASHINFER_REF": "1e10", "RESULTS": str(tmp_path / "r s")}
    kconfig.load_profile(profile, given, config)
    settings = kconfig.load(config)
    composed = compose.compose(paths.place(f"{paths.WORKFLOWS}/worker"), settings, [])
    sources = plan.build(profile, "worker", composed).stages[0].params["sources"]
    assert (sources["vllm"]["ref"], sources["flashinfer"]["ref"]) == ("0008812", "1e10")
    assert settings["RESULTS"].value == given["RESULTS"]
    assert {settings[name].origin for name in given if settings[name].value} == {"command line"}


def test_an_override_changes_the_plan_and_a_misspelt_one_is_an_error(tmp_path: Path) -> None:
    config = tmp_path / ".config"
    plain = planned("decode-cpu", config, [])
    assert planned("decode-cpu", config, ["study.alpha=0.01"]).hash() != plain.hash()
    with pytest.raises(ConfigError, match=r"SET: .*alhpa.*did you mean `study\.alpha`"):
        planned("decode-cpu", config, ["study.alhpa=0.01"])
    with pytest.raises(ConfigError, match="study"):
        planned("decode-cpu", config, ["study=nothing"])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("study.alpha=low", "decode/study/small.yaml:29: `study.alpha`: is `low`, allowed is a number or null"),
        ("study.endpoints.retrieval.items=many", "`study.endpoints.retrieval.items`: is `many`, allowed is a whole"),
        ("study.endpoints.retrieval.items=1.5", "is `1.5`, allowed is a whole number"),
        ("study.arms=native", "`study.arms`: is `native`, allowed is a mapping of names"),
        ("models.folder=3", "`models.folder` is a string in the files, an override made it `3`, which is an int"),
        ("stages.timing.resources.exclusive=1", "`stages.timing.resources.exclusive` is a bool in the files"),
        ("study.alpha=nan", "`study.alpha`: is nan, allowed is a finite number"),
    ],
)
def test_an_override_of_another_type_is_an_error(override: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(KassayError) as caught:
        planned("decode-cpu", tmp_path / ".config", [override])
    assert said in str(caught.value)


def test_an_int_for_a_float_and_new_keys_are_no_mistake(tmp_path: Path) -> None:
    given = ["study.timing.screen_ratio=2", "+models.more=x", "study=smoke"]
    made = planned("decode-cpu", tmp_path / ".config", given)
    study = made.config["study"]
    assert (study["timing"]["screen_ratio"], made.config["models"]["more"], study["name"]) == (2, "x", "smoke")


@pytest.mark.parametrize("ref", ["7315208644e3", "0008812", "1e10", "y", "null", "4419027", "café"])
def test_a_symbol_reaches_yaml_in_its_own_type(ref: str, tmp_path: Path) -> None:
    settings = {
        name: Setting(value=value, origin="user", where="") for name, value in {"REF": ref, "N": 16, "B": True}.items()
    }
    (tmp_path / "workflow.yaml").write_text('ref: ${kconfig:REF}\nn: "${kconfig:N}"\nb: ${kconfig:B}\n')
    assert compose.compose(tmp_path, settings, []) == {"ref": ref, "n": 16, "b": True}


FAULTS: list[tuple[str, str, list[str], list[str]]] = [  # workflow.yaml, study file, overrides, what is said
    ("a: [1", "x: 1", [], ["mine: a file is not YAML", 'in "mine/workflow.yaml", line 4']),
    ("a: 1\na: 2", "x: 1", [], ["found duplicate key a"]),
    ("a: 1", "x: !!python/name:os.system", [], ["could not determine a constructor"]),
    ("a: ${kconfig:NOPE}", "x: 1", [], ["mine/workflow.yaml:4: `a`: no Kconfig symbol `NOPE` answers"]),
    ("a: ${nowhere}", "x: 1", [], ["mine/workflow.yaml:4: `a`: Interpolation key 'nowhere' not found"]),
    ("a: {b: [1, '${study.y}']}", "x: 1", [], ["mine/workflow.yaml:4: `a.b[1]`: Interpolation key 'study.y'"]),
    ("a: ${study.x}", "w: 1\nx: ???", [], ["mine/study/small.yaml:2: `study.x`: has no value: `???` marks one"]),
    ("a: ${nowhere}", "x: ???\ny: ${gone}", [], ["`a`", "small.yaml:1: `study.x`", "small.yaml:2: `study.y`"]),
    ("a: ${oc.env:HOME}", "x: 1", [], ["mine/workflow.yaml:4: `a`: Unsupported interpolation type oc.env"]),
    ("a: 1", "exact: 1", ["study.exat=2"], ["SET: Could not override 'study.exat'; did you mean `study.exact`?"]),
    ("a: 1", "x: 1", ["study=nothing"], ["SET: In 'workflow': Could not find 'study/nothing'"]),
    ("a: 1", "x: 1", ["study.x"], ["SET: Error parsing override 'study.x'"]),
    ("a: 1", "x: 1", ["study.x=word"], ["`study.x` is an int in the files, an override made it `word`"]),
]


@pytest.mark.parametrize(("workflow", "study", "overrides", "said"), FAULTS)
def test_a_fault_of_the_files_or_of_an_override_is_told_with_file_line_and_key(
    workflow: str, study: str, overrides: list[str], said: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        compose.compose(made_workflow(tmp_path, workflow, study), {"STUDY": setting("small")}, overrides)
    assert all(text in str(caught.value) for text in said), str(caught.value)


def made_workflow(folder: Path, workflow: str, study: str) -> Path:
    """A workflow with one group."""
    (folder / "mine" / "study").mkdir(parents=True)
    (folder / "mine" / "workflow.yaml").write_text(f"defaults:\n  - study: ???\n  - _self_\n{workflow}\n")
    (folder / "mine" / "study" / "small.yaml").write_text(f"{study}\n")
    return folder / "mine"


def setting(value: Value) -> Setting:
    """A setting of the user."""
    return Setting(value=value, origin="user", where="")


def test_a_mandatory_value_may_come_from_an_override_and_the_others_keep_their_type(tmp_path: Path) -> None:
    folder = made_workflow(tmp_path, "a: ${study.x}", "x: ???\ny: 1")
    made = compose.compose(folder, {"STUDY": setting("small")}, ["study.x=3"])
    assert made == {"a": 3, "study": {"x": 3, "y": 1}}
    with pytest.raises(ConfigError, match=r"`study\.y` is an int in the files"):
        compose.compose(folder, {"STUDY": setting("small")}, ["study.x=3", "study.y=z"])


def test_a_group_without_a_symbol_or_a_file(tmp_path: Path) -> None:
    folder = made_workflow(tmp_path, "a: 1", "x: 1")
    with pytest.raises(ConfigError, match="no Kconfig symbol `STUDY` chooses a file of this group"):
        compose.compose(folder, {}, [])
    with pytest.raises(ConfigError, match="`STUDY` is `large`, allowed are small"):
        compose.compose(folder, {"STUDY": setting("large")}, [])
    (folder / "workflow.yaml").unlink()
    with pytest.raises(ConfigError, match=r"mine/workflow\.yaml"):
        compose.compose(folder, {"STUDY": setting("small")}, [])


def test_no_dead_knobs_and_no_unanswered_references() -> None:
    with tree() as kconf:
        assert explain.unanswered(kconf) == []
        assert explain.unread(kconf) == []
