"""Drafts without a draft model: what followed the last tokens where they stood before, in a request's own tokens.

Of the request's prompt and output the longest suffix of `longest` down to `shortest` tokens is looked up that stands
earlier too; the tokens after its latest earlier place are the draft, at most so many as are asked for. No such place:
no draft. A lookup of one length is one step, however long the text.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """How drafts are made."""

    draft_tokens: int  # most tokens of a draft, at least 1
    longest: int  # tokens of the longest n-gram
    shortest: int  # tokens of the shortest, at least 1


class Ngrams:
    """The tokens of one request, indexed by what they follow."""

    def __init__(self, drafting: Drafting, tokens: Iterable[int]) -> None:
        self.drafting = drafting
        self.tokens: list[int] = []
        self._sizes = range(drafting.longest, drafting.shortest - 1, -1)
        self._after: dict[tuple[int, ...], int] = {}  # n-gram -> place of the token after its latest occurrence
        self.extend(tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens; an n-gram is known from the token on that follows it, so none finds itself."""
        for token in tokens:
            place = len(self.tokens)
            for size in self._sizes:
                if size <= place:
                    self._after[tuple(self.tokens[place - size : place])] = place
            self.tokens.append(token)

    def draft(self, most: int) -> list[int]:
        """The tokens guessed to follow, at most `most` and at most `draft_tokens`; none where no n-gram is found."""
        most = min(most, self.drafting.draft_tokens)
        for size in self._sizes if most > 0 else ():
            if size <= len(self.tokens) and (place := self._after.get(tuple(self.tokens[-size:]))) is not None:
                return self.tokens[place : place + most]
        return []
