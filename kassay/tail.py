"""The end of a log, of whatever size the log is."""

from pathlib import Path


def end_of(path: Path, most_bytes: int) -> str:
    """The last part of a file as text, empty if it cannot be read."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - most_bytes))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def last_lines(path: Path, most_bytes: int) -> list[str]:
    """The lines of that part, without what is empty at its ends."""
    return end_of(path, most_bytes).strip().splitlines()
