"""The section of a study that the fused backend carries out: geometry, what oracle and memory look at, a shared prefix.

What the sections of a study mean together with it, and with the workflow's stages, is checked by kassay.study.native.
"""

from dataclasses import dataclass

from kassay.study.reading import said

RESIDUALS = {"log": "ln S - ln fit", "linear": "S - fit"}


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """Which kernels are compiled on any machine."""

    recipes: list[str] = said("Their recipes; empty: all that the kernels have.")
    head_dims: list[int] = said("Elements of a head.", least=1)


@dataclass(frozen=True, kw_only=True)
class FusedOracle:
    """What the kernels are held to float64 on."""

    model: str = said("Shipped model whose own operands are taken, layer by layer.")
    recipes: list[str] = said("Recipes.")
    heads: list[list[int]] = said("Drawn operands: query heads, KV heads, head dim and page of each geometry.", least=1)


@dataclass(frozen=True, kw_only=True)
class Held:
    """What memory is measured of."""

    arms: list[str] = said("Arms.")
    context_tokens: int = said("Tokens of a sequence at its end, prefix and output among them.", least=2)
    output_tokens: int = said("Of them decoded, under graphs.", least=1)


@dataclass(frozen=True, kw_only=True)
class SharedArm:
    """How an arm stores a prefix that all requests begin with."""

    own: str = said("Recipe of a request's own tokens.")
    prefix: str = said("Recipe of the prefix.")
    copied: bool = said("Whether it lies in every request's own pages instead of once.")


@dataclass(frozen=True, kw_only=True)
class SharedPrefix:
    """A prefix that all requests begin with."""

    page_tokens: int = said("Tokens of a page; the prefix ends where one ends.", least=1)
    positions: int = said("Its tokens, for the oracle, memory and complete requests.", least=1)
    positions_at: list[list[int]] = said("Contexts of the sweep, each with its tokens that are the prefix.", least=1)
    arms: dict[str, SharedArm] = said("Arms of the study.")


@dataclass(frozen=True, kw_only=True)
class FusedSweep:
    """How the sweep is carried out."""

    batches: list[int] = said("Batches, as far as a context's limit allows.", least=1)
    most_cached_tokens: int = said("Most cached tokens of a point, over all sequences.", least=1)
    parts: list[int] = said("Batches at which a step's time is taken apart.", least=1)
    tuned_cuts: int = said("Cuts of attention that are timed for each arm and point; 0: the rule's own.", least=0)
    residuals: str = said("Residuals of the fits.", among=RESIDUALS)


@dataclass(frozen=True, kw_only=True)
class Fused:
    """How the fused backend carries a study out."""

    geometry: str = said("Geometry of the drawn weights (kassay.backend.fused_geometry).")
    layers: int | None = said("Its first layers; null: all.", least=1)
    sixteen: str = said("16-bit format of keys, values and queries.", among=("fp16", "bf16"))
    compiled: Compiled = said("Kernels that are compiled.")
    oracle: FusedOracle = said("Oracle.")
    held: Held = said("Memory.")
    prefix: SharedPrefix | None = said("A shared prefix; null: there is none.")
    sweep: FusedSweep = said("Sweep.")
