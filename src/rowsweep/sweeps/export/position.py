"""Where an export stands: a pass's checkpoint, with the bytes that its parts have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from rowsweep.sweeps.passes.position import PAGES_STEP, Plan, Position, as_checkpoint
from rowsweep.sweeps.refusals import foreign_checkpoint
from rowsweep.sweeps.shards.totals import summed

if TYPE_CHECKING:
    from rowsweep.jobs.values.json_form import Json

PART_STEPS = "part:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPosition(Position):
    """The index of the last finished part, the cursor behind it, and the absolute counts.

    The plan is the next part's key range, stored before the part is written; how many rows are in it shows then.
    """

    bytes: int = 0

    def planned_to(self, to: tuple[str, ...]) -> ExportPosition:
        """Answer the position with the next part's last key fixed."""
        return replace(self, plan=Plan(to=to, rows=0))

    def passed(self, to: tuple[str, ...], *, rows: int, size: int) -> ExportPosition:
        """Answer the position behind a key range; one without rows is no part, only its cursor counts."""
        moved = Position.moved(self, to, rows=rows, written=rows)
        return _widened(moved, size=self.bytes + size)

    def finished(self) -> ExportPosition:
        """Answer the position at the end: its cursor is null."""
        return _widened(Position.finished(self), size=self.bytes)

    def as_json(self) -> Json:
        """Answer the checkpoint's stored value."""
        return {**Position.as_json(self), "bytes": self.bytes}


def as_position(value: Json, step_name: str = PAGES_STEP) -> ExportPosition:
    """Read a stored checkpoint back; None is the beginning. Raises InvalidCheckpoint for what no export stored."""
    at = as_checkpoint(value, step_name)
    size: Any = 0 if value is None else value.get("bytes")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise foreign_checkpoint(step_name, value, of="export")
    return _widened(at, size=size)


def summed_export(shards: Sequence[Position]) -> ExportPosition:
    """Answer one position with the counts of all shards of an export."""
    return _widened(summed(shards), size=sum(at.bytes for at in shards if isinstance(at, ExportPosition)))


def _widened(at: Position, *, size: int) -> ExportPosition:
    return ExportPosition(**{field.name: getattr(at, field.name) for field in fields(Position)}, bytes=size)
