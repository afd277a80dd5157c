"""What a model's attention read and returned, layer by layer, and the same attention replayed from arrays.

Axes: B sequences, H query heads, G KV heads, T queries, S keys, D head dim.

Both are code under test: `captured` wraps the model's own sdpa in the type it computes in, `replay` is sdpa in FP32 on
stored arrays, into which a fault may have been put. kassay.kv.oracle judges them; nothing here knows a reference
or a tolerance.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import scaled_dot_product_attention

from kassay.backend.structure import ModelError
from kassay.kv import plane
from kassay.kv.cache import RecipeCache
from kassay.kv.oracle import Component, Stored
from kassay.kv.recipe import GROUP, Format

NAME = "kassay_capture"
EIGHT_BIT_FORMATS = {"e4m3fnuz": torch.float8_e4m3fnuz}  # of faults; e4m3fn is what the cache decodes


@dataclass(frozen=True, kw_only=True)
class Read:
    """One layer in one pass."""

    q_BHTD: torch.Tensor
    k_BGSD: torch.Tensor  # the cache's reconstruction
    v_BGSD: torch.Tensor
    out_BHTD: torch.Tensor
    new_k_BGTD: torch.Tensor  # what the model handed to the cache
    new_v_BGTD: torch.Tensor

    def on_host(self) -> "Read":
        """The same numbers in FP32 in host memory."""
        return Read(**{name: tensor.float().cpu() for name, tensor in vars(self).items()})


@contextmanager
def captured(model: Any, cache: RecipeCache) -> Iterator[list[Read]]:
    """A list that fills with one Read per layer while the model runs once through `cache` in the block."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    reads: list[Read] = []
    written: list[tuple[torch.Tensor, torch.Tensor]] = []

    def attend(module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        check_plain(q.shape[-1], kwargs)
        out_BTHD, weights = sdpa_attention_forward(module, q, k, v, *args, **kwargs)
        new_k, new_v = written[-1]
        out = out_BTHD.transpose(1, 2)
        reads.append(Read(q_BHTD=q, k_BGSD=k, v_BGSD=v, out_BHTD=out, new_k_BGTD=new_k, new_v_BGTD=new_v))
        return out_BTHD, weights

    def update(k: torch.Tensor, v: torch.Tensor, layer: int, *args: Any, **kwargs: Any) -> Any:
        written.append((k, v))
        return RecipeCache.update(cache, k, v, layer, *args, **kwargs)

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    vars(cache)["update"] = update  # shadows the method for this pass
    try:
        yield reads
    finally:
        del vars(cache)["update"]
        model.set_attn_implementation(before)


def check_plain(head_dim: int, given: dict[str, Any]) -> None:
    """Raise ModelError for attention that is another function than softmax(q k / sqrt(D)) v."""
    scaling = given.get("scaling")
    if scaling is not None and not math.isclose(scaling, head_dim**-0.5, rel_tol=1e-6):
        raise ModelError(f"logits are scaled by {scaling:.6g}, not by 1/sqrt({head_dim}): the oracle has no reference")
    for name in ("softcap", "s_aux"):
        if given.get(name) is not None:
            raise ModelError(f"attention with `{name}` has another softmax: the oracle has no reference")


def log_normalizer(q_BHTD: torch.Tensor, k_BGSD: torch.Tensor, seen_TS: torch.Tensor) -> torch.Tensor:
    """lse_BHT (natural log) of scaled logits in the dtype of q; `seen_TS` says which keys a query sees."""
    k_BHSD = k_BGSD.repeat_interleave(q_BHTD.shape[1] // k_BGSD.shape[1], dim=1)
    logits_BHTS = q_BHTD @ k_BHSD.transpose(-1, -2) * q_BHTD.shape[-1] ** -0.5
    lse_BHT: torch.Tensor = logits_BHTS.masked_fill(~seen_TS, float("-inf")).logsumexp(-1)
    return lse_BHT


def seen(queries: int, keys: int, first_query: int, causal: bool) -> torch.Tensor:
    """seen_TS: whether the query at `first_query + t` sees key s."""
    positions_T1 = first_query + torch.arange(queries)[:, None]
    seen_TS: torch.Tensor = torch.arange(keys)[None, :] <= positions_T1
    return seen_TS if causal else torch.ones_like(seen_TS)


def replay(stored: Stored) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """out_BHTD and lse_BHT of torch's sdpa on what is stored, decoded as the cache does."""
    q_BHTD = torch.from_numpy(stored.q_BHTD)
    k_BGSD, v_BGSD = rebuilt(stored.keys), rebuilt(stored.values)
    seen_TS = seen(q_BHTD.shape[2], k_BGSD.shape[2], stored.first_query, stored.causal)
    return attend(q_BHTD, k_BGSD, v_BGSD, seen_TS)


def attend(
    q_BHTD: torch.Tensor, k_BGSD: torch.Tensor, v_BGSD: torch.Tensor, seen_TS: torch.Tensor | None = None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """out_BHTD and lse_BHT of torch's sdpa; without `seen_TS` the queries stand at the end of the keys, causal."""
    t, s = q_BHTD.shape[2], k_BGSD.shape[2]
    seen_TS = seen(t, s, s - t, True) if seen_TS is None else seen_TS
    group = q_BHTD.shape[1] // k_BGSD.shape[1]
    out_BHTD = scaled_dot_product_attention(
        q_BHTD,
        k_BGSD.repeat_interleave(group, dim=1),
        v_BGSD.repeat_interleave(group, dim=1),
        attn_mask=seen_TS,
    )
    return out_BHTD.numpy(), log_normalizer(q_BHTD, k_BGSD, seen_TS).numpy()


def rebuilt(component: Component) -> torch.Tensor:
    """x_BGSD in FP32, by the cache's own decode unless a fault names another format."""
    data = np.ascontiguousarray(component.data_BGSD)
    if component.scale is None:
        return torch.from_numpy(data.astype(np.float32))
    scale = torch.from_numpy(np.array(component.scale))
    if scale.ndim == 4 and scale.shape[-1] > 1:
        scale = scale.repeat_interleave(GROUP, dim=-1)
    codes = torch.from_numpy(data)
    if component.decoded_as in EIGHT_BIT_FORMATS:
        return codes.view(EIGHT_BIT_FORMATS[component.decoded_as]).float() * scale
    x_BGSD = plane.decode(codes, scale, cast(Format, component.decoded_as))
    return x_BGSD if component.offset_GSD is None else x_BGSD + torch.from_numpy(component.offset_GSD)
