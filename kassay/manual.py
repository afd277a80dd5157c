"""What `kassay --help` says, as a manual page does: verbs by purpose, exit status, files, environment, examples.

The words that a verb takes stand here, too: of make's command line (`RUN=`) and, without their names, of kassay's own.
"""

import argparse
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from kassay import __version__

# Verbs that take SYMBOL=value.
SETTERS = ("defconfig", "plan", "doctor", "estimate", "run", "nightly", "freeze-protocol")
# What a verb takes beside that: name, the word of make's command line that gives it, help.
ARGUMENTS: dict[str, list[tuple[str, str | None, str]]] = {
    "defconfig": [("name", None, "profile, or profile+fragment+…")],
    "savedefconfig": [("name", "NAME", "profile to write")],
    "helpconfig": [("sym", "SYM", "symbol")],
    "randconfig": [("seed", "SEED", "whole number")],
    "diffconfig": [("a", "A", "file or profile (default: .config.old)"), ("b", "B", "file or profile (.config)")],
    "run": [
        ("stage", "STAGE", "stages to run with what they need"),
        ("force", "FORCE", "stages to run whatever is there"),
        ("keep", "KEEP", "stages whose stale results are kept"),
    ],
    "freeze-protocol": [("again", "AGAIN", "why another protocol is frozen though this one has results")],
    "status": [("run", "RUN", "run id (default: latest)")],
    "watch": [("run", "RUN", "run id (default: latest)")],
    "logs": [("stage", "STAGE", "stage"), ("run", "RUN", "run id (default: latest)")],
    "report": [("run", "RUN", "run id (default: latest)")],
    "audit": [("run", "RUN", "run id (default: latest)"), ("tar", "TAR", "an exported run in the place of RUN")],
    "runs": [("to", "TO", "`json`: a line a run for programs")],
    "compare": [("a", "A", "run id"), ("b", "B", "run id"), ("to", "TO", "`json`: one document for programs")],
    "query": [
        ("sql", "SQL", "one SELECT, SHOW or DESCRIBE (without it: the views)"),
        ("to", "TO", "table, csv, json or parquet, or a file of that name"),
        ("run", "RUN", "run id (default: all runs)"),
    ],
    "export": [("run", "RUN", "run id (default: latest)"), ("to", "TO", "file (default: <run id>.tar)")],
    "gc": [("now", "NOW", "1: delete what is listed without it")],
    "mirror": [("run", "RUN", "run id (default: latest)")],
    "completion": [("shell", None, "bash, zsh or fish")],
    "nightly": [
        ("run", "RUN", "judge this run only; without it PROFILE, of the command line or the environment, is run"),
        ("baseline", "BASELINE", "file of the baseline (default: baselines/<profile>.json)"),
    ],
    "baseline": [
        ("run", "RUN", "run id"),
        ("reason", "REASON", "why this is how it should be"),
        ("baseline", "BASELINE", "file of the baseline (default: baselines/<profile>.json)"),
    ],
}
WIDTH = 96
GROUPS: dict[str, tuple[str, ...]] = {
    "Choose": (
        *("defconfig", "listdefconfigs", "menuconfig", "nconfig", "savedefconfig", "oldconfig", "olddefconfig"),
        *("listnewconfig", "diffconfig", "randconfig", "helpconfig"),
    ),
    "Run": ("run", "plan", "doctor", "estimate", "freeze-protocol", "nightly", "baseline"),
    "Read": (
        *("status", "watch", "logs", "report", "audit", "runs", "compare", "query", "export", "gc", "mirror", "kv"),
        *("help", "completion"),
    ),
}
DESCRIPTION = """A Kconfig profile says what to test. kassay resolves it into a DAG of subprocess stages, runs them, and
leaves JSONL records, one verdict per gate, and a report. Every number can be traced to a commit, an input and a rule
that was frozen before the number existed. `make <verb>` in a clone is the same as `kassay <verb>` there; make also
sets up the environment. Standard output is data, standard error is talk."""
EXIT_STATUS = {
    "0": "all passed",
    "1": "something crashed",
    "2": "a mistake of the user's; make itself turns every other status but 0 into 2, too",
    "3": "something was rejected: a gate said no, a verdict is not the expected one, an audit differs",
    "4": "something was unmet or blocked, or could not be compared",
    "130": "interrupted; the same command resumes",
}
FILES = {
    ".config": "what was chosen; defconfigs/ holds the profiles, Kconfig the symbols",
    "workflows/, stages/": "what runs, and the programs that it runs",
    "results/<run>/": "plan.json, events.jsonl, stages/<stage>/, report.html, junit.xml",
    "protocol.json": "studies that were frozen before their results",
    "baselines/": "what nights are judged by",
}
ENVIRONMENT = {
    "KASSAY_PATH": "folders with workflows, stages and defconfigs of your own, with `:` between them",
    "SET": 'overrides of the composed workflow, as make SET="study.alpha=0.01"',
    "PROFILE": "what `nightly` runs",
    "NO_COLOR": "no colours, if it is set",
    "UV_FIND_LINKS, UV_TORCH_BACKEND": "where uv finds wheels for stacks (also PIP_FIND_LINKS, by make)",
    "WANDB_API_KEY, TRACKIO_SERVER_URL, TRACKIO_WRITE_TOKEN": "what mirrors that are online need; never kept",
}
EXAMPLES = (
    "kassay defconfig decode-cpu+smoke && kassay run",
    "kassay run STAGE=certify TIMING_BLOCKS=12",
    "kassay logs quality.robust RUN=latest",
    "PROFILE=published kassay nightly",
    'eval "$(kassay completion bash)"',
)


class Manual(argparse.ArgumentParser):
    """The command line as a whole; its help is a manual page."""

    verbs: Mapping[str, Callable[..., int]]

    def format_help(self) -> str:
        """The page."""
        groups = {f"{group} verbs": {verb: first_line(self.verbs[verb]) for verb in GROUPS[group]} for group in GROUPS}
        parts = [
            section("Name", "kassay: declarative, evidence-grade experiments"),
            section("Synopsis", "kassay <verb> [argument …] [SYMBOL=value …]\nkassay <verb> --help\nkassay --version"),
            section("Description", textwrap.fill(" ".join(DESCRIPTION.split()), WIDTH - 4)),
            *(section(title, rows(verbs)) for title, verbs in groups.items()),
            section("Exit status", rows(EXIT_STATUS)),
            section("Files", rows(FILES)),
            section("Environment", rows(ENVIRONMENT)),
            section("Examples", "\n".join(EXAMPLES)),
            section("See also", "README.md and docs/ in a clone; make help for the symbols of the chosen workflow"),
        ]
        return "\n".join(parts)


def parser(verbs: Mapping[str, Callable[..., int]]) -> argparse.ArgumentParser:
    """All verbs with their arguments; the docstring of each verb's function is its help."""
    top = Manual(prog="kassay", usage="kassay <verb> [argument …] [SYMBOL=value …]")
    top.verbs = verbs
    top.add_argument("--version", action="version", version=f"kassay {__version__}")
    subparsers = top.add_subparsers(dest="verb", required=True, metavar="verb", parser_class=argparse.ArgumentParser)
    for verb, function in verbs.items():
        made = subparsers.add_parser(
            verb,
            prog=f"kassay {verb}",
            help=first_line(function),
            description=function.__doc__,
            epilog=as_make(verb),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(function=function)
        for name, word, meaning in ARGUMENTS.get(verb, []):
            if word and verb in SETTERS:
                made.set_defaults(**{name: None})  # given as WORD=text, among the symbols
            else:
                made.add_argument(name, nargs="?" if word else None, help=meaning)
        if verb == "kv":
            made.add_argument("words", nargs=argparse.REMAINDER, help="size, offload or traffic; each has its --help")
        if verb in SETTERS:
            made.add_argument("variables", nargs="*", metavar="SYMBOL=value", help="Kconfig symbols to set")
    return top


def as_make(verb: str) -> str:
    """The same by way of make, with the words that go there by name."""
    if verb == "completion":
        return "For ever: kassay completion bash >> ~/.bashrc, or fish > ~/.config/fish/completions/kassay.fish"
    if verb == "kv":
        return "As make: make kv-size, make kv-offload, make kv-traffic"
    own = [(word, meaning) for _, word, meaning in ARGUMENTS.get(verb, []) if word]
    target = "make defconfig-<profile>[+<fragment>…]" if verb == "defconfig" else f"make {verb}"
    words = "".join(f" [{word}=…]" for word, _ in own) + (" [SYMBOL=value …]" if verb in SETTERS else "")
    told = f"As make: {target}{words}"
    if not own or verb not in SETTERS:
        return told
    return f"{told}\n\nWords:\n{indented(rows({f'{word}=': meaning for word, meaning in own}))}"


def first_line(function: Callable[..., Any]) -> str:
    """The first line of a function's docstring."""
    return (function.__doc__ or "").splitlines()[0]


def section(title: str, text: str) -> str:
    """A section of the page."""
    return f"{title}:\n{indented(text)}\n"


def indented(text: str) -> str:
    """Text as the body of a section."""
    return textwrap.indent(text, "  ")


def rows(told: Mapping[str, str]) -> str:
    """Names with their meanings beside them, or below where the name is long."""
    lines = []
    for name, meaning in told.items():
        head = f"{name:17} " if len(name) < 18 else f"{name}\n{'':18}"
        lines.append(head + textwrap.fill(meaning, WIDTH - 22).replace("\n", f"\n{'':18}"))
    return "\n".join(lines)
