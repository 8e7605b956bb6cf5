"""Check a target against its database, and fix what its pass goes by: the table, the cutoff, what is expected to go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from psycopg import sql
from psycopg.rows import tuple_row

from rowsweep.sweeps.keyset.catalog import Table
from rowsweep.sweeps.keyset.rules import refuse_rules
from rowsweep.sweeps.purge.statements import PurgeStatements
from rowsweep.sweeps.purge.targets.catalog import Aged, Reference, find_aged, find_references
from rowsweep.sweeps.purge.targets.counts import cascaded, every_row
from rowsweep.sweeps.refusals import refuse_changed
from rowsweep.sweeps.setup import check_rows, estimate_rows

if TYPE_CHECKING:
    from rowsweep.jobs.values.json_form import Json
    from rowsweep.sweeps.purge.targets.target import RowTarget

_DEEPEST: Final = 8
_FORM: Final = {"timestamptz": "{}", "timestamp": "{}", "date": "({})::pg_catalog.date"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSetup:
    """What the first attempt found of a target, and every later one goes by.

    `expected` of `total` rows were due then, each counted or estimated as its `…_is` says. `cascades` are the rows of
    referring tables that ON DELETE CASCADE takes along. `source` is the declaration it was made from.
    """

    table: Table
    aged: Aged
    operator: str
    cutoff: str
    source: Mapping[str, Any]
    expected: int | None
    expected_is: str | None
    total: int | None
    total_is: str | None
    cascades: Mapping[str, int | None]

    @property
    def walks(self) -> str:
        """What the target is walked by, in words."""
        return "the key" if self.aged.index is None else f"index {self.aged.index}"

    @property
    def is_plain(self) -> bool:
        """Whether a page can be deleted as a range of the walk, without knowing its rows one by one."""
        aged = self.aged
        is_dense = aged.index is not None and self.source.get("where") is None
        return is_dense and not aged.partitioned and not aged.has_many_ties

    @property
    def share(self) -> float:
        """The share of the table that is due."""
        if not self.expected or not self.total:
            return 0.0
        return min(self.expected / self.total, 1.0)

    def statements(self) -> PurgeStatements:
        """Answer the statements of the target."""
        return PurgeStatements(table=self.table, aged=self.aged, operator=self.operator, where=self.source.get("where"))

    def as_json(self) -> Json:
        """Answer the step's stored value."""
        return {**asdict(self), "table": self.table.as_json(), "aged": self.aged.as_json(), "walks": self.walks}

    @classmethod
    def from_json(cls, stored: Any) -> TargetSetup:
        """Restore what the step stored."""
        kept = {name: value for name, value in stored.items() if name != "walks"}
        return cls(**{**kept, "table": Table.from_json(kept["table"]), "aged": Aged(**kept["aged"])})


def check_target(connection: Any, target: RowTarget, at: str) -> TargetSetup:
    """Check a target in an open transaction and answer its setup, with nothing counted yet.

    Raises UnknownSource, InvalidKey, InvalidSweepSql, InvalidDeclaration for a column that holds no instants or a table
    with a rule for DELETE.
    """
    table = check_rows(connection, target.rows)
    aged = find_aged(connection, table, target.column)
    # Postgres takes none where what was deleted is asked for, which a purge does at its first locked or held row.
    refuse_rules(
        connection,
        table,
        "DELETE",
        instead=False,
        so="with which no purge can count what went",
        fix="a trigger in the rule's place, or a target of your own that deletes by itself",
    )
    is_instant = target.days is None and target.age is None and aged.type != "date"
    return TargetSetup(
        table=table,
        aged=aged,
        operator="<=" if is_instant else "<",
        cutoff=_cutoff(connection, target, aged.type, at),
        source=target.source,
        expected=None,
        expected_is=None,
        total=None,
        total_is=None,
        cascades={},
    )


def set_up_target(connection: Any, target: RowTarget, at: str) -> TargetSetup:
    """Check a target, and count or estimate what is due, the table, and what cascades along."""
    bare = check_target(connection, target, at)
    statements, values = bare.statements(), {"rs_cutoff": bare.cutoff}
    expected, expected_is = estimate_rows(connection, statements, values)
    total, total_is = estimate_rows(connection, every_row(bare.table), {})
    return TargetSetup(
        table=bare.table,
        aged=bare.aged,
        operator=bare.operator,
        cutoff=bare.cutoff,
        source=bare.source,
        expected=expected,
        expected_is=expected_is,
        total=None if total is None else max(total, expected or 0),
        total_is=total_is,
        cascades=count_cascades(connection, bare) if expected else {},
    )


def estimate_of(setups: Iterable[TargetSetup]) -> tuple[int | None, Literal["count", "plan"] | None]:
    """Answer how many rows the targets are expected to lose in all, and whether that is counted or estimated."""
    known = [setup for setup in setups if setup.expected is not None]
    if not known:
        return None, None
    is_counted = all(setup.expected_is == "count" for setup in known)
    return sum(setup.expected or 0 for setup in known), "count" if is_counted else "plan"


def count_cascades(connection: Any, setup: TargetSetup) -> dict[str, int | None]:
    """Count by table the rows that would go along, at most so many keys away; None where that may not be read.

    Rows of a table that cascades to itself are counted one key away.
    """
    counted: dict[str, int | None] = {}
    values = {"rs_cutoff": setup.cutoff}
    for chain in _chains(connection, setup.table.schema, setup.table.name, ()):
        name = chain[-1].qualified
        if not all(reference.readable for reference in chain):
            counted.setdefault(name, None)
            continue
        rows, _ = estimate_rows(connection, cascaded(setup.table, setup.statements().due(), chain), values)
        counted[name] = (counted.get(name) or 0) + (rows or 0)
    return counted


def check_unchanged(sweep: str, target: RowTarget, setup: TargetSetup) -> None:
    """Refuse to go on with a target that is another one than the run began with."""
    what, meta = f"the target {target.name!r} of {sweep!r}", {"sweep": sweep, "target": target.name}
    refuse_changed(what, began=setup.source, now=target.source, meta=meta)


def _chains(connection: Any, schema: str, table: str, before: tuple[Reference, ...]) -> Iterator[tuple[Reference, ...]]:
    """Follow the cascading keys outwards, each at most once on a way."""
    for reference in find_references(connection, schema, table):
        if not reference.cascades or reference in before or len(before) >= _DEEPEST:
            continue
        chain = (*before, reference)
        yield chain
        if not reference.is_own:
            yield from _chains(connection, reference.schema, reference.table, chain)


def _cutoff(connection: Any, target: RowTarget, type_: str, at: str) -> str:
    """Answer the cutoff as the column's own text, worked out by the database on the clocks of the target's zone."""
    instant = "%(at)s::pg_catalog.timestamptz"
    wall = f"({instant} at time zone %(tz)s)"
    if target.days is not None:
        wall = f"({wall} - pg_catalog.make_interval(days => %(days)s))"
        moment = f"({wall} at time zone %(tz)s)" if type_ == "timestamptz" else wall
    else:
        if target.age is not None:
            instant = f"({instant} - %(age)s::pg_catalog.interval)"
        moment = instant if type_ == "timestamptz" else f"({instant} at time zone %(tz)s)"
    values = {"at": at, "tz": target.tz, "days": target.days, "age": target.age}
    statement = sql.SQL(f"select {_FORM[type_].format(moment)}::pg_catalog.text")
    row = connection.cursor(row_factory=tuple_row).execute(statement, values).fetchone()
    return str(row[0])
