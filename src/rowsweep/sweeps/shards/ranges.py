"""Divide a table's keys into ranges, find the middle of one, and prove that ranges tile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.keyset.expressions import cursor_values
from rowsweep.sweeps.keyset.ranges import PAGES, RangeStatements, range_values
from rowsweep.sweeps.passes.position import KeyRange

if TYPE_CHECKING:
    import psycopg

    from rowsweep.sweeps.keyset.rows import Rows
    from rowsweep.sweeps.setup import Setup

Key = tuple[str, ...]
_FEWEST_PAGES: Final = 30
_MOST_PAGES: Final = 1_000
_SHARE_OF_PAGES: Final = 0.02
_FEWEST_KEYS: Final = 8
_MOST_PROBED: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Middle:
    """The middle key of a range, and about how many rows the range has."""

    number: int
    key: Key
    rows: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySpace:
    """The keys of one sweep's table: how they are divided, by a connection in an open transaction."""

    statements: RangeStatements
    params: Mapping[str, Any]
    upper: Key | None

    @classmethod
    def of(cls, setup: Setup, rows: Rows) -> KeySpace:
        """Answer the keys that a sweep is over."""
        statements = RangeStatements(
            table=setup.table, where=rows.where, bound_params=rows.params is not None, bounded=setup.upper is not None
        )
        return cls(statements=statements, params=setup.params or {}, upper=setup.upper)

    def divide(self, connection: psycopg.Connection[Any], ranges: int) -> list[KeyRange]:
        """Divide them into so many ranges of about as many rows each; fewer, where there are not as many bounds.

        The planner's histogram of the first key column says where, else keys of sampled pages: at most 2 % of the
        table's, and no fewer than thirty.
        """
        if ranges == 1:
            return [KeyRange(after=None, to=self.upper)]
        bounds = self._by_histogram(connection, ranges) or self._by_sample(connection, ranges)
        inside = [bound for bound in dict.fromkeys(bounds) if bound != self.upper]
        edges = [None, *inside, self.upper]
        return [KeyRange(after=after, to=to) for after, to in pairwise(edges)]

    def worth_halving(
        self, connection: psycopg.Connection[Any], ranges: Mapping[int, KeyRange], at_least: float
    ) -> Middle | None:
        """Find the middle of the range with most work left, of those that have about `at_least` so many keys.

        A range of few pages may have none among those sampled. So where no other one will do, the next keys of each
        that the sample has next to nothing of are gone over, twice as many as are asked for.
        """
        sampled = self.middles(connection, ranges)
        found = next((middle for middle in sampled if middle.rows >= at_least), None)
        if found is not None or at_least > _MOST_PROBED / 2:  # so many are in a sample
            return found
        seen = {middle.number for middle in sampled}
        for number in sorted(ranges.keys() - seen):
            found = self._halfway(connection, number, ranges[number], 2 * math.ceil(max(at_least, _FEWEST_KEYS)))
            if found is not None and found.rows >= max(at_least, _FEWEST_KEYS):
                return found
        return None

    def _halfway(self, connection: psycopg.Connection[Any], number: int, each: KeyRange, most: int) -> Middle | None:
        bounded = replace(self.statements, bounded=each.to is not None)
        statement = bounded.halfway(most, started=each.after is not None)
        values = {**cursor_values("c", each.after), **cursor_values("u", each.to)}
        for keys, *texts, is_exact in run(connection, statement, values).fetchall():
            return Middle(number=number, key=tuple(texts), rows=keys) if is_exact else None
        return None

    def middles(self, connection: psycopg.Connection[Any], ranges: Mapping[int, KeyRange]) -> list[Middle]:
        """Find the middle key of each range that a sample has enough keys of, the one with most work left first."""
        percent = self._percent(connection)
        values = {
            **self.params,
            **range_values((number, each.after, each.to) for number, each in ranges.items()),
            "rs_percent": percent,
        }
        found = run(connection, self.statements.middles(), values).fetchall()
        return [
            Middle(number=number, key=tuple(texts), rows=keys * 100 / percent)
            for number, keys, *texts, is_exact in found
            if is_exact and keys >= _FEWEST_KEYS
        ]

    def is_between(self, connection: psycopg.Connection[Any], key: Key, behind: Key | None, before: Key | None) -> bool:
        """Say whether a key lies behind one and before another; None is the beginning, or the end."""
        nowhere = [None for _ in key]
        values = {
            **cursor_values("m", key),
            **cursor_values("c", behind or nowhere),
            **cursor_values("u", before or nowhere),
        }
        return bool(_one(run(connection, self.statements.is_between(), values)))

    def tile(self, connection: psycopg.Connection[Any], ranges: Sequence[KeyRange]) -> bool:
        """Say whether ranges cover all keys up to the upper bound, each once."""
        nowhere = [None for _ in self.statements.table.key]
        values = {
            **range_values((at, each.after, each.to) for at, each in enumerate(ranges)),
            **cursor_values("u", self.upper or nowhere),
        }
        return bool(_one(run(connection, self.statements.tiling(), values)))

    def in_order(self, connection: psycopg.Connection[Any], keys: Sequence[Key | None]) -> list[int]:
        """Answer the places of keys as they follow each other in the table; None is before all of them."""
        if len(keys) < 2:
            return list(range(len(keys)))
        values = range_values((at, key, None) for at, key in enumerate(keys))
        return [at for (at,) in run(connection, self.statements.ordered(), values).fetchall()]

    def goes_on_behind(self, connection: psycopg.Connection[Any], key: Key) -> bool:
        """Say whether there are keys behind one, whatever the sweep's condition says of their rows."""
        statement = replace(self.statements, bounded=False).halfway(1, started=True)
        return run(connection, statement, cursor_values("c", key)).fetchone() is not None

    def _by_histogram(self, connection: psycopg.Connection[Any], ranges: int) -> list[Key]:
        import psycopg

        table = self.statements.table
        values = {"rs_schema": table.schema, "rs_name": table.name, "rs_lead": table.key[0]}
        try:
            with connection.transaction():
                return _exact(run(connection, self.statements.bounds_by_histogram(ranges), values).fetchall())
        except (psycopg.DataError, psycopg.ProgrammingError):
            return []  # a type whose histogram is not to be had as an array of it

    def _by_sample(self, connection: psycopg.Connection[Any], ranges: int) -> list[Key]:
        values = {"rs_percent": self._percent(connection)}
        return _exact(run(connection, self.statements.bounds_by_sample(ranges), values).fetchall())

    def _percent(self, connection: psycopg.Connection[Any]) -> float:
        table = self.statements.table
        pages = int(_one(run(connection, PAGES, {"schema": table.schema, "name": table.name})))
        wanted = min(max(_SHARE_OF_PAGES * pages, _FEWEST_PAGES), _MOST_PAGES)
        return min(100.0 * wanted / max(pages, 1), 100.0)


def _exact(rows: Iterable[Sequence[Any]]) -> list[Key]:
    """Answer the keys whose texts read back as the same key."""
    return [tuple(texts) for *texts, is_exact in rows if is_exact]


def _one(cursor: Any) -> Any:
    row = cursor.fetchone()
    assert row is not None  # noqa: S101 - each of these always answers
    return row[0]
