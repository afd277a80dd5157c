"""Wheels for tests without an index, made of what is installed here: pure ones whole, of compiled ones the metadata.

Those of compiled packages say that they are for Python 3.12 on another machine, so none is ever installed.
"""

import base64
import ensurepip
import hashlib
import platform
import shutil
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOTS = ("kassay", "setuptools")
ARCH = "aarch64" if platform.machine() == "x86_64" else "x86_64"
COMPILED = f"cp312-cp312-manylinux_2_28_{ARCH}"
LEFT_OUT = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json")
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {}\n"


def installed() -> dict[str, metadata.Distribution]:
    """The framework's dependencies and setuptools, with all that they need, as this environment has them."""
    found: dict[str, metadata.Distribution] = {}
    asked = list(ROOTS)
    while asked:
        name = asked.pop().lower().replace("_", "-")
        if name not in found:
            found[name] = metadata.distribution(name)
            wanted = [Requirement(line) for line in found[name].requires or []]
            asked += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    del found["kassay"]
    return found


def is_pure(dist: metadata.Distribution) -> bool:
    """Whether its wheel fits every host."""
    return "Tag: py3-none-any" in (dist.read_text("WHEEL") or "")


def members(dist: metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    """What a wheel of it holds, but for the list of its files."""
    for file in dist.files or []:
        info = file.parts[0].endswith(".dist-info")
        if ".." in file.parts or "__pycache__" in file.parts or file.name in LEFT_OUT or not (info or is_pure(dist)):
            continue
        if file.name == "WHEEL" and info and not is_pure(dist):
            yield str(file), WHEEL.format(COMPILED).encode()
        else:
            yield str(file), Path(str(file.locate())).read_bytes()


def write_wheel(dist: metadata.Distribution, folder: Path) -> None:
    """A wheel of an installed distribution."""
    name = dist.metadata["Name"].replace("-", "_").replace(".", "_")
    write(folder / f"{name}-{dist.version}-{'py3-none-any' if is_pure(dist) else COMPILED}.whl", dict(members(dist)))


def write(path: Path, files: dict[str, bytes]) -> None:
    """A wheel of these files and the list of them."""
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
            summed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={summed},{len(data)}\n")
        info = next(name.partition("/")[0] for name in files if ".dist-info/" in name)
        archive.writestr(f"{info}/RECORD", "".join(rows) + f"{info}/RECORD,,\n")


def write_tools(folder: Path) -> list[str]:
    """Wheels of pip, Python's own copy, and of a uv without content, which is never called; their pins."""
    bundled = sorted((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
    if not bundled:
        pytest.skip("this Python has no ensurepip, whose wheel of pip is what a bundle is made with here")
    shutil.copy(bundled[0], folder)
    told = b"Metadata-Version: 2.1\nName: uv\nVersion: 1.0\n"
    files = {"uv-1.0.dist-info/METADATA": told, "uv-1.0.dist-info/WHEEL": WHEEL.format(COMPILED).encode()}
    write(folder / f"uv-1.0-{COMPILED}.whl", files)
    return ["uv==1.0", f"pip=={bundled[0].name.split('-')[1]}"]
