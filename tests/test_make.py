"""Through make, as a user types it: any value arrives unchanged, and no shell or make ever reads one."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from kassay import paths
from tests.test_tutorial import clone, environment

AWKWARD = {
    "make and shell": "$HOME $(touch pwned) `touch pwned` ${PATH} $$",
    "quotes": 'a "b" \'c\' \\"d',
    "backslashes": "C:\\new\\x33 \\n tail\\",
    "comment and equals": "#x = y; z & | > < *",
    "spaces": "two  spaces\tand a tab ",  # those at the start are dropped by make itself; a profile keeps them
    "other scripts": "café λ 数字 \u202eabc",
    "numbers": "0008812",
    "yaml": "{a: [1, null], b: ???} ${nowhere}",
}
STAGE = """
import sys
from dataclasses import dataclass
from typing import ClassVar
from kassay.record import Record, doc
from kassay.stage import main
@dataclass(frozen=True, kw_only=True)
class Note(Record):
    schema: ClassVar[str] = "tell.note/1"
    note: str = doc("the text")
def run(stage):
    stage.append(Note(note=stage.params["note"]))
    stage.write_json("argv", sys.argv)
    return {}
main(run)
"""
KCONFIG = """choice WORKFLOW
config WORKFLOW_TELL
	bool "tell"
endchoice
config WORKFLOW
	default "tell" if WORKFLOW_TELL
config NOTE
	string "note"
	depends on WORKFLOW_TELL
"""
YAML = "stages: {tell: {program: tell, params: {note: '${kconfig:NOTE}'}, resources: {cpus: 1, memory_gib: 0.1}}}\n"


@pytest.fixture
def tell(tmp_path: Path) -> Path:
    """A clone, and beside it a tree whose one stage writes down what it was given."""
    outside = tmp_path / "outside"
    for folder in ("workflows/tell", "stages", "defconfigs"):
        (outside / folder).mkdir(parents=True)
    (outside / "workflows/tell/Kconfig").write_text(KCONFIG)
    (outside / "workflows/tell/workflow.yaml").write_text(YAML)
    (outside / "stages/tell.py").write_text(STAGE)
    (outside / "defconfigs/tell").write_text("CONFIG_WORKFLOW_TELL=y\n")
    return clone(tmp_path / "kassay")


def make(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """make in a clone, with nothing of the test's own make around it."""
    inherited = environment(tree.parent) if not (tree.parent / "venv").exists() else None
    variables = inherited or {
        **{name: text for name, text in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "KASSAY", "SET"))},
        "VENV": str(tree.parent / "venv"),
    }
    variables[paths.OUTSIDE] = str(tree.parent / "outside")
    return subprocess.run(["make", *words], cwd=tree, env=variables, capture_output=True, text=True, check=False)


def test_any_value_arrives_unchanged_in_config_plan_records_and_argv(tell: Path) -> None:
    assert make(tell, "defconfig-tell").returncode == 0
    for name, text in AWKWARD.items():
        folder = f"res {text}".replace("/", "|").strip()
        done = make(tell, f"NOTE={text}", f"RESULTS={folder}")
        assert done.returncode == 0, f"{name}: {done.stderr}"
        run = (tell / folder / "latest").resolve()
        stage = run / "stages" / "tell"
        settings = json.loads((run / paths.MANIFEST).read_bytes())["settings"]
        assert (settings["NOTE"]["value"], settings["RESULTS"]["value"]) == (text, folder), name
        assert settings["NOTE"]["origin"] == "command line"
        assert json.loads((run / paths.PLAN).read_bytes())["stages"][0]["params"] == {"note": text}
        assert json.loads((stage / paths.RECORDS).read_text(encoding="utf-8"))["note"] == text
        assert json.loads((stage / "argv.json").read_bytes())[1] == str(stage), f"{name}: a stage's argv"
    assert not [path for path in tell.rglob("pwned") if path.exists()]


def test_a_profile_name_is_no_shell_text(tell: Path) -> None:
    for name in ("a'b", "$(touch pwned)", "a;touch pwned", "`touch pwned`", '"'):
        done = make(tell, f"defconfig-{name}")
        assert done.returncode == 2 and "unknown profile" in done.stderr, done.stderr
    assert not (tell / "pwned").exists() and not (tell / ".config").exists()


def test_a_line_break_is_refused(tell: Path) -> None:
    assert make(tell, "defconfig-tell").returncode == 0
    before = (tell / ".config").read_bytes()
    done = make(tell, "plan", "NOTE=two\nlines")
    assert done.returncode == 2 and done.stderr.startswith("error: "), done.stderr
    assert (tell / ".config").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "SYM=x"], "plan does not take `SYM`"),
        (["help", "TIMING_BLOCKS=3"], "help does not take `TIMING_BLOCKS`"),
        (["savedefconfig"], "savedefconfig needs NAME"),
        (["helpconfig"], "helpconfig needs SYM"),
        (["helpconfig", "SYM=NOTES"], "unknown symbol `NOTES`; did you mean `NOTE`?"),
        (["randconfig", "SEED=one"], "SEED is `one`, allowed is a whole number"),
        (["plan", "NOTES=x"], "unknown symbol `NOTES`; did you mean `NOTE`?"),
        (["oldconfig"], "oldconfig needs a terminal to ask"),
        (["menuconfig"], "menuconfig needs a terminal"),
        (["nconfig"], "nconfig needs a terminal"),
    ],
)
def test_a_word_that_a_target_does_not_take_is_an_error(tell: Path, words: list[str], said: str) -> None:
    assert make(tell, "defconfig-tell").returncode == 0
    config = tell / ".config"
    config.write_text(config.read_text().replace("CONFIG_MAX_CPUS=0\n", ""))  # so that oldconfig has a question
    before = (config.read_bytes(), config.stat().st_mtime_ns)
    done = make(tell, *words)
    assert done.returncode == 2 and said in done.stderr and "hint: " in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and (config.read_bytes(), config.stat().st_mtime_ns) == before


def test_no_make_shell_or_interpreter_ever_reads_a_config_value() -> None:
    makefile = (paths.ROOT / "Makefile").read_text()
    assert not re.search(r"^\s*-?s?include\b|\.config\b.*[|<]|\$\(eval|\$\(file|\$\(call.*config", makefile, re.M)
    for path in [*(paths.ROOT / "scripts").rglob("*.sh"), paths.ROOT / ".ci" / "run"]:
        assert not re.search(r"(^|[;&|]\s*)(source|\.|eval)\s+\S*\.?config", path.read_text(), re.M), path
    for path in [*(paths.ROOT / "kassay").rglob("*.py"), *(paths.ROOT / "stages").glob("*.py")]:
        assert not re.search(r"shell=True|os\.system\(|(?<![.\w])(eval|exec)\(|yaml\.load\(", path.read_text()), path


def test_no_symbol_is_hidden_by_a_word_of_make_or_of_a_verb() -> None:
    from kassay import words
    from kassay.config.tree import tree

    with tree() as kconf:
        names = {symbol.name for symbol in kconf.unique_defined_syms}
    assert not names & (words.OF_MAKE | words.OF_VERB | {words.OVERRIDES})
