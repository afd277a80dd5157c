"""What a route of attention can do, as rules that reject by name, all reasons at once.

A route is a way to write and to attend a cache: the reference execution, the published mixed prefill, a kernel of ours.
Outside its rules a recipe on it is *ineligible*: no failure of the recipe, and no measurement of it.

Sources: the published studies at 8K (the mixed fresh-prefill route: 32 query heads on 8 KV heads of 128, NHD, pages of
16, SM90, one worker; whole fresh prompts up to 8,192 tokens in at most 4,096 gathered pages; no prefix caching, chunked
prefill, sliding window, sinks or soft cap) and the cartridge study (a shared prefix ends at a page boundary: 632
positions are 79 pages of 8).
"""

from dataclasses import dataclass

from kassay.errors import KassayError
from kassay.kv.recipe import Recipe

FEATURES = (
    "sliding window",
    "attention sinks",
    "soft cap",
    "prefix caching",
    "chunked prefill",
    "compressed latents",
    "tensor parallel",
)


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where a recipe is to run."""

    query_heads: int
    kv_heads: int
    head_dim: int
    page_tokens: int | None = None  # None: the cache has no pages
    layout: str | None = None  # of a page: NHD or HND
    capability: int | None = None  # of the GPU, such as 90; None: no GPU
    prompt_tokens: int | None = None  # of the longest prompt
    features: frozenset[str] = frozenset()  # of FEATURES, what is switched on


@dataclass(frozen=True, kw_only=True)
class Route:
    """What a route can do; an empty tuple or None allows all."""

    name: str
    heads: tuple[tuple[int, int], ...] = ()  # (query heads, KV heads)
    head_dims: tuple[int, ...] = ()
    pages: tuple[int, ...] = ()
    layouts: tuple[str, ...] = ()
    capabilities: tuple[int, ...] = ()
    formats: tuple[tuple[str, str], ...] = ()  # (keys, values)
    policies: tuple[str, ...] = ()
    most_prompt_tokens: int | None = None
    most_pages: int | None = None  # gathered for one prompt
    refuses: tuple[str, ...] = ()  # of FEATURES


REFERENCE = Route(name="reference", refuses=("sliding window", "compressed latents", "tensor parallel"))
MIXED_PREFILL = Route(
    name="mixed prefill",
    heads=((32, 8),),
    head_dims=(128,),
    pages=(16,),
    layouts=("NHD",),
    capabilities=(90,),
    formats=(("fp16", "e4m3fn"),),
    policies=("fixed",),
    most_prompt_tokens=8_192,
    most_pages=4_096,
    refuses=FEATURES,
)
ROUTES = {route.name: route for route in (REFERENCE, MIXED_PREFILL)}


def refusals(route: Route, site: Site, recipe: Recipe) -> tuple[str, ...]:
    """Why the route cannot run the recipe there, all reasons; empty if it can.

    Raises KassayError for unknown features.
    """
    if unknown := sorted(site.features - set(FEATURES)):
        raise KassayError(f"unknown features `{'`, `'.join(unknown)}`, allowed are {', '.join(FEATURES)}")
    heads, formats = (site.query_heads, site.kv_heads), (recipe.key_format, recipe.value_format)
    asked: tuple[tuple[str, object, tuple[object, ...]], ...] = (
        ("query and KV heads", heads, route.heads),
        ("head dim", site.head_dim, route.head_dims),
        ("pages of", site.page_tokens, route.pages),
        ("page layout", site.layout, route.layouts),
        ("compute capability", site.capability, route.capabilities),
        ("key and value formats", formats, route.formats),
        ("scale policy", recipe.policy, route.policies),
    )
    found = [
        f"{what} {shown(value)}, allowed is {listed(allowed)}"
        for what, value, allowed in asked
        if lacks(value, allowed)
    ]
    if site.query_heads % site.kv_heads:
        found.append(f"{site.query_heads} query heads are no multiple of {site.kv_heads} KV heads")
    if recipe.prebias and route.formats:
        found.append(f"recipe `{recipe.name}`: pre-biased keys")
    tokens = site.prompt_tokens
    if tokens is not None and route.most_prompt_tokens is not None and tokens > route.most_prompt_tokens:
        found.append(f"a prompt of {tokens} tokens, allowed are {route.most_prompt_tokens}")
    if tokens is not None and site.page_tokens and route.most_pages is not None:
        pages = -(-tokens // site.page_tokens)
        if pages > route.most_pages:
            found.append(f"{pages} gathered pages, allowed are {route.most_pages}")
    return (*found, *(feature for feature in route.refuses if feature in site.features))


def lacks(value: object, allowed: tuple[object, ...]) -> bool:
    """Whether a value is outside what is allowed; nothing named allows all."""
    return bool(allowed) and value not in allowed


def shown(value: object) -> str:
    """A value in a message."""
    return "/".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else str(value)


def listed(allowed: tuple[object, ...]) -> str:
    """What is allowed, in a message."""
    return " or ".join(shown(value) for value in allowed)


def require(route: Route, site: Site, recipe: Recipe) -> None:
    """Raise KassayError that names every reason."""
    if found := refusals(route, site, recipe):
        raise KassayError(f"recipe `{recipe.name}` is ineligible on route `{route.name}`: {'; '.join(found)}")


def whole_pages(positions: int, page_tokens: int) -> int:
    """Pages of a shared prefix. Raises KassayError where it does not end at a page boundary."""
    if positions < 1 or positions % page_tokens:
        raise KassayError(
            f"a shared prefix of {positions} positions does not end at a boundary of pages of {page_tokens}: "
            "what follows would be written into it"
        )
    return positions // page_tokens
