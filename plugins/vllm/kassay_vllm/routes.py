"""Which requests of a batch are read by which kernel. Plain Python: the rule is looked at without a GPU.

    decode      one new token behind stored ones: our fused kernel over the pages
    fresh       a prompt of which nothing is stored: the native FlashAttention over its own keys and values
    continued   more than one new token behind stored ones (chunked prefill, cached prefixes): no kernel reads mixed
                pages for that, so the stored tokens are gathered to 16 bits first. Correct, slow, and a fallback

A batch holds its decodes first. A request of one token of which nothing is stored is a decode of its own page.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kassay.errors import KassayError


@dataclass(frozen=True, kw_only=True)
class Route:
    """How one batch is split. Counts of requests; `stored` is of the prefills, in their order."""

    decodes: int
    prefills: int
    decode_tokens: int
    longest: int  # new tokens of a prefill
    stored: tuple[int, ...]  # tokens that each prefill continues

    @property
    def name(self) -> str:
        """What happens, in one word of the record."""
        if any(self.stored):
            return "continued"
        if self.prefills and self.decodes:
            return "mixed"
        return "fresh" if self.prefills else "decode"


def split(new: Sequence[int], lengths: Sequence[int]) -> Route:
    """The route of a batch, of the new tokens and the lengths (new ones included) of its requests.

    A request of no new token, which pads a captured graph, counts as a decode. Raises KassayError where a decode stands
    behind a prefill: the runner orders batches, and another order would be read wrongly.
    """
    decodes = next((index for index, count in enumerate(new) if count > 1), len(new))
    if late := [index for index in range(decodes, len(new)) if new[index] <= 1]:
        raise KassayError(f"request {late[0]} of a batch decodes and stands behind prefills from {decodes} on")
    stored = tuple(length - count for count, length in zip(new[decodes:], lengths[decodes:], strict=True))
    if any(count < 0 for count in stored):
        raise KassayError(f"a batch has requests with more new tokens than tokens: {list(new)} of {list(lengths)}")
    return Route(
        decodes=decodes,
        prefills=len(new) - decodes,
        decode_tokens=decodes,
        longest=max(new[decodes:], default=0),
        stored=stored,
    )
