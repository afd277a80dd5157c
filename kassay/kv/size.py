"""`kassay kv <size|offload|traffic>`: byte arithmetic of caches as tables; no model is loaded, nothing is measured.

Lines that begin with `#` say what was asked; then one line per recipe, columns two blanks apart, units in the
header. Each argument is a flag here and a word of make's command line there: `--model x`, `MODEL=x`.
"""

import argparse
import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from kassay.errors import ConfigError
from kassay.kv import quantity
from kassay.kv.budget import ALLOCATORS, Allocator, Cartridge, Fit, Pool, pages_in, requests_in
from kassay.kv.geometry import SCALE_BYTES, fixed_scales, request_bytes, scale_overhead, token_bytes, token_parts
from kassay.kv.models import Model, model_named
from kassay.kv.offload import link_gb_per_s, traffic_fraction
from kassay.kv.recipe import RECIPES, Recipe, recipe_named
from kassay.words import Given

NATIVE = "native"
PAGE_TOKENS = 16  # of the published geometry (studies.md 3)
IN_VAIN = (("allocator", "budget"), ("requests", "budget"), ("cartridge_recipe", "cartridge"))
Row = dict[str, str]

MODEL = ("model", "a named model, or the path of a model's folder or config.json")
RECIPE = ("recipe", "recipes with commas between them (default: all)")
TOKENS = ("tokens", "cached tokens of one request")
REQUESTS = ("requests", "requests at once (default: 1)")
ARGUMENTS: dict[str, list[tuple[str, str]]] = {
    "size": [
        MODEL,
        RECIPE,
        ("budget", "bytes of the pool: 40GiB, 40GB or a plain number"),
        ("page", f"tokens of a page (default: {PAGE_TOKENS})"),
        ("allocator", f"what it adds: {', '.join(a.name for a in ALLOCATORS)} (default: {ALLOCATORS[0].name})"),
        ("tokens", "count requests of this length too"),
        ("requests", "requests whose windows and states stand beside the slots (default: 1)"),
        ("cartridge", "positions of a prefix that all requests share"),
        ("cartridge_recipe", "recipe of that prefix (default: that of the line)"),
    ],
    "offload": [
        MODEL,
        RECIPE,
        TOKENS,
        REQUESTS,
        ("deadline", "until when the bytes must be there: 10ms, 1s"),
        ("fraction", "share of the cache that crosses the link: 0.25, 25%%, 1/4 (default: 1)"),
    ],
    "traffic": [
        MODEL,
        RECIPE,
        TOKENS,
        REQUESTS,
        ("weights", "bytes of weights that a decode step reads: 16GB"),
        ("other", "any other bytes that it reads (default: 0)"),
    ],
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The words of one call, by name; `taken` reads one and says what is missing."""

    verb: str
    texts: dict[str, str]

    def taken(self, name: str, example: str, default: str | None = None) -> str:
        """The text of an argument. Raises ConfigError with an example if it has neither text nor default."""
        text = self.texts.get(name, default)
        if text is None:
            flag, word = f"--{name.replace('_', '-')}", name.upper()
            raise ConfigError(
                f"kv {self.verb} needs {flag}",
                hint=f"kassay kv {self.verb} … {flag} {example}, or make kv-{self.verb} … {word}={example}",
            )
        return text

    def model(self) -> Model:
        """The model asked for."""
        return model_named(self.taken("model", "qwen3-8b"))

    def recipes(self) -> list[Recipe]:
        """The recipes asked for, or all."""
        return [chosen(name) for name in self.texts["recipe"].split(",")] if "recipe" in self.texts else list(RECIPES)

    def number(self, name: str, default: int) -> int:
        """A whole number of at least 1."""
        return quantity.count(name.upper(), self.taken(name, str(default), str(default)))

    def tokens(self) -> int:
        """Cached tokens of one request."""
        return quantity.count("TOKENS", self.taken("tokens", "8192"))


def do_kv(words: list[str], given: Given) -> int:
    """Print the table that the words and make's variables ask for."""
    parser = argparse.ArgumentParser(prog="kassay kv", description="byte arithmetic of caches")
    verbs = parser.add_subparsers(dest="kv_verb", required=True, metavar="|".join(ARGUMENTS))
    for verb, arguments in ARGUMENTS.items():
        meaning = (TABLES[verb].__doc__ or "").splitlines()[0]
        made = verbs.add_parser(verb, help=meaning, description=meaning)
        for name, help_text in arguments:
            made.add_argument(f"--{name.replace('_', '-')}", dest=name, help=help_text)
    parsed = vars(parser.parse_args(words))
    verb = parsed.pop("kv_verb")
    texts = {name: text for name, text in parsed.items() if text is not None}
    for word, text in (given.arguments | given.symbols).items():
        if word not in {name.upper() for name in parsed}:
            raise ConfigError(f"kv {verb} does not take `{word}`", hint=f"kassay kv {verb} --help")
        texts[word.lower()] = text
    for line in TABLES[verb](Asked(verb=verb, texts=texts)):
        print(line)
    return 0


def chosen(name: str) -> Recipe:
    """The recipe of that name, dash or not. Raises ConfigError that names the nearest one and all."""
    known = {recipe.name: recipe.name for recipe in RECIPES} | {r.name.replace("-", ""): r.name for r in RECIPES}
    if name in known:
        return recipe_named(known[name])
    close = difflib.get_close_matches(name.lower(), known, n=1)
    meant = f"; did you mean `{known[close[0]]}`?" if close else ""
    raise ConfigError(f"unknown recipe `{name}`{meant}", f"allowed are {', '.join(recipe.name for recipe in RECIPES)}")


def allocator_named(name: str) -> Allocator:
    """The allocator of that name; raises ConfigError with the allowed ones."""
    found = {allocator.name: allocator for allocator in ALLOCATORS}
    if name not in found:
        raise ConfigError(f"unknown allocator `{name}`, allowed are {', '.join(found)}", hint="ALLOCATOR=payload")
    return found[name]


def size_table(asked: Asked) -> list[str]:
    """Bytes per token and page of each recipe; pages, slots and what is left of a budget."""
    for name, needed in IN_VAIN:
        if name in asked.texts and needed not in asked.texts:
            raise ConfigError(f"{name.upper()} changes nothing without {needed.upper()}", hint="kassay kv size --help")
    if "requests" in asked.texts and "tokens" in asked.texts:
        raise ConfigError("give TOKENS to count requests, or REQUESTS to count slots beside them, not both")
    model, page = asked.model(), asked.number("page", PAGE_TOKENS)
    rows = [size_row(asked, model, recipe, page) for recipe in asked.recipes()]
    return size_head(asked, model, page) + table(rows)


def size_head(asked: Asked, model: Model, page: int) -> list[str]:
    """What was asked of the size table."""
    head = [
        f"# {model.name} ({model.source}): {model.title}",
        f"# a token and a page of {page} tokens: bytes in all layers that keep every token",
    ]
    if "budget" in asked.texts:
        budget = quantity.byte_count("BUDGET", asked.texts["budget"])
        name = asked.taken("allocator", "payload", ALLOCATORS[0].name)
        head.append(f"# budget: {budget} bytes ({budget / 2**30:g} GiB) = payload + tails + left; allocator: {name}")
    if "cartridge" in asked.texts:
        recipe = asked.texts.get("cartridge_recipe", "that of the line")
        head.append(f"# cartridge: {asked.texts['cartridge']} positions, once for all requests, recipe: {recipe}")
    if "tokens" in asked.texts:
        head.append(f"# requests of {asked.tokens()} tokens, each in whole pages with its own windows and states")
    elif model.layout.state_layers or any(layers.window_tokens for layers in model.layout.attention):
        head.append(f"# beside the slots: full windows and states of REQUESTS={asked.number('requests', 1)}")
    return head


def size_row(asked: Asked, model: Model, recipe: Recipe, page: int) -> Row:
    """One recipe's line of the size table."""
    layout, native = model.layout, recipe_named(NATIVE)
    parts, size = token_parts(layout, recipe), token_bytes(layout, recipe)
    scales = sum(count for part, count in parts.items() if part.endswith("_scales"))
    row = {
        "recipe": recipe.name,
        "stored": recipe.title,
        "B/token": str(size),
        "of native": f"{size / token_bytes(layout, native):.4f}" if size else "-",
        "scales": f"{scale_overhead(layout, recipe):.3%}",
        "K page B": str(parts.get("keys", 0) * page),
        "V page B": str(parts.get("values", 0) * page),
        "scale page B": str(scales * page),
        "page B": str(size * page),
        "fixed scales B": str(SCALE_BYTES * fixed_scales(layout, recipe)),
    }
    shared = None
    if "cartridge" in asked.texts:
        own = chosen(asked.texts["cartridge_recipe"]) if "cartridge_recipe" in asked.texts else recipe
        shared = Cartridge(positions=asked.number("cartridge", 1), recipe=own)
        row["cartridge B"] = str(request_bytes(layout, own, shared.positions))
    if "budget" in asked.texts:
        allocator = allocator_named(asked.taken("allocator", "payload", ALLOCATORS[0].name))
        pool = Pool(layout=layout, recipe=recipe, page_tokens=page, cartridge=shared, allocator=allocator)
        row |= budget_columns(asked, pool)
    elif "tokens" in asked.texts:
        row["B/request"] = str(request_bytes(layout, recipe, asked.tokens()) + layout.state_bytes)
    return row


def budget_columns(asked: Asked, pool: Pool) -> Row:
    """What of a pool fits the budget, as slots or, if a length is given, as requests of it; native beside it."""
    budget = quantity.byte_count("BUDGET", asked.texts["budget"])

    def fitted(recipe: Recipe) -> Fit:
        tried = replace(pool, recipe=recipe)
        if "tokens" in asked.texts:
            return requests_in(tried, budget, asked.tokens())
        return pages_in(tried, budget, asked.number("requests", 1))

    fit, native = fitted(pool.recipe), fitted(recipe_named(NATIVE))
    ratio = f"{fit.count / native.count:.4f}" if native.count else "-"
    if "tokens" in asked.texts:
        counts = {"requests": str(fit.count), "requests/native": ratio}
    else:
        counts = {"pages": str(fit.count), "slots": str(fit.count * pool.page_tokens), "slots/native": ratio}
    return counts | {
        "payload B": str(fit.payload_bytes),
        "tails B": str(fit.tail_bytes),
        "left B": str(fit.left_bytes),
    }


def offload_table(asked: Asked) -> list[str]:
    """GB/s (decimal) that moving a cache within a deadline takes."""
    model, tokens, requests = asked.model(), asked.tokens(), asked.number("requests", 1)
    deadline_s = quantity.seconds("DEADLINE", asked.taken("deadline", "10ms"))
    fraction = quantity.share("FRACTION", asked.taken("fraction", "1", "1"))
    rows = []
    for recipe in asked.recipes():
        payload = request_bytes(model.layout, recipe, tokens) + model.layout.state_bytes
        rate = link_gb_per_s(payload, deadline_s=deadline_s, fraction=fraction, requests=requests)
        row = {"recipe": recipe.name, "stored": recipe.title, "B/request": str(payload)}
        rows.append(row | {"GiB/request": f"{payload / 2**30:.4g}", "GB/s": f"{float(rate):.2f}"})
    head = [
        f"# {model.name} ({model.source}): {model.title}",
        f"# {requests} requests of {tokens} tokens, {float(fraction):g} of each within {float(deadline_s):g} s",
        "# GB/s are decimal; payload and states only, no protocol overhead",
    ]
    return head + table(rows)


def traffic_table(asked: Asked) -> list[str]:
    """f_KV: the share of a decode step's bytes that reading the cache is."""
    model, tokens, requests = asked.model(), asked.tokens(), asked.number("requests", 1)
    weights = quantity.byte_count("WEIGHTS", asked.taken("weights", "16GB"))
    other = quantity.byte_count("OTHER", asked.taken("other", "0", "0"))
    states = 2 * requests * model.layout.state_bytes  # each is read and written
    rows = []
    for recipe in asked.recipes():
        cache = requests * request_bytes(model.layout, recipe, tokens)
        share: Fraction = traffic_fraction(cache, weight_bytes=weights, other_bytes=other + states)
        row = {"recipe": recipe.name, "stored": recipe.title, "cache B/step": str(cache)}
        rows.append(row | {"step B": str(cache + weights + other + states), "f_KV": f"{float(share):.4f}"})
    head = [
        f"# {model.name} ({model.source}): {model.title}",
        f"# {requests} requests of {tokens} tokens; weights {weights} bytes, other {other + states} bytes a step",
        "# f_KV = cache / (weights + cache + other): a byte model, not a profile",
    ]
    return head + table(rows)


TABLES: dict[str, Callable[[Asked], list[str]]] = {
    "size": size_table,
    "offload": offload_table,
    "traffic": traffic_table,
}


def table(rows: list[Row]) -> list[str]:
    """Lines with the first two columns to the left and the others to the right."""
    names = list(rows[0])
    widths = [max(len(name), *(len(row[name]) for row in rows)) for name in names]
    lines = []
    for cells in [names, *([row[name] for name in names] for row in rows)]:
        placed = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(placed).rstrip())
    return lines
