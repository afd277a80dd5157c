"""What runs name of build/: every request, stack, pin and frozen source of every stage, set-aside ones included.

A name that stands anywhere in these files is a reference. That may keep too much, never too little.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kassay import paths
from kassay.earlier import entries
from kassay.gc.marks import origin
from kassay.source.wheel import BUILT

READ = (paths.REQUEST, "stack*.json", "pins*.json", "sources*.json")
OF_MIRRORS = "mirror.jsonl"


@dataclass(frozen=True, kw_only=True)
class References:
    """The texts in which a run may name something."""

    texts: tuple[str, ...]
    runs: int
    mirrored: int  # runs that were sent to a tracking service

    def with_texts(self, files: Iterable[Path]) -> "References":
        """The same, with what the environments that stay were built with."""
        return replace(self, texts=(*self.texts, *filter(None, map(text_of, files))))

    def names(self, word: str) -> bool:
        """Whether a run, or what one needs, names it."""
        return any(word in text for text in self.texts)

    def stack(self, path: Path) -> bool:
        """Whether a run names an environment."""
        return self.names(path.name)

    def why(self, kind: str, path: Path) -> str:
        """Why an entry stays; empty if nothing needs it."""
        if kind == "mirror":
            return f"{self.mirrored} runs were sent to a tracking service" if self.mirrored else ""
        if kind == "mirrors":
            return "a run has sources of it" if (url := origin(path)) and self.names(url) else ""
        if kind == "wheels":
            built = text_of(path / BUILT)
            sha256 = built.partition('"sha256": "')[2][:64] if built else ""
            return "an environment holds it" if self.names(path.name) or (sha256 and self.names(sha256)) else ""
        return "a run names it" if self.names(path.name) else ""


def read(results: list[Path]) -> References:
    """What all runs of these folders name."""
    texts: list[str] = []
    runs = mirrored = 0
    for folder in results:
        for run in entries(folder):
            runs += 1
            mirrored += (Path(run.path) / OF_MIRRORS).is_file()
            for stage in entries(Path(run.path) / "stages"):
                files = [path for pattern in READ for path in Path(stage.path).glob(pattern)]
                texts += filter(None, map(text_of, files))
    return References(texts=tuple(texts), runs=runs, mirrored=mirrored)


def text_of(path: Path) -> str:
    """What stands in a file; empty where there is none. A name in it is found whatever the rest is."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
