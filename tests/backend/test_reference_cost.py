"""What a filled cache holds and what a decode step takes beside it, by torch's own account of its allocations."""

import pytest
import torch

from benchmarks import reference_cache
from tests.tiny import torch_as_it_was  # noqa: F401  an autouse fixture


@pytest.fixture(scope="module")
def grown() -> dict[int, dict[str, dict[str, float]]]:
    """Layers -> cache -> what a token of context adds."""
    torch.set_grad_enabled(False)
    found = {}
    for layers in (2, 5):
        rows = reference_cache.growth(reference_cache.of_layers(layers, 1))
        found[layers] = {row["cache"]: row for row in rows}
    return found


def test_a_cache_holds_its_codes_and_scales_and_nothing_else(grown: dict[int, dict[str, dict[str, float]]]) -> None:
    for layers, rows in grown.items():
        token = layers * 2 * 64 * reference_cache.BATCH  # elements of keys, and as many of values
        scale = layers * 2 * 4 * reference_cache.BATCH  # bytes of a component's FP32 scales
        assert all(row["held_bytes_a_token"] == row["stored_bytes_a_token"] for row in rows.values())
        assert rows["native"]["held_bytes_a_token"] == 4 * token
        assert rows["k16v8-f"]["held_bytes_a_token"] == rows["k8v16-f"]["held_bytes_a_token"] == 3 * token
        assert rows["k8v8-f"]["held_bytes_a_token"] == 2 * token
        assert rows["k8v8-d"]["held_bytes_a_token"] == 2 * token + 2 * scale


def test_a_step_takes_one_layers_reconstruction_however_many_layers_there_are(
    grown: dict[int, dict[str, dict[str, float]]],
) -> None:
    few, many = grown[2], grown[5]
    for name, row in few.items():
        assert row["transient_over_a_layer"] == pytest.approx(many[name]["transient_over_a_layer"], abs=0.01)
        assert abs(row["transient_off_a_line"]) < 0.01, "it grows with the context and with nothing else"
        if name != reference_cache.OWN:
            assert 1.0 <= row["transient_over_a_layer"] <= 1.3
