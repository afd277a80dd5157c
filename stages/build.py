"""Build the stack's environment from its pins, or attest an existing one, and say which interpreter to use.

Writes a package record for every distribution, `stack.json` (interpreter, versions, lock) and uv's log.
"""

from kassay import paths
from kassay.kinds.source import PackageRecord
from kassay.source import environment
from kassay.stage import Metrics, Stage, main


def run(stage: Stage) -> Metrics:
    """Make the environment and record what is in it."""
    pins = stage.json_input("pins")
    if python := stage.params["stack_python"]:
        stack, foundations = environment.existing(python, pins)
    else:
        stack, foundations = environment.made(
            pins, paths.build() / "stacks", stage.directory / "uv.log", stage.params["offline"]
        )
    for pin in stack["lock"]:
        name, _, version = pin.partition("==")
        stage.append(PackageRecord(name=name, version=version))
    for path in foundations:
        stage.add_foundation(path)
    stage.write_json("stack", stack)
    return {"python": stack["python_version"], **stack["modules"]}


if __name__ == "__main__":
    main(run)
