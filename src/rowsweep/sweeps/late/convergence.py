"""Whether a sweep's expressions come to the same however often they are applied, and which rows they would change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import ClientCursor, sql

from rowsweep.sweeps.keyset.catalog import Column, quoted
from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.keyset.expressions import differing, expression

if TYPE_CHECKING:
    from rowsweep.sweeps.keyset.catalog import Table
    from rowsweep.sweeps.keyset.statements import Statements

_COMPUTED: Final = "rs_computed"


def converges(
    connection: Any, statements: Statements, assignments: Mapping[str, str], values: Mapping[str, Any]
) -> bool:
    """Ask the database whether each expression depends on nothing but columns that none of them assigns.

    Postgres takes just such expressions for generated columns (immutable functions, no subqueries): a temporary table
    without the assigned columns either takes them or not. Nothing of it stays. Needs an open transaction, and answers
    False where the role may make no temporary table.
    """
    table, bound = statements.table, statements.bound_params
    kept = [column for column in table.columns if column.name not in assignments and not column.generated]
    names = {column.name for column in table.columns}
    try:
        with connection.transaction(force_rollback=True):
            # Under the table's own name, by which an expression may call its columns.
            run(connection, _probe_table(table, kept), {})
            for at, (name, text) in enumerate(assignments.items()):
                computed = _unlike(f"{_COMPUTED}{at}", names)
                statement = _computed(table, computed, table.column(name), expression(text, bound=bound))
                run(connection, ClientCursor(connection).mogrify(statement, values))
    except psycopg.errors.OperationalError:
        raise
    except (psycopg.Error, TypeError):
        return False
    return True


def would_change(statements: Statements, assignments: Mapping[str, str]) -> sql.Composed:
    """Ask of a row whether the expressions, as its columns' types store them, would change it.

    It is asked only where the sweep's condition holds: for other rows an expression may fail.
    """
    table, terms = statements.table, []
    for name, text in assignments.items():
        column = table.column(name)
        value = _stored(column, expression(text, bound=statements.bound_params))
        terms.append(differing(column, quoted(table.name, name), value))
    changes = sql.SQL("({})").format(sql.SQL(" or ").join(terms))
    if statements.where is None:
        return changes
    where = expression(statements.where, bound=statements.bound_params)
    return sql.SQL("case when (\n{}\n) then {} else false end").format(where, changes)


def _probe_table(table: Table, columns: list[Column]) -> sql.Composed:
    names = sql.SQL(", ").join(quoted(column.name) for column in columns)
    form = "create temporary table {} on commit drop as select {} from {} where false"
    return sql.SQL(form).format(quoted(table.name), names, table.identifier)


def _computed(table: Table, name: str, column: Column, text: sql.Composable) -> sql.Composed:
    return sql.SQL("alter table pg_temp.{} add column {} {} generated always as ({}) stored").format(
        quoted(table.name), quoted(name), _type(column), _stored(column, text)
    )


def _stored(column: Column, text: sql.Composable) -> sql.Composed:
    return sql.SQL("(\n{}\n)::{}").format(text, _type(column))


def _type(column: Column) -> sql.SQL:
    return sql.SQL(column.type_text.replace("%", "%%"))


def _unlike(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
