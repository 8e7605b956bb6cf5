"""Statements of the queue's own connections: prepared at their first use, sent by little more than libpq."""

from __future__ import annotations

import re
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format

from rowsweep.queue.postgres.statements.cursor import StoreCursor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import LiteralString

    from psycopg.abc import Buffer
    from psycopg.pq.abc import PGresult
    from psycopg.rows import TupleRow

    from rowsweep.queue.postgres.connections import SweepConnection

_UNKNOWN_STATEMENT: Final = b"26000"
_VALUE: Final = re.compile(r"%(?:%|\((\w+)\)s)")


class _Numbered(NamedTuple):
    """A statement as the server takes it, and the names of its values in the order of their numbers."""

    query: bytes
    names: tuple[str, ...]


def run_prepared(
    connection: SweepConnection, text: LiteralString, values: Mapping[str, object], *, interruptible: bool = False
) -> list[TupleRow]:
    """Send one statement, which commits by itself, and answer its rows.

    psycopg's own way waits for each part of an answer by itself, and a thread that waits needs the interpreter's lock
    again for each: beside busy threads that takes up to 5 ms a time. Only `interruptible` is it waited for so: a
    KeyboardInterrupt then cancels the statement.
    """
    numbered = _numbered(text)
    with connection.lock:
        transformer = connection.transformer = connection.transformer or Transformer(StoreCursor(connection))
        given = [values[name] for name in numbered.names]
        parameters = cast("Sequence[Buffer]", transformer.dump_sequence(given, [PyFormat.AUTO] * len(given)))
        types, formats = transformer.types or (), transformer.formats
        ask = partial(_ask, connection) if interruptible else connection.pgconn.exec_prepared
        result = ask(_prepared(connection, numbered, types), parameters, formats, Format.BINARY)
        if _is_unknown(result):  # nothing was run, and what commits by itself can be sent again
            del connection.prepared[numbered.query, types]
            result = ask(_prepared(connection, numbered, types), parameters, formats, Format.BINARY)
        _check(connection, result)
        transformer.set_pgresult(result)
        rows = transformer.load_rows(0, result.ntuples, tuple)
        transformer.set_pgresult(None)
    return rows


def _ask(connection: SweepConnection, *order: Any) -> PGresult:
    """Send a prepared statement and wait for its answer in psycopg's way, without the rest of it."""
    connection.pgconn.send_query_prepared(*order)
    results: list[PGresult] = connection.wait(execute(connection.pgconn))
    return results[0]


@cache
def _numbered(text: str) -> _Numbered:
    numbers: dict[str, int] = {}

    def put(found: re.Match[str]) -> str:
        return f"${numbers.setdefault(found[1], len(numbers) + 1)}" if found[1] else "%"

    query = _VALUE.sub(put, text)
    return _Numbered(query.encode(), tuple(numbers))


def _prepared(connection: SweepConnection, numbered: _Numbered, types: tuple[int, ...]) -> bytes:
    """Answer the name the connection knows a statement by; the types of its values belong to it."""
    key = (numbered.query, types)
    name = connection.prepared.get(key)
    if name is None:
        name = f"rowsweep_{next(connection.numbers)}".encode()
        _check(connection, connection.pgconn.prepare(name, numbered.query, types))
        connection.prepared[key] = name
    return name


def _is_unknown(result: PGresult) -> bool:
    """Say whether the server has let go of the statement: behind a rollback psycopg lets it forget all there are."""
    return result.error_field(DiagnosticField.SQLSTATE) == _UNKNOWN_STATEMENT


def _check(connection: psycopg.Connection[Any], result: PGresult) -> None:
    if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        return
    if connection.pgconn.status == ConnStatus.BAD:
        raise psycopg.OperationalError(connection.pgconn.get_error_message())
    raise error_from_result(result, connection.info.encoding)
