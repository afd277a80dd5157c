"""Kernels run under Triton's interpreter here: whether a function is interpreted is decided when it is defined."""

import os
from importlib.util import find_spec

import pytest

if find_spec("triton"):
    import triton

    assert type(triton.language.sum).__name__ == "InterpretedFunction", (
        "something imported triton before tests/conftest.py could ask for its interpreter"
    )
    asked = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    import kassay.kernels.cartridge
    import kassay.kernels.expand
    import kassay.kernels.mixed
    import kassay.kernels.store
    import kassay.kernels.unfused  # noqa: F401
    import tests.kernels.unpacking  # noqa: F401

    if asked is None:
        del os.environ["TRITON_INTERPRET"]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton asks again at its first launch."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
