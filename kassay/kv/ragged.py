"""A cache whose sequences have lengths of their own: each takes as many tokens of a pass as it has, gives some back.

Axes: B sequences, H KV heads, T tokens, D head dim, W width of a pass, N tokens of a pass that are stored.

It begins as a filled RecipeCache, whose planes it takes over. Token t of a sequence lies in place t, so that place and
position are one number, and rotary positions and pre-bias offsets need no table:

    expect(counts)   before a pass: how many of its W tokens each sequence has, the rest is padding and never stored;
                     the pass's position_ids and its mask, by which a token sees its own sequence up to itself
    settle(kept)     after it: how many of them stay. Those given back are erased, codes to 0 and scales to 1, so that
                     the planes hold, bit for bit, what they would if the tokens had never been there
    keep(rows)       sequences that have ended leave, and what they stored is freed

Refused by name: `tensor` recipes, whose codes depend on how a text is cut into writes, and layers that keep a state in
place of tokens, which cannot be given back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache

from kassay.errors import KassayError
from kassay.kv.cache import RecipeCache, RecipeLayer
from kassay.kv.plane import Plane


@dataclass(frozen=True, kw_only=True)
class Coming:
    """The tokens of one pass that are stored, and where."""

    rows_N: torch.Tensor  # sequence
    columns_N: torch.Tensor  # place in the pass
    places_N: torch.Tensor  # place in the sequence
    longest: int  # tokens of the longest sequence once they are there


class RaggedLayer(RecipeLayer):  # type: ignore[no-untyped-call]  # transformers' own __init_subclass__
    """One attention layer of a RaggedCache, as transformers asks for it."""

    def __init__(self, keys: Plane, values: Plane) -> None:
        super().__init__(keys, values)
        self.coming: Coming | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store k_BHWD and v_BHWD where the pass was announced; the reconstruction up to the longest sequence."""
        coming = self.coming
        if coming is None:
            raise KassayError("a pass over a ragged cache was not announced: `expect` comes first")
        for plane, x_BHWD in ((self.key_plane, key_states), (self.value_plane, value_states)):
            plane.scatter(x_BHWD[coming.rows_N, :, coming.columns_N], coming.rows_N, coming.places_N)
            plane.tokens = coming.longest
        return self.key_plane.rebuilt(key_states.dtype), self.value_plane.rebuilt(value_states.dtype)


class RaggedCache(Cache):
    """A filled cache whose sequences go on at their own pace. Raises KassayError for one that cannot give back."""

    def __init__(self, filled: RecipeCache) -> None:
        for recipe in filled.by_layer:
            if fault := recipe.giving_back_fault():
                raise KassayError(f"{fault}; take its `d` or `f` form")
        if len(filled.layers) != len(filled.stored):
            raise KassayError("a layer keeps a state and no tokens: what a rejected token did to it cannot be undone")
        self.held = [RaggedLayer(layer.key_plane, layer.value_plane) for layer in filled.stored]
        self.capacity = filled.stored[0].key_plane.capacity
        first = filled.stored[0].key_plane
        self.lengths = [first.tokens] * first.data_BHTD.shape[0]
        self._counts: list[int] = []
        super().__init__(layers=list(self.held))

    def expect(
        self, counts: Sequence[int], width: int, device: torch.device | str = "cpu"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Announce a pass: its position_ids_BW and its mask_B1WT. Raises KassayError for counts that do not fit."""
        after = [length + count for length, count in zip(self.lengths, counts, strict=True)]
        if not all(0 < count <= width for count in counts):
            raise KassayError(f"a sequence brings {min(counts)} to {max(counts)} tokens, allowed are 1 to {width}")
        if max(after) > self.capacity:
            raise KassayError(f"cache of {self.capacity} tokens cannot take {max(after)}")
        lengths_B1 = torch.tensor(self.lengths, device=device)[:, None]
        positions_BW = lengths_B1 + torch.arange(width, device=device)
        rows_N, columns_N = torch.nonzero(
            torch.arange(width, device=device) < torch.tensor(counts, device=device)[:, None], as_tuple=True
        )
        coming = Coming(
            rows_N=rows_N, columns_N=columns_N, places_N=positions_BW[rows_N, columns_N], longest=max(after)
        )
        self._counts = list(counts)
        for layer in self.held:
            layer.coming = coming
        mask_B1WT = torch.arange(max(after), device=device) <= positions_BW[:, None, :, None]
        return positions_BW, mask_B1WT

    def settle(self, kept: Sequence[int]) -> None:
        """End a pass: each sequence keeps its first tokens of it, and gives the others back."""
        if not all(0 <= stay <= count for stay, count in zip(kept, self._counts, strict=True)):
            raise KassayError(f"{list(kept)} tokens are to be kept of {self._counts}")
        back = [
            (row, length + at)
            for row, (length, stay, count) in enumerate(zip(self.lengths, kept, self._counts, strict=True))
            for at in range(stay, count)
        ]
        self.lengths = [length + stay for length, stay in zip(self.lengths, kept, strict=True)]
        self._counts = []
        device = self.held[0].key_plane.data_BHTD.device
        rows_N, places_N = torch.tensor(back, dtype=torch.int64, device=device).view(-1, 2).unbind(dim=1)
        for layer in self.held:
            layer.coming = None
            for plane in (layer.key_plane, layer.value_plane):
                if back:
                    plane.erase(rows_N, places_N)
                plane.tokens = max(self.lengths)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these sequences alone, in this order."""
        self.lengths = [self.lengths[row] for row in rows]
        rows_B = torch.tensor(list(rows), dtype=torch.int64, device=self.held[0].key_plane.data_BHTD.device)
        for layer in self.held:
            for plane in (layer.key_plane, layer.value_plane):
                plane.keep(rows_B)
                plane.tokens = max(self.lengths)
