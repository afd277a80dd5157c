"""What the plug-in knows in this process: one engine at a time, the one whose layers were made last."""

from dataclasses import dataclass, field

from kassay_vllm.attend import Cache, Counts, Plans
from kassay_vllm.settings import Settings


@dataclass
class State:
    """Of the process's engine; attestation reads it."""

    settings: Settings | None = None
    plans: Plans | None = None
    counts: Counts = field(default_factory=Counts)
    caches: dict[int, Cache] = field(default_factory=dict)  # by layer
    amax: dict[int, object] = field(default_factory=dict)  # by layer: largest absolute key and value, on the GPU
    events: list[str] = field(default_factory=list)  # `bound <layer>`, `captured <decodes>`, in their order
    flash_attention: int | None = None

    def renew(self, settings: Settings) -> None:
        """Forget another engine; the same settings again are the same engine's next layer."""
        if self.settings != settings:
            self.__init__(settings=settings)  # type: ignore[misc]


STATE = State()
