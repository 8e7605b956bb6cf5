"""`Rows`: which rows a sweep walks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rowsweep.errors import InvalidDeclaration
from rowsweep.jobs.values.json_form import NoJsonForm, json_form
from rowsweep.spelling import spelled

Until = Literal["end", "start"]


@spelled
@dataclass(frozen=True, slots=True)
class Rows:
    """Describe what is swept: a table, in the order of its key.

    `table` is `"orders"`, `"sales.orders"` or a tuple of its parts (for names with a dot), each part spelled exactly
    as the catalog has it; identifiers are always quoted. `columns` are those a handler sees (the key is always among
    them; None: all). `where` is your own SQL, one expression, applied inside each page's key range; `params` are bound
    in it by name (`%(cutoff)s`); without `params` a `%` is an ordinary character. `key` names the columns of a unique
    not-null index (None: the primary key). `until="end"` also sweeps rows that appear ahead of the cursor while it
    runs; `"start"` stops at the highest key there was at setup.
    """

    table: str | tuple[str, ...]
    columns: Sequence[str] | None = None
    where: str | None = None
    params: Mapping[str, Any] | None = None
    key: str | Sequence[str] | None = None
    until: Until = "end"

    def __post_init__(self) -> None:
        self._check_table()
        for field in ("columns", "key"):
            self._check_names(field)
        where: object = self.where
        if where is not None and not (isinstance(where, str) and where.strip()):
            raise _refused("where", "SQL text that stands as one expression", self.where, 'where="total is null"')
        if self.params is not None:
            self._check_params()
        if self.until not in ("end", "start"):
            raise _refused("until", '"end" or "start"', self.until, 'until="end"')

    @property
    def parts(self) -> tuple[str, ...]:
        """The table's name in parts: `(table,)` or `(schema, table)`."""
        return tuple(self.table.split(".")) if isinstance(self.table, str) else tuple(self.table)

    @property
    def key_columns(self) -> tuple[str, ...] | None:
        """The declared key's columns, None for the primary key."""
        if self.key is None:
            return None
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)

    @property
    def params_form(self) -> dict[str, Any] | None:
        """The parameters in their JSON form: what is stored at setup and bound by every batch."""
        return None if self.params is None else dict(json_form(dict(self.params)))

    def _check_table(self) -> None:
        given: object = self.table
        parts = given.split(".") if isinstance(given, str) else given
        if not isinstance(parts, (list, tuple)) or not 1 <= len(parts) <= 2 or not all(_is_name(p) for p in parts):
            raise _refused("table", '"orders", "sales.orders" or ("sales", "orders")', given, 'table="sales.orders"')

    def _check_names(self, field: str) -> None:
        given = getattr(self, field)
        if given is None or (field == "key" and _is_name(given)):
            return
        names = list(given) if isinstance(given, (list, tuple)) else []
        if not names or not all(_is_name(name) for name in names):
            raise _refused(field, "a list of column names", given, f'{field}=["id", "price"]')
        if len(set(names)) != len(names):
            raise _refused(field, "each column once", given, f"{field}={list(dict.fromkeys(names))!r}")

    def _check_params(self) -> None:
        params: object = self.params
        if not (isinstance(params, Mapping) and all(_is_name(name) and not name.startswith("rs_") for name in params)):
            raise _refused(
                "params", "a mapping of names (not beginning rs_) to values", params, 'params={"cutoff": "2025-01-01"}'
            )
        try:
            json_form(dict(params))
        except NoJsonForm as error:
            raise _refused(
                "params", f"values with a JSON form ({error})", self.params, "pass text, or a number"
            ) from None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != "" and "\x00" not in value


def _refused(field: str, expected: str, got: object, fix: str) -> InvalidDeclaration:
    return InvalidDeclaration(f"Rows({field}=…) must be {expected}; got {got!r:.120}.", fix=fix, meta={"field": field})
