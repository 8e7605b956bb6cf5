"""Read one page from the database, in the form the handler asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from psycopg import DataError
from psycopg.rows import dict_row, tuple_row

from rowsweep.errors import InvalidFrame
from rowsweep.sweeps.batch.forms.dicts import IntervalTextLoader, has_keys
from rowsweep.sweeps.batch.forms.frames import BEYOND_PYTHON, as_frame, column_form, csv_line, read_csv
from rowsweep.sweeps.keyset.catalog import Column, quoted

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from psycopg import sql

    from rowsweep.sweeps.keyset.statements import Statements

# Of any other type psycopg's binary form is raw bytes, where its text form is text.
_LOADED: Final = {
    "bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "text", "varchar", "bpchar", "name", "bytea",
    "uuid", "date", "time", "timetz", "timestamp", "timestamptz", "json", "jsonb", "inet", "cidr",
}  # fmt: skip

Form = Literal["frame", "dicts"]


@dataclass(kw_only=True)
class PageRows:
    """Read the rows between the cursor and the page's last key, each form once.

    Frames come as one CSV text through Arrow's reader (a row costs the client nothing then), dicts through psycopg's
    loaders, binary where it has them all. `first_asked` is the form that was asked for first.
    """

    connection: Callable[[], Any]
    statements: Statements
    columns: Sequence[Column]
    values: Mapping[str, Any]
    started: bool
    lock: bool
    matching: bool = True
    within: Callable[[], AbstractContextManager[object]] = nullcontext
    first_asked: Form | None = field(default=None, init=False)
    _dicts: list[dict[str, Any]] | None = field(default=None, init=False)
    _table: pa.Table | None = field(default=None, init=False)
    _frame: pl.DataFrame | None = field(default=None, init=False)

    def read(self, form: Form) -> int:
        """Read the rows before anybody asks, and answer how many they are."""
        return len(self._read_dicts()) if form == "dicts" else int(self._read_table().num_rows)

    def wire(self) -> pa.Table:
        """Answer the rows as they travel: values without an Arrow form of their own as text."""
        return self._read_table()

    def dicts(self) -> list[dict[str, Any]]:
        """Answer the rows as dicts of psycopg's own values."""
        self.first_asked = self.first_asked or "dicts"
        return self._read_dicts()

    def _read_dicts(self) -> list[dict[str, Any]]:
        if self._dicts is None:
            query = self._select(quoted(column.name) for column in self.columns)
            binary = all(_has_loader(column) for column in self.columns)
            with self.within(), self.connection().cursor(row_factory=dict_row, binary=binary) as cursor:
                cursor.adapters.register_loader("interval", IntervalTextLoader)
                found = cursor.execute(query, self.values)
                try:
                    self._dicts = found.fetchall()
                except DataError as error:
                    raise self._beyond_python() from error
        return self._dicts

    def _beyond_python(self) -> InvalidFrame:
        """Make the refusal of a page with a value that psycopg has no Python value for; its error shows that value."""
        instants = [column.name for column in self.columns if column.category == "D"]
        return InvalidFrame(
            f"A value of this page in {', '.join(map(repr, instants)) or 'some column'} is none that Python has: its "
            "dates and times are of the years 1 to 9999, and never infinite.",
            fix=BEYOND_PYTHON,
            meta={"columns": instants},
        )

    def table(self) -> pa.Table:
        """Answer the rows in their Arrow form."""
        self.first_asked = self.first_asked or "frame"
        if any(form.finish is not None for form in self._forms()):
            return self.frame().to_arrow()
        return self._read_table()

    def frame(self) -> pl.DataFrame:
        """Answer the rows as a polars frame."""
        self.first_asked = self.first_asked or "frame"
        if self._frame is None:
            self._frame = as_frame(self._read_table(), self._forms(), self.statements.table.key)
        return self._frame

    @property
    def height(self) -> int | None:
        """How many rows were read; None where none were asked for."""
        if self._dicts is not None:
            return len(self._dicts)
        return None if self._table is None else int(self._table.num_rows)

    def keys(self) -> pl.DataFrame | None:
        """Answer the keys of the page that was read as a frame; None where it was not."""
        key = self.statements.table.key
        if self._frame is not None or self._table is None:
            return None if self._frame is None else self._frame.select(key)
        return as_frame(self._table.select(list(key)), [form for form in self._forms() if form.name in key], key)

    def has_keys(self, rows: object) -> bool:
        """Say whether these are dicts with keys of the page that was read as dicts, each once.

        A key with an interval is left to the database: Python's has no months.
        """
        known, table = self._dicts, self.statements.table
        exact = all(column.type_name != "interval" for column in table.key_types)
        return exact and known is not None and isinstance(rows, list) and has_keys(known, rows, table.key)

    def _read_table(self) -> pa.Table:
        if self._table is None:
            forms = self._forms()
            query = self.statements.read_csv(
                csv_line(forms), started=self.started, lock=self.lock, matching=self.matching
            )
            self._table = read_csv(self._read_bytes(query) or b"", forms, self.statements.table.key)
        return self._table

    def _read_bytes(self, query: sql.Composed) -> bytes | None:
        with self.within(), self.connection().cursor(row_factory=tuple_row, binary=True) as cursor:
            (data,) = cursor.execute(query, self.values).fetchone()
        return None if data is None else bytes(data)

    def _forms(self) -> list[Any]:
        return [column_form(column) for column in self.columns]

    def _select(self, columns: Iterable[sql.Composable]) -> Any:
        return self.statements.read(columns, started=self.started, lock=self.lock, matching=self.matching)


def _has_loader(column: Column) -> bool:
    if column.category == "A":
        return column.element_schema == "pg_catalog" and column.element_name in _LOADED
    return column.type_schema == "pg_catalog" and column.type_name in _LOADED
