"""Every published figure of bytes, slots, shares and GB/s, at its printed precision; published_sizes.json has them.

A figure with `figure: null` cannot be derived from what is printed; its note says why.
"""

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.kv import quantity
from kassay.kv.budget import ALLOCATORS, Cartridge, Pool, pages_in, sizes
from kassay.kv.geometry import (
    SCALE_BYTES,
    Geometry,
    fixed_scales,
    planes,
    request_bytes,
    scale_overhead,
    slots,
    token_bytes,
)
from kassay.kv.models import model_named
from kassay.kv.offload import link_gb_per_s
from kassay.kv.recipe import recipe_named

ENTRIES = json.loads((Path(__file__).parent / "published_sizes.json").read_text())
DERIVABLE = [entry for entry in ENTRIES if entry["figure"]]
SHARED = paths.ROOT.parent / "shared" / "published.json"
ALLOCATOR = {allocator.name: allocator for allocator in ALLOCATORS}
Facts = dict[str, Any]


def layout(facts: Facts) -> Any:
    return model_named(facts["model"]).layout


def bytes_of(facts: Facts, name: str = "recipe") -> int:
    return token_bytes(layout(facts), recipe_named(facts[name]))


def pool(facts: Facts, allocator: str, recipe: str = "native", cartridge: Cartridge | None = None) -> Pool:
    return Pool(
        layout=layout(facts),
        recipe=recipe_named(facts.get("recipe", recipe)),
        page_tokens=facts.get("page_tokens", 16),
        cartridge=cartridge,
        allocator=ALLOCATOR[allocator],
    )


def held(facts: Facts) -> int:
    return slots(
        layout(facts),
        recipe_named(facts["recipe"]),
        budget_bytes=facts["budget_bytes"],
        page_tokens=facts["page_tokens"],
    )


def plane_bytes(facts: Facts) -> int:
    """Payload of the fitted pool without the scalars of fixed scales."""
    fit = pages_in(pool(facts, "payload"), facts["budget_bytes"], requests=1)
    scalars = SCALE_BYTES * fixed_scales(layout(facts), recipe_named(facts["recipe"]))
    return fit.payload_bytes - scalars


def native(facts: Facts) -> int:
    return bytes_of({**facts, "recipe": "native"})


def pair_bytes(facts: Facts) -> int:
    return token_bytes(Geometry(layers=1, kv_heads=1, head_dim=1), recipe_named(facts["recipe"]))


def capacity(facts: Facts) -> Fraction:
    return Fraction(bytes_of(facts, "over"), bytes_of(facts)) * facts.get("times", 1)


def link(facts: Facts) -> Fraction:
    return link_gb_per_s(
        request_bytes(layout(facts), recipe_named(facts["recipe"]), facts["tokens"]),
        deadline_s=quantity.seconds("DEADLINE", facts["deadline"]),
        fraction=quantity.share("FRACTION", facts["fraction"]),
        requests=facts["requests"],
    )


def cartridge_bytes(facts: Facts, recipe: str) -> int:
    """Payload of a pool that holds a cartridge and no pages."""
    shared = Cartridge(positions=facts["positions"], recipe=recipe_named(recipe))
    payload, _ = sizes(pool({**facts, "page_tokens": 8}, "payload", cartridge=shared), lambda layers: 0, 0)
    scalars = sum(fixed_scales(layout(facts), recipe_named(name)) for name in (recipe, facts["recipe"]))
    return payload - SCALE_BYTES * scalars


def slots_of_native(facts: Facts) -> int:
    budget = facts["native_slots"] * native(facts)
    return held({**facts, "budget_bytes": budget})


def worker_extra(facts: Facts) -> int:
    """Bytes that the worker's request keeps beside an empty native pool."""
    payload, tails = sizes(pool(facts, "worker"), lambda layers: 0, 0)
    assert payload == 0
    return tails


def layer_page(facts: Facts) -> int:
    (layers,) = layout(facts).attention
    return facts["page_tokens"] * sum(planes(layers, recipe_named(facts["recipe"])).values())


def arithmetic(facts: Facts) -> Fraction:
    total = Fraction(0)
    for part in facts.get("sum", []):
        total += Fraction(*part) if isinstance(part, list) else part
    if "product" in facts:
        total = Fraction(1)
        for part in facts["product"]:
            total *= part
    return total / facts.get("over", 1)


def reads(facts: Facts) -> Fraction:
    """Tokens read over the steps, counted in bytes of the recipe."""
    recipe = recipe_named(facts["recipe"])
    read = sum(request_bytes(layout(facts), recipe, facts["tokens"] + step) for step in range(facts["steps"]))
    return Fraction(read, bytes_of(facts))


TAILS = ALLOCATOR["worker"].layer_tail_bytes
FIGURES = {
    "slots": held,
    "plane_bytes": plane_bytes,
    "pair_bytes": pair_bytes,
    "saving_percent": lambda f: 100 * (1 - Fraction(bytes_of(f), native(f))),
    "more_slots": lambda f: Fraction(native(f), bytes_of(f)) - 1,
    "more_slots_percent": lambda f: 100 * (Fraction(native(f), bytes_of(f)) - 1),
    "capacity": capacity,
    "savings_ratio": lambda f: Fraction(native(f) - bytes_of(f), native(f) - bytes_of(f, "over")),
    "request": lambda f: Fraction(request_bytes(layout(f), recipe_named(f["recipe"]), f["tokens"]), f["unit_bytes"]),
    "link": link,
    "cartridge_saving": lambda f: Fraction(
        cartridge_bytes(f, "native") - cartridge_bytes(f, f["recipe"]), f["unit_bytes"]
    ),
    "cartridge_pages": lambda f: Fraction(f["positions"], f["page_tokens"]),
    "slots_of_native": slots_of_native,
    "worker_scalars": lambda f: worker_extra(f) - layout(f).attention_layers * TAILS,
    "worker_tails": lambda f: Fraction(layout(f).attention_layers * TAILS, 2**20),
    "worker_request": lambda f: f["budget_bytes"] - worker_extra(f),
    "worker_pages": lambda f: pages_in(pool(f, "worker"), f["budget_bytes"], requests=1).count,
    "overhead_percent": lambda f: 100 * Fraction(scale_overhead(layout(f), recipe_named(f["recipe"]))),
    "layer_page": layer_page,
    "staging": lambda f: Fraction(f["pages"] * layer_page({**f, "recipe": "native"}), 2**20),
    "arithmetic": arithmetic,
    "reads": reads,
}


@pytest.mark.parametrize("entry", DERIVABLE, ids=lambda entry: entry["id"])
def test_a_published_figure_is_what_we_compute(entry: Facts) -> None:
    got = Fraction(FIGURES[entry["figure"]](entry["inputs"]))
    if entry["places"] is None:
        assert got == Fraction(entry["printed"])
    else:
        assert f"{float(got):.{entry['places']}f}" == entry["printed"]


def test_what_cannot_be_derived_says_why() -> None:
    rest = [entry for entry in ENTRIES if not entry["figure"]]
    assert {entry["id"] for entry in rest} == {"awq8k.mem", "mem.scratch", "mem.workspace_total", "meta.rate"}
    assert all(entry["note"] and entry["printed"] for entry in rest)


def test_ids_are_unique_and_every_figure_is_used() -> None:
    assert len({entry["id"] for entry in ENTRIES}) == len(ENTRIES)
    assert {entry["figure"] for entry in DERIVABLE} == set(FIGURES)


def test_a_wrong_byte_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale of 5 bytes, or a K of one byte more, must not reproduce what was printed."""
    from kassay.kv import geometry

    entry = next(entry for entry in ENTRIES if entry["id"] == "token.k8v8-d")
    monkeypatch.setattr(geometry, "SCALE_BYTES", 5)
    with pytest.raises(AssertionError):
        test_a_published_figure_is_what_we_compute(entry)


# What of the published list is of this kind.
KIND = re.compile(r"\b(bytes?|slots?|GB/s|GiB|MiB|KiB|capacity|memory|payload|pages?|reads?|saving)\b", re.IGNORECASE)


@pytest.mark.skipif(not SHARED.is_file(), reason="the project's shared published.json is not on this machine")
def test_no_published_size_is_left_out() -> None:
    ours = {entry["id"]: entry for entry in ENTRIES if entry["published"]}
    published = {entry["id"]: entry for entry in json.loads(SHARED.read_text())}
    assert set(ours) <= set(published)
    told = ("quantity", "method", "note", "printed")
    alike = {name for name, entry in published.items() if KIND.search(" ".join(str(entry[key]) for key in told))}
    assert alike - set(ours) == set()
    for name, entry in ours.items():
        theirs = published[name]
        if theirs["status"] in ("reproduces", "not_derivable"):
            digits = re.sub(r"[×%,]| ?(MiB|GiB)$", "", str(theirs["printed"]))
            assert entry["printed"].replace(",", "") in (digits, theirs["printed"].replace(",", "")), name
        assert (entry["figure"] is None) == (theirs["status"] == "not_derivable"), name
