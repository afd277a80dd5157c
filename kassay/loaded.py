"""What a process really loaded: project files, distributions, shared objects, and what a JIT compiler made meanwhile.

A stage writes it into receipt.json at its end. In an attested stack, digests of shared objects are kept beside the
stack by path, size, inode and time of change, so that a library of gigabytes is read once and not by every cell.
"""

import json
import os
import sys
from pathlib import Path

from kassay import digest, paths

# Loaded, but not by what a stage does: ourselves (told file by file), the program, what installers put into start-up.
NO_PACKAGES = {"kassay", "__main__", "__mp_main__", "sitecustomize", "usercustomize", "_distutils_hack", "_virtualenv"}
NO_PACKAGES |= {"kassay_vllm"}  # plugins/vllm, told file by file too
MAPS = Path("/proc/self/maps")
KNOWN = "digests.json"  # in the stack's folder: identity of a file -> its SHA-256


def code(roots: list[Path]) -> dict[str, Path]:
    """Path below its root -> file, of every module of the project that this process loaded."""
    found: dict[str, Path] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py"):
            continue
        path = Path(file).resolve()
        for root in roots:
            if path.is_relative_to(root) and path.relative_to(root).parts[0] in ("kassay", "stages", "plugins"):
                found[str(path.relative_to(root))] = path
    return dict(sorted(found.items()))


def packages() -> dict[str, str]:
    """Version of every installed distribution of which a top-level module was loaded."""
    import importlib.metadata

    tops = {name.partition(".")[0] for name in sys.modules if not name.startswith("__editable__")}
    tops -= sys.stdlib_module_names | NO_PACKAGES
    if not tops:
        return {}  # reading what every installed package owns takes longer than a small stage
    by_module = importlib.metadata.packages_distributions()
    names = {distribution for top in tops for distribution in by_module.get(top, [])}
    return {name: importlib.metadata.version(name) for name in sorted(names, key=str.lower)}


def shared_objects() -> dict[str, str]:
    """Path -> SHA-256 of every shared object that an interpreter of an attested stack has mapped; `~` is the stack.

    Empty for the framework's own interpreter, whose packages are told by version.
    """
    stack = Path(sys.prefix)
    if not (stack / paths.ATTESTED).is_file() or not MAPS.exists():
        return {}
    mapped = {line.split(maxsplit=5)[5].rstrip("\n") for line in MAPS.open() if line.count(" ") > 4 and ".so" in line}
    files = [path for path in map(Path, sorted(mapped)) if path.is_file()]
    return {shown(path, stack): sha256 for path, sha256 in digests(files, stack / KNOWN).items()}


def shown(path: Path, stack: Path) -> str:
    """A path relative to the stack where it lies in it, so that receipts of two machines can be compared."""
    return f"~/{path.relative_to(stack)}" if path.is_relative_to(stack) else str(path)


def digests(files: list[Path], book: Path) -> dict[Path, str]:
    """SHA-256 of files, taken from the book where a file is the very one that it was."""
    try:
        known = dict(json.loads(book.read_bytes()))
    except (OSError, ValueError, TypeError):
        known = {}
    found, grown = {}, False
    for path in files:
        status = path.stat()
        identity = f"{path}:{status.st_size}:{status.st_ino}:{status.st_mtime_ns}:{status.st_ctime_ns}"
        if identity not in known:
            known[identity], grown = digest.of_file(path), True
        found[path] = str(known[identity])
    if grown and os.access(book.parent, os.W_OK):
        digest.write_json(book, known)
    return found


def jit_products(since_ns: int) -> dict[str, str]:
    """Path -> SHA-256 of what was compiled into the stack's JIT folders since a moment, by this process or a cell."""
    home = Path(sys.prefix) / paths.JIT
    if not home.is_dir():
        return {}
    made = [path for path in sorted(home.rglob("*")) if path.is_file() and path.stat().st_mtime_ns >= since_ns]
    return {shown(path, Path(sys.prefix)): digest.of_file(path) for path in made}
