"""Where a purge stands in one target: the value of that target's moving checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from rowsweep.sweeps.refusals import foreign_checkpoint

if TYPE_CHECKING:
    from rowsweep.jobs.values.json_form import Json

_SHOWN_KEYS: Final = 20
Blocked = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgePosition:
    """The index of the last finished batch, the place behind it, and the rows removed so far.

    Rows that could not go are counted by round: `skipped` were locked by others, `blocked` are held, by what holds
    them, with some of their keys. A round that skipped rows is followed by another.
    """

    index: int = -1
    cursor: tuple[str, ...] | None = None
    rows: int = 0
    round: int = 1
    removed_before: int = 0
    skipped: int = 0
    blocked: Blocked = field(default_factory=dict)
    ended: bool = False

    @property
    def batches(self) -> int:
        """How many batches are done."""
        return self.index + 1

    @property
    def blocked_rows(self) -> int:
        """How many rows are held in this round so far."""
        return sum(int(held["rows"]) for held in self.blocked.values())

    def removed(self, rows: int, *, to: tuple[str, ...] | None = None) -> PurgePosition:
        """Answer the position behind rows that went; a page of which none went is no batch."""
        return replace(self, index=self.index + (1 if rows else 0), rows=self.rows + rows, cursor=to)

    def passed(self, *, skipped: int = 0, blocked: Blocked | None = None) -> PurgePosition:
        """Answer the position with what of its page could not go."""
        merged = dict(self.blocked)
        for by, held in (blocked or {}).items():
            known = merged.get(by, {"rows": 0, "keys": []})
            keys = [*known["keys"], *held["keys"]][:_SHOWN_KEYS]
            merged[by] = {"rows": known["rows"] + held["rows"], "keys": keys}
        return replace(self, skipped=self.skipped + skipped, blocked=merged)

    def again(self) -> PurgePosition:
        """Answer the beginning of another round."""
        return replace(
            self, cursor=None, round=self.round + 1, removed_before=self.rows, skipped=0, blocked={}, ended=False
        )

    def finished(self) -> PurgePosition:
        """Answer the end: its cursor is null."""
        return replace(self, cursor=None, ended=True)

    def as_json(self) -> Json:
        """Answer the checkpoint's stored value."""
        return {
            "index": self.index,
            "cursor": None if self.cursor is None else list(self.cursor),
            "rows": self.rows,
            "round": self.round,
            "removed_before": self.removed_before,
            "skipped": self.skipped,
            "blocked": {by: {"rows": held["rows"], "keys": list(held["keys"])} for by, held in self.blocked.items()},
            "ended": self.ended,
        }


def as_position(value: Json, step_name: str) -> PurgePosition:
    """Read a stored checkpoint back; None is the beginning. Raises InvalidCheckpoint for what no purge stored."""
    if value is None:
        return PurgePosition()
    try:
        cursor = value["cursor"]
        if cursor is not None and not (isinstance(cursor, list) and all(isinstance(text, str) for text in cursor)):
            raise TypeError("expected a list of texts")
        return PurgePosition(
            index=_count(value["index"], least=-1),
            cursor=None if cursor is None else tuple(cursor),
            rows=_count(value["rows"]),
            round=_count(value["round"], least=1),
            removed_before=_count(value["removed_before"]),
            skipped=_count(value["skipped"]),
            blocked=dict(value["blocked"]),
            ended=bool(value["ended"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise foreign_checkpoint(step_name, value, of="purge") from error


def _count(value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError("expected a count")
    return value
