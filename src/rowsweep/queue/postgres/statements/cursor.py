"""The stores' own cursor: the same answers on every connection, whatever its owner set up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import ExecStatus, Format
from psycopg.rows import TupleRow, tuple_row
from psycopg.types.datetime import TimestamptzBinaryLoader
from psycopg.types.numeric import Float8BinaryLoader, Int2BinaryLoader, Int4BinaryLoader, Int8BinaryLoader
from psycopg.types.string import TextBinaryLoader
from psycopg.types.uuid import UUIDBinaryLoader

from rowsweep.queue.postgres.statements.arrays import register_arrays
from rowsweep.queue.postgres.statements.message import message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import LiteralString

    from psycopg.abc import Buffer

    from rowsweep.queue.stores.ledger import Behind


_decode: Final = json.JSONDecoder().raw_decode


class _JsonLoader(Loader):
    """Decode jsonb by the standard library, also where the application put another decoder in place."""

    format = Format.BINARY

    def load(self, data: Buffer) -> Any:
        # The first byte is jsonb's version; there is no white space around it that the decoder would have to look for.
        return _decode(str(memoryview(data)[1:], "utf-8"))[0]


def _adapters() -> AdaptersMap:
    made = AdaptersMap(psycopg.adapters)
    made.register_loader("jsonb", _JsonLoader)
    made.register_loader("timestamptz", TimestamptzBinaryLoader)
    made.register_loader("uuid", UUIDBinaryLoader)
    made.register_loader("text", TextBinaryLoader)
    made.register_loader("int2", Int2BinaryLoader)
    made.register_loader("int4", Int4BinaryLoader)
    made.register_loader("int8", Int8BinaryLoader)
    made.register_loader("float8", Float8BinaryLoader)
    register_arrays(made)
    return made


_ADAPTERS: Final = _adapters()


class StoreCursor(psycopg.Cursor[TupleRow]):
    """Answer tuples in binary form by the package's own loaders."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self.format = Format.BINARY

    @property
    def adapters(self) -> AdaptersMap:
        """The loaders of this package, not those of the connection."""
        return _ADAPTERS


def run(
    connection: psycopg.Connection[Any],
    text: LiteralString,
    values: Mapping[str, object],
    *,
    prepare: bool | None = None,
) -> list[TupleRow]:
    """Send one statement and answer its rows, none where it answers nothing."""
    with StoreCursor(connection) as cursor:
        cursor.execute(text, values, prepare=prepare)
        if cursor.pgresult is None:  # its owner opened a pipeline, which a block of its own brings up to date
            with connection.pipeline():
                pass
        result = cursor.pgresult
        # Asked of libpq: a cursor's description is made anew, column by column, whenever it is read.
        return cursor.fetchall() if result is not None and result.nfields else []


def run_each(
    connection: psycopg.Connection[Any], text: LiteralString, values: Iterable[Mapping[str, object]]
) -> list[list[TupleRow]]:
    """Send one statement for each of the values, none waiting for the answer to the one before; answer their rows."""
    cursors = []
    with connection.pipeline():
        for each in values:
            cursors.append(StoreCursor(connection))
            cursors[-1].execute(text, each)
    return [cursor.fetchall() for cursor in cursors]


def copy_each(connection: psycopg.Connection[Any], text: LiteralString, blocks: Iterable[bytes]) -> None:
    """Stream each block in by a COPY of its own; the next block is made while the server takes the one before."""
    waiting = iter(blocks)
    block = next(waiting, None)
    while block is not None:
        with connection.cursor() as cursor, cursor.copy(text) as copy:
            copy.write(block)
            block = next(waiting, None)


def run_before(
    connection: psycopg.Connection[Any], text: LiteralString, values: Mapping[str, object], behind: Behind
) -> list[TupleRow]:
    """Send one statement with more behind it in one message; answer its rows, also where something behind it fails."""
    cursor = StoreCursor(connection)
    try:
        with message(connection):
            cursor.execute(text, values, prepare=True)
            behind.send()
    except psycopg.Error as error:
        if cursor.pgresult is None or cursor.pgresult.status != ExecStatus.TUPLES_OK:
            raise
        behind.failed(error)
    return cursor.fetchall()
