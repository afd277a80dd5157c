"""Memory of fused decoders under Triton's interpreter: every part to the byte, and what must not pass."""

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch

if not find_spec("triton"):
    pytest.skip("the kernels need triton", allow_module_level=True)
import tests.backend.test_fused as on_kernels  # noqa: F401  first: it asks for the interpreter
from kassay.backend import fused, fused_holdings, fused_memory
from kassay.backend.fused_geometry import GEOMETRIES
from kassay.backend.fused_memory import Holder
from kassay.backend.holdings import held
from kassay.errors import KassayError
from kassay.kv.accounting import accounted
from kassay.kv.audit import FAILS, PASS, ArmMemory, equal_bytes, equal_slots
from kassay.kv.paged import PagedPlane
from kassay.memory_limits import Limits
from kassay.memory_records import parts_finding
from kassay.memory_sources import Found
from tests.backend.test_fused import interpreted  # noqa: F401  an autouse fixture
from tests.tiny import torch_as_it_was  # noqa: F401  an autouse fixture

BUDGET = 40_000
LIMITS = Limits(
    origin="study", period_ns=20_000_000, longest_gap_ns=None, device_ceiling_bytes=None, reserved_ceiling_bytes=None,
    budget_bytes=BUDGET, equal_slots_blocks=None, page_tokens=8,
)  # fmt: skip
PREFIX = {
    "positions": 16, "page_tokens": 8,
    "arms": {
        "copied": {"own": "native", "prefix": "native", "copied": True},
        "once": {"own": "native", "prefix": "k16v8-d", "copied": False},
    },
}  # fmt: skip
TOKEN = 2 * 2 * 64 * 2  # bytes of a token in 16 bits: layers, keys and values, head dim


@pytest.fixture
def tiny_geometry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers, one KV head."""
    small: dict[str, Any] = {
        "hidden": 64, "intermediate": 64, "query_heads": 2, "kv_heads": 1, "head_dim": 64, "vocabulary": 64, "layers": 2
    }  # fmt: skip
    monkeypatch.setitem(GEOMETRIES, "tiny", replace(GEOMETRIES["qwen3-0.6b"], **small))


def holder(recipes: list[str], prefix: dict[str, Any] | None = None, **changes: Any) -> Holder:
    """Two sequences of 32 tokens, two of them decoded."""
    backend = {"engine": "fused", "weights": "drawn", "geometry": "tiny", "layers": None, "compute": "fp16", "gpus": 0}
    params = {
        "model": "tiny", "sixteen": "fp16", "recipes": recipes, "batch": 2, "context_tokens": 32, "output_tokens": 2,
        "seed": 1, "backend": {**backend, "prefix": prefix},
    }  # fmt: skip
    stage: Any = SimpleNamespace(params=params, cpus=1, append=lambda record: None)
    return Holder(stage, replace(LIMITS, **changes), Found(sources=(), absent=()))


def decoder_of(made: Holder, at: int = 0) -> fused.Decoder:
    """The decoder of an arm after prefill and decode."""
    decoder = made.prefilled(made.arms[at], fused_holdings.Staged())
    fused_memory.stepped(decoder, 2)
    return decoder


def parts_of(decoder: fused.Decoder) -> dict[str, tuple[int, int]]:
    """Payload and backing of every part."""
    used = fused_holdings.used_tokens(decoder)
    found = [
        *fused_holdings.cache_held(decoder.cache, decoder.prefix, used), *fused_holdings.tables_held(decoder),
        *fused_holdings.weights_held(decoder), *fused_holdings.scratch_held(decoder),
    ]  # fmt: skip
    return {part.part: (part.payload_bytes, part.backing_bytes) for part in accounted(found)}


def test_every_part_is_what_the_tensors_are(tiny_geometry: None) -> None:
    made = holder(["k16v8-d"])
    decoder = decoder_of(made)
    parts = parts_of(decoder)
    tokens = 2 * 32
    assert parts["keys"] == (tokens * TOKEN // 2, tokens * TOKEN // 2)
    assert parts["values"] == (tokens * TOKEN // 4, tokens * TOKEN // 4)
    assert parts["value_scales"] == (2 * tokens * 4, 2 * tokens * 4)
    table = 4 * 2 * 4  # int32, rows, pages
    state = 2 * 8 + 4 * 2 * 4 + 2 * 2 * 8 + 8  # ids, four int32 of rows, output tokens, step
    assert parts["block_tables"] == (table + state, table + state)
    weights = sum(one.nbytes for one in made.weights.tensors())
    assert parts["weights"] == (weights + 32 * 64 * 4, weights + 32 * 64 * 4), "and turns of 32 positions"
    assert set(parts) <= {"keys", "values", "value_scales", "block_tables", "weights", "scratch"}


def test_a_key_bias_and_its_waves_are_there_once(tiny_geometry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    biased = replace(GEOMETRIES["tiny"], family="qwen2", qkv_bias=True, head_norms=False)
    monkeypatch.setitem(GEOMETRIES, "tiny", biased)
    scratch = {}
    for recipe in ("k8v8-d", "prebias-k8v8-d"):
        decoder = decoder_of(holder([recipe]))
        parts, scratch[recipe] = parts_of(decoder), parts_of(decoder).get("scratch", (0, 0))
        assert parts["keys"] == (2 * 32 * TOKEN // 4, 2 * 32 * TOKEN // 4)
    (attend,) = decoder.attends.values()
    biases, frequencies = 2 * (2 * 64) * 4, 32 * 4  # of two layers, and each layer's own
    waves = attend.chunk * attend.cut.splits * 64 * 2
    own = sum(one.nbytes for one in (attend.part, attend.part_lse))
    assert scratch["k8v8-d"] == (0, 0)
    assert scratch["prebias-k8v8-d"] == (own + biases + frequencies + waves,) * 2


def test_rows_that_are_not_full_have_less_payload_in_the_same_backing(tiny_geometry: None) -> None:
    made = holder(["native"])
    decoder = made.prefilled(made.arms[0], fused_holdings.Staged())
    parts = parts_of(decoder)
    assert parts["keys"] == (2 * 30 * TOKEN // 2, 2 * 32 * TOKEN // 2)


def test_staging_is_that_of_the_largest_pass(tiny_geometry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    made, staged = holder(["native"]), fused_holdings.Staged()
    monkeypatch.setattr(fused, "PREFILL_TOKENS", 30)  # a prompt a pass
    made.prefilled(made.arms[0], staged)
    assert sum(one.storage_bytes for one in staged.held) == 30 * (2 + 2) * 64 * 2, "queries, keys and values of 30"


def arm_at(made: Holder, at: int) -> ArmMemory:
    """What the audit at equal slots is given."""
    decoder = decoder_of(made, at)
    return made.audited(made.arms[at], decoder.cache, decoder.prefix, 2)


def test_a_prefix_is_stored_once_and_counted_for_every_sequence(tiny_geometry: None) -> None:
    made = holder(["copied", "once"], PREFIX)
    copied, once = (arm_at(made, at) for at in (0, 1))
    assert copied.slots == once.slots == 2 * 32
    assert copied.backing_bytes == 2 * 32 * TOKEN
    prefix = 16 * (TOKEN // 2 + TOKEN // 4 + 2 * 4)
    assert once.backing_bytes == prefix + 2 * 16 * TOKEN
    assert [one.verdict for one in equal_slots([copied, once])] == [PASS, PASS]


def filling(made: Holder) -> list[ArmMemory]:
    """Every arm's cache at the budget, allocated."""
    found = []
    for arm in made.arms:
        count = made.others(arm)["budget"]
        cache, prefix = made.filled(arm, count, whole=made.section is not None)
        found.append(made.audited(arm, cache, prefix, count))
    return found


def test_at_equal_bytes_a_shared_prefix_leaves_room_for_more_sequences(tiny_geometry: None) -> None:
    copied, once = filling(holder(["copied", "once"], PREFIX))
    prefix = 16 * (TOKEN // 2 + TOKEN // 4 + 2 * 4)
    sequences = (BUDGET // (32 * TOKEN), (BUDGET - prefix) // (16 * TOKEN))
    assert (copied.slots, once.slots) == (sequences[0] * 32, sequences[1] * 32)
    assert sequences[1] > sequences[0]
    assert [one.verdict for one in equal_bytes([copied, once], budget_bytes=BUDGET)] == [PASS, PASS]
    pages = filling(holder(["native", "k16v8-d"]))
    assert [one.verdict for one in equal_bytes(pages, budget_bytes=BUDGET)] == [PASS, PASS]
    assert pages[0].slots == BUDGET // (8 * TOKEN) * 8


def a_page_more(made: Holder, decoder: fused.Decoder) -> None:
    """One pool has a page that nobody planned."""
    layer = decoder.cache.layers[0]
    layer.keys.data_PSHW = torch.cat([layer.keys.data_PSHW, layer.keys.data_PSHW[:1]])


def wider(made: Holder, decoder: fused.Decoder) -> None:
    """Values in 16 bits where 8 are said."""
    plane = decoder.cache.layers[1].values
    plane.data_PSHW = plane.data_PSHW.repeat(1, 1, 1, 2)


def one_byte(made: Holder, decoder: fused.Decoder) -> None:
    """A storage with a byte behind its plane."""
    plane = decoder.cache.layers[0].values
    longer = torch.zeros(plane.data_PSHW.nbytes + 1, dtype=torch.uint8)
    plane.data_PSHW = longer[:-1].view(plane.data_PSHW.dtype).view(plane.data_PSHW.shape)


def shared_pool(made: Holder, decoder: fused.Decoder) -> None:
    """Two layers in one pool: half of what is planned is there."""
    decoder.cache.pools = decoder.cache.pools[:1]


def scales_in_double(made: Holder, decoder: fused.Decoder) -> None:
    """Scales of 8 bytes."""
    plane = decoder.cache.layers[0].values
    assert plane.scale_PHSG is not None
    plane.scale_PHSG = plane.scale_PHSG.double()


def prefix_in_every_request(made: Holder, decoder: fused.Decoder) -> None:
    """The prefix is stored for each sequence, and said to be stored once."""
    assert decoder.prefix is not None
    for each in decoder.prefix.cartridges:
        for plane in (each.layer.keys, each.layer.values):
            plane.data_PSHW = plane.data_PSHW.repeat(2, 1, 1, 1)


FAULTS: list[tuple[Callable[[Holder, fused.Decoder], None], list[str], dict[str, Any] | None]] = [
    (a_page_more, ["k16v8-d"], None),
    (wider, ["k16v8-d"], None),
    (one_byte, ["k16v8-d"], None),
    (shared_pool, ["k16v8-d"], None),
    (scales_in_double, ["k16v8-d"], None),
    (prefix_in_every_request, ["once"], PREFIX),
]


@pytest.mark.parametrize(("fault", "names", "prefix"), FAULTS, ids=[one[0].__name__ for one in FAULTS])
def test_bytes_that_are_not_the_geometrys_fail(
    tiny_geometry: None, fault: Callable[[Holder, fused.Decoder], None], names: list[str], prefix: dict[str, Any] | None
) -> None:
    made = holder(names, prefix)
    decoder = decoder_of(made)
    clean = made.audited(made.arms[0], decoder.cache, decoder.prefix, 2)
    fault(made, decoder)
    found = made.audited(made.arms[0], decoder.cache, decoder.prefix, 2)
    assert [one.verdict for one in equal_slots([clean, replace(found, arm="faulty")])] == [PASS, FAILS]


def test_a_storage_is_counted_once_or_said_to_be_counted_twice(tiny_geometry: None) -> None:
    decoder = decoder_of(holder(["native"]))
    clean = parts_of(decoder)
    twice = [*fused_holdings.weights_held(decoder), *fused_holdings.weights_held(decoder)]
    assert {one.part: one.backing_bytes for one in accounted(twice)} == {"weights": clean["weights"][1]}
    layer = decoder.cache.layers[0]
    layer.values.data_PSHW = layer.keys.data_PSHW  # one plane for both
    with pytest.raises(KassayError, match="it would be counted twice"):
        parts_of(decoder)
    both: PagedPlane = layer.values
    flat = torch.cat([both.data_PSHW.flatten(), both.data_PSHW.flatten()])
    half = len(flat) // 2
    views = [held("keys", flat[: half + 8]), held("values", flat[half - 8 :])]
    with pytest.raises(KassayError, match="something counts twice"):
        accounted(views)


def test_parts_beyond_what_is_allocated_fail() -> None:
    assert parts_finding("native", 100, 100).verdict == PASS
    fault = parts_finding("native", 101, 100)
    assert (fault.verdict, fault.reason) == (FAILS, "1 bytes are counted twice")


def test_blocks_of_a_study_are_all_allocated_and_a_prefix_has_none(tiny_geometry: None) -> None:
    made = holder(["native"], equal_slots_blocks=9)
    count = made.others(made.arms[0])["blocks"]
    cache, _ = made.filled(made.arms[0], count, whole=False)
    assert cache.shape.pages == count == 9 and made.audited(made.arms[0], cache, None, count).slots == 72
    with pytest.raises(KassayError, match="a shared prefix is in blocks of its own"):
        again = holder(["once"], PREFIX, equal_slots_blocks=9)
        again.others(again.arms[0])
    with pytest.raises(KassayError, match="a prefix in pages of 16, pools of 8"):
        holder(["once"], {**PREFIX, "page_tokens": 16})


def test_arms_are_refused_by_name(tiny_geometry: None) -> None:
    with pytest.raises(KassayError, match="unknown arm `native`, this study has copied, once"):
        holder(["native"], PREFIX)
    mixed = {**PREFIX, "arms": {"mixed": {"own": "native", "prefix": "k16v8-d", "copied": True}}}
    with pytest.raises(KassayError, match="a copy in pages of `native` is stored so, and not as `k16v8-d`"):
        holder(["mixed"], mixed)
