"""Describe, read and write a table as an export's part does, without a pass around it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from rowsweep.sweeps.batch.connection import transaction_settings
from rowsweep.sweeps.export.formats.format import Format
from rowsweep.sweeps.export.types.decode import decode
from rowsweep.sweeps.export.types.schema import ExportSchema, describe
from rowsweep.sweeps.keyset.catalog import Table, find_table
from rowsweep.sweeps.keyset.rows import Rows

SETTINGS = transaction_settings(
    lock_timeout_ms=1000, statement_timeout_ms=15_000, idle_timeout_ms=30_000, tenant=None, cross_tenant=False
)


@contextmanager
def transaction(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Open a transaction with the settings of a part's."""
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read")
        for name, value in SETTINGS.items():
            connection.execute(sql.SQL("set local {} = {}").format(sql.SQL(name), sql.Literal(value)))
        yield


def described(connection: psycopg.Connection[Any], table: str, *, as_text: Sequence[str] = ()) -> ExportSchema:
    """Describe every column of a table, as the setup step stores it."""
    with transaction(connection):
        found: Table = find_table(connection, Rows(table))
        made = describe(connection, found, [column.name for column in found.columns], as_text=as_text)
    restored = ExportSchema.from_json(json.loads(json.dumps(made.as_json())))
    assert restored == made
    return restored


def read(connection: psycopg.Connection[Any], schema: ExportSchema) -> Any:
    """Read a whole table in key order as one batch."""
    with transaction(connection):
        schema.check(connection)
        query = sql.SQL(
            "select convert_to(string_agg(rs_line, chr(10)) || chr(10), 'UTF8') from"
            " (select row(null, {}, null)::text as rs_line from {} order by {}) rs_lines"
        ).format(
            sql.SQL(", ").join(schema.expressions),
            sql.Identifier(schema.schema, schema.table),
            sql.SQL(", ").join(sql.Identifier(name) for name in schema.key),
        )
        ((data,),) = connection.execute(query).fetchall()
    return decode(data or b"", schema)


def export(connection: psycopg.Connection[Any], table: str, *, as_text: Sequence[str] = ()) -> Any:
    """Describe and read a whole table as one batch."""
    return read(connection, described(connection, table, as_text=as_text))


class Pipe(io.RawIOBase):
    """A file that only takes bytes, forward."""

    def __init__(self) -> None:
        self.written = bytearray()

    def writable(self) -> bool:
        """Take bytes."""
        return True

    def write(self, data: Any) -> int:
        """Keep them."""
        self.written += data
        return len(data)


def written(form: Format, batch: Any) -> bytes:
    """Write one batch in a format, and answer the file."""
    pipe = Pipe()
    assert form.write(iter([batch]), batch.schema, pipe) == batch.num_rows  # type: ignore[arg-type]
    assert not pipe.closed
    return bytes(pipe.written)
