"""A tiny transformer of random weights, saved as data/models has its checkpoints: with digests beside the folder."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kassay import digest

SIZES = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,  # large enough that attention is not uniform
}


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """What `load` sets for its process is put back; a test file takes this fixture by importing it."""
    threads, grad = torch.get_num_threads(), torch.is_grad_enabled()
    yield
    torch.set_num_threads(threads)
    torch.set_grad_enabled(grad)


def save(
    folder: Path, name: str, config: type[Any], model: type[Any], key_bias: float | None = None, **changes: Any
) -> Path:
    """The directory of a fresh checkpoint `name`, always of the same weights; `key_bias`: how large that of keys is."""
    torch.manual_seed(1)
    directory = folder / name
    made = model(config(**{**SIZES, **changes}))
    for at, tensor in made.named_parameters():
        if key_bias is not None and at.endswith("k_proj.bias"):
            torch.nn.init.normal_(tensor, std=key_bias)
    made.save_pretrained(directory)
    files = sorted(path for path in directory.iterdir() if path.is_file())
    (folder / "digests.json").write_text(json.dumps({f"{name}/{path.name}": digest.of_file(path) for path in files}))
    return directory
