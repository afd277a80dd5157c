"""What a tool under test is, and the adapters of ninja, doit and snakemake, each installed into a venv of its own.

Every adapter writes the same DAG of the same commands in the tool's own words, as its documentation would.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sample import Command, environment
from benchmarks.shape import WORKERS, Node, Shape

LEAVES = "leaves"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One shape, written down for one tool in a fresh folder."""

    run: Command
    plan: Command  # a dry run that tells reasons
    outputs: tuple[Path, ...]
    leaves: Path  # folder of the leaf files
    forget: Callable[[], None] | None  # lets the tool read its workflow anew, where it keeps a composed one


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool that is there."""

    name: str
    version: str
    help: Command
    help_code: int  # exit code of a help that was given
    prepare: Callable[[Shape, Path], Case]


def install(name: str, folder: Path) -> Path | None:
    """The executable of a tool in `folder`/<name>, installed by pip if it is not there; None if it cannot be had."""
    venv = folder / name
    executable = venv / "bin" / name
    if executable.is_file():
        return executable
    python = venv / "bin" / "python"
    for argv in ([sys.executable, "-m", "venv", str(venv)], [str(python), "-m", "pip", "install", "-q", name]):
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            print(f"{name}: not installed: {done.stdout.strip().splitlines()[-1:]}", file=sys.stderr)
            shutil.rmtree(venv, ignore_errors=True)
            return None
    return executable


def known(name: str, folder: Path) -> Tool | None:
    """One of ADAPTERS, installed if need be."""
    executable = install(name, folder)
    if executable is None:
        return None
    said = subprocess.run([executable, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    write, words, plan_words = ADAPTERS[name]

    def prepare(shape: Shape, place: Path) -> Case:
        """Write leaves and workflow into a fresh folder."""
        write_leaves(shape, place)
        write(shape, place)
        variables = environment(XDG_CACHE_HOME=str(folder / "cache"))

        def command(more: tuple[str, ...]) -> Command:
            return Command(argv=(str(executable), *more), cwd=place, environment=variables)

        outputs = tuple(place / f"out_{node.name}" for node in shape.nodes())
        return Case(run=command(words), plan=command(plan_words), outputs=outputs, leaves=place / LEAVES, forget=None)

    asks_help = Command(argv=(str(executable), "--help"), cwd=folder, environment=environment())
    return Tool(name=name, version=said[0], help=asks_help, help_code=int(name == "ninja"), prepare=prepare)


def write_leaves(shape: Shape, place: Path) -> None:
    """A file for each leaf."""
    (place / LEAVES).mkdir(parents=True)
    for leaf in shape.leaves():
        (place / LEAVES / leaf).write_text("leaf\n")


def given(node: Node) -> list[str]:
    """Paths that a node declares as inputs, relative to the folder."""
    return [f"{LEAVES}/{node.leaf}"] * bool(node.leaf) + [f"out_{name}" for name in node.needs]


def write_ninja(shape: Shape, place: Path) -> None:
    """build.ninja: one rule, an edge a stage. No `restat`: the command touches its output, it would change nothing."""
    lines = ["rule echo", "  command = echo x > $out"]
    lines += [f"build out_{node.name}: echo {' '.join(given(node))}" for node in shape.nodes()]
    (place / "build.ninja").write_text("\n".join(lines) + "\n")


def write_doit(shape: Shape, place: Path) -> None:
    """dodo.py: one generator of sub-tasks over a table of the nodes."""
    table = [(node.name, given(node)) for node in shape.nodes()]
    (place / "dodo.py").write_text(
        f"NODES = {table!r}\n\n\n"
        "def task_echo():\n"
        "    for name, needs in NODES:\n"
        '        out = f"out_{name}"\n'
        '        yield {"name": name, "actions": [f"echo x > {out}"], "file_dep": needs, "targets": [out]}\n'
    )


def write_snakemake(shape: Shape, place: Path) -> None:
    """Snakefile: one rule with a wildcard, its inputs looked up in a table; plain `sh` as for the others."""
    table = {node.name: given(node) for node in shape.nodes()}
    (place / "Snakefile").write_text(
        f'shell.executable("sh")\nshell.prefix("")\nNODES = {table!r}\n\n\n'
        'rule all:\n    input: expand("out_{name}", name=NODES)\n\n\n'
        "rule echo:\n    input: lambda wildcards: NODES[wildcards.name]\n"
        '    output: "out_{name}"\n    shell: "echo x > {output}"\n'
    )


# Name: what writes the workflow, the words that run it, the words that plan it with reasons. snakemake gets its greedy
# scheduler, which takes half the time of its default at 1,000 stages.
ADAPTERS: dict[str, tuple[Callable[[Shape, Path], None], tuple[str, ...], tuple[str, ...]]] = {
    "ninja": (write_ninja, ("-j", f"{WORKERS}"), ("-n", "-d", "explain")),
    "doit": (write_doit, ("run", "-n", f"{WORKERS}"), ("list", "--all", "--status")),
    "snakemake": (write_snakemake, ("--cores", f"{WORKERS}", "--scheduler", "greedy"), ("--cores", "1", "-n")),
}
