"""Decode passes of requests that a worker admits one after another, by the steps of their tokens."""

from collections.abc import Sequence

from kassay.kinds.vllm import VllmRequest


def passes(requests: Sequence[VllmRequest]) -> tuple[int, int]:
    """Steps from a request's first token to its last, the most of any request; and those that served it, the fewest.

    Each request has its first token with its prefill: what the reference's decode passes are to a batch, these steps
    are to each request. (0, 0) where a request has no stamps.
    """
    steps = [one.completion_steps for one in requests]
    if not steps or not all(steps):
        return 0, 0
    return max(own[-1] - own[0] + 1 for own in steps), min(len(set(own)) for own in steps)
