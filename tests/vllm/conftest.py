"""The plug-in is a distribution of its own: it is put on the path. Its kernels run under Triton's interpreter."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.stages.conftest import robust_scales, run_stage  # noqa: F401
from tests.stages.test_file_tasks import inputs as given_inputs  # noqa: F401

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "vllm"))

if find_spec("triton"):
    asked = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"  # asked for where a kernel is defined, and again at its launch
    import kassay.kernels.store  # noqa: F401

    if asked is None:
        del os.environ["TRITON_INTERPRET"]


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton asks again at its first launch."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
