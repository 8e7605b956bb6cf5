"""A list of dicts as a frame: each value in the form that its column takes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from psycopg.types.datetime import IntervalLoader

from rowsweep.errors import InvalidFrame
from rowsweep.sweeps.batch.forms.frames import is_text_form

if TYPE_CHECKING:
    import polars as pl

    from rowsweep.sweeps.keyset.catalog import Column, Table

_SCALARS: Final = (bool, int, float, str, bytes, Decimal, date, datetime, time)


class Interval(timedelta):
    """An interval as psycopg gives it, which knows its own text: a timedelta has no months."""

    text: str

    def __reduce__(self) -> tuple[Any, ...]:
        return timed, (self.days, self.seconds, self.microseconds, self.text)


def timed(days: int, seconds: int, microseconds: int, text: str) -> Interval:
    """Make an interval of its parts and its text."""
    made = Interval(days=days, seconds=seconds, microseconds=microseconds)
    made.text = text
    return made


class IntervalTextLoader(IntervalLoader):
    """Load an interval with its text, so that one returned as it was stays what it was."""

    def load(self, data: Any) -> Interval:
        """Answer the interval; what is computed from it is a plain timedelta."""
        plain = super().load(data)
        return timed(plain.days, plain.seconds, plain.microseconds, bytes(data).decode())


def dicts_frame(rows: Sequence[Mapping[str, Any]], table: Table) -> pl.DataFrame | None:
    """Make a frame of rows as psycopg gives them; None where there are none. All have the same columns."""
    import polars as pl

    if not rows:
        return None
    columns = {column.name: column for column in table.columns}
    names = list(rows[0])
    _check_even(rows, names, table.key)
    made = {}
    for name in names:
        try:
            made[name] = _series(name, [row.get(name) for row in rows], columns.get(name))
        except UnicodeEncodeError as error:
            raise _no_text(name, rows, table) from error
    return pl.DataFrame(made)


def _check_even(rows: Sequence[Mapping[str, Any]], names: Sequence[str], key: Sequence[str]) -> None:
    """Refuse dicts of different columns: a missing one would be written as null, and nobody meant that."""
    wanted = set(names)
    given: Iterable[object] = names
    odd = [name for name in given if not isinstance(name, str)]
    if odd:
        raise InvalidFrame(
            f"A returned dict has {odd[0]!r} for a column's name.",
            fix="name columns by text",
            meta={"column": repr(odd[0])},
        )
    for row in rows:
        if row.keys() != wanted:
            (column, *_) = sorted(map(str, row.keys() ^ wanted))
            shown = ", ".join(f"{name}={row.get(name)}" for name in key)
            raise InvalidFrame(
                f"The returned dicts differ in their columns: {column!r} is in some of them only (see {shown}).",
                fix="return every column in every dict, or leave rows out that do not change",
                meta={"column": column, "key": shown},
            )


def has_keys(page: Sequence[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]], key: Sequence[str]) -> bool:
    """Say whether these rows have keys of the page, each once, as equal Python values."""
    try:
        known = {tuple(row[name] for name in key) for row in page}
        wanted = [tuple(row[name] for name in key) for row in rows]
        return len(set(wanted)) == len(wanted) and known.issuperset(wanted)
    except (KeyError, TypeError):
        return False


def array_text(value: Sequence[Any]) -> str:
    """Write an array literal (https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO)."""
    parts = []
    for item in value:
        if item is None:
            parts.append("NULL")
        elif isinstance(item, (list, tuple)):
            parts.append(array_text(item))
        else:
            text = f"\\x{item.hex()}" if isinstance(item, bytes) else _text(item)
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            parts.append(f'"{escaped}"')
    return "{" + ",".join(parts) + "}"


def _no_text(name: str, rows: Sequence[Mapping[str, Any]], table: Table) -> InvalidFrame:
    """Say which value has a lone surrogate, which no encoding has."""
    row = next((row for row in rows if _has_surrogate(row.get(name))), rows[0])
    shown = ", ".join(f"{part}={row.get(part)!r}" for part in table.key)
    return InvalidFrame(
        f"The value {row.get(name)!a:.200} returned for column {name!r} of the row {shown} is no text that a "
        "database can hold.",
        fix=f"replace what cannot be encoded: {name}.encode(errors='replace').decode()",
        meta={"column": name, "key": shown},
    )


def _has_surrogate(value: object) -> bool:
    return isinstance(value, str) and value != value.encode(errors="replace").decode()


def _series(name: str, values: Iterable[Any], column: Column | None) -> pl.Series:
    import polars as pl

    plain = [None if value is None else _plain(value, column) for value in values]
    if column is not None and is_text_form(column):
        return pl.Series(name, [None if value is None else _text(value) for value in plain], pl.String)
    try:
        return pl.Series(name, plain, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series(name, [None if value is None else _text(value) for value in plain], pl.String)


def _plain(value: Any, column: Column | None) -> Any:
    """Answer a value that polars takes, or the text that Postgres reads as it."""
    if column is not None and column.type_name in ("json", "jsonb"):
        return value if isinstance(value, str) else json.dumps(value, default=str)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (list, tuple)):
        return array_text(value)
    if isinstance(value, Mapping):
        return json.dumps(value, default=str)
    if isinstance(value, time) and value.tzinfo is not None:
        return value.isoformat()
    return value if isinstance(value, _SCALARS) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, Interval):
        return value.text
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.isoformat() if isinstance(value, (date, datetime, time)) else str(value)
