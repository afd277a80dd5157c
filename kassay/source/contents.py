"""Contents: what a wheel holds, file by file, and whether an environment holds just that.

RECORD is the list that a wheel carries and an installer copies: path, SHA-256, bytes (PyPA "Binary distribution
format"). Here nobody's word is taken: the wheel's bytes are hashed, and so are the installed ones.
"""

import base64
import binascii
import configparser
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

from kassay import digest
from kassay.errors import SourceError

RECORD = "RECORD"
# What installers add to a distribution's folder.
ADDED = {RECORD, "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"}
SIGNATURES = {"RECORD.jws", "RECORD.p7s"}  # never listed in RECORD
LOADABLE = {".py", ".pyc", ".so"}  # an import would take them
REWRITTEN = b"#!python"  # start of a script whose first line the installer replaces


@dataclass(frozen=True, kw_only=True)
class Contents:
    """A wheel, unpacked in mind."""

    name: str  # as its metadata says
    version: str
    info: str  # name of its .dist-info folder
    placed: dict[str, str]  # path below site-packages -> SHA-256
    loose: dict[str, str | None]  # file name of a script or datum that goes elsewhere -> SHA-256, None if rewritten


def of_wheel(path: Path) -> Contents:
    """The contents of a wheel. Raises SourceError if it is none, or is not what its own RECORD says."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
            hashes = {name: of_member(archive, name) for name in names}
            rewritten = {name for name in names if archive.open(name).read(len(REWRITTEN)) == REWRITTEN}
            info = info_folder(path, names)
            metadata, record, scripts = (
                archive.read(name).decode(errors="replace") if name in names else ""
                for name in (f"{info}/METADATA", f"{info}/{RECORD}", f"{info}/entry_points.txt")
            )
    except (OSError, zipfile.BadZipFile) as error:
        raise SourceError(f"{path.name}: it cannot be read as a wheel: {error}") from None
    told, unlisted = recorded(record), {f"{info}/{name}" for name in (RECORD, *SIGNATURES)}
    if wrong := sorted(name for name in names if told.get(name) != hashes[name] and name not in unlisted):
        raise SourceError(*(f"{path.name}: `{name}` is not what the wheel's own RECORD says" for name in wrong[:5]))
    placed: dict[str, str] = {}
    loose: dict[str, str | None] = dict.fromkeys(entry_points(scripts))
    for name in sorted(set(names) - {f"{info}/{RECORD}"}):
        top, _, below = name.partition("/")
        scheme, _, rest = below.partition("/")
        if top != info.removesuffix(".dist-info") + ".data":
            placed[name] = hashes[name]
        elif scheme in ("purelib", "platlib"):
            placed[rest] = hashes[name]
        else:
            loose[PurePosixPath(name).name] = None if name in rewritten else hashes[name]
    head = HeaderParser().parsestr(metadata)
    return Contents(name=str(head["Name"]), version=str(head["Version"]), info=info, placed=placed, loose=loose)


def info_folder(path: Path, names: list[str]) -> str:
    """The wheel's one .dist-info folder. Raises SourceError if it has none, or more."""
    found = sorted({name.partition("/")[0] for name in names if name.partition("/")[0].endswith(".dist-info")})
    if len(found) != 1 or f"{found[0]}/{RECORD}" not in names:
        raise SourceError(f"{path.name}: a wheel has one .dist-info folder with a RECORD, it has {found}")
    return found[0]


def of_member(archive: zipfile.ZipFile, name: str) -> str:
    """SHA-256 of a file in an archive."""
    with archive.open(name) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def entry_points(text: str) -> list[str]:
    """Names of the scripts that an installer writes for a distribution."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return [name for group in ("console_scripts", "gui_scripts") if parser.has_section(group) for name in parser[group]]


def recorded(text: str) -> dict[str, str]:
    """Path -> SHA-256 in hex of every line of a RECORD; an empty string where the line states none."""
    found = {}
    for row in csv.reader(io.StringIO(text)):
        if row:
            kind, _, encoded = row[1].partition("=") if len(row) > 1 else ("", "", "")
            found[row[0]] = from_urlsafe(encoded) if kind == "sha256" else ""
    return found


def from_urlsafe(encoded: str) -> str:
    """RECORD's base64 without padding, as hex; an empty string if it is none."""
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()
    except binascii.Error:
        return ""


def is_added(path: str, info: str) -> bool:
    """Whether a line of an installed RECORD comes from the installer or from Python, not from the wheel."""
    pure = PurePosixPath(path)
    return pure.suffix == ".pyc" or (str(pure.parent) == info and pure.name in ADDED)


def content_hash(info: Path) -> str | None:
    """SHA-256 over an installed RECORD without what installers add; None for a distribution that has no RECORD."""
    if not (info / RECORD).is_file():
        return None
    rows = recorded((info / RECORD).read_text(errors="replace"))
    return digest.of_value(
        {name: sha for name, sha in rows.items() if not (outside(name) or is_added(name, info.name))}
    )


def outside(path: str) -> bool:
    """Whether a path of a RECORD leaves site-packages: scripts, headers, data; a script's first line differs."""
    return path.startswith(("../", "/"))


def differences(wheel: Contents, site: Path, owned: Iterable[str]) -> list[str]:
    """What is installed below `site` and is not what the wheel holds; `owned` is every path of every RECORD there."""
    info = site / wheel.info
    if not (info / RECORD).is_file():
        return [f"`{wheel.info}/{RECORD}`: expected the wheel's, found none"]
    rows = recorded((info / RECORD).read_text(errors="replace"))
    found = []
    for path, sha256 in wheel.placed.items():
        if rows.get(path) != sha256:
            told = rows.get(path, "no such line")
            found.append(f"RECORD's line of `{path}`: expected {sha256}, found {told or 'no hash'}")
        if (now := of_installed(site / path)) != sha256:
            found.append(f"`{path}`: expected {sha256}, found {now}")
    for path in sorted(set(rows) - set(wheel.placed)):
        name = PurePosixPath(path).name
        if is_added(path, wheel.info) or (outside(path) and wheel.loose.get(name, "") in (None, rows[path])):
            continue
        found.append(f"RECORD's line of `{path}`: expected none, as the wheel does not hold it")
    return found + [f"`{path}`: expected no such file, no RECORD has it" for path in strays(wheel, site, set(owned))]


def of_installed(path: Path) -> str:
    """SHA-256 of an installed file, or `no file`."""
    return digest.of_file(path) if path.is_file() else "no file"


def strays(wheel: Contents, site: Path, owned: set[str]) -> list[str]:
    """Files in the wheel's own folders that an import could take and that nobody installed."""
    tops = {path.partition("/")[0] for path in wheel.placed if "/" in path} - {wheel.info}
    files = [file for top in sorted(tops) for file in (site / top).rglob("*") if file.suffix in LOADABLE]
    paths = [str(file.relative_to(site)) for file in files if file.parent.name != "__pycache__"]
    return [path for path in sorted(paths) if path not in owned]
