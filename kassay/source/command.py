"""git, run so that it never asks, never hangs, and nothing of the caller's environment or settings redirects it.

A failure is a SourceError with git's own last words; one that another host or moment may not have is Unreachable.
"""

import os
import re
import signal
import subprocess
from pathlib import Path

from kassay.errors import SourceError

TIMEOUT_S = 1800.0  # of a whole fetch; a large repository takes minutes
ASK_TIMEOUT_S = 60.0  # of a question to a remote: git itself would wait five minutes for a connection
# What a repository's content or a url must not be able to start; Git LFS and hooks are off, transports are named.
SETTINGS = (
    "protocol.allow=never protocol.https.allow=always protocol.http.allow=always protocol.ssh.allow=always "
    "protocol.git.allow=always protocol.file.allow=always core.hooksPath=/dev/null core.fsmonitor=false "
    "submodule.recurse=false fetch.recurseSubmodules=false gc.auto=0 maintenance.auto=false advice.detachedHead=false "
    "http.lowSpeedLimit=1000 http.lowSpeedTime=60 filter.lfs.smudge= filter.lfs.process= filter.lfs.required=false"
).split()
QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=20",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,  # a user's url.insteadOf would fetch from elsewhere than the record says
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
OF_GIT_ITSELF = "GIT_TEST_"  # its own test switches can only make git stricter
NETWORK = re.compile(
    r"could not resolve|connection refused|failed to connect|connection timed out|operation timed out|no route to host|"
    r"network is unreachable|connection reset|early eof|unexpected disconnect|could not read (username|password)|"
    r"authentication failed|permission denied \(|host key verification|operation too slow|returned error: (429|5\d\d)|"
    r"unable to connect|the remote end hung up|\bssl\b|\btls\b|gnutls",
    re.IGNORECASE,
)


MARKS = ("fatal:", "error:", "ssh:", "remote:")


class Unreachable(SourceError):
    """A remote did not answer, or not without a password: this host or moment lacks it, the source may be right."""


def environment(index: Path | None) -> dict[str, str]:
    """The caller's environment without anything that speaks to git, and an index of our own if one is given."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("GIT_") or OF_GIT_ITSELF in name}
    return kept | QUIET | ({"GIT_INDEX_FILE": str(index)} if index else {})


def git(*words: str, cwd: Path, timeout_s: float = TIMEOUT_S, index: Path | None = None) -> str:
    """What git printed. Raises SourceError if it failed, Unreachable if a remote could not be asked."""
    return git_bytes(*words, cwd=cwd, timeout_s=timeout_s, index=index).decode("utf-8", "surrogateescape")


def git_bytes(*words: str, cwd: Path, timeout_s: float = TIMEOUT_S, index: Path | None = None) -> bytes:
    """As `git`, for output that may be no text."""
    argv = ["git", *(word for setting in SETTINGS for word in ("-c", setting)), *words]
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=environment(index),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that its transports end with it
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Unreachable(f"`git {words[0]}` did not end within {timeout_s:g} s: {asked(words)}") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode != 0:
        said = last_words(err.decode("utf-8", "replace"))
        kind = Unreachable if NETWORK.search(said) else SourceError
        raise kind(f"`git {words[0]}` ended with {process.returncode}: {said}")
    return out


def asked(words: tuple[str, ...]) -> str:
    """The remote that a command names, for messages."""
    return next((word for word in words if "://" in word or word.startswith("/")), "")


def last_words(text: str) -> str:
    """What git said of a failure, on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = next((n for n, line in enumerate(lines) if line.startswith(MARKS)), max(len(lines) - 2, 0))
    return "; ".join(dict.fromkeys(lines[marked : marked + 4])) or "it said nothing"
