"""Files that only save time: JSON below its own SHA-256. One that is damaged, cut or not ours is as good as absent."""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any


def read(path: Path) -> Any:
    """The value, or None if there is none that can be believed."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return json.loads(body) if head.decode(errors="replace") == hashlib.sha256(body).hexdigest() else None


def write(path: Path, value: Any) -> None:
    """Keep the value. A folder that cannot be written costs time at the next call, nothing else."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogateescape")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
