"""No secret leaves with an export: the last of several guards, over every file that goes into the tar.

Values are those of kassay.secret; forms are few, and each begins with fixed text and has an end, so that a line of
megabytes is passed over in one go. What is found is named by its place, never shown.
"""

import re
from pathlib import Path

from kassay import paths, secret
from kassay.errors import RunError

FORMS = {
    "a url with a password": re.compile(rb"://[^/\s\"'@:]{1,256}:[^/\s\"'@]{1,256}@"),
    "a token of Hugging Face": re.compile(rb"\bhf_[A-Za-z0-9]{30,}"),
    "a token of GitHub": re.compile(rb"\bgh[pousr]_[A-Za-z0-9]{30,}"),
    "a private key": re.compile(rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"),
}
CHUNK_BYTES = 1 << 20
OVERLAP_BYTES = 4096


def require_none(files: dict[str, Path]) -> None:
    """Raise RunError with every file in which a secret stands."""
    known = secret.known()
    errors = [f"{name}: it holds {what}" for name, path in files.items() for what in found_in(path, known)]
    if errors:
        raise RunError(*errors, hint="nothing was exported")


def found_in(path: Path, known: dict[str, bytes]) -> list[str]:
    """What of it stands in a file."""
    try:
        found = [f"the value of {name}" for name, value in known.items() if secret.holds(path, value)]
        forms: dict[str, None] = {}
        with path.open("rb") as stream:
            before = b""
            while chunk := stream.read(CHUNK_BYTES):
                text = before + chunk
                forms |= dict.fromkeys(what for what, form in FORMS.items() if form.search(text))
                before = text[-OVERLAP_BYTES:]
    except OSError as error:
        raise RunError(f"{paths.shown(path)}: it cannot be read: {error.strerror}") from None
    return [*found, *forms]
