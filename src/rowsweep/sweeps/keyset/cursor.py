"""The sweep's own cursor: the same answers whatever a handler set up on the connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.rows import TupleRow, tuple_row


class PlainCursor(psycopg.Cursor[TupleRow]):
    """Answer tuples by psycopg's own loaders, not those registered on the connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        """psycopg's own."""
        return psycopg.adapters


def run(
    connection: psycopg.Connection[Any],
    statement: Any,
    values: Mapping[str, Any] | None = None,
    *,
    prepare: bool = False,
    binary: bool | None = None,
) -> PlainCursor:
    """Execute one statement; prepared, it can be no more than one."""
    cursor = PlainCursor(connection)
    cursor.execute(statement, values, prepare=prepare or None, binary=binary)
    return cursor
