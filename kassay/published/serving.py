"""What follows from a cache's geometry and a scheduler's budget: bytes, slots, bandwidth, admissions.

The bytes are those of kassay.kv.geometry, so that a printed size that differs would show a fault there. Units of 2^10,
2^20 and 2^30 bytes are KiB, MiB and GiB; bandwidth is decimal GB/s, as the sources print it.
"""

from fractions import Fraction

from kassay.kv import geometry
from kassay.kv.recipe import recipe_named
from kassay.stats import InvalidData

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
GIGA = 10**9


def _token_bytes(layers: int, kv_heads: int, head_dim: int, recipe: str) -> int:
    """Bytes of one cached token in all layers, without scales."""
    shape = geometry.Geometry(layers=layers, kv_heads=kv_heads, head_dim=head_dim)
    return geometry.token_bytes(shape, recipe_named(recipe))


def in_unit(size: int, unit: str) -> Fraction:
    """A number of bytes in a binary unit; raises InvalidData for an unknown one."""
    if unit not in UNITS:
        raise InvalidData(f"unit `{unit}`, allowed are {', '.join(UNITS)}")
    return Fraction(size, UNITS[unit])


def tensor_size(unit: str, **factors: int) -> Fraction:
    """The size of a buffer whose bytes are the product of its factors."""
    size = 1
    for factor in factors.values():
        size *= factor
    return in_unit(size, unit)


def payload(tokens: int, layers: int, kv_heads: int, head_dim: int, recipe: str, unit: str) -> Fraction:
    """The size of a cache of that many tokens."""
    return in_unit(tokens * _token_bytes(layers, kv_heads, head_dim, recipe), unit)


def payload_saving(tokens: int, layers: int, kv_heads: int, head_dim: int, recipe: str, unit: str) -> Fraction:
    """By how much such a cache is smaller than the native one."""
    native = payload(tokens, layers, kv_heads, head_dim, "native", unit)
    return native - payload(tokens, layers, kv_heads, head_dim, recipe, unit)


def pair_bytes(recipe: str) -> int:
    """Bytes of one key element and one value element."""
    return _token_bytes(1, 1, 1, recipe)


def pair_saving_percent(recipe: str) -> Fraction:
    """By how many per cent a pair is smaller than the native one."""
    return 100 * (1 - Fraction(pair_bytes(recipe), pair_bytes("native")))


def capacity_ratio(recipe: str, against: str) -> Fraction:
    """Tokens that the same bytes hold under one recipe, over those under another."""
    return Fraction(pair_bytes(against), pair_bytes(recipe))


def capacity_gain_percent(recipe: str, against: str) -> Fraction:
    """By how many per cent the same bytes hold more tokens."""
    return 100 * (capacity_ratio(recipe, against) - 1)


def capacity_gain(recipe: str, against: str) -> Fraction:
    """By which share the same bytes hold more tokens."""
    return capacity_ratio(recipe, against) - 1


def saving_ratio(recipe: str, against: str) -> Fraction:
    """Bytes that one recipe saves of the native payload, over those that another saves."""
    native = pair_bytes("native")
    return Fraction(native - pair_bytes(recipe), native - pair_bytes(against))


def slots(budget_bytes: int, page: int, layers: int, kv_heads: int, head_dim: int, recipe: str) -> int:
    """Token slots that a byte budget holds in whole pages."""
    shape = geometry.Geometry(layers=layers, kv_heads=kv_heads, head_dim=head_dim)
    return geometry.slots(shape, recipe_named(recipe), budget_bytes=budget_bytes, page_tokens=page)


def backing(budget_bytes: int, page: int, layers: int, kv_heads: int, head_dim: int, recipe: str) -> int:
    """Bytes behind the token slots that a byte budget holds in whole pages."""
    number = slots(budget_bytes, page, layers, kv_heads, head_dim, recipe)
    return number * _token_bytes(layers, kv_heads, head_dim, recipe)


def slots_of_the_same_bytes(native_slots: int, page: int, recipe: str) -> int:
    """Token slots in whole pages of the bytes that so many native slots take."""
    pages = Fraction(native_slots, page) * capacity_ratio(recipe, "native")
    return int(pages) * page


def bandwidth(tokens: int, layers: int, kv_heads: int, head_dim: int, recipe: str, seconds: Fraction) -> Fraction:
    """Decimal GB/s that move the whole payload within that time."""
    return Fraction(tokens * _token_bytes(layers, kv_heads, head_dim, recipe)) / seconds / GIGA


def heads_per_rank(kv_heads: int, ranks: int) -> Fraction:
    """Key/value heads on each rank of a tensor-parallel group."""
    return Fraction(kv_heads, ranks)


def _cohorts(token_budget: int, prompt_tokens: int, requests: int) -> list[int]:
    """Requests admitted at each step that admits any: whole prompts only, one token for each running request.

    Raises InvalidData where a prompt fits no step.
    """
    found: list[int] = []
    running = 0
    while running < requests:
        admitted = min((token_budget - running) // prompt_tokens, requests - running)
        if admitted < 1:
            raise InvalidData(f"no prompt of {prompt_tokens} tokens fits beside {running} running requests")
        found.append(admitted)
        running += admitted
    return found


def cohort_count(token_budget: int, prompt_tokens: int, requests: int) -> int:
    """Steps that admit requests."""
    return len(_cohorts(token_budget, prompt_tokens, requests))


def first_cohort(token_budget: int, prompt_tokens: int, requests: int) -> int:
    """Requests of the first step, which finds none running."""
    return _cohorts(token_budget, prompt_tokens, requests)[0]


def mixed_cohorts(token_budget: int, prompt_tokens: int, requests: int) -> int:
    """Steps that admit requests beside running ones."""
    return len(_cohorts(token_budget, prompt_tokens, requests)[1:])


def mixed_cohorts_of(token_budget: int, prompt_tokens: int, requests: int, size: int) -> int:
    """Such steps that admit so many requests."""
    return _cohorts(token_budget, prompt_tokens, requests)[1:].count(size)


def admitted_together(token_budget: int, prompt_tokens: int, requests: int, page: int, most_pages: int) -> bool:
    """Whether one step admits all requests within a number of gathered pages."""
    together = cohort_count(token_budget, prompt_tokens, requests) == 1
    return together and -(-prompt_tokens // page) * requests <= most_pages
