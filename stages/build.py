"""Build the stack's environment from its pins, or attest an existing one, and say which interpreter to use.

Writes a package record for every distribution, `stack.json` (interpreter, lock with content hashes, where each source
was built, conflicts), and `uv.log`, to which uv, the build backends and the compilers speak while they work.
"""

from collections.abc import Callable

from kassay import paths
from kassay.kinds.source import PackageRecord
from kassay.source import environment, wheel
from kassay.stage import Metrics, Stage, main

STEPS = 4  # the environment, its releases, the wheels' installation, attesting
STEPS_OF_SOURCE = 2  # copying, building


def run(stage: Stage) -> Metrics:
    """Make the environment and record what is in it."""
    pins = stage.json_input("pins")
    if python := stage.params["stack_python"]:
        stack, foundations = environment.existing(python, pins)
    else:
        stack, foundations = environment.made(
            pins,
            paths.build() / "stacks",
            stage.directory / "uv.log",
            stage.params["offline"],
            wheel.jobs(stage.cpus, stage.request["grant"]["memory_gib"]),
            teller(stage, STEPS + STEPS_OF_SOURCE * len(pins.get("sources") or {})),
        )
    built_from = {facts["distribution"].lower(): name for name, facts in stack["sources"].items()}
    for pin, sha256 in stack["content"].items():
        name, _, version = pin.partition("==")
        stage.append(PackageRecord(name=name, version=version, sha256=sha256, source=built_from.get(name)))
    for path in foundations:
        stage.add_foundation(path)
    for told in (*stack["conflicts"], *stack["companions"]):
        print(f"recorded: {told}", flush=True)
    stage.write_json("stack", stack)
    return {"python": stack["python_version"], **stack["modules"], **disagreements(stack)}


def disagreements(stack: dict[str, list[str]]) -> Metrics:
    """How many packages do not get what they ask for, if any: a pinned fork is meant to differ, and to be seen."""
    return {name: len(stack[name]) for name in ("conflicts", "companions", "replaced") if stack[name]}


def teller(stage: Stage, total: int) -> Callable[[str], None]:
    """What the build says of its progress goes to the stage's progress, each new step also to its log."""
    begun: list[str] = []

    def tell(what: str) -> None:
        step = what.partition(": ")[0]
        if step not in begun:
            begun.append(step)
            print(step, flush=True)
        stage.progress(len(begun) - 1, max(total, len(begun)), what)

    return tell


if __name__ == "__main__":
    main(run)
