"""A small project under git whose one profile is run night after night, by the verb that make calls."""

import argparse
import datetime
import itertools
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kassay import paths, rundir
from kassay.nightly import night
from kassay.nightly import nights as marks
from kassay.words import Given
from tests.conftest import Project

HOME = paths.ROOT
KCONFIG = """choice WORKFLOW
config WORKFLOW_TOY
	bool "toy"
endchoice
config WORKFLOW
	default "toy" if WORKFLOW_TOY
"""
YAML = """stages:
  measure: {program: measure, measures: host, resources: {cpus: 1, memory_gib: 0.1}}
  count: {program: count, inputs: {measured: measure.records}, resources: {cpus: 1, memory_gib: 0.1}}
"""
MEASURE = """
    from dataclasses import fields
    from kassay.kinds.verdict import ContrastRecord
    ratios = [SPEED * ratio for ratio in (1.20, 1.22, 1.19, 1.25, 1.21, 1.23, 1.18, 1.24)]
    told = {"model": "m", "contrast": "a / b", "candidate": "a", "control": "b", "verdict": "gain confirmed"}
    told |= {"ratios": ratios, "valid_blocks": list(range(8)), "median": sorted(ratios)[4], "reason": "of this test"}
    told |= {"blocks": 8, "needed_blocks": 8, "lower": min(ratios), "upper": max(ratios), "wins": 8, "p": 1 / 256}
    told |= {"holm_p": 1 / 256, "alpha": 0.05, "screen_ratio": 0.0, "certificate": "pass", "certificates_sha256": "x"}
    stage.append(ContrastRecord(**dict.fromkeys(field.name for field in fields(ContrastRecord)) | told))
    return {"tps": 100.0 * SPEED}
"""
COUNT = '    return {"failed": 0, "acc": 0.43}'


class Nights:
    """The project and its nights."""

    def __init__(self, project: Project, printed: Callable[[], str]) -> None:
        self.root, self.project, self.printed = project.root, project, printed
        self.folder = project.root / "results" / "nightly"
        self.baseline = project.root / "baselines" / "toy.json"

    def write(self, speed: float = 1.0, count: str = COUNT) -> None:
        """The two stage programs, committed."""
        self.project.program("measure", MEASURE.replace("SPEED", repr(speed)))
        self.project.program("count", count)
        self.commit()

    def commit(self) -> None:
        """Commit whatever is there."""
        for words in (["add", "-A"], ["commit", "-qm", "as it is", "--allow-empty"]):
            subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=n@n", *words], cwd=self.root, check=True)

    def go(self, run: str | None = None, **symbols: str) -> tuple[int, list[str]]:
        """A night, or the verdict on a run; exit code and printed lines."""
        self.printed()
        given = Given(symbols={"PROFILE": "toy", **symbols}, arguments={}, overrides="")
        code = night.do_nightly(argparse.Namespace(run=run, baseline=None), given)
        return code, self.printed().splitlines()

    def accept(self, reason: str = "of this test", run: str = "nightly/latest/latest") -> None:
        """Accept a run, and commit that."""
        night.do_baseline(argparse.Namespace(run=run, reason=reason, baseline=None), None)  # type: ignore[arg-type]
        self.commit()

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the baseline's file, and commit that."""
        body = json.loads(self.baseline.read_bytes())
        change(body)
        self.baseline.write_text(json.dumps(body))
        self.commit()

    @property
    def names(self) -> list[str]:
        """The folders of nights."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir() and not path.is_symlink())

    @property
    def latest(self) -> Path:
        """The last night."""
        return (self.folder / "latest").resolve()


@pytest.fixture
def nights(project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Nights:
    """The project, committed, before its first night; seconds go by as often as somebody looks at the clock."""
    root = project.root
    monkeypatch.delenv("PROFILE", raising=False)
    began = datetime.datetime.now(datetime.UTC)
    seconds = itertools.count()

    def clock() -> str:
        now = began + datetime.timedelta(seconds=next(seconds))
        return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    for module in (rundir, marks):
        monkeypatch.setattr(module, "utc_now", clock)
    shutil.copy(HOME / "Kconfig", root)
    for name, text in {
        "workflows/toy/Kconfig": KCONFIG,
        "workflows/toy/workflow.yaml": YAML,
        "defconfigs/toy": "# purpose: a toy; hardware: any; time: a second\nCONFIG_WORKFLOW_TOY=y\n",
        ".gitignore": "/results/\n/build/\n__pycache__/\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    kconfig = (root / "Kconfig").read_text()
    (root / "Kconfig").write_text(kconfig.replace("\tdefault WORKFLOW_DECODE\n", ""))
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    made = Nights(project, lambda: capsys.readouterr().out)
    made.write()
    return made
