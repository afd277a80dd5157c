"""Which attention the kernels can do: the geometry and recipe of a call, and rules that reject by name."""

from dataclasses import dataclass, replace

from kassay.errors import KassayError
from kassay.kernels.host import Host
from kassay.kv.recipe import Format, Recipe

FORMATS: dict[Format, int] = {"fp16": 0, "bf16": 0, "e4m3fn": 1, "int8": 2, "int4": 3}
LANES = {0: 1, 1: 2, 2: 2, 3: 4}  # elements of a 16-bit word
HEAD_DIMS = (64, 128)
PAGES = (1, 8, 16, 32)
MOST_ROWS = 32  # query heads of one program: 64 spill registers on sm_90
LEAST_ROWS = 16  # of a tile of a prefix
LEAST_COLUMNS = 8  # of a tensor-core tile, which queries are
# A weight times a value's scale is FP16. The scale of the largest FP16 operand is 65504 / largest, and times 2^FOLD
# it is 37,431, 33,012 and 37,431: below 65504. A usual value (1 to 10) leaves a scale times 2^FOLD near 1.
FOLDS = {0: 0, 1: 8, 2: 6, 3: 2}


@dataclass(frozen=True, kw_only=True)
class DecodeShape:
    """What is fixed for all calls of one model and recipe."""

    recipe: Recipe
    query_heads: int
    kv_heads: int
    head_dim: int
    page_tokens: int

    @property
    def group(self) -> int:
        """Query heads that read one KV head."""
        return self.query_heads // self.kv_heads

    @property
    def rows(self) -> int:
        """Query heads of a tile: the power of two from the group, 8 to 32."""
        return min(MOST_ROWS, max(LEAST_COLUMNS, 1 << (self.group - 1).bit_length()))

    @property
    def programs(self) -> int:
        """Programs of one sequence and one split."""
        return self.kv_heads * -(-self.group // self.rows)

    @property
    def key_number(self) -> int:
        """The keys' format as kernels know it."""
        return FORMATS[self.recipe.key_format]

    @property
    def value_number(self) -> int:
        """The values' format as kernels know it."""
        return FORMATS[self.recipe.value_format]

    @property
    def pairs(self) -> bool:
        """Whether two KV heads can be read as one: their queries fill no tile of the tensor cores alone."""
        return self.kv_heads % 2 == 0 and 2 * self.group <= LEAST_COLUMNS

    def read_as(self, heads: int) -> "DecodeShape":
        """The shape of programs that read so many KV heads as one. Raises KassayError for heads that make no pairs."""
        if heads == 1:
            return self
        if heads != 2 or not self.pairs:
            raise KassayError(
                f"{self.query_heads} query heads on {self.kv_heads} KV heads make no rows of {heads} heads: pairs "
                f"need an even number of KV heads, and groups of up to {LEAST_COLUMNS // 2}"
            )
        return replace(self, kv_heads=self.kv_heads // 2, head_dim=2 * self.head_dim)

    def constants(self) -> dict[str, int]:
        """Compile-time arguments that the kernels of the planes share."""
        dynamic = self.recipe.policy == "dynamic"
        return {
            "KV_HEADS": self.kv_heads,
            "D": self.head_dim,
            "PAGE": self.page_tokens,
            "K_FORMAT": self.key_number,
            "V_FORMAT": self.value_number,
            "K_DYNAMIC": dynamic and self.key_number != 0,
            "V_DYNAMIC": dynamic and self.value_number != 0,
        }


def refusals(host: Host, shape: DecodeShape, *, prebias: bool = False) -> tuple[str, ...]:
    """Why this host cannot run that shape, all reasons; empty if it can. `prebias`: whoever asks adds the key bias."""
    recipe, found = shape.recipe, []
    if shape.kv_heads < 1 or shape.query_heads % shape.kv_heads or shape.query_heads < 1:
        found.append(f"{shape.query_heads} query heads are no multiple of {shape.kv_heads} KV heads")
    if shape.head_dim not in HEAD_DIMS:
        found.append(f"head dim {shape.head_dim}, allowed are {HEAD_DIMS}")
    if shape.page_tokens not in PAGES:
        found.append(f"pages of {shape.page_tokens} tokens, allowed are {PAGES}")
    if recipe.policy not in ("none", "fixed", "dynamic"):
        found.append(f"recipe `{recipe.name}`: scale policy `{recipe.policy}`, allowed are none, fixed and dynamic")
    if recipe.prebias and not prebias:
        found.append(
            f"recipe `{recipe.name}`: pre-biased keys need their bias at every position, which this kernel lacks"
        )
    for part, stored in (("keys", recipe.key_format), ("values", recipe.value_format)):
        if stored not in FORMATS:
            found.append(f"recipe `{recipe.name}`: {part} in `{stored}`, allowed are {', '.join(FORMATS)}")
    if host.backend == "cuda" and host.capability < 80:
        found.append(f"{host.name} is sm_{host.capability}, needed is sm_80")
    return tuple(found)


def supports(host: Host, shape: DecodeShape, *, prebias: bool = False) -> bool:
    """Whether the kernels can do this."""
    return not refusals(host, shape, prebias=prebias)


def require(host: Host, shape: DecodeShape, *, prebias: bool = False) -> None:
    """Raise KassayError that names every reason."""
    if found := refusals(host, shape, prebias=prebias):
        raise KassayError("the decode kernels do not support this: " + "; ".join(found))
