"""Which facts a split may use, and where randomness starts.

A *fact* is what an item hinges on: a key with its value, the operands of a problem, a person with all attributes. Its
class is its SHA-256 residue modulo 8, and each split owns classes, so splits are disjoint by construction: a fact of an
evaluation class never stands in a training sequence, and no two evaluation splits share one. The residue is a hash's,
not a sum's, so that a model cannot learn from the training classes which values the other classes leave out.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

CLASSES = 8
OWNED_CLASSES: dict[str, tuple[int, ...]] = {
    "train": (0, 1, 2, 3, 4),
    "calibration": (5,),
    "development": (6,),
    "confirmation": (7,),
}

Fact = tuple[str | int, ...]
Choice = TypeVar("Choice")


def fact_class(fact: Fact) -> int:
    """Class of `fact`, 0..7: its SHA-256 modulo 8, equal on every host and Python."""
    digest = hashlib.sha256("|".join(map(str, fact)).encode("ascii")).digest()
    return digest[-1] % CLASSES


def owns(split: str, fact: Fact) -> bool:
    """Whether `split` may use `fact`; raises KeyError for an unknown split."""
    return fact_class(fact) in OWNED_CLASSES[split]


def generator(*, task: str, split: str, seed: int) -> np.random.Generator:
    """The generator of one call's items: task, split and seed make its stream. No other place makes a generator."""
    name = hashlib.sha256(f"{task}|{split}".encode("ascii")).digest()
    return np.random.default_rng([seed, int.from_bytes(name[:8], "big")])


def pick(rng: np.random.Generator, choices: Sequence[Choice]) -> Choice:
    """One of `choices`, each as likely (one double a draw: several times faster than `rng.choice`)."""
    return choices[int(rng.random() * len(choices))]


def pick_distinct(rng: np.random.Generator, choices: Sequence[Choice], count: int) -> list[Choice]:
    """`count` different positions of `choices`, in random order."""
    return [choices[int(i)] for i in rng.permutation(len(choices))[:count]]


def digest_of(fields: dict[str, object]) -> str:
    """SHA-256 (hex) of the canonical JSON of `fields`: sorted keys, no spaces, ASCII."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
