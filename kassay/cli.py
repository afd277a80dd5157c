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

from kassay import configure, manual, paths, project, runs, watch, words
from kassay.configure import say
from kassay.errors import EXIT_PASSED, EXIT_UNMET, EXIT_USAGE, ConfigError, KassayError
from kassay.words import Given

# Errors of the machine, not of the program: no space, quota, a read-only or forbidden folder.
HOST_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


def parser() -> argparse.ArgumentParser:
    """All verbs with their arguments, as kassay.manual has them."""
    return manual.parser(VERBS)


def taken(arguments: argparse.Namespace) -> Given:
    """The words given; the verb's own go into its arguments. Raises ConfigError for one that it does not take."""
    given = words.given(getattr(arguments, "variables", []))
    own = {word: name for name, word, _ in manual.ARGUMENTS.get(arguments.verb, []) if word}
    stray = [word for word in given.arguments if word not in own]
    if arguments.verb == "kv":
        return given  # it reads its words itself: each of its tables has others
    if arguments.verb not in manual.SETTERS:
        stray += list(given.symbols)
    if stray:
        raise ConfigError(*(f"{arguments.verb} does not take `{word}`" for word in stray), hint="make help")
    named = {}
    for name in own.values():  # `kassay logs STAGE=x` means what `kassay logs x` does, in any order
        word, sign, text = (getattr(arguments, name, None) or "").partition("=")
        if sign and word in own:
            named[own[word]] = text
            setattr(arguments, name, None)
    vars(arguments).update(named)
    for word, text in given.arguments.items():
        setattr(arguments, own[word], text)
    return given


def do_plan(arguments: argparse.Namespace, given: Given) -> int:
    """Print the DAG, and of each stage whether it would run and why."""
    from kassay import digest
    from kassay.planned import planned
    from kassay.preview import preview

    asked = planned(given)
    digest.recall(paths.digests())
    for line in preview(asked.plan, paths.results_dir(str(asked.settings["RESULTS"].value))):
        print(line)
    return 0


def do_doctor(arguments: argparse.Namespace, given: Given) -> int:
    """Say what the plan needs and this host lacks, before anything is built."""
    from kassay import doctor
    from kassay.planned import planned

    plan = planned(given).plan
    for line in doctor.lines(plan):
        print(line)
    found = doctor.examine(plan)
    for line in doctor.verdict(found):
        print(line)
    return EXIT_UNMET if any(found.values()) else 0


def do_estimate(arguments: argparse.Namespace, given: Given) -> int:
    """Time, disk and GPU-hours of the plan: measured where an earlier run tells, else as the profile states."""
    from kassay import estimate
    from kassay.planned import planned

    asked = planned(given)
    for line in estimate.lines(asked.plan, paths.results_dir(str(asked.settings["RESULTS"].value))):
        print(line)
    return 0


def do_run(arguments: argparse.Namespace, given: Given) -> int:
    """Run the plan of .config, or what of it is not up to date."""
    from kassay.running import do_run as run

    return run(arguments, given)


def do_freeze_protocol(arguments: argparse.Namespace, given: Given) -> int:
    """Freeze the study of .config: from then on a changed one is another protocol."""
    from kassay import protocol
    from kassay.planned import study_of

    workflow, study, results = study_of(given)
    say(protocol.freeze(workflow, study, results, arguments.again or ""))
    return 0


def do_mirror(arguments: argparse.Namespace, given: Given) -> int:
    """Send what of a run its mirrors do not hold yet."""
    from kassay.config import kconfig
    from kassay.mirror.start import resend
    from kassay.rundir import chosen_run

    settings = kconfig.load(paths.config())
    told = resend(chosen_run(paths.results_dir(str(settings["RESULTS"].value)), arguments.run), settings)
    for one in told:
        print(f"{one.mirror}: {one.state}, {one.events} events{': ' + one.reason if one.reason else ''}")
    return EXIT_PASSED if all(one.state == "sent" for one in told) else EXIT_UNMET


def do_nightly(arguments: argparse.Namespace, given: Given) -> int:
    """Run PROFILE anew from a clean tree, audit it, and judge it by its baseline."""
    from kassay.nightly import night

    return night.do_nightly(arguments, given)


def do_baseline(arguments: argparse.Namespace, given: Given) -> int:
    """Accept the run RUN as what nights of its profile are judged by, with a REASON that is kept."""
    from kassay.nightly import night

    return night.do_baseline(arguments, given)


def do_completion(arguments: argparse.Namespace, given: Given) -> int:
    """Print what makes SHELL complete verbs, profiles, stages, runs and symbols of kassay."""
    from kassay import completion

    print(completion.script(arguments.shell))
    return 0


def do_kv(arguments: argparse.Namespace, given: Given) -> int:
    """Byte arithmetic of caches: size (slots of a budget), offload (GB/s of a link), traffic (f_KV)."""
    from kassay.kv import size

    return size.do_kv(arguments.words, given)


def do_report(arguments: argparse.Namespace, given: Given) -> int:
    """Render report.html, report.md, report.json and junit.xml of a run again from its records."""
    from kassay.report import render_run
    from kassay.watch import asked_run

    for path in render_run(asked_run(arguments)):
        print(paths.shown(path))
    return 0


def do_audit(arguments: argparse.Namespace, given: Given) -> int:
    """Derive every verdict of a run again from its raw records: 3 if anything differs, 4 if some cannot be derived."""
    from kassay.audit import audit, audit_tar
    from kassay.watch import asked_run

    if arguments.run and arguments.tar:
        raise ConfigError("audit takes RUN or TAR, not both")
    found = audit_tar(Path(arguments.tar)) if arguments.tar else audit(asked_run(arguments))
    for line in found.lines():
        print(line)
    return found.exit_code


def do_export(arguments: argparse.Namespace, given: Given) -> int:
    """Write a run into a tar that `make audit TAR=` takes on another machine; equal runs give equal bytes."""
    from kassay.export import export
    from kassay.watch import asked_run

    run_dir = asked_run(arguments).resolve()
    target = Path(arguments.to) if arguments.to else run_dir.with_name(f"{run_dir.name}.tar")
    for line in export(run_dir, target):
        say(line)
    print(paths.shown(target.absolute()))
    return 0


def do_gc(arguments: argparse.Namespace, given: Given) -> int:
    """List what under build/ no run of the results needs, and delete it with NOW=1."""
    from kassay import gc

    return gc.do_gc(arguments.now)


VERBS: dict[str, Callable[[argparse.Namespace, Given], int]] = {
    "defconfig": configure.do_defconfig,
    "menuconfig": configure.do_menuconfig,
    "nconfig": configure.do_nconfig,
    "oldconfig": configure.do_oldconfig,
    "olddefconfig": configure.do_olddefconfig,
    "savedefconfig": configure.do_savedefconfig,
    "listdefconfigs": configure.do_listdefconfigs,
    "listnewconfig": configure.do_listnewconfig,
    "helpconfig": configure.do_helpconfig,
    "randconfig": configure.do_randconfig,
    "diffconfig": configure.do_diffconfig,
    "plan": do_plan,
    "doctor": do_doctor,
    "estimate": do_estimate,
    "run": do_run,
    "freeze-protocol": do_freeze_protocol,
    "status": watch.do_status,
    "watch": watch.do_watch,
    "logs": watch.do_logs,
    "report": do_report,
    "audit": do_audit,
    "runs": runs.do_runs,
    "compare": runs.do_compare,
    "query": runs.do_query,
    "export": do_export,
    "gc": do_gc,
    "mirror": do_mirror,
    "nightly": do_nightly,
    "baseline": do_baseline,
    "completion": do_completion,
    "kv": do_kv,
    "help": configure.do_help,
}


def main() -> int:
    """Entry point: one message and exit 2 for a user's mistake; a bug keeps its traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # whatever the locale
    try:
        if "_ARGCOMPLETE" in os.environ:
            from kassay import completion

            completion.complete(parser())
        arguments = parser().parse_args([words.utf8(word) for word in sys.argv[1:]])
        if arguments.verb != "run":
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `make plan | head` ends in silence
        project.require(arguments.verb, sys.argv[1:])
        return int(arguments.function(arguments, taken(arguments)))
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
