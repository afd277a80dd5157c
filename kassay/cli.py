"""The command line behind make: `kassay <verb>`; standard output is data, standard error is talk.

Exit codes: 0 all passed, 1 something crashed, 2 a user's mistake, 3 something was rejected, 4 something was unmet.
"""

import argparse
import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kassay import __version__, paths
from kassay.errors import EXIT_USAGE, ConfigError, KassayError, RunError

if TYPE_CHECKING:
    from kassay.config.kconfig import Setting
    from kassay.plan import Plan

# Errors of the machine, not of the program: no space, quota, a read-only or forbidden folder.
HOST_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended
# Words that make itself takes; every other variable of its command line must be a Kconfig symbol.
OF_MAKE = {"CHECK_VENV", "KASSAY", "PIP_FIND_LINKS", "PYTHON", "RUN", "SET", "UV_FIND_LINKS", "VENV"}


def parser() -> argparse.ArgumentParser:
    """All verbs with their arguments; the first line of each verb's docstring is its help."""
    top = argparse.ArgumentParser(prog="kassay", description="declarative, evidence-grade experiments")
    top.add_argument("--version", action="version", version=f"kassay {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="verb")
    for verb, function in VERBS.items():
        made = verbs.add_parser(verb, help=(function.__doc__ or "").splitlines()[0], description=function.__doc__)
        made.set_defaults(function=function)
        if verb == "defconfig":
            made.add_argument("name", help="profile, or profile+fragment+…")
        if verb == "report":
            made.add_argument("run", nargs="?", default="latest", help="run id (default: latest)")
        if verb in ("defconfig", "plan", "run"):
            made.add_argument("variables", nargs="*", metavar="SYMBOL=value", help="Kconfig symbols to set")
    return top


def variables_of(words: list[str]) -> dict[str, str]:
    """`SYMBOL=value` words and the variables of make's command line. Raises ConfigError for a word without `=`."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"`{word}` is no assignment, allowed is SYMBOL=value")
        found[name] = value
    names = [name for name in os.environ.get("KASSAY_VARIABLES", "").split() if name not in OF_MAKE]
    if lost := [name for name in names if name not in os.environ]:  # make exports only what a shell could hold
        messages = [f"command line: unknown symbol `{name}`" for name in lost]
        raise ConfigError(*messages, hint=f'make SET="{lost[0]}=…" overrides a value of the workflow')
    return {name: utf8(os.environ[name]) for name in names} | found


def utf8(text: str) -> str:
    """A word of the command line or the environment as UTF-8, whatever the locale. Raises ConfigError if it is none."""
    try:
        return os.fsencode(text).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"command line: not UTF-8: {error.object!r}") from None


def do_defconfig(arguments: argparse.Namespace) -> int:
    """Write .config from a profile and its fragments."""
    from kassay.config import kconfig

    variables = variables_of(arguments.variables)
    changed, overridden = kconfig.load_profile(arguments.name, variables, paths.ROOT, paths.CONFIG)
    for message in overridden:
        say(message)
    say(f".config {'written' if changed else 'unchanged'}: {arguments.name}")
    return 0


def set_symbols(arguments: argparse.Namespace) -> None:
    """Change symbols of the existing .config, as the command line asks."""
    from kassay.config import kconfig

    variables = variables_of(arguments.variables)
    if variables and paths.CONFIG.is_file():
        kconfig.set_variables(variables, paths.ROOT, paths.CONFIG)


def do_menuconfig(arguments: argparse.Namespace) -> int:
    """Edit .config in a terminal."""
    from kassay.config import kconfig

    require_terminal()
    if paths.CONFIG.is_file():
        kconfig.load(paths.ROOT, paths.CONFIG)  # what the menu would replace quietly is said here
    import menuconfig

    os.environ["KCONFIG_CONFIG"] = str(paths.CONFIG)
    os.environ["MENUCONFIG_STYLE"] = os.environ.get("MENUCONFIG_STYLE", "default")
    with kconfig.tree(paths.ROOT) as kconf:
        menuconfig.menuconfig(kconf)
    return 0


def require_terminal() -> None:
    """Raise ConfigError unless a menu can be drawn here: curses itself would end in a traceback."""
    import curses

    hint = "make defconfig-<profile> SYMBOL=value"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("menuconfig needs a terminal", hint=hint)
    try:
        curses.setupterm()
        movable = curses.tigetstr("cup")
    except curses.error:
        movable = None
    if not movable:
        raise ConfigError(f"menuconfig cannot draw on a terminal of TERM=`{os.environ.get('TERM', '')}`", hint=hint)


def do_listdefconfigs(arguments: argparse.Namespace) -> int:
    """List profiles and fragments with their purpose, hardware and time."""
    from kassay.config.assignments import head_comment

    for path in sorted([*paths.DEFCONFIGS.glob("[!.]*"), *paths.FRAGMENTS.glob("*.config")]):
        if path.is_file():
            head = head_comment(path)
            mark = "+" if path.parent == paths.FRAGMENTS else ""
            rest = "; ".join(f"{key}: {text}" for key, text in head.items() if key != "purpose")
            print(f"{mark}{path.name.removesuffix('.config')}\t{head.get('purpose', '')}\t{rest}")
    return 0


def planned() -> "tuple[Plan, dict[str, Setting], list[str]]":
    """The plan of the present .config and the overrides in SET."""
    from kassay import plan
    from kassay.config import compose, kconfig

    settings = kconfig.load(paths.ROOT, paths.CONFIG)
    workflow = str(settings["WORKFLOW"].value)
    overrides = compose.split_overrides(utf8(os.environ.get("SET", "")))
    composed = compose.compose(paths.WORKFLOWS / workflow, settings, overrides)
    profile = "+".join(filter(None, (str(settings["PROFILE"].value), str(settings["FRAGMENTS"].value)))) or "custom"
    return plan.build(profile, workflow, composed, paths.ROOT), settings, overrides


def do_plan(arguments: argparse.Namespace) -> int:
    """Print the DAG, and of each stage whether it would run and why."""
    from kassay.preview import preview

    set_symbols(arguments)
    plan, settings, _ = planned()
    for line in preview(plan, paths.results_dir(str(settings["RESULTS"].value))):
        print(line)
    return 0


def do_run(arguments: argparse.Namespace) -> int:
    """Run the plan of .config, or what of it is not up to date."""
    from rich.console import Console

    from kassay import host, lock
    from kassay.engine.local import LocalEngine
    from kassay.progress import Lines, LiveTable
    from kassay.run import Run
    from kassay.rundir import Setup

    set_symbols(arguments)
    plan, settings, overrides = planned()
    setup = Setup(
        results=paths.results_dir(str(settings["RESULTS"].value)),
        settings=settings,
        overrides=overrides,
        interpreter=sys.executable,
        timeout_s=float(settings["STAGE_TIMEOUT_S"].value),
    )
    memory_gib = host.fingerprint()["memory_gib"]
    engine = LocalEngine(cpus=int(settings["MAX_CPUS"].value) or host.usable_cpus(), memory_gib=memory_gib)
    console = Console(stderr=True)
    run = Run(plan, setup, engine)
    with lock.owned(run.directory):
        watcher = LiveTable(console, run.directory) if console.is_terminal else Lines(console)
        try:
            code = run.go(watcher)
        except KeyboardInterrupt:
            say(f"interrupted: {paths.shown(run.directory)}\nhint: make resumes it")
            return INTERRUPTED
        finally:
            watcher.close()
    return conclude(run.directory, code)


def conclude(run_dir: Path, code: int) -> int:
    """Print the last lines of a run: what ended badly, the verdict, where the report is."""
    from kassay.report.text import closing_lines

    for line in closing_lines(run_dir, code):
        say(line)
    return code


def do_report(arguments: argparse.Namespace) -> int:
    """Render report.html, report.md, report.json and junit.xml of a run again from its records."""
    from kassay.config import kconfig
    from kassay.report import render_run

    settings = kconfig.load(paths.ROOT, paths.CONFIG)
    run_dir = paths.results_dir(str(settings["RESULTS"].value)) / arguments.run
    if not (run_dir / paths.PLAN).is_file():
        raise RunError(f"no run `{arguments.run}` in {paths.shown(run_dir.parent)}", hint="make runs it")
    for path in render_run(run_dir):
        print(paths.shown(path))
    return 0


def do_help(arguments: argparse.Namespace) -> int:
    """Explain the make targets and the symbols that the command line takes."""
    from kassay.config import kconfig

    print((paths.ROOT / "Makefile").read_text(encoding="utf-8").split("\n\n", 1)[0].replace("# ", "").replace("#", ""))
    print("\nSymbols (make … SYMBOL=value):")
    with kconfig.tree(paths.ROOT) as kconf:
        for symbol in kconf.unique_defined_syms:
            if symbol.nodes[0].prompt:
                print(f"  {symbol.name:28} {symbol.nodes[0].prompt[0]}")
    return 0


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "defconfig": do_defconfig,
    "menuconfig": do_menuconfig,
    "listdefconfigs": do_listdefconfigs,
    "plan": do_plan,
    "run": do_run,
    "report": do_report,
    "help": do_help,
}


def say(line: str) -> None:
    """One line of talk on standard error."""
    print(line, file=sys.stderr)


def main() -> int:
    """Entry point: one message and exit 2 for a user's mistake; a bug keeps its traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # whatever the locale
    try:
        arguments = parser().parse_args([utf8(word) for word in sys.argv[1:]])
        if arguments.verb != "run":
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `make plan | head` ends in silence
        return int(arguments.function(arguments))
    except KassayError as error:
        for line in str(error).splitlines():
            say(line if line.startswith("hint: ") else f"error: {line}")
        return EXIT_USAGE
    except OSError as error:
        if error.errno not in HOST_FAULTS:
            raise
        say(f"error: {error.filename or 'a file'}: {error.strerror}")
        say("hint: what was recorded before is kept; free the space or the folder, then make resumes")
        return EXIT_USAGE
