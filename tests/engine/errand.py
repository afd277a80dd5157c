"""A job of the contract suite as a program: `errand.py <directory> <errand as JSON>`, standard library only."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def tell(directory: Path, names: list[str], environment: dict[str, str]) -> None:
    """Write down some variables, with the words of the command line."""
    (directory / "told.json").write_text(json.dumps({name: environment.get(name) for name in names}))


def main() -> None:
    """The errand as a program."""
    directory, errand = Path(sys.argv[1]), json.loads(sys.argv[2])
    if errand.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if errand.get("spawn"):
        children = [subprocess.Popen(["sleep", "600"], start_new_session=own) for own in (False, True)]
        (directory / "pids").write_text(" ".join(str(pid) for pid in [os.getpid(), *(c.pid for c in children)]))
        for child in children:
            child.returncode = 0  # left behind on purpose
    for stream in (sys.stdout, sys.stderr):
        stream.write(errand.get("say", ""))
        stream.flush()
    tell(directory, errand.get("tell", []), dict(os.environ))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # it may have been started with TERM put off
    time.sleep(errand.get("seconds", 0.0))
    if "signal" in errand:
        os.kill(os.getpid(), errand["signal"])
    os._exit(errand.get("exit_code", 0))


if __name__ == "__main__":
    main()
