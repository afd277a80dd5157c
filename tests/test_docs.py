"""The documents: links lead somewhere, generated pages are current, no address or path of a machine is in the tree."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kassay import paths

PAGES = sorted(path for path in paths.ROOT.glob("*.md")) + sorted((paths.ROOT / "docs").rglob("*.md"))


def tracked() -> list[Path]:
    """Text files that belong to the project."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=paths.ROOT, capture_output=True, text=True, check=False
    ).stdout
    binary = {".png", ".safetensors"}
    found = [paths.ROOT / name for name in listed.splitlines()]
    return [path for path in found if path.is_file() and path.suffix not in binary]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(paths.ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    gone = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not gone


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/docs.py", "--check"], cwd=paths.ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_no_address_of_an_index_and_no_path_of_a_machine_is_in_the_tree() -> None:
    patterns = [r"/opt/(wheels|pypi)", r"index-url", r"/work/(main|shared)", r"/home/\w+/", r"file:///"]
    found = [
        f"{path.relative_to(paths.ROOT)}: {pattern}"
        for path in tracked()
        if path != Path(__file__)
        for pattern in patterns
        if re.search(pattern, path.read_text(errors="replace"))
    ]
    assert not found


def test_constraints_hold_names_and_versions_only() -> None:
    lines = (paths.ROOT / "constraints.txt").read_text().split("\n")
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", line) for line in lines if line)


def test_the_readme_and_the_help_name_every_target() -> None:
    from kassay.cli import VERBS

    readme = (paths.ROOT / "README.md").read_text()
    head = (paths.ROOT / "Makefile").read_text().split("\n\n", 1)[0]
    rules = (paths.ROOT / "Makefile").read_text().split("VERBS =", 1)[1].split(".PHONY", 1)[0]
    for verb in set(VERBS) - {"run", "defconfig", "completion"}:  # a shell completes kassay, not make
        assert f"make {verb}" in head and verb in readme and verb in rules, verb
    phony = re.search(r"^\.PHONY: (.*)$", (paths.ROOT / "Makefile").read_text(), re.MULTILINE)
    own = {word for word in (phony[1] if phony else "").split() if "$" not in word} - {"run", "setup", "FORCE"}
    assert "make defconfig-" in head and "make check" in head and "make bundle" in readme
    assert len(own) >= 7 and not [target for target in own if f"make {target}" not in head]


def test_every_symbol_is_in_the_reference() -> None:
    from kassay.config.tree import tree

    text = (paths.ROOT / "docs" / "config.md").read_text()
    with tree() as kconf:
        assert not [symbol.name for symbol in kconf.unique_defined_syms if f"`{symbol.name}`" not in text]
