"""Groups of Hydra that several workflows share, and the pins of stacks that must not drift apart."""

from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from kassay import paths
from kassay.config import compose, groups
from kassay.config.setting import Setting
from kassay.errors import ConfigError

YAML = "defaults:\n  - stack: ???\n  - size: ???\n  - _self_\nstages: {}\nasked: ${stack.modules}\n"
OWN_PINS = {"worker", "vllm", "fusion"}  # workflows whose stacks are those of a study or of a release, not ours


def settings(**given: str) -> dict[str, Setting]:
    """Settings as Kconfig would have them."""
    made = {}
    for name, value in given.items():
        made[name] = Setting(value=value, origin="default", where="")
    return made


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    """A workflow in a tree with an awkward name, with a group of its own and one that its tree shares."""
    tree = tmp_path / "it's a tree, no. 2"
    folder = tree / "workflows" / "mine"
    for group in (folder / "size", tree / "workflows" / groups.COMMON / "stack"):
        group.mkdir(parents=True)
    (folder / "workflow.yaml").write_text(YAML)
    (folder / "size" / "small.yaml").write_text("tokens: 3\n")
    (tree / "workflows" / groups.COMMON / "stack" / "near.yaml").write_text("modules: [near]\n")
    return folder


def test_a_group_that_defaults_name_is_found_in_the_shared_folder(workflow: Path) -> None:
    found = groups.folders(workflow)
    assert {name: folder.parent.name for name, folder in found.items()} == {"size": "mine", "stack": groups.COMMON}
    made = compose.compose(workflow, settings(STACK="near", SIZE="small"), [])
    assert (made["asked"], made["size"]["tokens"]) == (["near"], 3)


def test_ours_is_taken_where_the_tree_shares_none_and_a_folder_beside_the_workflow_always(workflow: Path) -> None:
    (workflow.parent / groups.COMMON / "stack" / "near.yaml").unlink()
    (workflow.parent / groups.COMMON / "stack").rmdir()
    made = compose.compose(workflow, settings(STACK="cpu", SIZE="small"), [])
    assert "torch" in made["asked"]
    (workflow / "stack").mkdir()
    (workflow / "stack" / "cpu.yaml").write_text("modules: [own]\n")
    assert compose.compose(workflow, settings(STACK="cpu", SIZE="small"), [])["asked"] == ["own"]


def test_mistakes_name_the_shared_file(workflow: Path) -> None:
    with pytest.raises(ConfigError, match=r"common/stack: `STACK` is `far`, allowed are near"):
        compose.compose(workflow, settings(STACK="far", SIZE="small"), [])
    shared = workflow.parent / groups.COMMON / "stack" / "near.yaml"
    shared.write_text("# one\nmodules: ???\n")
    with pytest.raises(ConfigError, match=r"common/stack/near\.yaml:2: `stack\.modules`"):
        compose.compose(workflow, settings(STACK="near", SIZE="small"), [])


def test_the_stacks_of_our_own_workflows_pin_the_same_versions() -> None:
    """torch.yaml and triton.yaml differ from cpu.yaml in what they have, never in the version of what they share."""
    pins: dict[str, dict[str, str]] = defaultdict(dict)
    for file in sorted((paths.ROOT / "workflows").glob("*/stack/*.yaml")):
        if file.parent.parent.name in OWN_PINS:
            continue
        for requirement in yaml.safe_load(file.read_text())["requirements"]:
            name, _, version = requirement.partition("==")
            pins[name][f"{file.parent.parent.name}/{file.stem}"] = version
    assert {"common/cpu", "reference/torch", "native/triton"} <= pins["torch"].keys()
    drifted = {name: found for name, found in pins.items() if len(set(found.values())) > 1}
    assert not drifted and all(all(found.values()) for found in pins.values())
