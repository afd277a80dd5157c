"""What may name a source: urls and refs that are refused before git sees them, and where SOURCE_MIRROR maps a url."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from kassay.errors import SourceError

SCHEMES = ("https", "http", "ssh", "git", "file")
CONTROL = re.compile(r"[\x00-\x20\x7f]")
SCP = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?P<path>[^:].*)")
FULL = re.compile(r"[0-9a-f]{40}")
HEX = re.compile(r"[0-9a-f]{7,39}")
# git check-ref-format's rules, and no more: what a branch or tag may be called.
NOT_A_REF = re.compile(r"^[-/.]|\.\.|//|/\.|@\{|[\x00-\x20\x7f~^:?*\[\\]|[/.]$|\.lock(/|$)|^@$|^$")


def checked_url(url: str) -> str:
    """The url itself. Raises SourceError for one that could start a command, hide a secret, or is none."""
    if found := CONTROL.search(url):
        raise SourceError(f"url {url!r} holds {found[0]!r}")
    if not url or url.startswith("-"):
        raise SourceError(f"url `{url}` is no url: it would be an option of git")
    if re.match(r"[\w+.-]*::", url):
        raise SourceError(f"url `{url}` names a command transport, allowed are {', '.join(SCHEMES)}")
    if "://" not in url:
        if Path(url).is_absolute() or SCP.fullmatch(url):
            return url
        raise SourceError(f"url `{url}` is neither a url, nor host:path, nor a full path")
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise SourceError(f"url `{url}` is of scheme `{parts.scheme}`, allowed are {', '.join(SCHEMES)}")
    if parts.password is not None or (parts.username and parts.scheme in ("http", "https")):
        raise SourceError(f"url of host `{parts.hostname}` holds a login; records keep urls", hint="SOURCE_MIRROR=…")
    if (parts.hostname or "").startswith("-") or (parts.username or "").startswith("-"):
        raise SourceError(f"url `{url}` has a host that would be an option of ssh")
    if parts.scheme != "file" and not parts.hostname:
        raise SourceError(f"url `{url}` has no host")
    return url


def checked_ref(ref: str) -> str:
    """The ref itself. Raises SourceError for one that no branch, tag or commit can be called."""
    if NOT_A_REF.search(ref):
        raise SourceError(f"ref {ref!r} is no name of a commit, branch or tag")
    return ref


def joined(base: str, relative: str) -> str:
    """The url of a submodule that is given relative to its parent's."""
    if not relative.startswith(("./", "../")):
        return checked_url(relative)
    head, rest = base.rstrip("/"), relative
    while rest.startswith(("./", "../")):
        if rest.startswith("../"):
            cut = max(head.rfind("/"), head.rfind(":"))
            if cut <= head.find("://") + 2:
                raise SourceError(f"url `{relative}` of a submodule leaves `{base}`")
            head, rest = head[:cut], rest[3:]
        else:
            rest = rest[2:]
    return checked_url(f"{head}/{rest}")


def slug(url: str) -> str:
    """The host and path of a url as one file name, for people."""
    bare = re.sub(r"^\w+://", "", url).removesuffix("/").removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9.-]+", "-", bare.rpartition("@")[2]).strip("-.")[-80:] or "source"


def mapped(url: str, mirrors: str) -> str:
    """What is fetched for a url: its local mirror below `mirrors` if that is given. Raises SourceError if it is absent.

    A mirror of https://host/owner/name lies at host/owner/name, owner/name or name below it, with or without `.git`.
    """
    if not mirrors:
        return url
    match = SCP.fullmatch(url)
    bare = f"{match['host']}/{match['path']}" if match and "://" not in url else re.sub(r"^\w+://([^@/]*@)?", "", url)
    parts = [part for part in bare.strip("/").removesuffix(".git").split("/") if part not in ("", ".", "..")]
    tried = [Path(mirrors, *parts[start:]) for start in range(len(parts))]
    for path in tried:
        for place in (path.with_name(path.name + ".git"), path):
            if (place / "HEAD").is_file() or (place / ".git").exists():
                return str(place.resolve())
    wanted = f"{tried[0]}.git" if tried else mirrors
    raise SourceError(f"SOURCE_MIRROR `{mirrors}` has no mirror of {url}", hint=f"git clone --mirror {url} {wanted}")
