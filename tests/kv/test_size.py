"""`kassay kv`: quantities as they are typed, what fits a budget, the tables, every refusal."""

import json
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kassay import paths
from kassay.errors import KassayError
from kassay.kv import quantity, size
from kassay.kv.budget import ALLOCATORS, Cartridge, Pool, pages_in, requests_in
from kassay.kv.geometry import Geometry, Layers, Layout, layout_of, request_bytes, token_bytes
from kassay.kv.models import model_named
from kassay.kv.offload import link_gb_per_s, traffic_fraction
from kassay.kv.recipe import RECIPES, Recipe, recipe_named
from kassay.words import Given

QWEN3 = layout_of(Geometry(layers=36, kv_heads=8, head_dim=128))
GIB = 2**30
PAYLOAD, TORCH, WORKER = ALLOCATORS
MIXED = Layout(
    attention=(
        Layers(count=3, kv_heads=2, key_dim=64, value_dim=32, window_tokens=None),
        Layers(count=5, kv_heads=4, key_dim=32, value_dim=32, window_tokens=40),
    ),
    state_layers=2,
    state_bytes=2 * 999,
)


def pool(layout=QWEN3, recipe="native", page=16, allocator=PAYLOAD, cartridge=None):
    return Pool(
        layout=layout,
        recipe=recipe_named(recipe),
        page_tokens=page,
        allocator=allocator,
        cartridge=cartridge,
    )


def printed(verb, **arguments):
    """The lines of a table, as a call from make would ask for it."""
    words = {name.upper(): str(text) for name, text in arguments.items()}
    asked = size.Asked(verb=verb, texts={name.lower(): text for name, text in words.items()})
    return size.TABLES[verb](asked)


def cells(line):
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def rows(lines):
    """The table's lines as dicts by header."""
    head, *body = [line for line in lines if not line.startswith("#")]
    return [dict(zip(cells(head), cells(line), strict=True)) for line in body]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("40GiB", 42_949_672_960),
        ("40GB", 40_000_000_000),
        ("42949672960", 42_949_672_960),
        ("0.5GiB", 536_870_912),
        ("1.5 kB", 1500),
        ("0.1GB", 100_000_000),
        ("9007199254740993", 2**53 + 1),  # no float holds it
        ("9007199254740993.5kB", 9_007_199_254_740_993_500),
        ("7B", 7),
        ("3TiB", 3 * 2**40),
    ],
)
def test_bytes_are_read_exactly(text, expected):
    assert quantity.byte_count("BUDGET", text) == expected


@pytest.mark.parametrize(
    "text", ["40G", "40Gb", "KB", "", "-1", "1e9", "40 Gi B", "٤GB", "40gib", "0.3KiB", "1.5", "nan"]
)
def test_other_bytes_are_refused(text):
    with pytest.raises(KassayError, match="BUDGET"):
        quantity.byte_count("BUDGET", text)


def test_other_quantities():
    assert quantity.seconds("D", "10ms") == Fraction(1, 100) and quantity.seconds("D", "0.25us") == Fraction(
        1, 4 * 10**6
    )
    assert quantity.share("F", "25%") == quantity.share("F", "1/4") == quantity.share("F", "0.25") == Fraction(1, 4)
    assert quantity.count("N", "16") == 16
    for reader, bad in (
        (quantity.seconds, ["0s", "10", "10min", "-1s"]),
        (quantity.share, ["1.1", "101%", "5/4", "-0.5", "1/0", "x"]),
        (quantity.count, ["0", "-1", "1.5", "٣", ""]),
    ):
        for text in bad:
            with pytest.raises(KassayError, match="allowed is"):
                reader("X", text)


@settings(deadline=None, max_examples=60)
@given(
    budget=st.integers(10**6, 10**9),
    page=st.integers(1, 40),
    recipe=st.sampled_from(RECIPES),
    allocator=st.sampled_from([PAYLOAD, WORKER]),
    requests=st.integers(1, 5),
)
def test_what_fits_fits_and_one_more_does_not(budget, page, recipe, allocator, requests):
    """Against an independent sum over layers; payload, tails and what is left are the whole budget."""
    asked = Pool(layout=MIXED, recipe=recipe, page_tokens=page, allocator=allocator, cartridge=None)
    try:
        fit = pages_in(asked, budget, requests)
    except KassayError:
        assert budget < 8 * 2**20 + 10**6
        return
    assert fit.payload_bytes + fit.tail_bytes + fit.left_bytes == budget
    assert min(fit.tail_bytes, fit.left_bytes) >= 0
    assert fit.left_bytes < token_bytes(MIXED, recipe) * page
    width = {"fp16": 2, "e4m3fn": 1, "int8": 1, "int6": 1, "int4": 0.5, "int4-g32": 0.5}
    key, value = width[recipe.key_format], width[recipe.value_format]

    def scales(heads, key_dim, value_dim):
        counts = {"dynamic": (heads, heads), "tensor": (1, 1), "group": (heads * key_dim / 32, heads * value_dim / 32)}
        of_key, of_value = counts.get(recipe.policy, (0, 0))
        return 4 * (of_key * (key < 2) + of_value * (value < 2))

    windows = requests * (-(-39 // page) + 1) * page
    payload = 3 * fit.count * page * (2 * (64 * key + 32 * value) + scales(2, 64, 32))
    payload += 5 * windows * (4 * (32 * key + 32 * value) + scales(4, 32, 32))
    payload += requests * 2 * 999 + (4 * 8 * ((key < 2) + (value < 2)) if recipe.policy == "fixed" else 0)
    assert fit.payload_bytes == payload


def test_the_allocator_rounds_each_plane():
    fit = pages_in(pool(recipe="k8v8-d", allocator=TORCH), 40 * GIB, 1)
    plane, scales = fit.count * 16 * 8 * 128, fit.count * 16 * 8 * 4
    mib = 2**21
    taken = 36 * 2 * (-(-plane // mib) + -(-scales // mib)) * mib
    assert fit.payload_bytes + fit.tail_bytes == taken <= 40 * GIB
    one_more = 36 * 2 * (-(-(plane + 16 * 8 * 128) // mib) + -(-(scales + 16 * 8 * 4) // mib)) * mib
    assert one_more > 40 * GIB
    assert pages_in(pool(recipe="k16v8-f", allocator=TORCH), 40 * GIB, 1).tail_bytes >= 36 * (512 - 4)


def test_requests_of_a_length_with_windows_and_states():
    one = 3 * 112 * 2 * (128 + 64) + 5 * (-(-39 // 16) + 1) * 16 * 4 * 128 + 2 * 999
    for count in (1, 7):
        fit = requests_in(pool(MIXED), count * one, 100)
        assert (fit.count, fit.payload_bytes, fit.left_bytes) == (count, count * one, 0)
        assert requests_in(pool(MIXED), count * one - 1, 100).count == count - 1
    assert request_bytes(MIXED, recipe_named("native"), 30) == 30 * (3 * 2 * 192 + 5 * 4 * 128)


def test_a_cartridge_is_stored_once_and_ends_on_a_page():
    shared = Cartridge(positions=632, recipe=recipe_named("k16v8-f"))
    without = pages_in(pool(page=8), 40 * GIB, 1)
    beside = pages_in(pool(page=8, cartridge=shared), 40 * GIB, 1)
    assert (without.count - beside.count) * 8 * 147_456 == pytest.approx(632 * 110_592, abs=8 * 147_456)
    assert requests_in(pool(page=8, cartridge=shared), 40 * GIB, 8).count == beside.count
    with pytest.raises(KassayError, match="does not end on a page of 16 tokens\nhint: PAGE=8"):
        pages_in(pool(page=16, cartridge=shared), 40 * GIB, 1)
    with pytest.raises(KassayError, match="needs layers that keep every token"):
        pages_in(pool(MIXED, page=8, cartridge=shared), 40 * GIB, 1)


def test_budgets_that_hold_nothing_and_layouts_without_slots():
    with pytest.raises(KassayError, match="37804032 are taken before any token"):
        pages_in(pool(allocator=WORKER), 2**20, 1)
    windows = Layout(attention=MIXED.attention[1:], state_layers=0, state_bytes=0)
    with pytest.raises(KassayError, match="no slots to count\nhint: TOKENS="):
        pages_in(pool(windows), GIB, 1)
    assert requests_in(pool(windows), GIB, 10**6).count == GIB // (5 * 4 * 16 * 4 * 128)


def test_formats_and_policies_to_come():
    """Sub-byte formats are packed; a policy without a known size is an error, not a guess."""
    small = Recipe(name="k16v4-d", key_format="fp16", value_format="int4", policy="dynamic")
    odd = layout_of(Geometry(layers=1, kv_heads=2, head_dim=5))
    assert token_bytes(odd, small) == 2 * (5 * 2 + 3 + 4)
    with pytest.raises(KassayError, match="no size is known for scale policy `blockwise`"):
        token_bytes(odd, Recipe(name="x", key_format="fp16", value_format="int4", policy="blockwise"))


def test_links_and_traffic():
    half = link_gb_per_s(7 * GIB, deadline_s=Fraction(1, 100), fraction=Fraction(1, 2), requests=3)
    assert half == Fraction(7 * GIB * 100 * 3, 2 * 10**9)
    assert traffic_fraction(3, weight_bytes=4, other_bytes=1) == Fraction(3, 8)
    for bad in ({"deadline_s": Fraction(0)}, {"fraction": Fraction(2)}, {"requests": -1}):
        with pytest.raises(KassayError, match="allowed is"):
            link_gb_per_s(1, **({"deadline_s": Fraction(1), "fraction": Fraction(1), "requests": 1} | bad))
    with pytest.raises(KassayError, match="not all 0"):
        traffic_fraction(0, weight_bytes=0, other_bytes=0)


def test_the_size_table():
    by_name = {row["recipe"]: row for row in rows(printed("size", model="qwen3-8b", budget="40GiB"))}
    assert list(by_name) == [recipe.name for recipe in RECIPES]
    assert {key: by_name["k16v8-f"][key] for key in ("B/token", "of native", "pages", "slots", "slots/native")} == {
        "B/token": "110592",
        "of native": "0.7500",
        "pages": "24272",
        "slots": "388352",
        "slots/native": "1.3333",
    }
    dynamic = by_name["k8v8-d"]
    assert (dynamic["scales"], dynamic["K page B"], dynamic["scale page B"]) == ("3.125%", "589824", "36864")
    for row in by_name.values():
        assert sum(int(row[key]) for key in ("payload B", "tails B", "left B")) == 40 * GIB
        assert int(row["page B"]) == 16 * int(row["B/token"])


def test_the_other_tables():
    (moved,) = rows(printed("offload", model="qwen2.5-7b-instruct", recipe="k16v8-f", tokens=131072, deadline="10ms"))
    assert (moved["GiB/request"], moved["GB/s"]) == ("5.25", "563.71")
    (read,) = rows(printed("traffic", model="qwen3-8b", recipe="native", tokens=8192, requests=32, weights="16.38GB"))
    cache = 32 * 8192 * 147_456
    assert read["cache B/step"] == str(cache) and read["f_KV"] == f"{cache / (cache + 16_380_000_000):.4f}"
    hybrid = printed("traffic", model="qwen3.6-27b", recipe="native", tokens=8192, weights="54GB")
    assert "other 309854208 bytes" in hybrid[1]  # the states, read and written


@pytest.mark.parametrize(
    ("verb", "arguments", "words"),
    [
        ("size", {}, ["kv size needs --model", "make kv-size … MODEL=qwen3-8b"]),
        ("size", {"model": "qwen3-8"}, ["did you mean `qwen3-8b`?", "named are"]),
        ("size", {"model": "qwen3-8b", "recipe": "k16v9-f"}, ["did you mean `k16v8-f`?", "allowed are native"]),
        ("size", {"model": "qwen3-8b", "budget": "40G"}, ["BUDGET is `40G`", "GiB", "hint: BUDGET=40GiB"]),
        ("size", {"model": "qwen3-8b", "page": "0"}, ["PAGE is `0`"]),
        (
            "size",
            {"model": "qwen3-8b", "budget": "1GiB", "allocator": "x"},
            ["unknown allocator `x`", "payload, torch"],
        ),
        ("size", {"model": "qwen3-8b", "allocator": "torch"}, ["ALLOCATOR changes nothing without BUDGET"]),
        ("size", {"model": "qwen3-8b", "budget": "1GiB", "tokens": 9, "requests": 2}, ["not both"]),
        ("offload", {"model": "qwen3-8b"}, ["kv offload needs --tokens"]),
        ("offload", {"model": "qwen3-8b", "tokens": 9}, ["kv offload needs --deadline"]),
        ("traffic", {"model": "qwen3-8b", "tokens": 9}, ["kv traffic needs --weights"]),
    ],
)
def test_a_mistake_says_what_is_allowed(verb, arguments, words):
    with pytest.raises(KassayError) as caught:
        printed(verb, **arguments)
    assert not [word for word in words if word not in str(caught.value)]


def test_a_recipe_may_be_typed_without_its_dash(capsys):
    words = Given(symbols={"MODEL": "qwen3-8b", "RECIPE": "k16v8f"}, arguments={}, overrides="")
    assert size.do_kv(["size"], words) == 0
    assert "\nk16v8-f  K16/V8 fixed" in capsys.readouterr().out
    stray = Given(symbols={"MODEL": "qwen3-8b", "TIMING_BLOCKS": "3"}, arguments={}, overrides="")
    with pytest.raises(KassayError, match="kv size does not take `TIMING_BLOCKS`"):
        size.do_kv(["size"], stray)


def kassay(*words, **environment):
    command = [sys.executable, "-m", "kassay", *words]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=False, env=environment or None)
    return done.returncode, done.stdout, done.stderr


def test_the_command_line(tmp_path):
    words = ["kv", "size", "--model", "qwen3-8b", "--recipe", "k16v8-f", "--budget", "40GiB"]
    code, out, err = kassay(*words)
    assert (code, err) == (0, "") and "388352" in out and "42949672960 bytes (40 GiB)" in out
    made = {"KASSAY_MAKE": "1", "MAKEFLAGS": " -- MODEL=qwen3-8b RECIPE=k16v8-f BUDGET=40GiB", "PATH": "/usr/bin:/bin"}
    assert kassay("kv", "size", **made) == (0, out, "")
    code, out, err = kassay("kv", "size", "--model", str(tmp_path))
    assert (code, out) == (2, "") and err.startswith("error: no model is named")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "deepseek_v2", "kv_lora_rank": 512}))
    code, _, err = kassay("kv", "size", "--model", str(tmp_path))
    assert code == 2 and "compressed latent (MLA" in err and "hint: " in err


def test_model_titles():
    assert model_named("qwen3-8b").title == "36 layers x 8 KV heads x 128"
    assert model_named("qwen3.6-27b").title.endswith("48 layers with 154927104 bytes of state per request")
