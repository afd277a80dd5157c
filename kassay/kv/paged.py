"""One layer of a cache in pages: keys and values in planes of their own, written by slot, read through a block table.

Axes: P pages, S slots of a page, H KV heads, D head dim, W stored width (D, or D/2 bytes where two codes share one),
G scales of a token and head, N tokens of a write, B sequences, T tokens, X pages of a sequence.

    slot of a token   page * S + place in the page; -1 stores nothing (padding of a captured graph)
    data_PSHW         16-bit numbers, or uint8 codes
    scale_PHSG        FP32, where a policy keeps scales with each token. Those of one page and head are neighbours:
                      with pages of 16 one read of 64 bytes, and no bytes beside them are fetched (measured, H200)
    scale             one FP32 number of the layer under a fixed policy

Token t of sequence b lies in page table_BX[b, t // S]. Pages of a table beyond a sequence's length are never read.
Bits of codes and scales equal kassay.kv.formats, by test. A slot is written as a whole and never requantized; written
again it holds the new token alone. `tensor` recipes are refused: a page holds tokens of many writes.

This is the reference writer, on any device; kassay.kernels has the fast ones, for the same planes.
"""

from dataclasses import dataclass

import torch

from kassay.errors import KassayError
from kassay.kv.plane import DTYPES, Offset, Part, Rule, Storage, check_width, decode, encode, operand_of, scale_of
from kassay.kv.recipe import BITS, GROUP, Format, Recipe

PAGE_TOKENS = (1, 8, 16, 32)
SKIP = -1  # a slot that stores nothing


@dataclass(frozen=True, kw_only=True)
class PagedShape:
    """The pool of one layer."""

    pages: int
    page_tokens: int = 16
    kv_heads: int
    head_dim: int

    @property
    def slots(self) -> int:
        """Tokens that the pool holds."""
        return self.pages * self.page_tokens


@dataclass(frozen=True, kw_only=True)
class LayerScales:
    """The FP32 scales of one layer under a fixed policy; None for a component that has none."""

    keys: float | None = None
    values: float | None = None


class PagedPlane:
    """Keys or values of one layer."""

    def __init__(self, rule: Rule, shape: PagedShape, device: torch.device) -> None:
        check_width(rule, shape.head_dim)
        self.rule = rule
        self.shape = shape
        self.sixteen_bit = BITS[rule.stored] == 16
        self.scaled_by_token = not self.sixteen_bit and rule.policy != "fixed"
        p, s, h, d = shape.pages, shape.page_tokens, shape.kv_heads, shape.head_dim
        kind = DTYPES[rule.sixteen] if self.sixteen_bit else torch.uint8
        width = d if self.sixteen_bit else d * BITS[rule.stored] // 8
        groups = d // GROUP if rule.policy == "group" else 1
        self.data_PSHW = torch.zeros((p, s, h, width), dtype=kind, device=device)
        self.scale_PHSG = torch.ones((p, h, s, groups), device=device) if self.scaled_by_token else None
        self.scale = None if rule.scale is None else torch.tensor(rule.scale, dtype=torch.float32, device=device)

    def write(self, x_NHD: torch.Tensor, slots_N: torch.Tensor, positions_N: torch.Tensor | None) -> None:
        """Store operands; slots are checked by the layer, -1 already left out."""
        operand_NHD = operand_of(x_NHD, self.rule.sixteen)
        data_SHW = self.data_PSHW.view(self.shape.slots, *self.data_PSHW.shape[2:])
        if self.sixteen_bit:
            data_SHW[slots_N] = operand_NHD
            return
        wide_NHD = operand_NHD.float()
        if self.rule.offset is not None:
            wide_NHD = wide_NHD - offset_at(self.rule.offset, positions_N, x_NHD.device)
        if self.scale_PHSG is None:
            assert self.scale is not None, "a bug: a fixed plane was made without its scale"
            data_SHW[slots_N] = encode(wide_NHD, self.scale, self.rule.stored)
            return
        scale_NHG = scale_of(self._amax(wide_NHD), self.rule.stored)
        pages_N, places_N = slots_N // self.shape.page_tokens, slots_N % self.shape.page_tokens
        self.scale_PHSG[pages_N, :, places_N] = scale_NHG
        data_SHW[slots_N] = encode(wide_NHD, self._spread(scale_NHG), self.rule.stored)

    def _amax(self, x_NHD: torch.Tensor) -> torch.Tensor:
        magnitude = x_NHD.abs()
        if self.rule.policy == "group":
            return magnitude.view(*magnitude.shape[:-1], -1, GROUP).amax(dim=-1)
        return magnitude.amax(dim=-1, keepdim=True)

    def _spread(self, scale: torch.Tensor) -> torch.Tensor:
        return scale.repeat_interleave(GROUP, dim=-1) if self.rule.policy == "group" else scale

    def stored(self, slots_BT: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What lies in these slots: data_BHTW, and scale_BHTG, the layer's number, or None."""
        data_SHW = self.data_PSHW.view(self.shape.slots, *self.data_PSHW.shape[2:])
        data_BHTW = data_SHW[slots_BT].transpose(1, 2)
        if self.scale_PHSG is None:
            return data_BHTW, self.scale
        pages_BT, places_BT = slots_BT // self.shape.page_tokens, slots_BT % self.shape.page_tokens
        return data_BHTW, self.scale_PHSG[pages_BT, :, places_BT].transpose(1, 2)

    def rebuilt(self, slots_BT: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """x_BHTD of these slots; with an offset, token t of a sequence stands at position t."""
        data_BHTW, scale = self.stored(slots_BT)
        if self.sixteen_bit:
            return data_BHTW.to(dtype)
        assert scale is not None, "a bug: codes without a scale"
        x_BHTD = decode(data_BHTW.contiguous(), self._spread(scale), self.rule.stored)
        if self.rule.offset is not None:
            x_BHTD += self.rule.offset(0, slots_BT.shape[1], x_BHTD.device)
        return x_BHTD.to(dtype)


class PagedLayer:
    """Keys and values of one layer in pages, as `recipe` says. Raises KassayError for what it cannot store."""

    def __init__(
        self,
        recipe: Recipe,
        shape: PagedShape,
        device: torch.device | str = "cpu",
        scales: LayerScales | None = None,
        key_offset: Offset | None = None,
    ) -> None:
        check_recipe(recipe, shape, key_offset)
        self.recipe = recipe
        self.shape = shape
        given = scales or LayerScales()
        where = torch.device(device)
        self.keys = PagedPlane(rule_of(recipe, recipe.key_format, given.keys, key_offset), shape, where)
        self.values = PagedPlane(rule_of(recipe, recipe.value_format, given.values, None), shape, where)

    def write(
        self,
        k_NHD: torch.Tensor,
        v_NHD: torch.Tensor,
        slots_N: torch.Tensor,
        positions_N: torch.Tensor | None = None,
    ) -> None:
        """Store one key and one value per token; slot -1 leaves its token out, whatever it holds.

        Raises KassayError, and stores nothing, for operands of another shape, a slot out of range or twice, operands
        that are not finite, and in a pre-bias recipe without the tokens' positions.
        """
        check_write(self.shape, k_NHD, v_NHD, slots_N)
        if self.recipe.prebias and (positions_N is None or positions_N.shape != slots_N.shape):
            raise KassayError(f"recipe `{self.recipe.name}` needs the position of each of {len(slots_N)} tokens")
        kept_N = slots_N != SKIP
        if not bool(kept_N.any()):
            return
        sixteen, slots_N = self.recipe.sixteen, slots_N[kept_N]
        k_NHD, v_NHD = operand_of(k_NHD[kept_N], sixteen), operand_of(v_NHD[kept_N], sixteen)  # both, before either
        positions_N = None if positions_N is None else positions_N[kept_N]
        self.keys.write(k_NHD, slots_N, positions_N)
        self.values.write(v_NHD, slots_N, None)

    def gather(
        self, table_BX: torch.Tensor, lengths_B: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """k_BHTD and v_BHTD up to the longest length; 0 beyond a sequence's own."""
        slots_BT = slots_of(table_BX, lengths_B, self.shape)
        valid_BHTD = (slots_BT != SKIP)[:, None, :, None]
        places_BT = slots_BT.clamp(min=0)
        zero = torch.zeros((), dtype=dtype, device=slots_BT.device)
        k_BHTD, v_BHTD = (plane.rebuilt(places_BT, dtype) for plane in (self.keys, self.values))
        return torch.where(valid_BHTD, k_BHTD, zero), torch.where(valid_BHTD, v_BHTD, zero)

    def storages(self, layer: int) -> list[Storage]:
        """Every persisted tensor, scalars of fixed scales included."""
        found = []
        sides: tuple[tuple[PagedPlane, Part, Part], ...] = (
            (self.keys, "keys", "key_scales"),
            (self.values, "values", "value_scales"),
        )
        for plane, data, scales in sides:
            found.append(Storage(layer=layer, part=data, tensor=plane.data_PSHW, tokens=self.shape.slots))
            if plane.scale_PHSG is not None:
                found.append(Storage(layer=layer, part=scales, tensor=plane.scale_PHSG, tokens=self.shape.slots))
            elif plane.scale is not None:
                found.append(Storage(layer=layer, part=scales, tensor=plane.scale, tokens=1))
        return found


def rule_of(recipe: Recipe, stored: Format, scale: float | None, offset: Offset | None) -> Rule:
    """How one component is stored. Raises KassayError for a fixed scale that is missing or not above 0 in FP32."""
    policy = recipe.policy_of(stored)
    if policy != "fixed":
        scale = None
    elif scale is None or not 0 < float(torch.tensor(scale, dtype=torch.float32)) < float("inf"):
        raise KassayError(f"recipe `{recipe.name}`: a fixed scale is {scale}, allowed is above 0 in FP32")
    return Rule(stored=stored, policy=policy, sixteen=recipe.sixteen, scale=scale, offset=offset)


def offset_at(offset: Offset, positions_N: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """The offset NHD of tokens at these positions."""
    assert positions_N is not None, "a bug: an offset without positions"
    offset_HTD = offset(0, int(positions_N.max()) + 1, device)[0]
    return offset_HTD[:, positions_N].transpose(0, 1)


def slots_of(table_BX: torch.Tensor, lengths_B: torch.Tensor, shape: PagedShape) -> torch.Tensor:
    """Slots BT of the tokens of each sequence, -1 beyond its length. Raises KassayError for a page out of range."""
    longest = int(lengths_B.max())
    if table_BX.shape[0] != len(lengths_B) or longest > table_BX.shape[1] * shape.page_tokens:
        raise KassayError(
            f"block table {tuple(table_BX.shape)} with pages of {shape.page_tokens} does not cover "
            f"{len(lengths_B)} sequences of up to {longest} tokens"
        )
    positions_T = torch.arange(longest, device=table_BX.device)
    pages_BT = table_BX.long()[:, positions_T // shape.page_tokens]
    valid_BT = positions_T[None, :] < lengths_B[:, None].to(table_BX.device)
    used = pages_BT[valid_BT]
    if used.numel() and not 0 <= int(used.min()) <= int(used.max()) < shape.pages:
        raise KassayError(f"a block table names pages {int(used.min())} to {int(used.max())} of {shape.pages}")
    slots_BT = pages_BT * shape.page_tokens + positions_T % shape.page_tokens
    return torch.where(valid_BT, slots_BT, SKIP)


def check_write(shape: PagedShape, k_NHD: torch.Tensor, v_NHD: torch.Tensor, slots_N: torch.Tensor) -> None:
    """Raise KassayError for operands of another shape, and for slots that are out of range or given twice."""
    wanted = (len(slots_N), shape.kv_heads, shape.head_dim)
    for name, x_NHD in (("keys", k_NHD), ("values", v_NHD)):
        if tuple(x_NHD.shape) != wanted:
            raise KassayError(f"{name} of a write are {tuple(x_NHD.shape)}, its slots and pool want {wanted}")
    if slots_N.ndim != 1 or slots_N.dtype != torch.int64:
        raise KassayError(f"slots are one axis of int64, got {slots_N.ndim} of {slots_N.dtype}")
    if outside := slots_N[(slots_N < SKIP) | (slots_N >= shape.slots)].tolist():
        raise KassayError(f"slot {outside[0]} is out of range, allowed are 0 to {shape.slots - 1}, and -1 to skip")
    slots = slots_N[slots_N != SKIP].sort().values
    if twice := slots[1:][slots[1:] == slots[:-1]].tolist():
        raise KassayError(f"slot {twice[0]} is given twice in one write: which token it holds would be chance")


def check_recipe(recipe: Recipe, shape: PagedShape, key_offset: Offset | None) -> None:
    """Raise KassayError for a recipe or a pool that has no paged form, by name."""
    if shape.page_tokens not in PAGE_TOKENS:
        raise KassayError(f"pages of {shape.page_tokens} tokens are not supported, allowed are {PAGE_TOKENS}")
    if recipe.policy == "tensor":
        raise KassayError(
            f"recipe `{recipe.name}` scales what one write brings, and a page holds tokens of many writes: "
            "take its `d` or `f` form"
        )
    if recipe.prebias and key_offset is None:
        raise KassayError(f"recipe `{recipe.name}` subtracts the key bias, and no offset was given")
    if not recipe.prebias and key_offset is not None:
        raise KassayError(f"recipe `{recipe.name}` subtracts no key bias, and an offset was given")
