"""What a served engine says of itself: methods that vLLM adds to its worker, called over HTTP between loads.

    vllm serve ... --worker-extension-cls kassay.backend.vllm_serve_worker.Told     with VLLM_SERVER_DEV_MODE=1
    POST /collective_rpc {"method": "kassay_attest", "kwargs": {"arm": "k16v8-f"}}

The worker lives in the engine core's process, which no client reaches otherwise. The same live layers and tensors are
asked as those of an engine in the cell's own process (kassay.backend.vllm_attest), and whichever backend serves. What
is told is of JSON's own types: at a subclass, such as torch's version, the thread that sends dies and the server hangs
(one H200, 2026-11-30). The development routes of vLLM run what they are told: such a server listens on loopback, for as
long as its loads last.
"""

import json
from dataclasses import asdict
from typing import Any

from kassay import digest, loaded, paths
from kassay.backend.vllm_attest import engine_record, plug_in_state

EXTENSION = f"{__name__}.Told"
ATTEST, REFILL = "kassay_attest", "kassay_refill"


class Told:
    """Added to the bases of vLLM's worker class: `self` is the worker."""

    def kassay_attest(self, arm: str) -> dict[str, Any]:
        """The engine as its live layers tell it, what the plug-in counted so far, and this process's own code."""
        record = engine_record(self, arm)
        ours = record.backend == "PagedBackend"
        told = {
            "engine": asdict(record),
            "counts": counted(plug_in_state().counts) if ours else None,
            "code": {name: digest.of_file(path) for name, path in loaded.code([paths.ROOT]).items()},
        }
        return dict(json.loads(json.dumps(told)))

    def kassay_refill(self) -> dict[str, int]:
        """Draw all weights anew: vLLM's own drawn ones are so small that every cache gives the same tokens."""
        import torch

        from kassay.backend.vllm import refill

        worker: Any = self
        with torch.inference_mode():
            return {"parameters": refill(worker.get_model())}


def counted(counts: Any) -> dict[str, Any]:
    """What the plug-in's layers heard: batches by route, replays of decode graphs, prefills behind stored tokens."""
    routes: dict[str, int] = {}
    for (route, _), count in sorted(counts.built.items()):
        routes[route] = routes.get(route, 0) + count
    replays = {str(size): count for size, count in sorted(counts.replayed().items())}
    return {"routes": routes, "replays": replays, "fallbacks": counts.fallbacks}
