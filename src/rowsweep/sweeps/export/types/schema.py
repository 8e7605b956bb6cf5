"""The schema of an export: fixed from the catalog at setup, stored, and compared with the table at every part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg import Connection, sql
from psycopg.errors import InsufficientPrivilege, UndefinedTable

from rowsweep.errors import InvalidDeclaration, InvariantBroken, UnknownSource
from rowsweep.sweeps.export.types.catalog import CatalogType, column_types
from rowsweep.sweeps.export.types.mapping import arrow_type, expression, is_free_text
from rowsweep.sweeps.keyset.catalog import Table, quoted

if TYPE_CHECKING:
    import pyarrow as pa

FREE_TEXT: Final = "free_text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of an export; `as_text` says that its text is wanted whatever its type."""

    name: str
    type: CatalogType
    as_text: bool = False

    @property
    def arrow(self) -> pa.DataType:
        """The type it has in every part."""
        import pyarrow as pa

        return pa.string() if self.as_text else arrow_type(self.type)

    @property
    def metadata(self) -> dict[str, str]:
        """What the Arrow schema says of it beside its type: its Postgres type, and whether people write into it."""
        free = {FREE_TEXT: "yes"} if is_free_text(self.type) else {}
        return {"postgres_type": self.type.text, **free}

    @property
    def expression(self) -> sql.Composable:
        """The SQL whose own text travels."""
        return quoted(self.name) if self.as_text else expression(self.name, self.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSchema:
    """The columns of an export in their order, the key that names a row, and the table they are of.

    `is_whole` says that these are all the table's columns, so that one added later would be missed.
    """

    schema: str
    table: str
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    is_whole: bool

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of every part."""
        import pyarrow as pa

        return pa.schema([pa.field(field.name, field.arrow, metadata=field.metadata) for field in self.fields])

    @property
    def expressions(self) -> list[sql.Composable]:
        """The SQL of each column, in order."""
        return [field.expression for field in self.fields]

    def as_manifest(self) -> list[dict[str, str]]:
        """Answer the columns as the manifest lists them."""
        return [{"name": field.name, "type": field.type.text, "arrow": str(field.arrow)} for field in self.fields]

    def as_json(self) -> dict[str, Any]:
        """Answer the schema as it is stored."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> ExportSchema:
        """Restore a stored schema."""
        fields = tuple(Field(**{**field, "type": CatalogType(**field["type"])}) for field in stored["fields"])
        return cls(**{**stored, "fields": fields, "key": tuple(stored["key"])})

    def check(self, connection: Connection[Any]) -> None:
        """Compare the columns with the table's, and hold them as they are until the transaction ends.

        The lock comes before the transaction's snapshot, so this must be its first statement. Raises InvariantBroken
        naming each column that was added, dropped or retyped, UnknownSource without the table or SELECT on it.
        """
        lock = sql.SQL("lock table only {} in access share mode").format(sql.Identifier(self.schema, self.table))
        try:
            connection.execute(lock)
        except UndefinedTable as error:
            raise _gone(self) from error
        except InsufficientPrivilege as error:
            raise _forbidden(self) from error
        changes = self._changes(column_types(connection, self.schema, self.table))
        if changes:
            raise InvariantBroken(
                f"The columns of {self.schema}.{self.table} changed while its export was under way: "
                f"{'; '.join(changes)}.",
                fix="launch the export anew with overwrite=True: the parts so far have the former columns",
                meta={"table": f"{self.schema}.{self.table}", "changes": changes},
            )

    def _changes(self, now: dict[str, CatalogType]) -> list[str]:
        changes = []
        for field in self.fields:
            found = now.get(field.name)
            if found is None:
                changes.append(f"{field.name!r} was dropped or renamed")
            elif not found.is_same(field.type):
                changes.append(f"{field.name!r} was {field.type.text} and is {found.text} now")
        if self.is_whole:
            known = {field.name for field in self.fields}
            changes += [f"{name!r} was added" for name in now if name not in known]
        return changes


def describe(
    connection: Connection[Any], table: Table, columns: Sequence[str], *, as_text: Sequence[str] = ()
) -> ExportSchema:
    """Fix the schema of an export from the catalog: columns in the given order, those of `as_text` as their text.

    Raises UnknownSource for a column that is not there, InvalidDeclaration for one of `as_text` that is not exported.
    """
    types = column_types(connection, table.schema, table.name)
    for name in (*columns, *as_text):
        table.column(name)
    for name in as_text:
        if name not in columns:
            raise InvalidDeclaration(
                f"as_text names the column {name!r}, which is not exported (Rows(columns=…) does not name it).",
                fix=f"leave {name!r} out of as_text=, or add it to Rows(columns=…)",
                meta={"field": "as_text"},
            )
    fields = tuple(Field(name=name, type=types[name], as_text=name in as_text) for name in columns)
    is_whole = set(columns) == set(types)
    return ExportSchema(schema=table.schema, table=table.name, fields=fields, key=table.key, is_whole=is_whole)


def _gone(schema: ExportSchema) -> UnknownSource:
    return UnknownSource(
        f"The table {schema.schema}.{schema.table} is gone.",
        fix="name the table that is there now in Rows(…), and launch the export anew with overwrite=True",
        meta={"table": f"{schema.schema}.{schema.table}"},
    )


def _forbidden(schema: ExportSchema) -> UnknownSource:
    name = f'"{schema.schema}"."{schema.table}"'
    return UnknownSource(
        f"The role may not read the whole table {schema.schema}.{schema.table}: SELECT on columns locks no table.",
        fix=f"grant select on {name} to the role that exports",
        meta={"table": f"{schema.schema}.{schema.table}"},
    )
