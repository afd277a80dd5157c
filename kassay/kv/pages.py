"""Which pages of a pool are free. Plain Python: a page is a number, and who holds it is the caller's table.

Pages come back in the order last freed, first taken: so a page is reused soon, and what reuse could break is tried by
every run that frees anything.
"""

from collections.abc import Sequence

from kassay.errors import KassayError


class Pages:
    """The free list of `count` pages."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(reversed(range(count)))
        self._taken: set[int] = set()

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """That many pages. Raises KassayError, and takes none, where fewer are free."""
        if not 0 <= count <= self.free:
            raise KassayError(f"{count} pages were asked for, {self.free} of {self.count} are free")
        taken = [self._free.pop() for _ in range(count)]
        self._taken.update(taken)
        return taken

    def give_back(self, pages: Sequence[int]) -> None:
        """Free these pages. Raises KassayError, and frees none, for one that is not taken or named twice."""
        held = set(pages)
        if len(held) != len(pages) or not held <= self._taken:
            wrong = sorted(page for page in held if page not in self._taken or list(pages).count(page) > 1)
            raise KassayError(f"pages {wrong} are not taken, or were named twice: a page is given back once")
        self._taken -= held
        self._free.extend(pages)
