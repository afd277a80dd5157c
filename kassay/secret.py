"""Secrets stay out of a run: refused in what is asked, withheld from logs, and fatal to a result that holds one.

A secret is the value of an environment variable whose name says so (`HF_TOKEN`, `AWS_SECRET_ACCESS_KEY`), the password
of a url in any variable, and in text whatever has the form of one: a login in a url, a token among its parameters, an
Authorization header, a key with its issuer's prefix. Values shorter than LEAST would be found everywhere by chance.

Logs and reasons have what is found replaced by `[withheld]`. Every other file of a stage is searched for the values
only: its digest is evidence, so one that held a secret is no result. It does not find a secret that was encoded or cut
in two, nor one that a stage got from elsewhere than its environment and that has no known form, nor one across the
pieces in which a line of more than BLOCK_BYTES is read; and until its stage ends, a log holds what was said.
"""

import mmap
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from kassay import atomic, paths
from kassay.errors import ConfigError

if TYPE_CHECKING:
    from kassay.planned import Planned

LEAST = 10  # characters
NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|_KEY$|_PAT$")
WITHHELD = b"[withheld]"
# What precedes a secret is kept, so that a reader sees what was there. Every repetition is bounded or ends at the first
# character that is none of its own: a line of a megabyte takes linear time.
FORMS = re.compile(
    rb"(?P<kept>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,20}://[^\s/:@\"']{0,256}:)[^\s/@\"']{1,256}(?=@)"  # a url's password
    rb"|(?P<kept_user>\bhttps?://)[^\s/:@\"']{1,256}(?=@)"  # a token in the place of its user
    rb"|(?P<kept_query>[?&](?:access_|api_|auth_|private_|write_)?(?:token|key|secret|signature|password)=)[^&\s\"'<>]+"
    rb"|(?P<kept_header>\bauthorization\W{1,4}(?:bearer|basic|token)\s+)[^\s\"'<>]+"
    rb"|\b(?:hf_|gh[opsu]_|glpat-|xox[bp]-|sk-|sk-proj-|sk-ant-)[A-Za-z0-9]{20,}[\w-]*|\bgithub_pat_\w{20,}|\bAKIA[A-Z0-9]{16}\b",
    re.IGNORECASE,
)
# Without one of these there is none of FORMS: most text is passed over in a microsecond.
MARKS = (
    *(b"://", b"token=", b"key=", b"secret=", b"signature=", b"password=", b"authorization", b"hf_", b"gho_", b"ghp_"),
    *(b"ghs_", b"ghu_", b"glpat-", b"xoxb-", b"xoxp-", b"sk-", b"github_pat_", b"akia"),
)
BLOCK_BYTES = 1 << 20  # looked at together: whole lines, or so much of a longer one
OURS = (paths.STDOUT, paths.STDERR, paths.OUTCOME, paths.PROGRESS)  # no digest is kept of them


def known() -> dict[str, bytes]:
    """Variable -> the secret in it, of this process's environment."""
    found = {}
    for name, value in os.environ.items():
        if NAME.search(name.upper()) and len(value) >= LEAST and not os.path.isabs(value):
            found[name] = os.fsencode(value)
        elif "@" in value and "://" in value and len(password := password_of(value)) >= LEAST:
            found[name] = os.fsencode(password)
    return found


def password_of(url: str) -> str:
    """The password in a url; empty if there is none, or it is no url."""
    try:
        return urlsplit(url).password or ""
    except ValueError:
        return ""


def withheld(data: bytes, secrets: Iterable[bytes]) -> bytes:
    """A text without the secrets, and without whatever has the form of one."""
    for value in sorted(secrets, key=len, reverse=True):
        data = data.replace(value, WITHHELD)
    lower = data.lower()
    if not any(mark in lower for mark in MARKS):
        return data
    return FORMS.sub(lambda match: b"".join(part for part in match.groups() if part) + WITHHELD, data)


def clean(directory: Path) -> str:
    """Withhold secrets from the files of a stage that ended; which of its results held one, in words, if any did."""
    secrets = known()
    clean_logs(directory, secrets)
    held = []
    for path in files(directory) if secrets else ():
        if found := [name for name, value in secrets.items() if holds(path, value)]:
            rewrite(path, secrets)
            held.append(f"{path.relative_to(directory)} held the value of {', '.join(found)}")
    return "; ".join(held)


def clean_logs(directory: Path, secrets: dict[str, bytes]) -> None:
    """Withhold secrets from what has no digest."""
    for name in OURS:
        path = directory / name
        try:
            with path.open("rb") as stream:
                dirty = any(withheld(block, secrets.values()) != block for block in blocks(stream))
        except FileNotFoundError:
            continue
        if dirty:
            rewrite(path, secrets)


def rewrite(path: Path, secrets: dict[str, bytes]) -> None:
    """Replace a file by itself without its secrets."""
    aside = path.with_name(f".{path.name}{atomic.SUFFIX}")
    with path.open("rb") as stream, aside.open("wb") as cleaned:
        cleaned.writelines(withheld(block, secrets.values()) for block in blocks(stream))
    aside.replace(path)


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """A file in blocks that end with a line; a line longer than one in pieces that end at a blank, if it has any."""
    rest = b""
    while read := stream.read(BLOCK_BYTES):
        data = rest + read
        end = data.rfind(b"\n") + 1
        if not end and len(data) > BLOCK_BYTES:
            end = data.rfind(b" ") + 1 or len(data)
        if end:
            yield data[:end]
        rest = data[end:]
    if rest:
        yield rest


def files(directory: Path) -> Iterator[Path]:
    """The regular files of a stage but for its logs and outcome; links are not followed."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file() and not (path.parent == directory and name in OURS):
                yield path


def holds(path: Path, value: bytes) -> bool:
    """Whether a file holds a value, at any size in bounded memory."""
    with path.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size < len(value):
            return False
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return mapped.find(value) >= 0


def require_none(asked: "Planned") -> None:
    """Raise ConfigError with every place in what is asked that holds a secret: it is kept with the results."""
    texts: dict[str, Any] = {f"setting `{name}`": setting.value for name, setting in asked.settings.items()}
    texts |= {f"override {number}": text for number, text in enumerate(asked.overrides, 1)}
    texts |= {f"stage `{stage.name}`": vars(stage) for stage in asked.plan.stages}
    secrets = known()
    wrong = [f"{place} {why}" for place, value in texts.items() for why in sorted(set(faults(value, secrets)))]
    if wrong:
        hint = "name the environment variable where it is used; a plan is kept with its results"
        raise ConfigError(*wrong, hint=hint)


def faults(value: Any, secrets: dict[str, bytes]) -> Iterator[str]:
    """What is secret in the texts of a value."""
    if isinstance(value, dict):
        yield from (fault for one in (*value, *value.values()) for fault in faults(one, secrets))
    elif isinstance(value, list | tuple):
        yield from (fault for one in value for fault in faults(one, secrets))
    elif isinstance(value, str):
        data = value.encode(errors="surrogateescape")
        yield from (f"holds the value of {name}" for name, one in secrets.items() if one in data)
        if FORMS.search(data):
            yield "holds a login or a token"
