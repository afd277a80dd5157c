"""The device stage where there is no GPU; with one it was run by hand (docs/findings)."""

from collections.abc import Callable
from typing import Any

import pytest


def test_a_torch_without_a_gpu_is_unmet_not_passed(
    run_stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ran = run_stage("device", {"gpus": 1}, {})
    assert ran.code == 4 and ran.outcome.reason.startswith("torch ") and "sees no GPU" in ran.outcome.reason
