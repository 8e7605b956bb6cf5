"""Where a pass stands: the value of its one moving checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from rowsweep.sweeps.refusals import foreign_checkpoint

if TYPE_CHECKING:
    from rowsweep.jobs.values.json_form import Json

SETUP_STEP: Final = "sweep:setup"
PAGES_STEP: Final = "sweep:pages"
FINISH_STEP: Final = "sweep:finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A page whose bounds are fixed before its handler runs: its last key, and how many rows of it matched."""

    to: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """The keys behind one key up to another; from the beginning of the table, or to its end, where that is None."""

    after: tuple[str, ...] | None
    to: tuple[str, ...] | None

    def as_json(self) -> Json:
        """Answer the pair of its bounds."""
        return [None if bound is None else list(bound) for bound in (self.after, self.to)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The index of the last finished batch (-1: none), the cursor behind it, and the absolute counts.

    One of several shards is in a `range`, whose end may move, and others are `behind` it. Its cursor before the first
    batch is the key that the range begins behind.
    """

    index: int = -1
    cursor: tuple[str, ...] | None = None
    rows: int = 0
    written: int = 0
    plan: Plan | None = None
    ended: bool = False
    range: KeyRange | None = None
    behind: tuple[KeyRange, ...] = ()

    @property
    def batches(self) -> int:
        """How many batches are done."""
        return self.index + 1

    def moved(self, to: tuple[str, ...], *, rows: int, written: int) -> Position:
        """Answer the position behind a page; one without rows is no batch, only its cursor counts."""
        index = self.index + (1 if rows else 0)
        return replace(
            self, index=index, cursor=to, rows=self.rows + rows, written=self.written + written, plan=None, ended=False
        )

    def planned(self, plan: Plan) -> Position:
        """Answer the position with the next page's bounds fixed."""
        return replace(self, plan=plan)

    def unplanned(self) -> Position:
        """Answer the position without the next page's bounds."""
        return replace(self, plan=None)

    def finished(self) -> Position:
        """Answer the position at the end: its cursor is null.

        A range without an end gets the one that was found: the last key there was. Where it had none its cursor stays,
        and says that nothing but the keys that come behind it is left of it.
        """
        end = replace(self, plan=None, ended=True)
        if self.range is None or self.range.to is not None:
            return replace(end, cursor=None)
        if self.cursor == self.range.after:
            return end
        return replace(end, cursor=None, range=replace(self.range, to=self.cursor))

    def taking(self, more: KeyRange) -> Position:
        """Answer the position at the beginning of another range, the last one passed."""
        behind = self.behind if self.range is None else (*self.behind, self.range)
        return replace(self, cursor=more.after, plan=None, ended=False, range=more, behind=behind)

    def as_json(self) -> Json:
        """Answer the checkpoint's stored value."""
        plan = None if self.plan is None else {"to": list(self.plan.to), "rows": self.plan.rows}
        cursor = None if self.cursor is None else list(self.cursor)
        form = {"index": self.index, "cursor": cursor, "rows": self.rows, "written": self.written, "plan": plan}
        if self.range is None:
            return form
        behind = [each.as_json() for each in self.behind]
        return {**form, "ended": self.ended, "range": self.range.as_json(), "behind": behind}


def as_checkpoint(value: Json, step_name: str) -> Position:
    """Read a stored checkpoint back; None is the beginning, a null cursor without a plan the end where none is told.

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
            **_range_of(value, ended=cursor is None and plan is None),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise foreign_checkpoint(step_name, value, of="pass") from error


def _range_of(value: Any, *, ended: bool) -> dict[str, Any]:
    if "range" not in value:
        return {"ended": ended}
    told = value["ended"]
    if not isinstance(told, bool):
        raise ValueError("expected a boolean")
    behind = tuple(_key_range(each) for each in value["behind"])
    return {"ended": told, "range": _key_range(value["range"]), "behind": behind}


def _key_range(value: Any) -> KeyRange:
    after, to = (None if bound is None else _texts(bound) for bound in value)
    return KeyRange(after=after, to=to)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise ValueError("expected a list of texts")
    return tuple(value)


def _count(value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError("expected a count")
    return value
