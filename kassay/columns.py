"""Rows of texts in columns, for people and pipes: two or more spaces apart, and an empty cell is `-`."""

from collections.abc import Iterator, Sequence

from kassay.report.words import one_line

LONGEST = 60  # characters of a cell


def columns(rows: Sequence[Sequence[str]], longest: int = LONGEST) -> Iterator[str]:
    """A line a row; text that would act on its display is made harmless. No rows are no lines."""
    cells = [[one_line(text, longest) or "-" for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
