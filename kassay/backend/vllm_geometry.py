"""A model folder of a named geometry without weights: what `dummy` engines are started on, for speed alone.

And what the layers of any folder store (`geometry_of`), read once for pools of memory and of sweeps.

The numbers are those of the config.json of the repository named with them; weights are drawn (kassay.backend.vllm). A
folder made so says in its name and its config that it is a geometry, and quality stages refuse dummy weights.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kassay.errors import ConfigError
from kassay.kv.geometry import Geometry

GEOMETRIES: dict[str, dict[str, Any]] = {
    "qwen3-8b": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": 36,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000.0,
        "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
        "rms_norm_eps": 1e-06,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "torch_dtype": "float16",
    },
}


def model_folder(name: str, under: Path) -> Path:
    """The folder `<under>/<name>-geometry` with the config.json. Raises ConfigError that lists the named ones."""
    if name not in GEOMETRIES:
        raise ConfigError(f"no geometry is named `{name}`, named are {', '.join(GEOMETRIES)}")
    folder = under / f"{name}-geometry"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(GEOMETRIES[name], indent=1))
    return folder


def geometry_of(folder: Path) -> Geometry:
    """What the layers of a model store for each token, by its config.json. Raises ModelError for what none covers."""
    from kassay.backend import checkpoint, structure

    return structure.geometry_of(SimpleNamespace(config=checkpoint.config_of(folder)))
