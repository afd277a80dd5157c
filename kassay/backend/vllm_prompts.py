"""Token rows for vLLM cells: real texts of a model's own tokens, and for a geometry without weights drawn ids."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from kassay.backend import text as texts
from kassay.errors import KassayError
from kassay.kv.tasks import vocabulary

DRAWN_FROM = range(3, 1900)  # ids of drawn rows: below any vocabulary of a named geometry


def text_of(model: Path) -> texts.Text:
    """How a model folder reads the tasks: its own tokenizer, or characters for a shipped one. Raises Unmet without."""
    ends = json.loads((model / "config.json").read_bytes()).get("eos_token_id")
    if any((model / name).is_file() for name in texts.TOKENIZER_FILES):
        return texts.of_folder(model, ends if isinstance(ends, list) else [ends])
    size = json.loads((model / "config.json").read_bytes()).get("vocab_size")
    if size != vocabulary.SIZE:
        return texts.of_folder(model, [])  # raises, and names the files
    return texts.Characters()


def rows(text: texts.Text, *, split: str, seed: int, lengths: Sequence[int]) -> list[list[int]]:
    """Texts of a split, of these numbers of tokens, all different."""
    made = text.passages(split=split, seed=seed, count=len(lengths), context_tokens=max(lengths), targets=1)
    found = [list(one.context[:length]) for one, length in zip(made, lengths, strict=True)]
    if len(set(map(tuple, found))) != len(found):
        raise KassayError(
            f"{len(found)} texts of {min(lengths)} tokens and more are not all different: take longer ones"
        )
    return found


def drawn(count: int, tokens: int, seed: int) -> list[list[int]]:
    """Rows of random ids: what a geometry without weights is fed."""
    rng = random.Random(seed)
    return [[rng.choice(DRAWN_FROM) for _ in range(tokens)] for _ in range(count)]
