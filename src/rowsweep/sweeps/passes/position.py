"""Where a pass stands: the value of its one moving checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import InvalidCheckpoint

if TYPE_CHECKING:
    from rowsweep.jobs.json_form import Json

SETUP_STEP: Final = "sweep:setup"
PAGES_STEP: Final = "sweep:pages"
FINISH_STEP: Final = "sweep:finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A page whose bounds are fixed before its handler runs: its last key, and how many rows of it matched."""

    to: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The index of the last finished batch (-1: none), the cursor behind it, and the absolute counts."""

    index: int = -1
    cursor: tuple[str, ...] | None = None
    rows: int = 0
    written: int = 0
    plan: Plan | None = None
    ended: bool = False

    @property
    def batches(self) -> int:
        """How many batches are done."""
        return self.index + 1

    def moved(self, to: tuple[str, ...], *, rows: int, written: int) -> Position:
        """Answer the position behind a page; one without rows is no batch, only its cursor counts."""
        return Position(
            index=self.index + (1 if rows else 0), cursor=to, rows=self.rows + rows, written=self.written + written
        )

    def planned(self, plan: Plan) -> Position:
        """Answer the position with the next page's bounds fixed."""
        return Position(index=self.index, cursor=self.cursor, rows=self.rows, written=self.written, plan=plan)

    def unplanned(self) -> Position:
        """Answer the position without the next page's bounds."""
        return Position(index=self.index, cursor=self.cursor, rows=self.rows, written=self.written)

    def finished(self) -> Position:
        """Answer the position at the end: its cursor is null."""
        return Position(index=self.index, rows=self.rows, written=self.written, ended=True)

    def as_json(self) -> Json:
        """Answer the checkpoint's stored value."""
        plan = None if self.plan is None else {"to": list(self.plan.to), "rows": self.plan.rows}
        cursor = None if self.cursor is None else list(self.cursor)
        return {"index": self.index, "cursor": cursor, "rows": self.rows, "written": self.written, "plan": plan}


def as_checkpoint(value: Json, step_name: str) -> Position:
    """Read a stored checkpoint back; None is the beginning, a null cursor without a plan the end.

    Raises InvalidCheckpoint for anything that no pass stored.
    """
    if value is None:
        return Position()
    try:
        cursor = None if value["cursor"] is None else _texts(value["cursor"])
        stored = value["plan"]
        plan = None if stored is None else Plan(to=_texts(stored["to"]), rows=_count(stored["rows"]))
        return Position(
            index=_count(value["index"], least=-1),
            cursor=cursor,
            rows=_count(value["rows"]),
            written=_count(value["written"]),
            plan=plan,
            ended=cursor is None and plan is None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidCheckpoint(
            f"The checkpoint {step_name!r} holds {value!r:.200}, which no pass stored.",
            fix="rowsweep jobs show <id> --steps",
            meta={"step": step_name},
        ) from error


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise ValueError("expected a list of texts")
    return tuple(value)


def _count(value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError("expected a count")
    return value
