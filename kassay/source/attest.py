"""Attestation: what an interpreter really imports is what was frozen, or a SourceError says what is there instead.

A dependency install that replaces a pinned fork shows no error: everything imports, and the released kernel is measured
(vllm-project/vllm#49804). So nothing that an installer says is believed. A fresh interpreter imports each pinned
module; its file has to belong to the distribution named; of a distribution that was built from a source, each installed
file, RECORD and direct_url.json have to be the wheel's that was built. Versions that disagree with what packages ask
for are recorded, not hidden: a pinned fork is meant to disagree.

A user's own environment is read only. Its sources were built by somebody else, so direct_url.json has to name the
commit, or a clean checkout of it.
"""

import os
import urllib.parse
from pathlib import Path
from typing import Any

from kassay.errors import SourceError
from kassay.source import contents
from kassay.source.inventory import Distribution, Inventory
from kassay.source.pins import Pins, Source, canonical
from kassay.source.tree import frozen_tree
from kassay.source.wheel import Wheel

Wheels = dict[str, tuple[Wheel, Path]]  # source -> its wheel and where that lies
COMPANIONS = ("cubin", "jit-cache")  # suffixes of packages with a distribution's precompiled kernels
SHOWN = 5  # files of one distribution
HINT = "change the pins of the stack in workflows/, or use another STACK_PYTHON"


def attest(found: Inventory, pins: Pins, wheels: Wheels, before: dict[str, str | None]) -> dict[str, Any]:
    """What the stack is, after proof. `before` is the lock before the sources were installed, or empty.

    Raises SourceError with everything that is not as it was pinned: module, expected, found.
    """
    errors = [wrong for name in found.modules for wrong in module_faults(name, found, pins)]
    if pins.asked_python and found.python_version != pins.asked_python:
        errors.append(f"Python is {found.python_version}, the pin is {pins.asked_python}")
    errors += release_faults(found, pins, before)
    for source in pins.sources:
        errors += source_faults(source, found, wheels)
    if errors:
        raise SourceError(*(f"{found.python}: {error}" for error in errors), hint=HINT)
    hashes = found.hashes()
    return {
        "python_version": found.python_version,
        "modules": {name: one.version for name, one in found.modules.items()},
        "lock": list(hashes),
        "content": hashes,
        "sources": {source.name: provenance(source, found, wheels) for source in pins.sources},
        "replaced": sorted(set(before) - set(hashes)),
        "companions": companions(found, pins),
    }


def module_faults(name: str, found: Inventory, pins: Pins) -> list[str]:
    """Why a module is not the one that is meant, if it is not."""
    module = found.modules[name]
    if module.error:
        return [f"module `{name}`: the pinned modules cannot be imported:", *module.error]
    meant = [source.distribution for source in pins.sources if source.module == name]
    owners = [found.distributions.get(canonical(owner)) for owner in meant or module.owners]
    there = [owner for owner in owners if owner is not None]
    if (module.standard and not meant) or (module.file and any(holds(owner, module.file) for owner in there)):
        return []
    named = " or ".join(f"`{owner}`" for owner in meant or module.owners) or "an installed distribution"
    return [f"module `{name}`: expected a file of {named}, found {module.file or 'no file'}"]


def holds(owner: Distribution, file: Path) -> bool:
    """Whether a file is a distribution's own; where there is no RECORD, whether it lies beside it."""
    real = Path(os.path.realpath(file))
    if (at := editable_at(owner)) is not None:
        return real.is_relative_to(at)
    site = Path(os.path.realpath(owner.site))
    if not real.is_relative_to(site):
        return False
    rows = owner.rows()
    return not rows or str(real.relative_to(site)) in rows


def editable_at(owner: Distribution) -> Path | None:
    """The folder that an editable install imports from."""
    told = owner.direct_url()
    editable = bool((told.get("dir_info") or {}).get("editable"))
    return Path(os.path.realpath(local_path(told))) if editable else None


def local_path(told: dict[str, Any]) -> str:
    """The path of a file: url, without its fragment."""
    return urllib.parse.unquote(urllib.parse.urlsplit(str(told.get("url", ""))).path)


def release_faults(found: Inventory, pins: Pins, before: dict[str, str | None]) -> list[str]:
    """Releases of another version than their pins, or replaced after they had been installed."""
    errors = []
    for pin in (*pins.requirements, *pins.build_requirements):
        there = found.distributions.get(pin.name)
        version = there.version if there else "absent"
        name = pin.line.partition("==")[0].partition("[")[0]
        if pin.version not in (version, version.partition("+")[0]):
            errors.append(f"`{name}` is {version}, the pin is {pin.version}")
        elif there and there.pin in before and before[there.pin] != there.sha256:
            errors.append(f"`{name}`: expected the content that was installed for its pin, found another of {version}")
    return errors


def source_faults(source: Source, found: Inventory, wheels: Wheels) -> list[str]:
    """What is not the frozen source's."""
    where = f"module `{source.module}`, distribution `{source.distribution}`"
    there = found.distributions.get(canonical(source.distribution))
    if there is None:
        return [f"{where}: expected commit {source.commit}, found no such distribution"]
    if source.name not in wheels:
        faults = [*foreign_faults(source, there), *altered(there)]
    else:
        wheel, path = wheels[source.name]
        faults = [*url_faults(wheel, path, there)]
        if there.version != wheel.version:
            faults.append(f"expected version {wheel.version} of commit {source.commit}, found {there.version}")
        else:
            owned = {row for one in found.distributions.values() if one.site == there.site for row in one.rows()}
            faults += contents.differences(contents.of_wheel(path), there.site, owned)
    more = [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
    return [f"{where}: {fault}" for fault in [*faults[:SHOWN], *more]]


def url_faults(wheel: Wheel, path: Path, there: Distribution) -> list[str]:
    """How direct_url.json differs from naming the wheel, or the wheel's file from its record.

    uv writes the hash as the url's fragment, which it has not checked against a cached wheel (0.13.9); other installers
    write archive_info (PEP 610).
    """
    told = there.direct_url()
    archive = told.get("archive_info") or {}
    fragment = urllib.parse.urlsplit(str(told.get("url", ""))).fragment.removeprefix("sha256=")
    told_hash = str(archive.get("hash", "")).removeprefix("sha256=") or (archive.get("hashes") or {}).get("sha256")
    faults = []
    if os.path.realpath(local_path(told)) != os.path.realpath(path):
        faults.append(f"direct_url.json: expected {path.as_uri()}, found {told.get('url', 'none')}")
    elif wheel.sha256 not in (fragment, told_hash):
        faults.append(f"direct_url.json: expected sha256 {wheel.sha256}, found {fragment or told_hash or 'none'}")
    if (now := contents.of_installed(path)) != wheel.sha256:
        faults.append(f"{path}: expected sha256 {wheel.sha256}, found {now}")
    return faults


def foreign_faults(source: Source, there: Distribution) -> list[str]:
    """Why an install that is not ours does not prove that it is the frozen commit's."""
    told = there.direct_url()
    commit = (told.get("vcs_info") or {}).get("commit_id")
    if commit is None and "dir_info" in told and Path(local_path(told)).is_dir():
        tree = frozen_tree(Path(local_path(told)))
        commit = tree["commit"]
        if commit == source.commit and tree["dirty"]:
            return [f"expected commit {source.commit}, found it with {len(tree['dirty'])} changes in {told['url']}"]
    if commit == source.commit:
        return []
    return [
        f"expected commit {source.commit}, found {commit or f'version {there.version}, whose commit nothing tells'}"
    ]


def altered(there: Distribution) -> list[str]:
    """Files of a distribution that are not what its own RECORD says."""
    rows = {path: sha for path, sha in there.rows().items() if sha and not contents.is_added(path, there.info.name)}
    now = {path: contents.of_installed(there.site / path) for path in rows}
    return [f"`{path}`: expected {sha}, found {now[path]}" for path, sha in rows.items() if now[path] != sha]


def provenance(source: Source, found: Inventory, wheels: Wheels) -> dict[str, Any]:
    """What is recorded of a source that was proved."""
    there = found.distributions[canonical(source.distribution)]
    file = found.modules[source.module].file
    body: dict[str, Any] = {
        "commit": source.commit,
        "tree": source.tree,
        "distribution": there.name,
        "version": there.version,
        "module": source.module,
        "file": os.path.relpath(file, found.prefix) if file else None,
        "record": os.path.relpath(there.info / contents.RECORD, found.prefix),
        "wheel": None,
        "wheel_key": None,
        "wheel_sha256": None,
    }
    if source.name in wheels:
        wheel, _ = wheels[source.name]
        body |= {"wheel": wheel.file, "wheel_key": wheel.key, "wheel_sha256": wheel.sha256}
    return body


def companions(found: Inventory, pins: Pins) -> list[str]:
    """Packages that bring precompiled kernels of a source's distribution in another version than the source's."""
    told = []
    for source in pins.sources:
        there = found.distributions[canonical(source.distribution)]
        stems = {canonical(name) for name in (source.distribution, source.module)}
        stems |= {stem.removesuffix("-python") for stem in stems}
        for name in sorted(f"{stem}-{suffix}" for stem in stems for suffix in COMPANIONS):
            other = found.distributions.get(name)
            if other and other.version.partition("+")[0] != there.version.partition("+")[0]:
                told.append(f"`{name}` is {other.version}, `{source.distribution}` is {there.version}")
    return told


def kept(found: Inventory, attested: dict[str, Any]) -> list[str]:
    """What is no longer as it was attested: packages added, gone or replaced, files of the sources altered."""
    now, then = found.hashes(), attested["content"]
    errors = [
        f"`{pin}`: expected what was attested, found {'another content' if pin in now else 'it gone'}"
        for pin in then
        if pin not in now or now[pin] != then[pin]
    ]
    errors += [f"`{pin}`: expected no such package, it was not attested" for pin in now if pin not in then]
    for facts in attested["sources"].values():
        there = found.distributions.get(canonical(facts["distribution"]))
        errors += [f"module `{facts['module']}`: {fault}" for fault in (altered(there) if there else [])][:SHOWN]
    return errors
