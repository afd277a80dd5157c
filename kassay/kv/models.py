"""The cache layouts of models: a few by name, any other from its config.json.

Named are the models of the published studies. Where a source prints the geometry (Qwen3-8B: 36 layers, 8 KV heads
of 128; Qwen2.5-7B: 28, 4, 128) it is that; the others are what the config.json of the repository named with them is
known to say, and no revision of it was at hand to check: a path to a config.json is the surer word.

Read from config.json: what stands in the file, never a default of the class that would load it; what is missing
and cannot be derived is an error. `text_config` goes before the top level. Rejected by name, with the reason:
compressed latents (MLA and relatives), sparse attention with index keys of its own, encoder-decoders, layer types
whose state is not known here. The state of a gated-delta-net layer (Qwen3-Next, Qwen3.5 and later) is one FP32
matrix of key_dim x value_dim per value head and `linear_conv_kernel_dim` 16-bit columns of its convolution's input,
as transformers keeps them.
"""

import difflib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay.errors import ConfigError, KassayError
from kassay.kv.geometry import Geometry, Layers, Layout, layout_of

CONV_BYTES = 2  # the convolution's input stays in the compute type
STATE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# Without `num_key_value_heads` these have one per query head; elsewhere its absence says nothing.
MHA_TYPES = frozenset({"gpt2", "gpt_neox", "gptj", "llama", "opt", "phi"})
# A class default that is not hidden_size / heads: these must state `head_dim`.
OWN_HEAD_DIM = ("gemma", "qwen3", "glm4", "gpt_oss", "ministral3", "helium", "cohere2_moe", "minimax")
ALL_SLIDING = frozenset({"mistral", "mixtral", "phi3", "starcoder2"})  # `sliding_window` holds for every layer
# Keys of models that mix attention with chunks, windows or states, in ways of their own.
MIXED = ("layers_block_type", "hybrid_", "attn_layer_", "mamba_", "ssm_", "attention_chunk_size", "attn_type_list")
LEGACY_TYPES = {"attention": "full_attention"}
OTHER_NAMES = {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "hidden_size": "n_embd"}

QWEN_27B = {  # config.json of Qwen/Qwen3.6-27B; Qwen/Qwen3.8-27B has the same
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 64,
    "full_attention_interval": 4,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
}


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model's cache layout and where it is from."""

    name: str
    source: str
    layout: Layout

    @property
    def title(self) -> str:
        """The layout in words, such as `36 layers x 8 KV heads x 128`."""
        words = []
        for layers in self.layout.attention:
            dims = str(layers.key_dim) if layers.key_dim == layers.value_dim else f"{layers.key_dim}/{layers.value_dim}"
            window = f" within {layers.window_tokens} tokens" if layers.window_tokens else ""
            words.append(f"{layers.count} layers x {layers.kv_heads} KV heads x {dims}{window}")
        if self.layout.state_layers:
            words.append(f"{self.layout.state_layers} layers with {self.layout.state_bytes} bytes of state per request")
        return ", ".join(words)


def named_models() -> dict[str, Model]:
    """Every named model."""
    conventional = [
        ("qwen3-8b", "Qwen/Qwen3-8B", 36, 8, 128),
        ("qwen3-8b-awq", "Qwen/Qwen3-8B-AWQ", 36, 8, 128),
        ("qwen2.5-7b-instruct", "Qwen/Qwen2.5-7B-Instruct", 28, 4, 128),
        ("qwen2.5-1.5b-instruct", "Qwen/Qwen2.5-1.5B-Instruct", 28, 2, 128),
        ("qwen2.5-0.5b-instruct", "Qwen/Qwen2.5-0.5B-Instruct", 24, 2, 64),
        ("mistral-7b-instruct-v0.3", "mistralai/Mistral-7B-Instruct-v0.3", 32, 8, 128),
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B", 32, 8, 128),
        ("phi-4", "microsoft/phi-4", 40, 10, 128),
        ("deepseek-r1-distill-qwen-7b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 28, 4, 128),
    ]
    found = {
        name: Model(name=name, source=source, layout=layout_of(Geometry(layers=count, kv_heads=heads, head_dim=dim)))
        for name, source, count, heads, dim in conventional
    }
    for name, source in (("qwen3.6-27b", "Qwen/Qwen3.6-27B"), ("qwen3.8-27b", "Qwen/Qwen3.8-27B")):
        found[name] = Model(name=name, source=source, layout=read_layout(QWEN_27B, source))
    return found


def model_named(text: str) -> Model:
    """A named model, or that of a config.json (the file, or its folder). Raises KassayError with what is allowed."""
    known = named_models()
    word = text.lower().rpartition("/")[2]
    if text.lower() in known or (word in known and known[word].source.lower() == text.lower()):
        return known[word]
    path = Path(text) / "config.json" if Path(text).is_dir() else Path(text)
    if not path.is_file():
        close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
        meant = f"; did you mean `{close[0]}`?" if close else ""
        raise ConfigError(
            f"no model is named `{text}` and no config.json is there{meant}",
            f"named are {', '.join(known)}",
            hint="MODEL=<name>, or the path of a model's folder or config.json",
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{text} is no JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{text} holds no JSON object, so it is no config.json")
    return Model(name=text, source=path.name, layout=read_layout(config, text))


def read_layout(config: Mapping[str, Any], where: str) -> Layout:
    """The layout that a config.json states. Raises KassayError with `where` for what is missing or not supported."""
    inner = config.get("text_config")
    facts = {**config, **inner} if isinstance(inner, dict) else dict(config)
    for name, other in OTHER_NAMES.items():
        if facts.get(name) is None and facts.get(other) is not None:
            facts[name] = facts[other]
    refuse(facts, where)
    groups: Counter[tuple[int, int, int, int | None]] = Counter()
    state_layers = 0
    for index, kind in enumerate(layer_kinds(facts, where)):
        if kind == "linear_attention":
            state_layers += 1
        else:
            groups[attention_layer(facts, where, index, kind)] += 1
    attention = tuple(
        Layers(count=count, kv_heads=heads, key_dim=key_dim, value_dim=value_dim, window_tokens=window)
        for (heads, key_dim, value_dim, window), count in groups.items()
    )
    state = state_layers * delta_net_bytes(facts, where) if state_layers else 0
    return Layout(attention=attention, state_layers=state_layers, state_bytes=state)


def refuse(facts: Mapping[str, Any], where: str) -> None:
    """Raise KassayError for a cache that is not keys and values per head, with the reason."""
    kind = facts.get("model_type", "unnamed")
    latent = facts.get("kv_lora_rank")
    if latent and facts.get("use_mla", True):
        raise KassayError(
            f"{where}: `{kind}` keeps a compressed latent (MLA, `kv_lora_rank` {latent}): one vector per "
            "token and layer stands for keys and values of all heads, so these have no bytes of their own",
            hint="take a model with GQA, MQA or MHA; latents need their own accounting",
        )
    if kind in ("deepseek_v4", "deepseek_v4_text"):
        raise KassayError(
            f"{where}: `{kind}` keeps compressed entries shared by keys and values, which need their own accounting"
        )
    if index := [key for key in facts if key.startswith(("index_", "indexer_")) and facts[key]]:
        raise KassayError(
            f"{where}: `{kind}` keeps index keys beside keys and values (`{index[0]}`), not accounted for here"
        )
    if facts.get("is_encoder_decoder"):
        raise KassayError(
            f"{where}: `{kind}` is an encoder-decoder; its cross-attention cache is not accounted for here"
        )


def whole(facts: Mapping[str, Any], where: str, name: str) -> int:
    """A whole number of the file of at least 1; raises KassayError."""
    value = facts.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise KassayError(
            f"{where}: `{name}` is {'missing' if value is None else repr(value)}, allowed is 1 or more",
            hint="save the config in full: config.to_json_file(path, use_diff=False)",
        )
    return value


def layer_kinds(facts: Mapping[str, Any], where: str) -> list[str]:
    """The kind of each layer that has a cache of its own. Raises KassayError for kinds that are not known here."""
    count = whole(facts, where, "num_hidden_layers")
    kinds = facts.get("layer_types")
    if kinds is None:
        kinds = [implied_kind(facts, where, index) for index in range(count)]
    kinds = [LEGACY_TYPES.get(kind, kind) for kind in kinds]
    if len(kinds) != count:
        raise KassayError(f"{where}: `layer_types` has {len(kinds)} entries for {count} layers")
    allowed = ("full_attention", "sliding_attention", "linear_attention")
    if other := sorted({str(kind) for kind in kinds} - set(allowed)):
        raise KassayError(
            f"{where}: what a layer of type `{other[0]}` keeps is not known here, only {', '.join(allowed)}"
        )
    return kinds[: count - (facts.get("num_kv_shared_layers") or 0)]  # the last ones read the cache of earlier layers


def implied_kind(facts: Mapping[str, Any], where: str, index: int) -> str:
    """The kind of a layer in a file without `layer_types`."""
    interval, window, kind = facts.get("full_attention_interval"), facts.get("sliding_window"), facts.get("model_type")
    if interval:
        return "linear_attention" if (index + 1) % interval else "full_attention"
    if mixed := [key for key in facts if key.startswith(MIXED) and facts[key]]:
        raise KassayError(
            f"{where}: `{kind}` mixes kinds of layers (`{mixed[0]}`) but does not list them in `layer_types`"
        )
    if not window or facts.get("use_sliding_window") is False:
        return "full_attention"
    if facts.get("use_sliding_window"):
        return "full_attention" if index < whole(facts, where, "max_window_layers") else "sliding_attention"
    if kind in ALL_SLIDING:
        return "sliding_attention"
    raise KassayError(f"{where}: `{kind}` states `sliding_window` but not in which layers (`layer_types`)")


def attention_layer(facts: Mapping[str, Any], where: str, index: int, kind: str) -> tuple[int, int, int, int | None]:
    """KV heads, key dim, value dim and window of one layer."""
    sliding = kind == "sliding_attention"
    own = dict(facts)
    if facts.get("global_head_dim") and not sliding:  # Gemma 4
        own["head_dim"] = facts["global_head_dim"]
        if facts.get("attention_k_eq_v") and facts.get("num_global_key_value_heads"):
            own["num_key_value_heads"] = facts["num_global_key_value_heads"]
    per_layer = facts.get("per_layer_config") or {}
    own.update(per_layer.get(str(index)) or {})
    if own.get("num_key_value_heads") is None and facts.get("model_type") in MHA_TYPES:
        own["num_key_value_heads"] = own.get("num_attention_heads")
    key_dim = head_dim(own, where)
    value_dim = whole(own, where, "v_head_dim") if own.get("v_head_dim") else key_dim
    window = whole(own, where, "sliding_window") if sliding else None
    return whole(own, where, "num_key_value_heads"), key_dim, value_dim, window


def head_dim(facts: Mapping[str, Any], where: str) -> int:
    """Elements of one key: stated, or hidden_size / heads where no class default says otherwise."""
    if facts.get("head_dim") is not None or str(facts.get("model_type")).startswith(OWN_HEAD_DIM):
        return whole(facts, where, "head_dim")
    hidden, heads = whole(facts, where, "hidden_size"), whole(facts, where, "num_attention_heads")
    if hidden % heads:
        raise KassayError(f"{where}: `head_dim` is missing and hidden_size {hidden} is no multiple of {heads} heads")
    return hidden // heads


def delta_net_bytes(facts: Mapping[str, Any], where: str) -> int:
    """Bytes of one gated-delta-net layer's state for one request."""
    names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
    if facts.get("linear_num_value_heads") is None:
        raise KassayError(
            f"{where}: the state of a `linear_attention` layer of `{facts.get('model_type')}` is not known here"
        )
    key_heads, value_heads, key_dim, value_dim, kernel = (whole(facts, where, f"linear_{name}") for name in names)
    stored = str(facts.get("mamba_ssm_dtype") or "float32")
    if stored not in STATE_BYTES:
        raise KassayError(f"{where}: `mamba_ssm_dtype` is `{stored}`, allowed are {', '.join(STATE_BYTES)}")
    matrix = value_heads * key_dim * value_dim * STATE_BYTES[stored]
    return matrix + (2 * key_heads * key_dim + value_heads * value_dim) * kernel * CONV_BYTES
