"""Dense decoders that the fused backend covers: what a configuration says of them, and what it refuses by name.

    hidden += attention(norm(hidden));  hidden += down(silu(gate(norm(hidden))) * up(norm(hidden)))

Qwen2 (a bias on queries, keys and values), Qwen3 (a norm of each query and key head), Llama and Mistral differ in the
fields of `Dense` alone. Every token sees every earlier one: windows are refused. RoPE turns the first half of a head
with the second by frequencies that no length of a text changes: default, linear, and Llama 3's.

A geometry by name has no weights of its own: kassay.backend.fused_weights draws them, for studies of speed.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kassay.errors import KassayError

FAMILIES = ("qwen2", "qwen3", "llama", "mistral")
ROPES = ("default", "linear", "llama3")


class GeometryError(KassayError):
    """A checkpoint that the fused backend cannot read or does not cover."""


@dataclass(frozen=True, kw_only=True)
class Rope:
    """The frequencies of a rotation."""

    kind: Literal["default", "linear", "llama3"]
    theta: float
    factor: float = 1.0  # of linear and llama3
    low_factor: float = 1.0  # of llama3, as its original length in tokens
    high_factor: float = 4.0
    original_tokens: int = 8192

    def frequencies(self, head_dim: int) -> list[float]:
        """Radians a token of each pair."""
        plain = [self.theta ** (-2 * pair / head_dim) for pair in range(head_dim // 2)]
        if self.kind == "default":
            return plain
        if self.kind == "linear":
            return [each / self.factor for each in plain]
        return [self._scaled(each) for each in plain]

    def _scaled(self, frequency: float) -> float:
        """Llama 3.1: long waves are slowed by the factor, short ones kept, those between are mixed."""
        turns = self.original_tokens * frequency / (2 * math.pi)
        share = (turns - self.low_factor) / (self.high_factor - self.low_factor)
        share = min(1.0, max(0.0, share))
        return (1 - share) * frequency / self.factor + share * frequency


@dataclass(frozen=True, kw_only=True)
class Dense:
    """One dense decoder."""

    family: str
    layers: int
    hidden: int
    intermediate: int
    query_heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    positions: int
    epsilon: float
    rope: Rope
    qkv_bias: bool
    out_bias: bool
    head_norms: bool
    tied: bool

    @property
    def qkv_width(self) -> int:
        """Outputs of the joint projection of queries, keys and values."""
        return (self.query_heads + 2 * self.kv_heads) * self.head_dim


def _named(family: str, sizes: tuple[int, ...], vocabulary: int, theta: float, **changes: Any) -> Dense:
    layers, hidden, intermediate, query_heads, kv_heads = sizes
    return Dense(
        **{
            "family": family, "layers": layers, "hidden": hidden, "intermediate": intermediate,
            "query_heads": query_heads, "kv_heads": kv_heads, "head_dim": 128, "vocabulary": vocabulary,
            "positions": 40960, "epsilon": 1e-6, "rope": Rope(kind="default", theta=theta), "out_bias": False,
            "qkv_bias": family == "qwen2", "head_norms": family == "qwen3", "tied": False, **changes,
        }
    )  # fmt: skip


# As the models' own config.json have them.
GEOMETRIES: dict[str, Dense] = {
    "qwen3-8b": _named("qwen3", (36, 4096, 12288, 32, 8), 151936, 1e6),
    "qwen3-0.6b": _named("qwen3", (28, 1024, 3072, 16, 8), 151936, 1e6, tied=True),
    "qwen2.5-7b": _named("qwen2", (28, 3584, 18944, 28, 4), 152064, 1e6, positions=32768),
    "llama-3.1-8b": _named(
        "llama", (32, 4096, 14336, 32, 8), 128256, 5e5, positions=131072, epsilon=1e-5,
        rope=Rope(kind="llama3", theta=5e5, factor=8.0),
    ),
    "mistral-7b-v0.3": _named("mistral", (32, 4096, 14336, 32, 8), 32768, 1e6, positions=32768, epsilon=1e-5),
}  # fmt: skip


def geometry_named(name: str) -> Dense:
    """The geometry of that name. Raises GeometryError that lists the known ones."""
    if name not in GEOMETRIES:
        raise GeometryError(f"unknown geometry `{name}`, known are {', '.join(GEOMETRIES)}")
    return GEOMETRIES[name]


def geometry_of(directory: Path) -> Dense:
    """The geometry of a checkpoint's folder. Raises GeometryError with everything in it that is not supported."""
    path = directory / "config.json"
    if not path.is_file():
        raise GeometryError(f"{directory} has no config.json: it is no folder of a transformers checkpoint")
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise GeometryError(f"{path} is no JSON: {error}") from error
    if refused := refusals(config):
        raise GeometryError(f"the fused backend does not support {directory.name}: " + "; ".join(refused))
    return of_config(config)


def refusals(config: dict[str, Any]) -> list[str]:
    """Why a configuration is not covered, all reasons; empty if it is."""
    found = []
    if (family := config.get("model_type")) not in FAMILIES:
        return [f"model type `{family}`, allowed are {', '.join(FAMILIES)}"]
    if config.get("hidden_act", "silu") != "silu":
        found.append(f"activation `{config['hidden_act']}`, allowed is silu")
    if config.get("mlp_bias"):
        found.append("a bias in the feed-forward layers")
    if window(config):
        found.append(f"sliding-window attention ({config['sliding_window']} tokens)")
    if (kind := rope_parameters(config).get("rope_type", "default")) not in ROPES:
        found.append(f"RoPE of type `{kind}`, allowed are {', '.join(ROPES)}")
    if (share := rope_parameters(config).get("partial_rotary_factor", 1.0)) != 1.0:
        found.append(f"a rotation of {share:g} of a head")
    return found


def window(config: dict[str, Any]) -> bool:
    """Whether a layer sees only the last tokens."""
    if config.get("sliding_window") is None:
        return False
    kinds = config.get("layer_types")
    if kinds is not None:
        return any(kind != "full_attention" for kind in kinds)
    return bool(config.get("use_sliding_window", config["model_type"] == "mistral"))


def rope_parameters(config: dict[str, Any]) -> dict[str, Any]:
    """What a configuration says of RoPE, under its present name or its older ones."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = found.get("rope_type", found.get("type", "default"))
    return {**found, "rope_type": kind, "rope_theta": found.get("rope_theta", config.get("rope_theta", 10000.0))}


def of_config(config: dict[str, Any]) -> Dense:
    """The geometry that a supported configuration describes."""
    family, heads = config["model_type"], config["num_attention_heads"]
    given = rope_parameters(config)
    rope = Rope(
        kind=given["rope_type"],
        theta=float(given["rope_theta"]),
        factor=float(given.get("factor", 1.0)),
        low_factor=float(given.get("low_freq_factor", 1.0)),
        high_factor=float(given.get("high_freq_factor", 4.0)),
        original_tokens=int(given.get("original_max_position_embeddings", 8192)),
    )
    biased = bool(config.get("attention_bias", False))
    return Dense(
        family=family,
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        query_heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        vocabulary=config["vocab_size"],
        positions=config["max_position_embeddings"],
        epsilon=float(config["rms_norm_eps"]),
        rope=rope,
        qkv_bias=family == "qwen2" or (biased and family != "mistral"),
        out_bias=biased and family in ("llama", "qwen3"),
        head_norms=family == "qwen3",
        tied=bool(config.get("tie_word_embeddings", False)),
    )
