"""How requests that are gathered are cut into fills of a bounded workspace. Plain Python.

The rule, for a workspace of W tokens:

1. A request of more than W queries is asked in blocks of W queries, in order; each block sees the keys up to its end.
2. A block is one piece if its keys fit. If not, its last W keys are one causal piece, and the keys before them, which
   all its queries see, are pieces of W keys without a mask. Pieces of a block are merged by their log-normalizers.
3. Pieces are put into fills in order; one that does not fit any more, or is masked otherwise, begins the next fill.

So a fill never holds more than W tokens, whatever is asked, and the cut depends on lengths and W alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kassay.errors import KassayError


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request on the gather route."""

    row: int  # of the block table
    first: int  # of its queries among the packed queries
    queries: int  # the last tokens of its context
    context: int  # tokens of the sequence, its queries included


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some queries of a request, and a range of keys that they see."""

    row: int
    first: int  # of the queries among the packed queries
    queries: int
    first_key: int
    keys: int
    causal: bool  # the queries stand at the end of the keys
    alone: bool  # whether the block has no other piece


Fill = tuple[Piece, ...]


def pieces(asked: Asked, workspace: int) -> Iterator[Piece]:
    """Pieces of one request, in the order in which they are merged."""
    for done in range(0, asked.queries, workspace):
        count = min(workspace, asked.queries - done)
        stop = asked.context - asked.queries + done + count
        start = max(0, stop - workspace)
        for key in range(0, start, workspace):
            keys = min(workspace, start - key)
            yield Piece(row=asked.row, first=asked.first + done, queries=count, first_key=key, keys=keys,
                        causal=False, alone=False)  # fmt: skip
        yield Piece(row=asked.row, first=asked.first + done, queries=count, first_key=start, keys=stop - start,
                    causal=True, alone=start == 0)  # fmt: skip


def fills(requests: Sequence[Asked], workspace: int) -> tuple[Fill, ...]:
    """The fills of a batch. Raises KassayError for a workspace that holds nothing."""
    if workspace < 1:
        raise KassayError(f"a workspace of {workspace} tokens gathers nothing, allowed is 1 and more")
    found: list[list[Piece]] = []
    room = 0
    for piece in (piece for asked in requests for piece in pieces(asked, workspace)):
        if not found or piece.keys > room or piece.causal != found[-1][0].causal:
            found.append([])
            room = workspace
        found[-1].append(piece)
        room -= piece.keys
    return tuple(tuple(fill) for fill in found)
