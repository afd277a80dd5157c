"""Nights of a run: no baseline, accepted, clean, worse, missing, not finite, elsewhere, cancelled; and what is kept."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kassay.errors import (
    EXIT_CRASHED,
    EXIT_PASSED,
    EXIT_REJECTED,
    EXIT_UNMET,
    ConfigError,
    KassayError,
    RunError,
    SourceError,
)
from kassay.nightly import nights as marks
from kassay.running import INTERRUPTED
from tests.nightly.conftest import HOME, Nights


def test_first_without_a_baseline_then_accepted_clean_worse_and_restored(nights: Nights) -> None:
    code, said = nights.go()
    assert code == EXIT_UNMET and said[0].startswith("no baseline: ")
    assert "toy.json does not exist: nothing was compared; make baseline RUN=nightly/toy-" in said[0]
    (first,) = nights.names
    with pytest.raises(ConfigError, match="baseline needs REASON"):
        nights.accept(reason="  ")
    assert not nights.baseline.exists()
    nights.accept("the first night")
    body = json.loads(nights.baseline.read_bytes())
    commit = subprocess.run(["git", "rev-parse", "HEAD~1"], cwd=nights.root, capture_output=True, text=True, check=True)
    (entry,) = body["history"]
    assert (entry["reason"], entry["commit"], body["metrics"]["contrast m a / b: median"]["rule"]) == (
        "the first night",
        commit.stdout.strip(),
        "pairs",
    )

    code, said = nights.go(run=f"nightly/{first}/latest")
    assert code == EXIT_UNMET and said[0].endswith("is compared with itself")

    code, said = nights.go()
    assert (code, said[-1].split(":")[0]) == (EXIT_PASSED, "green (exit code 0)") and len(nights.names) == 2

    nights.write(speed=0.9)  # a planted regression: no block is as fast as it was
    code, said = nights.go()
    (line,) = [one for one in said if one.startswith("regressed: ")]
    assert code == EXIT_REJECTED and "contrast m a / b: median" in line and "lower in 8, Holm p 0.00391" in line
    assert "| contrast m a / b: median | regressed |" in (nights.latest / "nightly.md").read_text()
    suites = {suite.get("name"): suite for suite in ElementTree.parse(nights.latest / "junit.xml").getroot()}
    (compared,) = [suite for name, suite in suites.items() if name and name.endswith("against its baseline")]
    assert (compared.get("failures"), compared.get("errors")) == ("1", "0") and len(suites) == 3
    assert marks.read(nights.latest).exit_code == EXIT_REJECTED

    nights.accept("slower, and simpler")  # the history grows, edited rules stay
    before, after = body, json.loads(nights.baseline.read_bytes())
    assert [one["reason"] for one in after["history"]] == ["the first night", "slower, and simpler"]
    assert after["history"][1]["changed"]["contrast m a / b: median"].startswith("1.22 -> 1.09")
    assert after["rules"] == before["rules"] and nights.go()[0] == EXIT_PASSED


def test_what_cannot_be_compared_is_red(nights: Nights) -> None:
    nights.go()
    nights.accept()
    nights.write(count='    return {"failed": 3, "acc": float("nan"), "fresh": 1}')
    code, said = nights.go()
    assert code == EXIT_REJECTED and said[:2] == [
        "changed: count: failed: 0 -> 3; allowed is the same (it follows from plan and pins)",
        "invalid: count: acc: 0.43 -> not finite: nothing can be said of it",
    ]
    assert said[2] == "new: count: fresh: 1, no baseline"
    with pytest.raises(RunError, match="`count: acc` is not finite"):
        nights.accept()
    nights.write(count="    return {}")
    code, said = nights.go()
    assert code == EXIT_UNMET and [one.split(":")[0] for one in said[:2]] == ["missing", "missing"]

    judged = "nightly/latest/latest"
    for change, told in (
        (lambda body: body["subject"]["host"].update(processor="another"), "another host: processor another and "),
        (lambda body: body["subject"].update(plan_hash="0" * 64), "plan 00000000 is not "),
        (lambda body: body["subject"].update(packages={"torch": "2.0"}), "other pins: torch 2.0 -> absent"),
        (lambda body: body["subject"].update(devices=["a GPU"]), "other GPUs: a GPU and none"),
        (lambda body: body["subject"].update(exit_code=None), "has not ended"),
    ):
        kept = nights.baseline.read_bytes()
        nights.edit(change)
        code, said = nights.go(run=judged)
        refused = [one for one in said if one.startswith("refused: ")]
        assert code == EXIT_UNMET and told in refused[0], said
        assert not [one for one in said if one.startswith("missing")], "what is refused is not compared"
        nights.baseline.write_bytes(kept)


def test_a_crash_a_rejection_and_a_lack_are_told_as_such(nights: Nights) -> None:
    nights.go()
    nights.accept()
    nights.write(count='    return stage.rejected("a gate says no", failed=0, acc=0.43)')
    code, said = nights.go()
    assert code == EXIT_REJECTED and said[0].startswith("changed: count: outcome: `passed` -> `rejected`")
    nights.write(count='    raise Unmet("no such thing")')
    code, said = nights.go()
    assert code == EXIT_UNMET and said[0] == "not measured: count: the stage was unmet"
    with pytest.raises(RunError, match="stage `count` was unmet"):
        nights.accept()
    nights.write(count='    raise ValueError("broken")')
    code, said = nights.go()
    assert code == EXIT_CRASHED and said[0] == "crashed: count: the stage was crashed"
    records = nights.latest / "latest" / "stages" / "measure" / "records.jsonl"
    nights.write()
    nights.go()
    records = nights.latest / "latest" / "stages" / "measure" / "records.jsonl"
    records.write_bytes(records.read_bytes().replace(b"gain confirmed", b"gain disproved"))
    code, said = nights.go(run="nightly/latest/latest")
    assert code == EXIT_REJECTED and said[0].startswith("differs: audit: measure: records.jsonl")


def test_a_night_is_that_of_a_commit_and_of_a_profile(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    (nights.root / "left behind").write_text("x")
    with pytest.raises(SourceError, match="not as its commit has it: left behind"):
        nights.go()
    (nights.root / "left behind").unlink()
    with pytest.raises(KassayError, match="nightly needs PROFILE"):
        nights.go(PROFILE="")
    monkeypatch.setenv("PROFILE", "tay")
    with pytest.raises(KassayError, match="unknown profile `tay`"):
        nights.go(PROFILE="")
    assert not nights.folder.exists() and not (nights.root / ".config").exists()


def test_a_cancelled_night_has_no_verdict_and_the_next_one_says_so(nights: Nights) -> None:
    nights.write(count="    time.sleep(600)")
    ready = threading.Thread(target=interrupt_when, args=(nights.folder,))
    ready.start()
    assert nights.go()[0] == INTERRUPTED
    ready.join()
    mark = marks.read(nights.latest)
    assert mark.exit_code is None and mark.fate == "was cancelled"
    with pytest.raises(RunError, match="it has not ended: it goes on, was cancelled"):
        nights.accept()
    nights.write()
    code, said = nights.go()
    assert (
        code == EXIT_UNMET and said[0] == f"cancelled: {mark.night}: the night before was cancelled and left no verdict"
    )
    nights.accept()
    assert nights.go()[0] == EXIT_PASSED, "one night is enough to say it"


def interrupt_when(folder: Path) -> None:
    """Interrupt this process once the second stage of a night runs."""
    deadline = time.monotonic() + 120
    while not list(folder.glob("toy-*/toy-*/stages/count/request.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)


def test_only_nights_of_ours_are_removed(nights: Nights) -> None:
    nights.go()
    first = nights.names[0]
    nights.accept()
    theirs = nights.folder / "toy-20200101T000000Z"
    theirs.mkdir()
    (theirs / "file").write_text("somebody's")
    copied = nights.folder / "toy-20200102T000000Z"
    copied.mkdir()
    (copied / marks.MARK).write_bytes((nights.folder / first / marks.MARK).read_bytes())  # it names another folder
    outside = nights.root / "results" / "elsewhere"
    outside.mkdir()
    (outside / marks.MARK).write_text("{}")
    (nights.folder / "toy-20200103T000000Z").symlink_to(outside)
    for _ in range(3):
        assert nights.go(NIGHTLY_KEEP="2")[0] == EXIT_PASSED
    left = set(nights.names)
    assert {theirs.name, copied.name, first} < left, "strangers, and the night that the baseline was taken from"
    assert len(left) == 3 + 2 and (outside / marks.MARK).exists()


def test_make_hands_the_verdict_on(nights: Nights) -> None:
    code = f"from pathlib import Path\nfrom kassay import paths\npaths.ROOT = Path({str(nights.root)!r})\n"
    code += "from kassay.cli import main\nraise SystemExit(main())"
    told = {name: text for name, text in os.environ.items() if name not in ("KASSAY_MAKE", "SET")}
    done = subprocess.run(
        [sys.executable, "-c", code, "nightly"],
        cwd=nights.root,
        env={**told, "PYTHONPATH": str(HOME), "PROFILE": "toy"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == EXIT_UNMET, done.stderr
    assert done.stdout.splitlines()[-1] == "red (exit code 4): 1 no baseline, 1 pass"
