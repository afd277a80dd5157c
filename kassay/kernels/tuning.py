"""Cuts that were measured on a device, kept by its name: faster than kassay.kernels.split, never needed.

A book is a JSON file: `device | triton | shape | batch | tokens | lengths` -> tile and splits. Another device, another
Triton, or another source of the kernels is another key, so a book that travels is harmless. Launchers that are given
one look here first (kassay.kernels.launch.Decode), kassay.kernels.tuned fills it. A cut that was kept stays: as a cut
decides in which order numbers are added, a run with a book repeats to the bit under that book, and without one always.

The time of a cut comes from the caller, who knows how calls are repeated, in seconds. A cut that cannot be compiled or
launched is left out, and said.
"""

import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path

from kassay.errors import KassayError
from kassay.kernels.host import Host
from kassay.kernels.shape import DecodeShape
from kassay.kernels.split import Cut, Tile


def key_of(host: Host, shape: DecodeShape, batch: int, tokens: int, version: str, *, uneven: bool = False) -> str:
    """The key of a call; tokens count in powers of two, rounded up. `uneven`: lengths differ."""
    recipe = shape.recipe
    geometry = f"q{shape.query_heads} kv{shape.kv_heads} d{shape.head_dim} page{shape.page_tokens}"
    lengths = "uneven" if uneven else "equal"
    rounded = 1 << max(0, math.ceil(math.log2(max(1, tokens))))
    return f"{host.name} | {version} | {recipe.name} {recipe.sixteen} {geometry} | {batch} | {rounded} | {lengths}"


@functools.cache
def source_version(triton_version: str) -> str:
    """Triton's version and a digest of the kernels' sources."""
    digest = hashlib.sha256()
    for path in sorted((Path(__file__).parent / "device").glob("*.py")):
        digest.update(path.read_bytes())
    return f"triton {triton_version} {digest.hexdigest()[:12]}"


class Book:
    """Measured cuts. Raises KassayError for a file that is no book."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, dict[str, object]] = {}
        if path.exists():
            try:
                self.rows = json.loads(path.read_bytes())
            except ValueError as error:
                raise KassayError(f"{path}: no book of tuned kernels ({error})\nhint: delete it") from error

    def cut(self, key: str) -> Cut | None:
        """The cut under a key, if one was measured."""
        if (row := self.rows.get(key)) is None:
            return None
        try:
            tile = {name: int(str(row[name])) for name in ("tokens", "warps", "stages", "heads")}
            return Cut(tile=Tile(**tile), splits=int(str(row["splits"])))
        except (KeyError, TypeError, ValueError) as error:
            raise KassayError(f"{self.path}: row `{key}` is no cut\nhint: delete the file") from error

    def keep(self, key: str, cut: Cut, seconds: float) -> None:
        """Add a cut, and write the file as a whole."""
        self.rows[key] = {**cut.numbers(), "seconds": seconds}
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(self.rows, indent=1, sort_keys=True))
        partial.replace(self.path)


def fastest(cuts: Iterable[Cut], time_of: Callable[[Cut], float]) -> tuple[Cut, float, dict[Cut, str]]:
    """The cut of the least time, its seconds, and why others were left out. Raises KassayError if none ran."""
    times: dict[Cut, float] = {}
    failed: dict[Cut, str] = {}
    for cut in cuts:
        try:
            times[cut] = time_of(cut)
        except (RuntimeError, KassayError) as error:  # out of shared memory, or ptxas
            failed[cut] = str(error)
    if not times:
        raise KassayError(f"no cut ran: {'; '.join(failed.values()) or 'none was given'}")
    best = min(times, key=lambda cut: times[cut])
    return best, times[best], failed
