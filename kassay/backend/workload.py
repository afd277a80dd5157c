"""Token rows of the tasks' texts, as the model stages feed them."""

from collections.abc import Sequence

import torch

from kassay import digest
from kassay.errors import KassayError
from kassay.kv.tasks import document, vocabulary


def context_rows(contexts: Sequence[str]) -> torch.Tensor:
    """ids_BT of equally long contexts, begin-of-text in front."""
    return torch.tensor([vocabulary.encode_context(text) for text in contexts])


def rows_digest(ids_BT: torch.Tensor) -> str:
    """Digest of token rows."""
    return digest.of_value(ids_BT.tolist())


def speed_prompts(count: int, context_tokens: int, seed: int) -> torch.Tensor:
    """ids_BT of `count` real and different contexts for measurements of speed: documents of the development split."""
    made = document.documents(split="development", seed=seed, count=count, context_tokens=context_tokens, targets=1)
    rows_BT = context_rows([found.context for found in made])
    if len({tuple(row) for row in rows_BT.tolist()}) != count:
        raise KassayError(f"{count} prompts of {context_tokens} tokens are not all different; use a longer context")
    return rows_BT
