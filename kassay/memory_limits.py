"""Which limits hold for memory: the study's where it has a section `memory`, else the symbols of Kconfig.

This is the one place that decides, and it decides for the section as a whole: a `null` of the study is no limit, never
a symbol's. A ceiling that a symbol asks for beside another one of the study is an error, not a choice. The audit at
equal blocks is a study's alone, in blocks of its `engine.page_tokens`; the budget counts whole ones too. What held, and
whose word it was, is a record (`kassay.memory_limits`).
"""

from dataclasses import dataclass
from typing import Any

from kassay.errors import ConfigError
from kassay.kinds.memory import MemoryLimits
from kassay.telemetry import LONGEST_GAP_NS, PERIOD_NS

MIB, GIB = 2**20, 2**30
NS_PER_MS = 1_000_000
PAGE_TOKENS = 16  # of a study that says none: the published geometry, vLLM's block
CEILINGS = ("device_ceiling_gib", "reserved_ceiling_gib")
STUDY, KCONFIG = "study", "Kconfig"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is asked of memory; None: no limit."""

    origin: str  # STUDY or KCONFIG
    period_ns: int  # between starts of queries
    longest_gap_ns: int | None  # of a window that is evidence
    device_ceiling_bytes: int | None
    reserved_ceiling_bytes: int | None
    budget_bytes: int | None  # of K, V and scales, in the study at equal bytes
    equal_slots_blocks: int | None  # that every arm holds, in the study at equal blocks
    page_tokens: int  # of a block

    def record(self, model: str) -> MemoryLimits:
        """As a record."""
        return MemoryLimits(model=model, **vars(self))


def limits(params: dict[str, Any]) -> Limits:
    """The limits of a stage's params. Raises ConfigError where two places ask for different ceilings."""
    study = params.get("study_memory")
    page_tokens = params.get("study_page_tokens") or PAGE_TOKENS
    if study is None:
        return Limits(
            origin=KCONFIG,
            period_ns=PERIOD_NS,
            longest_gap_ns=LONGEST_GAP_NS,
            device_ceiling_bytes=(params["device_ceiling_gib"] or 0) * GIB or None,
            reserved_ceiling_bytes=(params["reserved_ceiling_gib"] or 0) * GIB or None,
            budget_bytes=params["budget_mib"] * MIB,
            equal_slots_blocks=None,
            page_tokens=page_tokens,
        )
    require_one_word(params, study)
    return Limits(
        origin=STUDY,
        period_ns=study["driver_period_ms"] * NS_PER_MS,
        longest_gap_ns=scaled(study["longest_gap_ms"], NS_PER_MS),
        device_ceiling_bytes=scaled(study["device_ceiling_gib"], GIB),
        reserved_ceiling_bytes=scaled(study["reserved_ceiling_gib"], GIB),
        budget_bytes=scaled(study["budget_gib"], GIB),
        equal_slots_blocks=study["equal_slots_blocks"],
        page_tokens=page_tokens,
    )


def scaled(value: float | None, unit: int) -> int | None:
    """A value in another unit, whole; None stays None."""
    return None if value is None else round(value * unit)


def require_one_word(params: dict[str, Any], study: dict[str, Any]) -> None:
    """Raise ConfigError for a ceiling of Kconfig that is not the study's."""
    told = [
        f"`MEMORY_{name.upper()}` is {params[name]}, and the study's `memory.{name}` is {study[name]}"
        for name in CEILINGS
        if params[name] and params[name] != study[name]
    ]
    if told:
        raise ConfigError(*told, hint="the study decides: leave the symbol at 0, or change the study with SET")
