"""The oracle beside running traffic: after each step of an engine, what the step did is checked where it was done.

Steps that Python saw (prefills, mixed ones) leave their numbers of tokens beside the observed caches; one that it did
not see was the replay of a decode graph, and which one is told by the plug-in's counts. Faults are planted after the
first replays of several requests, between two steps, and are gone before the next.
"""

from typing import Any

from kassay.backend.vllm_attest import plug_in_state
from kassay.backend.vllm_oracle import Oracle
from kassay.kinds.vllm import VllmCheck

PLANTED_AFTER = 3  # replays of two requests or more


class Watch:
    """What was checked so far; give `between` to `Engine.serve`."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.state = engine, plug_in_state()
        self.checks: list[VllmCheck] = []
        self._replayed = dict(self.state.counts.replayed())
        self._planted = 0
        for index in engine.asked.observe:
            self.state.caches[index].last = {}  # of the engine's own warm-up, whose pages are free again

    def between(self, step: int) -> None:
        """Check what the last step did in every observed layer."""
        import torch

        torch.cuda.synchronize()
        with torch.inference_mode():
            self._between()

    def _between(self) -> None:
        now = self.state.counts.replayed()
        replayed = [size for size, count in now.items() if count > self._replayed.get(size, 0)]
        self._replayed = dict(now)
        plants = self._planted < PLANTED_AFTER and any(size > 1 for size in replayed)
        self._planted += plants
        for index in self.engine.asked.observe:
            cache = self.state.caches[index]
            seen, cache.last = cache.last, {}
            traffic = "replay" if not seen else "mixed" if {"decode", "fresh"} <= set(seen) else next(iter(seen))
            oracle = Oracle(
                arm=self.engine.arm, traffic="fresh" if traffic == "write" else traffic, layer=index, cache=cache,
                plans=self.state.plans,
            )  # fmt: skip
            self.checks += self._seen(oracle, seen)
            for size in replayed:
                self.checks += oracle.written(size) + oracle.decoded(size)
                if plants and size > 1:
                    self.checks += oracle.planted(size)

    def _seen(self, oracle: Oracle, seen: dict[str, int]) -> list[VllmCheck]:
        found: list[VllmCheck] = []
        for what, count in seen.items():
            check = {"write": oracle.written, "decode": oracle.decoded, "fresh": oracle.fresh}[what]
            found += check(count)
        return found
