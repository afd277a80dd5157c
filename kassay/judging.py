"""The blocks of one timed load as a stage judges them: which count, what became of each, and the rates of those.

Three stages decide from timed cells: a family on one model (stages/contrast.py), a family over many (stages/matrix.py),
and whether two accelerations multiply (stages/composition.py). All ask here, so that a block counts for all by the same
frozen rules (kassay.validity). A load has one name: its cells carry it, and the records of its blocks do.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kassay import speculated, validity
from kassay.kinds.speculation import SpeculationCell
from kassay.kinds.timing import BlockRecord, GpuState, HostState, TimingCell
from kassay.record import read_kind
from kassay.stats import InvalidData
from kassay.stats.blocks import BlockCell, block_ratios
from kassay.stats.orders import Order, require_design


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The blocks of one load: which count, and the rates of their cells, numbered anew."""

    planned: list[Order]
    faults: list[validity.Fault]
    valid: list[int]
    orders: list[Order]  # of the valid blocks
    cells: list[BlockCell]  # likewise

    def ratios(self, candidate: str, control: str) -> tuple[float, ...]:
        """Within-block ratios of the valid blocks."""
        return block_ratios(self.cells, orders=self.orders, candidate=candidate, control=control) if self.valid else ()

    def rates(self, arm: str) -> list[float]:
        """Rates of one arm in the valid blocks, in block order."""
        return [cell.rate_per_s for cell in sorted(self.cells, key=lambda cell: cell.block) if cell.arm == arm]

    def records(self, model: str, load: str) -> list[BlockRecord]:
        """Every planned block with what invalidates it."""
        told = [(fault.block, asdict(fault)) for fault in self.faults]
        return [
            BlockRecord(
                model=model,
                load=load,
                block=block,
                order=list(order),
                valid=block in self.valid,
                faults=[{key: one[key] for key in one if key != "block"} for of, one in told if of == block],
            )
            for block, order in enumerate(self.planned)
        ]

    def short_of(self, needed: int) -> str:
        """That too few blocks count, in words, else empty; what is wrong with each stands in its own record."""
        if len(self.valid) >= needed:
            return ""
        bad = [str(block) for block in range(len(self.planned)) if block not in self.valid]
        return (
            f"{len(self.valid)} of {len(self.planned)} blocks count and {needed} are needed; a rule invalidates "
            f"block{'s' if len(bad) > 1 else ''} {', '.join(bad)}"
        )


def judged(
    found: validity.Evidence,
    orders: Sequence[Sequence[str]],
    timing: dict[str, Any],
    speculation: speculated.Section | None = None,
) -> Blocks:
    """The blocks of one load under the limits of a study's `timing`; `speculation`: which of its arms draft, and how.

    Raises InvalidData for cells of another plan.
    """
    planned = [tuple(order) for order in orders]
    require_design([(cell.block, cell.position, cell.recipe) for cell in found.cells], planned)
    require_alike(found.cells)
    faults = validity.faults(found, timing.get("conditions"), speculation)
    valid = validity.valid_blocks(len(planned), faults)
    cells = [
        BlockCell(block=valid.index(cell.block), position=cell.position, arm=cell.recipe, rate_per_s=cell.rate_per_s())
        for cell in found.cells
        if cell.block in valid
    ]
    return Blocks(planned=planned, faults=faults, valid=valid, orders=[planned[block] for block in valid], cells=cells)


def needed_blocks(timing: dict[str, Any]) -> int:
    """How many blocks must count: what the conditions say, all of them without any."""
    return int((timing.get("conditions") or {}).get("valid_blocks", timing["blocks"]))


def needed_ratios(timing: dict[str, Any]) -> int:
    """How many blocks of a load must count for a median: those of the plan, and two at least."""
    return max(2, needed_blocks(timing))


def evidence(path: Path, load: str) -> validity.Evidence:
    """Cells and conditions of one load of a timing stage, pilots left out.

    Raises InvalidData where there are none of that load: a stage that times one of many loads is told its name.
    """
    cells = [one for one in read_kind(path, TimingCell) if not one.pilot]
    if cells and load not in (names := {one.load for one in cells}):
        raise InvalidData(f"no timing cell is of the load `{load}`, there are `{'`, `'.join(sorted(names))}`")
    return validity.Evidence(
        cells=tuple(one for one in cells if one.load == load),
        hosts=tuple(one for one in read_kind(path, HostState) if one.load == load and not one.pilot),
        gpus=tuple(one for one in read_kind(path, GpuState) if one.load == load and not one.pilot),
        drafts=tuple(one for one in read_kind(path, SpeculationCell) if one.load == load and not one.pilot),
    )


def require_alike(cells: Sequence[TimingCell]) -> None:
    """Raise InvalidData unless all cells are of one model, one set of prompts and one size: else no rates compare."""
    if len({(cell.model, cell.prompts_sha256, cell.batch, cell.output_tokens) for cell in cells}) > 1:
        raise InvalidData("timing cells served different prompts or sizes: their rates may not be compared")
