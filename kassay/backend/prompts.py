"""Are prompts what a measurement of speed may use: as long as planned once tokenized, different, and without a prefix?

A prefix that two prompts share could be stored or served once, and a rate would then measure the cache and not the
decoding. Caches share whole pages, so anything shorter than a page of 16 tokens is no shared prefix; how long the
longest is, is recorded.
"""

from collections.abc import Sequence
from itertools import pairwise

from kassay.errors import KassayError

PAGE_TOKENS = 16  # vLLM's block, the smallest unit that a prefix cache shares


def shared_prefix(rows: Sequence[Sequence[int]]) -> int:
    """Tokens of the longest prefix that any two rows share: sorted, the closest rows are neighbours."""
    longest = 0
    for one, other in pairwise(sorted(tuple(row) for row in rows)):
        same = next((index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
        longest = max(longest, min(len(one), len(other)) if same is None else same)
    return longest


def check_prompts(rows: Sequence[Sequence[int]], context_tokens: int) -> int:
    """The longest shared prefix in tokens. Raises KassayError for another length, equal prompts or a shared page."""
    if wrong := sorted({len(row) for row in rows} - {context_tokens}):
        raise KassayError(f"a prompt has {wrong[0]} tokens after tokenization, planned are {context_tokens}")
    if len({tuple(row) for row in rows}) != len(rows):
        raise KassayError(f"{len(rows)} prompts of {context_tokens} tokens are not all different; use a longer context")
    longest = shared_prefix(rows)
    if longest >= PAGE_TOKENS:
        raise KassayError(f"two prompts share their first {longest} tokens, a page is {PAGE_TOKENS}: a cache could too")
    return longest
