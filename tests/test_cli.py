"""The command line: whole-stderr goldens of likely mistakes, its speed, and what may import what."""

import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kassay import cli, paths
from tests.commandline import kassay
from tests.imports import imported

GOLDENS = Path(__file__).parent / "goldens"


MADE = {"KASSAY_MAKE": "1"}  # as a recipe of our Makefile calls
MISTAKES: dict[str, tuple[list[list[str]], dict[str, str]]] = {
    "unknown-profile": ([["defconfig", "decode-cpy"]], {}),
    "unknown-fragment": ([["defconfig", "decode-cpu+smok"]], {}),
    "no-config": ([["run"]], {}),
    "typo-in-symbol": ([["defconfig", "decode-cpu"], ["plan", "TIMNG_BLOCKS=8"]], {}),
    "renamed-symbol": ([["defconfig", "decode-cpu"], ["plan", "TIMING_THROTTLED_PERCENT=25"]], {}),
    "out-of-range": ([["defconfig", "decode-cpu", "TIMING_BLOCKS=800"]], {}),
    "not-an-int": ([["defconfig", "decode-cpu", "TIMING_BLOCKS=many"]], {}),
    "no-assignment": ([["defconfig", "decode-cpu", "TIMING_BLOCKS"]], {}),
    "misspelt-override": ([["defconfig", "decode-cpu"], ["plan"]], {"SET": "study.alhpa=0.01"}),
    "unclosed-quote": ([["defconfig", "decode-cpu"], ["plan"]], {"SET": "study.name='x"}),
    "no-terminal": ([["defconfig", "decode-cpu"], ["menuconfig"]], {}),
    "no-such-run": ([["defconfig", "decode-cpu"], ["report", "yesterday"]], {}),
    "override-of-another-type": ([["defconfig", "decode-cpu"], ["plan"]], {"SET": "study.alpha=low"}),
    "override-of-a-stage": ([["defconfig", "decode-cpu"], ["plan"]], {"SET": "stages.timing.resources.cpus=0"}),
    "unknown-study-file": ([["defconfig", "decode-cpu"], ["plan"]], {"SET": "study=large"}),
    "value-in-place-of-set": ([["defconfig", "decode-cpu"], ["plan"]], {**MADE, "MAKEFLAGS": " -- study.alpha=0.1"}),
    "line-break": ([["defconfig", "decode-cpu", "STACK_PYTHON=a\nCONFIG_TIMING_BLOCKS=9"]], {}),
    "profile-is-a-path": ([["defconfig", "../Kconfig"]], {}),
    "no-profile-name": ([["defconfig", ""]], {}),
    "several-at-once": ([["defconfig", "decode-cpu", "TIMING_BLOCKS=0", "SWEEP_X=1"]], {}),
    "no-such-stage": ([["defconfig", "decode-cpu"], ["run", "STAGE=qualty,timing"]], {}),
    "no-stage-named": ([["defconfig", "decode-cpu"], ["run", "FORCE="]], {}),
    "not-of-this-verb": ([["defconfig", "decode-cpu"], ["plan", "KEEP=timing"]], {}),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_clear_message(tree: Path, name: str) -> None:
    commands, environment = MISTAKES[name]
    for words in commands[:-1]:
        assert kassay(tree, *words).returncode == 0
    done = kassay(tree, *commands[-1], **environment)
    assert (done.returncode, done.stdout) == (2, "")
    golden = GOLDENS / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        golden.write_text(done.stderr)
    assert done.stderr == golden.read_text()


def normal(text: str, tree: Path) -> str:
    """Times, run ids and the tree's place as placeholders."""
    text = text.replace(str(tree), "<tree>")
    text = re.sub(r"decode-cpu-\d{8}T\d{6}Z-[0-9a-f]{8}", "<run>", text)
    return re.sub(r"\[ *\d+\.\d s\]", "[<t> s]", re.sub(r"plan [0-9a-f]{8}", "plan <hash>", text))


def test_a_stack_python_that_is_none_is_said_and_the_rest_is_blocked(tree: Path) -> None:
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    done = kassay(tree, "run", "STACK_PYTHON=/nowhere/python")
    told = [
        line
        for line in normal(done.stderr, tree).splitlines(keepends=True)
        if re.search(r"(^| )build( \(|$| crashed)|exit", line)
    ]
    golden = GOLDENS / "stack-python.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        golden.write_text("".join(told))
    assert (done.returncode, "".join(told)) == (1, golden.read_text())
    run = tree / "results" / "latest" / "stages"
    words = {path.parent.name: json.loads(path.read_text())["word"] for path in run.glob("*/outcome.json")}
    assert {name for name, word in words.items() if word != "blocked"} == {"freeze", "build", "report"}


def test_a_missing_workflow_file(tree: Path) -> None:
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    (tree / "workflows" / "decode" / "workflow.yaml").unlink()
    done = kassay(tree, "plan")
    assert done.returncode == 2 and done.stderr.startswith("error: decode/workflow.yaml: Cannot find primary config")


LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_the_locale_changes_nothing(tree: Path) -> None:
    """O03 d: the same .config and the same plan, bytes and all."""
    results = []
    for environment in ({"LC_ALL": "C.UTF-8"}, LOCALE):
        done = kassay(tree, "defconfig", "decode-cpu", "STACK_PYTHON=/opt/café λ", **environment)
        assert done.returncode == 0, done.stderr
        said = kassay(tree, "defconfig", "décode", **environment).stderr
        assert said == "error: unknown profile `décode`\nhint: make listdefconfigs\n" or "did you mean" in said
        assert "…" in kassay(tree, "help", **environment).stdout
        shown = kassay(tree, "plan", SET="study.name=\"'café'\"", **environment)
        results.append(((tree / ".config").read_bytes(), said, shown.returncode, shown.stdout, shown.stderr))
        (tree / ".config").unlink()
    assert results[0] == results[1] and "café λ".encode() in results[0][0] and results[0][2] == 0


def test_bytes_that_are_no_utf8_are_refused(tree: Path) -> None:
    argv: list[bytes | str] = [sys.executable, "-m", "kassay", "defconfig", "decode-cpu", b"STACK_PYTHON=caf\xe9"]
    done = subprocess.run(argv, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (2, b"error: command line: not UTF-8: b'STACK_PYTHON=caf\\xe9'\n")


@pytest.mark.parametrize("verb", ["plan", "listdefconfigs", "help"])
def test_a_reader_that_leaves_early_is_no_error(tree: Path, verb: str) -> None:
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    argv = f"{sys.executable} -u -m kassay {verb} | true"
    done = subprocess.run(
        ["bash", "-c", argv], cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, check=False
    )
    assert done.stderr == b""


@pytest.mark.parametrize("term", [None, "nosuchterm", "dumb"])
def test_a_terminal_on_which_no_menu_can_be_drawn(tree: Path, term: str | None) -> None:
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    before = ((tree / ".config").read_bytes(), (tree / ".config").stat().st_mtime_ns)
    code, said = in_terminal(tree, term, b"")
    assert code == 2 and "Traceback" not in said and "menuconfig cannot draw on a terminal of TERM=" in said
    assert "hint: make defconfig-<profile> SYMBOL=value" in said
    assert ((tree / ".config").read_bytes(), (tree / ".config").stat().st_mtime_ns) == before


def test_leaving_the_menu_without_a_change_writes_nothing(tree: Path) -> None:
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    before = ((tree / ".config").read_bytes(), (tree / ".config").stat().st_mtime_ns)
    code, said = in_terminal(tree, "xterm", b"q")
    assert code == 0 and "Run policy" in said
    assert ((tree / ".config").read_bytes(), (tree / ".config").stat().st_mtime_ns) == before


def in_terminal(tree: Path, term: str | None, keys: bytes) -> tuple[int, str]:
    """`kassay menuconfig` on a pseudo-terminal: its exit code and all that it drew."""
    import pty
    import select

    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "TERM"}
    environment |= {"PYTHONPATH": str(tree), "LINES": "24", "COLUMNS": "80"} | ({"TERM": term} if term else {})
    argv = [sys.executable, "-m", "kassay", "menuconfig"]
    process = subprocess.Popen(argv, cwd=tree, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said, deadline, typed = b"", time.monotonic() + 120, False
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                said += os.read(ours, 4096)
            except OSError:  # the other end was closed
                break
        elif process.poll() is not None:
            break
        elif keys and said and not typed:
            os.write(ours, keys)
            typed = True
    os.close(ours)
    try:
        return process.wait(60), said.decode(errors="replace")
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def test_what_a_fragment_overrides_is_said(tree: Path) -> None:
    done = kassay(tree, "defconfig", "decode-cpu+smoke")
    assert "smoke.config:2: `STUDY_SMOKE=y` overrides `STUDY_SMALL=y` of defconfigs/decode-cpu:3\n" in done.stderr


def test_variables_of_make_arrive_as_they_were_typed(tree: Path) -> None:
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    flags = ' -j2 -- VENV=x STACK_PYTHON=a\\ $$HOME\\ "q"\\ #x\\ \\\\'
    done = kassay(tree, "plan", KASSAY_MAKE="1", MAKEFLAGS=flags)
    assert done.returncode == 0, done.stderr
    assert 'CONFIG_STACK_PYTHON="a $HOME \\"q\\" #x \\\\"' in (tree / ".config").read_text()


def test_list_and_help(tree: Path) -> None:
    assert "decode-cpu\t" in kassay(tree, "listdefconfigs").stdout
    shown = kassay(tree, "help").stdout
    assert "make plan" in shown and "TIMING_BLOCKS" in shown


def test_help_answers_at_once_and_imports_nothing_heavy() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "kassay", "--help"]
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)  # of a processor: others may have it meanwhile
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    loaded = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert not loaded & {"torch", "numpy", "hydra", "git", "rich", "kconfiglib", "scipy"}
    assert min(times) < 0.3


ALLOWED = {
    "kassay.stats": {"numpy", "scipy"},
    "kassay.published": {"numpy"},
    "kassay.kv.formats": {"numpy"},
    "kassay.kv.float8": {"numpy"},
    "kassay.kv.integer": {"numpy"},
    "kassay.kv.rounding": {"numpy"},
    "kassay.kv.geometry": set(),
    "kassay.kv.oracle": {"numpy", "ml_dtypes"},
    "kassay.kv.pages": set(),
    "kassay.kernels.host": set(),
    "kassay.kernels.shape": set(),
    "kassay.kernels.split": set(),
    "kassay.kernels.route": set(),
    "kassay.kernels.fill": set(),
    "kassay.kernels.tuning": set(),
    "kassay.kernels.device": {"triton"},
}
NO_TORCH = "cli config plan engine run record report identity rundir stats published host".split()


def modules_below(name: str) -> list[Path]:
    """Files of a module or package."""
    path = paths.ROOT / name.replace(".", "/")
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


@pytest.mark.parametrize("name", NO_TORCH)
def test_the_framework_imports_no_torch(name: str) -> None:
    for path in modules_below(f"kassay.{name}"):
        assert not {top for top in imported(path) if top.split(".")[0] in ("torch", "transformers", "vllm")}, path


def test_triton_is_imported_by_kernels_alone() -> None:
    for path in modules_below("kassay"):
        if "kernels" not in path.parts:
            assert not {top for top in imported(path) if top == "triton" or top.startswith("triton.")}, path


@pytest.mark.parametrize("name", ALLOWED)
def test_numeric_modules_import_only_their_own(name: str) -> None:
    for path in modules_below(name):
        tops = {top.split(".")[0] for top in imported(path)} - {"kassay"} - set(sys.stdlib_module_names)
        assert tops <= ALLOWED[name], path


def test_stages_import_the_library_never_each_other_or_the_orchestrator() -> None:
    forbidden = {"kassay.plan", "kassay.engine", "kassay.run", "kassay.cli", "stages"}
    for path in (paths.ROOT / "stages").glob("*.py"):
        names = imported(path)
        assert not {name for name in names if any(name == bad or name.startswith(bad + ".") for bad in forbidden)}, path


def test_the_doctor_of_a_profile_for_this_host_finds_nothing_and_the_estimate_says_what_it_knows(tree: Path) -> None:
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    done = kassay(tree, "doctor")
    assert (done.returncode, done.stderr) == (0, "") and "build                ok" in done.stdout
    told = kassay(tree, "estimate").stdout.splitlines()
    assert told[-2] == "stated: time 7 minutes, hardware any, two cores" and told[-1].startswith(
        "stated: 2 GiB in build"
    )
    assert told[-3].startswith("measured: 0 s one after another, 0 MiB of results, 0.00 GPU-hours; 15 of 15 stages")


def test_the_doctor_of_the_forks_names_every_lack_and_ends_with_4(tree: Path) -> None:
    assert kassay(tree, "defconfig", "decode-upstream", "VLLM_URL=https://host.invalid/v", "OFFLINE=y").returncode == 0
    done = kassay(tree, "doctor", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 4 and done.stderr == ""
    assert "source `vllm`: OFFLINE, and no mirror holds `758786e23230a4a1a9b2b6046fb516943751b3ae`" in done.stdout
    assert "1 GPU is needed" in done.stdout


def test_the_plan_of_the_forks_prints_their_pins_on_any_machine(tree: Path) -> None:
    assert kassay(tree, "defconfig", "decode-upstream").returncode == 0
    shown = kassay(tree, "plan").stdout
    for commit in ("758786e23230a4a1a9b2b6046fb516943751b3ae", "ff0c51cf676bf4461695c34af564461f1e30c0a6"):
        assert commit in shown
    assert "build.candidate      runs: after freeze" in shown


@pytest.mark.parametrize("word", ["x.y", "STAGE=x.y"])
def test_a_verb_takes_its_word_with_and_without_its_name(word: str) -> None:
    arguments = cli.parser().parse_args(["logs", word])
    cli.taken(arguments)
    assert arguments.stage == "x.y"
