"""An exported run out of its tar, which may come from anybody: nothing of it is trusted before it was looked at.

Allowed are regular files with plain relative names below one folder, and folders. Refused, with the name: absolute
names, `..`, control characters, links, devices, pipes, sparse files, a name that comes twice, compression, long
headers, more members than a run has. A tar holds its bytes as they are, so what comes out is never more than the tar.
Files are written by us, without modes, times and owners, into a new folder in which there are no links.
"""

import json
import os
import re
import tarfile
from pathlib import Path
from typing import Any

from kassay import digest, paths
from kassay.audit import Difference
from kassay.errors import RunError
from kassay.export import INDEX, SCHEMA

BLOCK = 512
EXTENDED = b"xgLK"  # headers that describe the next member
LARGEST_HEADER_BYTES = 1 << 16
MOST_MEMBERS = 200_000
LONGEST_NAME = 1000
DEEPEST = 32
PART = re.compile(r"[^\x00-\x1f\x7f/\\]{1,255}")
CHUNK_BYTES = 1 << 20
LARGEST_INDEX_BYTES = 64 << 20


def unpack(tar: Path, folder: Path) -> tuple[Path, list[Difference]]:
    """The run directory below an empty folder, and what is not as its export.json says.

    Raises RunError for a file that is no tar, a hostile one, or none of `make export`.
    """
    require_headers(tar)
    names: dict[str, bool] = {}
    try:
        with tarfile.open(tar, "r:") as stream:
            for one in stream:
                checked(one, names, tar)
                place = folder / one.name
                place.parent.mkdir(parents=True, exist_ok=True)
                if one.isdir():
                    place.mkdir(exist_ok=True)
                else:
                    write(stream, one, place)
    except (tarfile.TarError, EOFError, UnicodeError, OverflowError, ValueError) as error:
        raise RunError(f"{paths.shown(tar)}: it cannot be read as a tar: {error}") from None
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise RunError(f"{paths.shown(tar)}: a file and a folder have one name: {error.filename}") from None
    tops = sorted({name.partition("/")[0] for name in names})
    if len(tops) != 1 or not (folder / tops[0] / INDEX).is_file():
        raise RunError(f"{paths.shown(tar)}: it is no exported run", hint="make export RUN=<run id>")
    return folder / tops[0], differences(folder / tops[0], [name for name, is_file in names.items() if is_file])


def require_headers(tar: Path) -> None:
    """Raise RunError for what is no plain tar, or whose headers alone would take much memory or time."""
    size = tar.stat().st_size if tar.is_file() else -1
    if size < 0:
        raise RunError(f"{paths.shown(tar)}: there is no such file", hint="make export RUN=<run id>")
    place = members = 0
    with tar.open("rb") as stream:
        while place + BLOCK <= size:
            stream.seek(place)
            header = stream.read(BLOCK)
            if not header.strip(b"\0"):
                return
            if header[257:262] != b"ustar":
                raise RunError(f"{paths.shown(tar)}: it is no tar, or a compressed one", hint="decompress it first")
            try:
                held = tarfile.nti(header[124:136])  # type: ignore[attr-defined]
            except tarfile.TarError:
                raise RunError(f"{paths.shown(tar)}: a header says no size") from None
            members += 1
            if header[156:157] in [bytes([kind]) for kind in EXTENDED] and held > LARGEST_HEADER_BYTES:
                raise RunError(f"{paths.shown(tar)}: a header of {held} bytes, allowed are {LARGEST_HEADER_BYTES}")
            if members > MOST_MEMBERS or held < 0 or place + BLOCK + held > size:
                raise RunError(f"{paths.shown(tar)}: it is cut, or has more than {MOST_MEMBERS} members")
            place += BLOCK + -(-held // BLOCK) * BLOCK


def checked(one: tarfile.TarInfo, names: dict[str, bool], tar: Path) -> None:
    """Note a member's name. Raises RunError for one that no export has."""
    parts = one.name.split("/")
    shown = ascii(one.name[:100])
    if not (one.isreg() or one.isdir()) or one.issparse() or any("sparse" in key for key in one.pax_headers):
        raise RunError(f"{paths.shown(tar)}: {shown} is neither a regular file nor a folder")
    if (
        len(one.name) > LONGEST_NAME
        or len(parts) > DEEPEST
        or any(part in (".", "..") or not PART.fullmatch(part) for part in parts)
    ):
        raise RunError(f"{paths.shown(tar)}: {shown} is no plain name below one folder")
    if one.name in names and (one.isreg() or names[one.name]):  # a folder may be named again
        raise RunError(f"{paths.shown(tar)}: {shown} is in it twice")
    names[one.name] = one.isreg()


def write(stream: tarfile.TarFile, one: tarfile.TarInfo, place: Path) -> None:
    """One regular file, new. Raises RunError where the tar ends before it."""
    source = stream.extractfile(one)
    assert source is not None, "a regular file without content: this is a bug"
    fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(fd, "wb") as target:
        while chunk := source.read(CHUNK_BYTES):
            target.write(chunk)


def differences(run_dir: Path, names: list[str]) -> list[Difference]:
    """Files that are not those of export.json. Raises RunError for one that is none of ours."""
    index = index_of(run_dir)
    stated: dict[str, Any] = index["files"]
    found = []
    inside = {name.partition("/")[2] for name in names} - {INDEX}
    for name in sorted({*inside, *stated}):
        if name not in inside or name not in stated:
            pair = ("stated", "no such file") if name in stated else ("there", "not in export.json")
            found.append(Difference(stage="run", record=name, field="presence", recorded=pair[0], derived=pair[1]))
        elif (now := digest.of_file(run_dir / name)) != stated[name]["sha256"]:
            was = str(stated[name]["sha256"])
            found.append(Difference(stage="run", record=name, field="sha256", recorded=was, derived=now))
    return found


def index_of(run_dir: Path) -> dict[str, Any]:
    """The content of export.json. Raises RunError where it is none."""
    place = run_dir / INDEX
    try:
        if place.stat().st_size > LARGEST_INDEX_BYTES:
            raise RunError(f"{INDEX} has {place.stat().st_size} bytes, allowed are {LARGEST_INDEX_BYTES}")
        body = json.loads(place.read_bytes())
        if body["schema"] != SCHEMA or body["run"] != run_dir.name:
            raise RunError(f"{INDEX}: schema `{body['schema']}` of run `{body['run']}`, expected is `{SCHEMA}`")
        dict(body["files"]), [one["sha256"] for one in body["files"].values()]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{INDEX}: it cannot be read: {error}") from None
    return dict(body)
