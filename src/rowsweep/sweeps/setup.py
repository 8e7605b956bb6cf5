"""Check a sweep against its database, and fix what must not change while it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import psycopg

from rowsweep.errors import InvalidDeclaration, InvalidSweepSql
from rowsweep.sweeps.batch.connection import transaction_settings
from rowsweep.sweeps.keyset.catalog import Column, Table, find_table
from rowsweep.sweeps.keyset.cursor import PlainCursor, run
from rowsweep.sweeps.keyset.expressions import cursor_values
from rowsweep.sweeps.keyset.rules import refuse_rules
from rowsweep.sweeps.keyset.sameness import Identity, identity_of
from rowsweep.sweeps.keyset.statements import Statements
from rowsweep.sweeps.late.convergence import converges
from rowsweep.sweeps.refusals import refuse_changed

if TYPE_CHECKING:
    from rowsweep.jobs.values.json_form import Json
    from rowsweep.sweeps.keyset.rows import Rows
    from rowsweep.sweeps.spec import PassSpec, SweepSpec

_COUNT_BELOW: Final = 1_000_000
_COUNT_TIMEOUT: Final = "set local statement_timeout = '2s'"
_IDLE_MS: Final = 30_000
_NOW: Final = "select pg_catalog.to_char(pg_catalog.now(), 'YYYY-MM-DD\"T\"HH24:MI:SS.USOF')"
_OLDEST_OPEN: Final = "select pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::pg_catalog.text"
_NAMED: Final = re.compile(r"%\((\w+)\)s")
_MISSING: Final = re.compile(r"query parameter missing: (\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the first attempt found and every later one goes by: the table, the parameters, the upper bound, an instant.

    `source` is the declared table, key and where: a later attempt's must be the same. `only` are the keys of a run over
    listed rows. `assigned` is what is set, which `converges` where it comes to the same however often it is applied. A
    run that began before there was a second look does not look again. `shards` says how many jobs share the run.
    `identity` is of the very table, `xid` the id from which on transactions may not have been over; a run that began
    before these were noted has none.
    """

    table: Table
    source: Mapping[str, Any]
    params: dict[str, Any] | None
    upper: tuple[str, ...] | None
    at: str
    estimate: int | None
    estimate_source: str | None
    only: tuple[tuple[str, ...], ...] | None = None
    looks_again: bool = True
    assigned: Mapping[str, str] | None = None
    converges: bool = False
    shards: int = 1
    identity: Identity | None = None
    xid: int | None = None

    def statements(self, rows: Rows) -> Statements:
        """Answer the statements of the sweep over this table."""
        return statements_for(self.table, rows, bounded=self.upper is not None)

    @property
    def is_over_nothing(self) -> bool:
        """Whether it is bounded by the highest key there was, and there was none; or over no listed row."""
        if self.only is not None:
            return not self.only
        return self.upper is None and self.source.get("until") == "start"

    def as_json(self) -> Json:
        """Answer the step's stored value."""
        shards = {} if self.shards == 1 else {"shards": self.shards}
        return {
            "table": self.table.as_json(),
            "source": dict(self.source),
            "params": self.params,
            "upper": None if self.upper is None else list(self.upper),
            "at": self.at,
            "estimate": self.estimate,
            "estimate_source": self.estimate_source,
            **({} if self.only is None else {"only": [list(key) for key in self.only]}),
            "looks_again": self.looks_again,
            "assigned": None if self.assigned is None else dict(self.assigned),
            "converges": self.converges,
            "identity": None if self.identity is None else asdict(self.identity),
            "xid": self.xid,
            **shards,
        }

    @classmethod
    def from_json(cls, stored: Any) -> Setup:
        """Restore what the step stored."""
        return cls(
            table=Table.from_json(stored["table"]),
            source=stored["source"],
            params=stored["params"],
            upper=None if stored["upper"] is None else tuple(stored["upper"]),
            at=stored["at"],
            estimate=stored["estimate"],
            estimate_source=stored["estimate_source"],
            only=None if stored.get("only") is None else tuple(map(tuple, stored["only"])),
            looks_again=stored.get("looks_again", False),
            assigned=stored.get("assigned"),
            converges=stored.get("converges", False),
            shards=stored.get("shards", 1),
            identity=None if stored.get("identity") is None else Identity(**stored["identity"]),
            xid=stored.get("xid"),
        )


def source_of(rows: Rows) -> dict[str, Any]:
    """Answer what a run must not change under way: the declared table, key and condition."""
    key = rows.key_columns
    return {
        "table": list(rows.parts),
        "key": None if key is None else list(key),
        "where": rows.where,
        "until": rows.until,
    }


def check_source(name: str, setup: Setup, rows: Rows) -> None:
    """Refuse to go on with a table, key or where that differ from those the run began with."""
    refuse_changed(repr(name), began=setup.source, now=source_of(rows), meta={"sweep": name})


def statements_for(table: Table, rows: Rows, *, bounded: bool) -> Statements:
    """Answer the statements of a sweep over a table."""
    return Statements(table=table, where=rows.where, bound_params=rows.params is not None, bounded=bounded)


def settings_for(spec: PassSpec, tenant: str | None, *, cross_tenant: bool, idle_ms: int = _IDLE_MS) -> dict[str, str]:
    """Answer the settings of a sweep's transactions."""
    return transaction_settings(
        lock_timeout_ms=spec.milliseconds("lock_timeout"),
        statement_timeout_ms=spec.milliseconds("statement_timeout"),
        idle_timeout_ms=idle_ms,
        tenant=tenant,
        cross_tenant=cross_tenant,
    )


def check_sweep(connection: Any, spec: SweepSpec) -> Table:
    """Check a declaration against its database, in an open transaction: table, columns, key, and each piece of SQL.

    Raises UnknownSource, InvalidKey, InvalidDeclaration (a `set` on a key or generated column), InvalidSweepSql.
    """
    return check_rows(connection, spec.rows, spec.assignments)


def check_rows(connection: Any, rows: Rows, assignments: Mapping[str, str] | None = None) -> Table:
    """Check a table, its key, and each piece of the application's SQL, in an open transaction."""
    table = find_table(connection, rows)
    for column in assignments or {}:
        _check_writable(table, table.column(column))
    if assignments:
        refuse_rules(
            connection,
            table,
            "UPDATE",
            instead=True,
            so="so that set= would write something else than its rows, or nothing",
            fix="a trigger in the rule's place, or a handler with SQL of its own",
        )
    nowhere = [None for _ in table.key]
    values = {**(rows.params_form or {}), **cursor_values("c", nowhere), **cursor_values("u", nowhere)}
    statements = Statements(table=table, where=rows.where, bound_params=rows.params is not None, bounded=False)
    for field, text, statement in statements.probes(assignments):
        try:
            with connection.transaction():
                run(connection, statement, values, prepare=True)
        except (psycopg.Error, TypeError) as error:
            raise _sql_refused(field, text, error, is_bound=rows.params is not None) from error
    return table


def set_up(connection: Any, rows: Rows, assignments: Mapping[str, str] | None = None) -> Setup:
    """Check the sweep and find what its run goes by: the highest key where it is bounded, and an estimate."""
    table = check_rows(connection, rows, assignments)
    values = dict(rows.params_form or {})
    upper = None
    if rows.until == "start":
        found = run(connection, statements_for(table, rows, bounded=False).highest(), {}).fetchone()
        upper = None if found is None else tuple(found)
        values.update(cursor_values("u", upper))
    statements = statements_for(table, rows, bounded=upper is not None)
    estimate, source = estimate_rows(connection, statements, values)
    return Setup(
        table=table,
        source=source_of(rows),
        params=rows.params_form,
        upper=upper,
        at=now_there(connection),
        estimate=estimate,
        estimate_source=source,
        assigned=assignments,
        identity=identity_of(connection, table),
        xid=int(_one(run(connection, _OLDEST_OPEN))),
        converges=assignments is not None and converges(connection, statements, assignments, rows.params_form or {}),
    )


def now_there(connection: Any) -> str:
    """Answer when the open transaction began, by the clock of its database: this machine's may be off."""
    return str(_one(run(connection, _NOW)))


class Matching(Protocol):
    """Something that selects the rows that count."""

    def matching(self) -> psycopg.sql.Composed:
        """Answer the select."""


def estimate_rows(connection: Any, statements: Matching, values: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Estimate the matching rows: counted where the planner expects under a million and it takes under 2 s.

    Answers `(rows, "count" | "plan")`; needs an open transaction.
    """
    matching = statements.matching()
    explained = _one(run(connection, psycopg.sql.SQL("explain (format json) ") + matching, values))
    planned = int(explained[0]["Plan"]["Plan Rows"])
    if planned >= _COUNT_BELOW:
        return planned, "plan"
    counted = count_rows(connection, statements, values)
    return (planned, "plan") if counted is None else (counted, "count")


def count_rows(connection: Any, statements: Matching, values: Mapping[str, Any]) -> int | None:
    """Count the matching rows within 2 s; None where it takes longer, or where the condition fails for a row."""
    whole = psycopg.sql.SQL("select pg_catalog.count(*) from ({}) rs_matching").format(statements.matching())
    try:
        with connection.transaction():
            connection.execute(_COUNT_TIMEOUT)
            return int(_one(run(connection, whole, values)))
    except (psycopg.errors.QueryCanceled, psycopg.DataError):
        return None


def _check_writable(table: Table, column: Column) -> None:
    moved = table.moved_by(column.name)
    if moved is not None:
        what = "a key column" if moved is column else f"from which {moved.name!r} is computed, a key column"
        raise InvalidDeclaration(
            f"set writes {column.name!r}, {what} of {table.qualified}: a sweep would chase the rows it moves.",
            fix="sweep by another key, Rows(…, key=[…]), or leave the column out of set",
            meta={"field": "set", "column": column.name},
        )
    if column.generated:
        raise InvalidDeclaration(
            f"set writes {column.name!r} of {table.qualified}, which the database generates itself.",
            fix="leave the column out of set",
            meta={"field": "set", "column": column.name},
        )


def _sql_refused(field: str, text: str, error: Exception, *, is_bound: bool) -> InvalidSweepSql:
    diag = getattr(error, "diag", None)
    said = getattr(diag, "message_primary", None) or str(error)
    hint = getattr(diag, "message_hint", None) or f"correct the expression in {field}"
    if missing := _MISSING.search(said) or (None if is_bound else _NAMED.search(text)):
        hint = f'params={{"{missing[1]}": …}}'
    elif getattr(error, "sqlstate", None) is None:
        hint = "write %(name)s for a value of params=, and %% for a % of your own"
    fails = "does not plan as one expression"
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        fails, hint = "needs rights that the sweep's role lacks", "grant them to the role of the sweep's connection"
    return InvalidSweepSql(
        f"{field} {fails}: {text!r:.300}. Postgres says: {said}",
        fix=hint,
        meta={"field": field, "expression": text, "sqlstate": getattr(error, "sqlstate", None)},
    )


def _one(cursor: PlainCursor) -> Any:
    """Answer the one value of the one row."""
    row = cursor.fetchone()
    assert row is not None  # noqa: S101 - an aggregate and a plan always answer
    return row[0]
