"""What a purge deletes: rows of a table by age or by their own expiry, or whatever names itself a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, runtime_checkable

from rowsweep.errors import InvalidDeclaration, InvariantBroken
from rowsweep.jobs.tasks.zone import zone_of
from rowsweep.options import count, duration
from rowsweep.spelling import spelled
from rowsweep.sweeps.keyset.rows import Rows

_MOST_DAYS: Final = 1_000_000
_EXAMPLE: Final = 'targets=lambda: [rs.older_than("events", "created_at", days=90)]'


@runtime_checkable
class Target(Protocol):
    """Anything with a name that deletes what had expired at an instant and answers how many rows that was."""

    @property
    def name(self) -> str:
        """What the purge's result calls it."""

    def purge_expired(self, at: datetime) -> int:
        """Delete what had expired at an instant; answer how many rows. Done again it finds nothing more."""


@runtime_checkable
class BatchedTarget(Target, Protocol):
    """A target that a purge can stop, pace and budget between batches."""

    def batches(self, at: datetime) -> Iterator[int]:
        """Delete batch by batch, each committed by itself; answer the rows of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTarget:
    """Rows of one table whose column lies before a cutoff: so long before the pass's instant, or that instant itself.

    `days` are days of the calendar in `tz`, `age` is a length of time; neither means that the column holds the expiry.
    """

    name: str
    rows: Rows
    column: str
    days: int | None = None
    age: timedelta | None = None
    tz: str = "UTC"

    @property
    def source(self) -> dict[str, Any]:
        """What a run must not change under way."""
        return {
            "table": list(self.rows.parts),
            "where": self.rows.where,
            "column": self.column,
            "days": self.days,
            "age": None if self.age is None else self.age.total_seconds(),
            "tz": self.tz,
        }


@spelled
def older_than(  # noqa: PLR0913 - one parameter an option
    table: str | tuple[str, ...],
    column: str,
    *,
    days: int | None = None,
    age: str | timedelta | None = None,
    where: str | None = None,
    tz: str = "UTC",
    name: str | None = None,
) -> RowTarget:
    """Take rows whose column lies more than so many `days`, or an `age` such as "36h", before the pass's instant.

    `tz` is the zone whose clocks a `timestamp` or `date` column shows, and whose calendar `days` are counted by. A
    row of a `date` column goes once that whole day is old enough. A null never goes. `where` is your own SQL. The
    target is called by its table unless `name` says otherwise.

    Raises InvalidDeclaration, InvalidOption.
    """
    if (days is None) == (age is None):
        raise InvalidDeclaration(
            f"older_than({table!r}, {column!r}) takes either days or age; got {'neither' if days is None else 'both'}.",
            fix=f"older_than({table!r}, {column!r}, days=90)",
            meta={"field": "days"},
        )
    length = None if age is None else duration(age, option="age")
    if length is not None and length <= timedelta(0):
        raise InvalidDeclaration(f"age must be longer than nothing; got {age!r}.", fix='age="36h"')
    if days is not None:
        count(days, option="days", minimum=1, maximum=_MOST_DAYS)
    return _target(table, column, where=where, tz=tz, name=name, days=days, age=length)


@spelled
def expired(
    table: str | tuple[str, ...], column: str, where: str | None = None, *, tz: str = "UTC", name: str | None = None
) -> RowTarget:
    """Take rows whose column, the instant at which they expire, has been reached.

    `tz` is the zone whose clocks a `timestamp` or `date` column shows; a row that expires on a date goes once that
    day is over. A null never expires. The other arguments are those of `older_than`.
    """
    return _target(table, column, where=where, tz=tz, name=name)


@dataclass(frozen=True, slots=True)
class FunctionTarget:
    """A function of the pass's instant that deletes what had expired and answers how many rows that was."""

    function: Callable[[datetime], int]

    @property
    def name(self) -> str:
        """The function's own name."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def purge_expired(self, at: datetime) -> int:
        """Call it."""
        return self.function(at)


def checked(given: object) -> list[Target | RowTarget]:
    """Check what a purge's function answered; a function among them is a target under its own name.

    Raises InvalidDeclaration for what is no list of targets, InvariantBroken where two have one name.
    """
    targets: list[Target | RowTarget] = []
    for target in given if isinstance(given, (list, tuple)) else (None,):
        if isinstance(target, (RowTarget, Target)):
            targets.append(target)
        elif callable(target):
            targets.append(FunctionTarget(target))
        else:
            raise InvalidDeclaration(
                f"targets must be a function that answers a list of targets; it answered {given!r:.120}.",
                fix=_EXAMPLE,
                meta={"field": "targets"},
            )
    names = [target.name for target in targets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvariantBroken(
            f"Two targets of this purge are called {twice!r}; nothing was deleted.",
            fix='older_than(…, name="…") on one of them',
            meta={"target": twice},
        )
    return targets


def batches_of(target: Target, at: datetime) -> Iterator[int]:
    """Let a target delete what had expired at an instant, batch by batch where it can; answer the rows of each.

    Raises InvariantBroken where it answers no number of rows.
    """
    if isinstance(target, BatchedTarget):
        yield from (_counted(target.name, rows) for rows in target.batches(at))
    else:
        yield _counted(target.name, target.purge_expired(at))


def _counted(target: str, rows: object) -> int:
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise InvariantBroken(
            f"The target {target!r} must answer how many rows it removed; it answered {rows!r:.80}.",
            fix="return the number of rows from purge_expired(at)",
            meta={"target": target},
        )
    return rows


def _target(table: str | tuple[str, ...], column: object, *, name: str | None, tz: str, **given: Any) -> RowTarget:
    rows = Rows(table, where=given.pop("where"))
    if not isinstance(column, str) or not column:
        raise InvalidDeclaration(
            f"column must be the name of a column; got {column!r:.80}.", fix='older_than("events", "created_at", …)'
        )
    zone: object = tz
    if not isinstance(zone, str) or not zone:
        raise InvalidDeclaration(f"tz must be an IANA id; got {zone!r:.80}.", fix='tz="UTC"', meta={"field": "tz"})
    zone_of(zone)
    return RowTarget(name=name or ".".join(rows.parts), rows=rows, column=column, tz=tz, **given)
