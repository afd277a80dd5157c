"""What a stage runs with: its stack's own tools, and caches of compiled code that belong to its stack alone."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.engine import JIT_FOLDERS, environment_of
from kassay.source import environment, wheel
from tests.source.fork import Fork, pins_of

STAGES = {
    "stack": 'stage.write_json("stack", {"python": stage.params["python"]})\n    return {}',
    "tool": (
        'said = subprocess.run(["ninja", "--version"], capture_output=True, text=True, check=True).stdout.strip()\n'
        '    return {"said": said, "venv": os.environ["VIRTUAL_ENV"], "home": os.environ.get("PYTHONHOME")}'
    ),
}
FRAME = "import os, subprocess\nfrom kassay.stage import main\ndef run(stage):\n    {}\nmain(run)\n"
DRIVER = """
import os, sys
from pathlib import Path
root, python = Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, sys.argv[3])
os.environ["PYTHONHOME"] = "/nowhere"
os.environ["KASSAY_PATH"] = str(root / "tree")
from kassay import plan
from kassay.engine.local import LocalEngine
from kassay.run import Run
from kassay.rundir import Setup
from tests.conftest import Silent
resources = {"cpus": 1, "memory_gib": 0.1}
stages = {
    "interpreter": {"program": "stack", "params": {"python": python}, "resources": resources},
    "asks": {"program": "tool", "inputs": {"stack": "interpreter.stack"}, "resources": resources},
}
none = frozenset()
setup = Setup(
    results=root / "results", settings={}, overrides=[], interpreter=sys.executable, timeout_s=60.0,
    only=none, force=none, keep=none,
)
run = Run(plan.build("toy", "toy", {"stages": stages}), setup, LocalEngine(cpus=2, memory_gib=4))
sys.exit(run.go(Silent()))
"""


@pytest.fixture
def stack(wheels: Path, tmp_path: Path) -> Path:
    """The interpreter of a stack of ours."""
    body = {"requirements": ["fakeinfer==0.0.1"], "modules": ["fakeinfer"]}
    return Path(environment.made(body, tmp_path / "stacks", tmp_path / "log")[0]["python"])


def test_a_stage_finds_its_stacks_tools_first(stack: Path, tmp_path: Path) -> None:
    """Case O12 with its input: `ninja` only in the stack's bin, the product started by full path in an empty shell."""
    tool = stack.parent / "ninja"
    tool.write_text("#!/bin/sh\necho vninja 1.0\n")
    tool.chmod(0o755)
    programs = tmp_path / "tree" / "stages"
    programs.mkdir(parents=True)
    for name, body in STAGES.items():
        (programs / f"{name}.py").write_text(FRAME.format(body))
    (tmp_path / "driver.py").write_text(DRIVER)
    shell = ["env", "-i", f"HOME={tmp_path}", "PATH=/usr/bin:/bin", sys.executable]
    argv = [*shell, str(tmp_path / "driver.py"), str(tmp_path), str(stack), str(paths.ROOT)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (outcome,) = (tmp_path / "results").glob("[!.l]*/stages/asks/outcome.json")
    metrics = json.loads(outcome.read_text())["metrics"]
    assert metrics == {"said": "vninja 1.0", "venv": str(stack.parent.parent), "home": None}


def test_compiled_code_of_a_run_lies_in_its_stack(stack: Path) -> None:
    told = environment_of(stack)
    assert told["PATH"].split(os.pathsep)[0] == str(stack.parent) and "PYTHONHOME" not in told
    home = stack.parent.parent
    assert {name: Path(told[name]) for name in JIT_FOLDERS} == {
        name: home / "jit" / folder for name, folder in JIT_FOLDERS.items()
    }
    for name in ("FLASHINFER_WORKSPACE_BASE", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "VLLM_CACHE_ROOT"):
        assert name in JIT_FOLDERS
    assert not set(JIT_FOLDERS) & set(environment_of(Path(sys.executable))), "a user's own environment keeps its own"


RULE = "rule c\n command = cp $in $out\nbuild cache/1.0/k.so: c src/k.cuh\n"
STAND_IN = "#!/bin/sh\nmkdir -p cache/1.0\n[ cache/1.0/k.so -nt src/k.cuh ] || cp src/k.cuh cache/1.0/k.so\n"


def compiled(base: Path, revision: str, tool: str) -> str:
    """What a JIT cache at `base` answers once its source has become `revision`, which has an old time stamp."""
    (base / "src").mkdir(parents=True, exist_ok=True)
    (base / "build.ninja").write_text(RULE)
    (base / "src" / "k.cuh").write_text(revision)
    os.utime(base / "src" / "k.cuh", (1577836800, 1577836800))  # touch -d 2020-01-01
    subprocess.run([tool], cwd=base, check=True, capture_output=True)
    return (base / "cache" / "1.0" / "k.so").read_text()


def test_a_jit_cache_answers_for_its_own_pin(wheels: Path, tmp_path: Path) -> None:
    """Case O11 (b) with its input: one cache for all pins stays at r1, a stack's own does not."""
    tool = shutil.which("ninja")
    if tool is None:
        (tmp_path / "stand-in").write_text(STAND_IN)
        (tmp_path / "stand-in").chmod(0o755)
        tool = str(tmp_path / "stand-in")
    shared = [compiled(tmp_path / "shared", revision, tool) for revision in ("r1", "r2")]
    assert shared == ["r1", "r1"], "the trap is there"
    fork = Fork(tmp_path, "fakeinfer", "0.0.1", [])
    pinned: dict[str, dict[str, Any]] = {revision: fork.commit(int(revision[1])) for revision in ("r1", "r2")}
    found = []
    for revision in ("r1", "r2", "r1"):
        made, _ = environment.made(pins_of(pinned[revision]), tmp_path / "stacks", tmp_path / "log")
        base = Path(environment_of(Path(made["python"]))["FLASHINFER_WORKSPACE_BASE"])
        found.append(compiled(base, revision, tool))
    assert found == ["r1", "r2", "r1"]


@pytest.mark.parametrize(("memory_gib", "expected"), [(0.5, 1), (4.0, 1), (9.0, 2), (1000.0, 3)])
def test_compilers_side_by_side_follow_cores_and_memory(
    memory_gib: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kassay.host.usable_cpus", lambda: 64)
    assert wheel.jobs(3, memory_gib) == expected
    monkeypatch.setattr("kassay.host.usable_cpus", lambda: 1)
    assert wheel.jobs(3, memory_gib) == 1
