"""The ready files for CI and systemd are well formed and call only make; the baselines in the tree can be read."""

import configparser
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kassay import paths
from kassay.errors import ConfigError
from kassay.nightly import baseline
from kassay.nightly.rule import KEYS, WORD
from tests.nightly.conftest import Nights

FILES = paths.ROOT / "scripts" / "nightly"


def commands(value: Any) -> list[str]:
    """Every command line in a parsed workflow file."""
    if isinstance(value, list):
        return [line for one in value for line in commands(one)]
    if not isinstance(value, dict):
        return []
    own = [value[key] for key in ("run", "script", "before_script", "after_script") if key in value]
    lines = [line for one in own for line in (one if isinstance(one, list) else [one])]
    return lines + [line for one in value.values() for line in commands(one)]


@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml"])
def test_a_workflow_file_is_yaml_and_calls_make_only(name: str) -> None:
    body = yaml.safe_load((FILES / name).read_text())
    assert commands(body) == ["make nightly"]


def test_the_timer_and_its_service_are_units() -> None:
    found = {path.suffix: path for path in FILES.glob("kassay-nightly@.*")}
    assert set(found) == {".service", ".timer"}
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(found[".service"])
    assert unit["Service"]["ExecStart"] == "/usr/bin/env make nightly" and unit["Service"]["Type"] == "oneshot"
    unit.read(found[".timer"])
    assert unit["Timer"]["OnCalendar"] and unit["Install"]["WantedBy"] == "timers.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_systemd_takes_them(tmp_path: Path) -> None:
    for path in FILES.glob("kassay-nightly@.*"):
        shutil.copy(path, tmp_path / path.name.replace("@.", "@smoke."))
    units = sorted(str(path) for path in tmp_path.iterdir())
    done = subprocess.run(["systemd-analyze", "verify", "--user", *units], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "kassay-nightly" in line]
    assert not complaints, done.stderr


def test_the_baselines_of_the_tree_can_be_read() -> None:
    found = sorted((paths.ROOT / baseline.FOLDER).glob("*.json"))
    assert "published.json" in [path.name for path in found]
    for path in found:
        held = baseline.load(path)
        assert held is not None and baseline.place(held.subject.profile, None) == path
        assert held.subject.host is None, "a baseline of one machine is kept on that machine"


def test_everything_that_is_wrong_in_a_baseline_is_told_at_once(nights: Nights) -> None:
    nights.go()
    nights.accept()
    good = nights.baseline.read_bytes()

    def broken(body: dict[str, Any]) -> None:
        body["alpha"] = 2
        body["rules"]["mine"] = {**{key: vars(WORD)[key] for key in KEYS}, "why": ""}
        body["metrics"]["measure: tps"]["rule"] = "yours"
        body["metrics"]["count: acc"]["value"] = None
        body["metrics"]["contrast m a / b: median"]["pairs"] = {"0": 1, "1": 0}

    nights.edit(broken)
    with pytest.raises(ConfigError) as told:
        nights.go()
    said = [message.partition("toy.json: ")[2] for message in told.value.messages]
    assert said[:2] == ["`alpha` is `2`, allowed is a number strictly between 0 and 1", said[1]]
    assert said[1].startswith("rule `mine`: `why` is empty")
    assert {one.partition(":")[0] for one in said[2:]} == {
        "metric `measure",
        "metric `count",
        "metric `contrast m a / b",
    }
    for change in (b"", b"[]", b"{}", b'{"schema": "kassay.baseline/2"}', good.replace(b'"metrics"', b'"metric"')):
        nights.baseline.write_bytes(change)
        nights.commit()
        with pytest.raises(ConfigError):
            nights.go()
    assert len(nights.names) == 1, "no night was begun"
