"""Write a returned frame back in bulk: COPY into a temporary table, then one UPDATE."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import ClientCursor

from rowsweep.errors import InvalidFrame
from rowsweep.sweeps.batch.returned import as_returned_frame, check_columns, check_keys, invalid, to_csv
from rowsweep.sweeps.keyset.statements import STAGE

if TYPE_CHECKING:
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.batch.reading import CopyReader
    from rowsweep.sweeps.keyset.catalog import Column
    from rowsweep.sweeps.keyset.statements import Statements

_CONTEXT = re.compile(r'COPY \S+, line (\d+)(?:, column (.+?))?(?:: "(.*)")?$', re.DOTALL)


def write_back(
    value: object,
    *,
    held: BatchConnection,
    statements: Statements,
    reader: CopyReader,
    values: Mapping[str, Any],
    started: bool,
) -> int:
    """Write what the handler returned to the page's rows, where a value really differs; answer how many changed.

    Raises InvalidFrame for whatever is not of this page, this table, or does not fit its column.
    """
    frame = as_returned_frame(value)
    if frame is None:
        return 0
    table = statements.table
    columns = check_columns(frame, table)
    if not frame.height:
        return 0
    typed = check_keys(frame, reader.keys(), table.key)
    names = [*table.key, *(column.name for column in columns)]
    _stage(held, statements, names)
    _copy(held.connection, statements, names, columns, to_csv(typed, names))
    statement = statements.write_back(columns, started=started)
    return int(held.connection.execute(statement, values).rowcount)


def _stage(held: BatchConnection, statements: Statements, names: Sequence[str]) -> None:
    """Have the session's staging table with just these columns; it empties itself at each commit."""
    connection = held.connection
    if held.stage == tuple(names):
        return
    connection.execute(f"drop table if exists pg_temp.{STAGE}")
    connection.execute(statements.create_stage(names), {})
    held.stage = tuple(names)


def _copy(
    connection: Any, statements: Statements, names: Sequence[str], columns: Sequence[Column], data: bytes
) -> None:
    query = ClientCursor(connection).mogrify(statements.copy_stage(names), {})
    try:
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            copy.write(data)
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise _does_not_fit(error, data, names, columns) from error


def _does_not_fit(error: psycopg.Error, data: bytes, names: Sequence[str], columns: Sequence[Column]) -> InvalidFrame:
    """Say which value of which row the column does not take, from the position COPY reports."""
    message = error.diag.message_primary or str(error)
    found = _CONTEXT.search(error.diag.context or "")
    if found is None:
        return invalid(f"A returned value does not fit: {message}", fix="return values of the column's type")
    name = found[2] or "?"
    kind = next((column.type_text for column in columns if column.name == name), "its type")
    keys = len(names) - len(columns)
    row = data.split(b"\n")[int(found[1]) - 1].decode(errors="replace").split(",")[:keys]
    shown = ", ".join(f"{key}={text.strip(chr(34))}" for key, text in zip(names, row, strict=False))
    return invalid(
        f"The value {found[3]!r} returned for column {name!r} of the row {shown} does not fit {kind}: {message}",
        fix=f"cast {name!r} to values that {kind} takes",
        column=name,
        key=shown,
        expected=kind,
    )
