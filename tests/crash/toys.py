"""Stages that wait for a gate half way through their output, as stage programs and as plain executables.

Each writes its name and process number into `executions`, "half" into its output, waits for the gate of its name, and
writes the whole output. So a test decides in which state everything is when something dies.
"""

from typing import Any

from tests.crash.project import DrivenProject, command_line, wait_until

KINDS = ("program", "argv")
WORKER = """\
    root, name = Path(stage.params["root"]), stage.params["name"]
    with (root / "executions").open("a") as log: log.write(f"{{name}} {{os.getpid()}}\\n")
    path = stage.directory / "out.txt"
    path.write_text("half")
{extra}
    while not (root / "gates" / name).exists(): time.sleep(0.01)
    path.write_text(f"whole {{name}}\\n")
    stage.add_artifact("out", path)
    return {{}}"""
SCRIPT = """\
echo {name} $$ >> {root}/executions
printf half > out.txt
{extra}
while [ ! -e {root}/gates/{name} ]; do sleep 0.01; done
echo whole {name} > out.txt"""
NAMES = ("one", "two", "three")


def worker(driven: DrivenProject, kind: str, name: str, extra: str = "", **body: Any) -> dict[str, Any]:
    """A stage of that kind; `extra` runs between the half and the whole."""
    if kind == "program":
        program = "worker" if not extra else f"worker_{name}"
        driven.program(program, WORKER.format(extra=extra))
        return {"program": program, "params": {"name": name, "root": str(driven.root)}, **body}
    script = SCRIPT.format(name=name, root=driven.root, extra=extra)
    return {"argv": ["sh", "-c", script], "outputs": {"out": "out.txt"}, **body}


def three(driven: DrivenProject, kind: str, extra: str = "", **body: Any) -> None:
    """The workflow: `one` and `two` side by side, `three` reads `one`; `extra` and `body` are of `one`."""
    driven.workflow(
        {
            "one": worker(driven, kind, "one", extra, **body),
            "two": worker(driven, kind, "two"),
            "three": worker(driven, kind, "three", inputs={"x": "one.out"}),
        }
    )


def open_gates(driven: DrivenProject, *names: str) -> None:
    """Let these stages, or all, come to their end."""
    for name in names or NAMES:
        driven.open_gate(name)


def executions(driven: DrivenProject) -> list[tuple[str, int]]:
    """Name and process of everything that began, in order."""
    path = driven.root / "executions"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(line.split()[0], int(line.split()[1])) for line in lines]


def counts(driven: DrivenProject) -> dict[str, int]:
    """How often each stage began."""
    began = [name for name, _ in executions(driven)]
    return {name: began.count(name) for name in NAMES if name in began}


def wait_for_halves(driven: DrivenProject, *names: str, times: int = 1) -> None:
    """Until these stages have begun so often and hold half an output."""

    def there() -> bool:
        begun = counts(driven)
        return all(begun.get(name, 0) >= times and output(driven, name) == "half" for name in names)

    wait_until(there, f"{names} half way")


def output(driven: DrivenProject, name: str) -> str:
    """What a stage has written so far."""
    path = driven.stage(name) / "out.txt"
    return path.read_text() if path.exists() else ""


def wrong(driven: DrivenProject) -> list[str]:
    """What is not as it has to be after a run to three right results, of which nothing else is left."""
    found = [f"{name} {word}" for name, word in driven.words().items() if word != "passed"]
    found += [f"{name}: {text}" for name in NAMES if (text := output(driven, name)) != f"whole {name}\n"]
    return [*found, *driven.left(), *driven.temporaries()]


def assert_right(driven: DrivenProject) -> None:
    """Three right results; nothing else is left of anything."""
    assert set(driven.words()) == set(NAMES) and (found := wrong(driven)) == [], found


def living(pids: list[int]) -> list[int]:
    """Those that still have their memory: a zombie has none, nor has one that was killed and only has to be told."""
    return [pid for pid in pids if command_line(pid) not in ("", "gone")]
