"""What an export's declaration says, screened, with the checksum by which a changed one is told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rowsweep.options import count
from rowsweep.sweeps.export.places.place import Where, check_where
from rowsweep.sweeps.refusals import refused
from rowsweep.sweeps.spec import TableSpec, code_of

if TYPE_CHECKING:
    from rowsweep.sweeps.export.formats.format import Format
    from rowsweep.sweeps.keyset.catalog import Table

_MOST_PART_ROWS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSpec(TableSpec):
    """What is exported, where to, and in which form; `batch_rows` is how many keys a part spans."""

    to: Where
    format: Format
    overwrite: bool = False
    as_text: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_where(self.to)
        if not isinstance(self.overwrite, bool):
            raise refused("overwrite", "True or False", self.overwrite, "overwrite=True")
        texts: object = self.as_text
        if isinstance(texts, str) or not isinstance(texts, Sequence) or not all(isinstance(one, str) for one in texts):
            raise refused("as_text", "a list of columns", self.as_text, 'as_text=["valid_until"]')
        count(self.batch_rows, option="part_rows", minimum=1, maximum=_MOST_PART_ROWS)
        TableSpec.__post_init__(self)

    def columns_of(self, table: Table) -> list[str]:
        """Answer the columns in their order: as declared, with the key before them where it is not among them."""
        declared = self.rows.columns
        if declared is None:
            return [column.name for column in table.columns]
        return [*(name for name in table.key if name not in declared), *dict.fromkeys(declared)]


def checksum(kind: str, spec: ExportSpec) -> str:
    """Answer the SHA-256 over what decides what is exported and where to."""
    rows = spec.rows
    parts: dict[str, Any] = {
        "kind": kind,
        "table": list(rows.parts),
        "key": None if rows.key_columns is None else list(rows.key_columns),
        "columns": None if rows.columns is None else list(rows.columns),
        "where": rows.where,
        "params": rows.params_form,
        "format": spec.format.as_json(),
        "as_text": list(spec.as_text),
        "to": code_of(spec.to) if callable(spec.to) else str(spec.to),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
