"""Write a returned frame back in bulk: COPY into a temporary table, then one UPDATE."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import psycopg
from psycopg import ClientCursor

from rowsweep.errors import InvalidFrame, InvalidSweepSql
from rowsweep.sweeps.batch.forms.returned import (
    as_returned_frame,
    check_columns,
    check_keys,
    foreign_key,
    invalid,
    key_moved,
    refuse_null_keys,
    repeated_key,
    shown_key,
    to_csv,
)
from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.keyset.statements import STAGE

if TYPE_CHECKING:
    import polars as pl

    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.keyset.catalog import Column, Table
    from rowsweep.sweeps.keyset.statements import Statements

# A first line of its own tells COPY how lines end, before a quoted value can: it counts lines by that.
_HEADER: Final = b"-\n"
_CONTEXT = re.compile(r"COPY \S+, line (\d+)(?:, column (.+))?", re.DOTALL)


class PageKeys(Protocol):
    """Know the keys of a page, so that those returned need not be looked up."""

    def keys(self) -> pl.DataFrame | None:
        """Answer them as a frame, None where it is not known."""

    def has_keys(self, rows: object) -> bool:
        """Say whether these are dicts with keys of the page, each once."""


def write_back(
    value: object,
    *,
    held: BatchConnection,
    statements: Statements,
    reader: PageKeys,
    values: Mapping[str, Any],
    started: bool,
) -> int:
    """Write what the handler returned to the page's rows, where a value really differs; answer how many changed.

    Raises InvalidFrame for whatever is not of this page, this table, or does not fit its column.
    """
    table = statements.table
    frame = as_returned_frame(value, table)
    if frame is None:
        return 0
    columns = check_columns(frame, table)
    if not frame.height:
        return 0
    refuse_null_keys(frame, table.key)
    page = reader.keys()
    if page is not None:
        frame = check_keys(frame, page, table.key)
    names = [*table.key, *(column.name for column in columns)]
    _stage(held, statements, names)
    _copy(held.connection, statements, names, to_csv(frame, names))
    if page is None and not reader.has_keys(value):
        _check_staged(held.connection, statements, values, started=started)
    _refuse_moves(held.connection, statements, columns, values, started=started)
    statement = statements.write_back(columns, started=started)
    return int(held.connection.execute(statement, values).rowcount)


def _stage(held: BatchConnection, statements: Statements, names: Sequence[str]) -> None:
    """Have a staging table with just these columns; of a session that is others' too nothing stays behind the batch."""
    connection = held.connection
    if held.stage == tuple(names):
        return
    try:
        connection.execute(f"drop table if exists pg_temp.{STAGE}")
        connection.execute(statements.create_stage(names, lasts=not held.is_shared), {})
    except psycopg.errors.InsufficientPrivilege as error:
        raise InvalidSweepSql(
            "A returned frame travels through a temporary table, which this role may not make: "
            f"{error.diag.message_primary}",
            fix="grant temporary on database … to …",
            meta={"sqlstate": error.sqlstate},
        ) from error
    held.stage = tuple(names)


def _copy(connection: Any, statements: Statements, names: Sequence[str], data: bytes) -> None:
    data = _HEADER + data
    query = ClientCursor(connection).mogrify(statements.copy_stage(names), {})
    try:
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            copy.write(data)
    except (psycopg.DataError, psycopg.errors.CheckViolation, psycopg.errors.NotNullViolation) as error:
        raise _does_not_fit(error, data, statements.table, names) from error


def _check_staged(connection: Any, statements: Statements, values: Mapping[str, Any], *, started: bool) -> None:
    """Refuse keys that are repeated or not of this page, compared by the database as their own type."""
    row = run(connection, statements.odd_staged(started=started), values).fetchone()
    if row is not None:
        refusal = repeated_key if row[0] else foreign_key
        raise refusal(statements.table.key, row[1:])


def _refuse_moves(
    connection: Any, statements: Statements, columns: Sequence[Column], values: Mapping[str, Any], *, started: bool
) -> None:
    """Refuse another value in a column that the key is computed from; one that comes back as it was is none."""
    table = statements.table
    moving = [column for column in columns if table.moved_by(column.name) is not None]
    for column in moving:
        row = run(connection, statements.moved([column], started=started), values).fetchone()
        if row is not None:
            raise key_moved(table, column, row)


def _does_not_fit(error: psycopg.Error, data: bytes, table: Table, names: Sequence[str]) -> InvalidFrame:
    """Say which value of which row the column does not take, from the position COPY reports."""
    message = error.diag.message_primary or str(error)
    found = _CONTEXT.search(error.diag.context or "")
    record = None if found is None else _record_at(data, int(found[1]))
    if found is None or record is None:
        return invalid(f"A returned value does not fit: {message}", fix="return values of the column's type")
    name = _column_in(found[2], names)
    if name is None:
        record = next((row for row in _records(data) if any("\x00" in text for text in row)), record)
        name = next((name for name, text in zip(names, record, strict=False) if "\x00" in text), names[-1])
    kind = table.column(name).type_text
    shown = shown_key(table.key, record)
    value = record[names.index(name)]
    return invalid(
        f"The value {value!r:.200} returned for column {name!r} of the row {shown} does not fit {kind}: {message}",
        fix=f"cast {name!r} to values that {kind} takes",
        column=name,
        key=shown,
        expected=kind,
    )


def _column_in(context: str | None, names: Sequence[str]) -> str | None:
    """Find the column that the rest of COPY's context begins with; a name may hold anything, a colon too."""
    matching = [name for name in names if context is not None and context.startswith((f"{name}:", name))]
    return max(matching, key=len, default=None)


def _record_at(data: bytes, line: int) -> list[str] | None:
    """Answer the record that ends on this line: COPY counts the lines inside quoted values too."""
    records = _records(data)
    return next((record for record in records if records.line_num >= line), None)


def _records(data: bytes) -> Any:
    return csv.reader(f"{part}\n" for part in data.decode(errors="replace").split("\n"))
