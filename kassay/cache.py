"""Files that only save time: JSON below its own SHA-256. One that is damaged, cut or not ours is as good as absent."""

import hashlib
import json
from pathlib import Path
from typing import Any

from kassay import atomic


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.replace(path, hashlib.sha256(body).hexdigest().encode() + b"\n" + body, durable=False)
    except OSError:
        pass
