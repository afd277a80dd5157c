"""Prompts of a load: real texts that all differ, the same for every arm of a block, others in each block and load.

So no prefix is shared and no cache of one request answers another (bug case O21). Texts are documents of the
development split; a text of `context_tokens - 1` characters is `context_tokens` tokens of the shipped models,
begin-of-text included, and what another tokenizer makes of it the server tells.
"""

import hashlib

from kassay.kv.tasks import document
from kassay.serving.client import Planned
from kassay.stats import InvalidData

SPLIT = "development"


def seed_of(seed: int, *parts: str) -> int:
    """A seed of its own for every block, load and phase, a function of the plan alone."""
    return int.from_bytes(hashlib.sha256(repr((seed, *parts)).encode()).digest()[:6], "big")


def planned(*, seed: int, block: str, load: str, phase: str, count: int, context_tokens: int) -> list[Planned]:
    """The requests of one phase of a load. Raises InvalidData if two prompts are the same."""
    if not count:
        return []
    drawn = seed_of(seed, block, load, phase)
    made = document.documents(split=SPLIT, seed=drawn, count=count, context_tokens=context_tokens, targets=0)
    if len({found.context for found in made}) != count:
        raise InvalidData(f"{count} prompts of {context_tokens} tokens are not all different; use a longer context")
    return [
        Planned(request_id=f"{block}-{load}-{phase}-{number:05d}", prompt=found.context)
        for number, found in enumerate(made)
    ]
