"""Read one page from the database, in the form the handler asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg import ClientCursor
from psycopg.rows import dict_row

from rowsweep.sweeps.batch.frames import as_frame, column_form, read_csv
from rowsweep.sweeps.keyset.catalog import Column, quoted

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from psycopg import sql

    from rowsweep.sweeps.keyset.statements import Statements


@dataclass(kw_only=True)
class CopyReader:
    """Read the rows between the cursor and the page's last key, each form once.

    Frames come through COPY and Arrow's CSV reader, dicts through psycopg's binary loaders.
    """

    connection: Callable[[], Any]
    statements: Statements
    columns: Sequence[Column]
    values: Mapping[str, Any]
    started: bool
    lock: bool
    matching: bool = True
    within: Callable[[], AbstractContextManager[object]] = nullcontext
    _dicts: list[dict[str, Any]] | None = field(default=None, init=False)
    _table: pa.Table | None = field(default=None, init=False)
    _frame: pl.DataFrame | None = field(default=None, init=False)

    def dicts(self) -> list[dict[str, Any]]:
        """Answer the rows as dicts of psycopg's own values."""
        if self._dicts is None:
            query = self._select(quoted(column.name) for column in self.columns)
            with self.within(), self.connection().cursor(row_factory=dict_row, binary=True) as cursor:
                self._dicts = cursor.execute(query, self.values).fetchall()
        return self._dicts

    def table(self) -> pa.Table:
        """Answer the rows in their Arrow form."""
        if any(form.finish is not None for form in self._forms()):
            return self.frame().to_arrow()
        return self._read_table()

    def frame(self) -> pl.DataFrame:
        """Answer the rows as a polars frame."""
        if self._frame is None:
            self._frame = as_frame(self._read_table(), self._forms())
        return self._frame

    def keys(self) -> pl.DataFrame:
        """Answer the page's keys in the types a frame has them."""
        key = self.statements.table.key
        if self._frame is not None:
            return self._frame.select(key)
        reader = CopyReader(
            connection=self.connection,
            statements=self.statements,
            columns=self.statements.table.key_types,
            values=self.values,
            started=self.started,
            lock=False,
            within=self.within,
        )
        return reader.frame()

    def _read_table(self) -> pa.Table:
        if self._table is None:
            forms = self._forms()
            with self.within():
                data = self._copy(self._select(form.select for form in forms))
            self._table = read_csv(data, forms, self.statements.table.key)
        return self._table

    def _copy(self, select: Any) -> bytes:
        connection = self.connection()
        query = ClientCursor(connection).mogrify(select, self.values)
        with connection.cursor() as cursor, cursor.copy(f"copy ({query}) to stdout (format csv)") as copy:
            return b"".join(copy)

    def _forms(self) -> list[Any]:
        return [column_form(column) for column in self.columns]

    def _select(self, columns: Iterable[sql.Composable]) -> Any:
        return self.statements.read(columns, started=self.started, lock=self.lock, matching=self.matching)
