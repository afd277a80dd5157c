"""The adapter of kassay: a private copy of the project, so that no `.config` is touched, and a tree for each case.

The tree is what a user writes beside kassay (docs/tutorials): a workflow of `argv:` stages, its Kconfig, one profile.
Every layer of a shape is one entry of workflow.yaml; one of several nodes has an `each`.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.sample import Command, environment
from benchmarks.shape import WORKERS, Shape
from benchmarks.tool import LEAVES, Case, Tool, write_leaves

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = "bench"
LEFT_OUT = ("data/", "tests/", "docs/")  # what no verb needs here
KCONFIG = """choice WORKFLOW

config WORKFLOW_BENCH
	bool "bench: trivial stages"

endchoice

config WORKFLOW
	default "bench" if WORKFLOW_BENCH
"""
PROFILE = "# purpose: trivial stages; hardware: any; time: seconds\nCONFIG_WORKFLOW_BENCH=y\n"


def interpreter() -> Path:
    """The Python of the user's environment, else of the one that checks, else this one."""
    places = [ROOT / folder / "bin" / "python" for folder in (".venv", "build/check")]
    return next((path for path in places if path.is_file()), Path(sys.executable))


def copy_of_the_project(folder: Path) -> Path:
    """All that git sees, uncommitted changes included, with its byte code made."""
    argv = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    for name in listed.splitlines():
        if not name.startswith(LEFT_OUT) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    subprocess.run([interpreter(), "-m", "compileall", "-q", folder / "kassay"], check=True)
    return folder


def kassay(folder: Path) -> Tool:
    """The tool as it is in the working tree now, copied to `folder`."""
    project = copy_of_the_project(folder)
    python = str(interpreter())

    def command(*words: str, **more: str) -> Command:
        """A verb, in the private copy."""
        variables = environment(PYTHONPATH=str(project), **more)
        return Command(argv=(python, "-m", "kassay", *words), cwd=project, environment=variables)

    def prepare(shape: Shape, place: Path) -> Case:
        """Write a tree and choose its profile."""
        tree = place / "tree"
        write_leaves(shape, tree)
        workflow = write_tree(shape, tree)
        known = {"KASSAY_PATH": str(tree)}
        said(command("defconfig", WORKFLOW, f"RESULTS={place}/results", f"MAX_CPUS={WORKERS}", **known))
        stages = place / "results" / "latest" / "stages"
        return Case(
            run=command("run", **known),
            plan=command("plan", **known),
            outputs=tuple(stages / name / "out" for name in stage_names(shape)),
            leaves=tree / LEAVES,
            forget=lambda: edit(workflow),
        )

    version = said(command("--version")).split()[-1]
    return Tool(name="kassay", version=version, help=command("--help"), help_code=0, prepare=prepare)


def said(command: Command) -> str:
    """What a verb prints. Raises RuntimeError with its words if it failed."""
    done = subprocess.run(command.argv, cwd=command.cwd, env=command.environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command.argv[2:])}` failed: {done.stderr.strip()}")
    return done.stdout


def write_tree(shape: Shape, tree: Path) -> Path:
    """The files of a tree of KASSAY_PATH; its workflow.yaml (JSON is YAML)."""
    folder = tree / "workflows" / WORKFLOW
    folder.mkdir(parents=True)
    (folder / "Kconfig").write_text(KCONFIG)
    (tree / "defconfigs").mkdir()
    (tree / "defconfigs" / WORKFLOW).write_text(PROFILE)
    workflow = folder / "workflow.yaml"
    entries = (f"  l{number}: {json.dumps(entry(shape, number))}\n" for number in range(len(shape.layers)))
    workflow.write_text("stages:\n" + "".join(entries))
    return workflow


def edit(workflow: Path) -> None:
    """Change the file but not what it says."""
    workflow.write_text(workflow.read_text() + "# edited\n")


def entry(shape: Shape, number: int) -> dict[str, object]:
    """One layer as an entry of workflow.yaml; a layer reads all of the layer before it."""
    nodes = shape.layers[number]
    body: dict[str, object] = {
        "argv": ["sh", "-c", "echo x > out"],
        "outputs": {"out": "out"},
        "resources": {"cpus": 1, "memory_gib": 0.01},
    }
    if nodes[0].leaf:
        leaf = "{i}" if len({node.leaf for node in nodes}) > 1 else nodes[0].leaf
        body["inputs"] = {"leaf": f"tree:{LEAVES}/{leaf}"}
    if nodes[0].needs:
        star = "" if len(shape.layers[number - 1]) == 1 else ".*"
        body["inputs"] = {"before": f"l{number - 1}{star}.out"}
    return body if len(nodes) == 1 else {"each": {"i": [node.name for node in nodes]}, **body}


def stage_names(shape: Shape) -> list[str]:
    """The stages that the entries become."""
    layers = enumerate(shape.layers)
    return [f"l{n}" if len(nodes) == 1 else f"l{n}.{node.name}" for n, nodes in layers for node in nodes]
