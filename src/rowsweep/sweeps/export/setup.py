"""What the first attempt of an export fixes for all later ones: the pages' setup, the schema, and the place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rowsweep.sweeps.export.types.schema import ExportSchema, describe
from rowsweep.sweeps.refusals import refuse_changed
from rowsweep.sweeps.setup import Setup, set_up

if TYPE_CHECKING:
    from rowsweep.jobs.values.json_form import Json
    from rowsweep.sweeps.export.spec import ExportSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSetup:
    """The pages' setup, the columns and their types, the format's options, and where the parts go."""

    rows: Setup
    schema: ExportSchema
    format: Mapping[str, Any]
    where: str

    def as_json(self) -> Json:
        """Answer the step's stored value."""
        return {
            **self.rows.as_json(),
            "schema": self.schema.as_json(),
            "format": dict(self.format),
            "where": self.where,
        }

    @classmethod
    def from_json(cls, stored: Any) -> ExportSetup:
        """Restore what the step stored."""
        return cls(
            rows=Setup.from_json(stored),
            schema=ExportSchema.from_json(stored["schema"]),
            format=stored["format"],
            where=stored["where"],
        )

    def check(self, name: str, spec: ExportSpec) -> None:
        """Refuse to go on in another format or with other columns than the parts so far have."""
        refuse_changed(
            repr(name),
            began={"format": dict(self.format), "columns": [field.name for field in self.schema.fields]},
            now={"format": spec.format.as_json(), "columns": spec.columns_of(self.rows.table)},
            meta={"sweep": name},
        )


def set_up_export(connection: Any, spec: ExportSpec, where: str) -> ExportSetup:
    """Check the declaration against the database, and find what the run goes by, in an open transaction."""
    rows = set_up(connection, spec.rows)
    schema = describe(connection, rows.table, spec.columns_of(rows.table), as_text=spec.as_text)
    return ExportSetup(rows=rows, schema=schema, format=spec.format.as_json(), where=where)
