"""The manifest: what an export wrote, part by part, and how to read it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rowsweep.errors import PartChanged
from rowsweep.sweeps.export.destination import MANIFEST

if TYPE_CHECKING:
    from rowsweep.sweeps.export.places.place import Place
    from rowsweep.sweeps.export.setup import ExportSetup

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One object of an export; `checksum` is the store's own, where it gives one.

    `after` is the key that it begins behind, None from the beginning of the table; a manifest does not name it.
    """

    name: str
    rows: int
    bytes: int
    sha256: str
    checksum: str | None = None
    after: tuple[str, ...] | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Part:
        """Restore a part from its step, or from a manifest."""
        return cls(
            name=record["name"],
            rows=record["rows"],
            bytes=record["bytes"],
            sha256=record["sha256"],
            checksum=record.get("checksum"),
            after=None if record.get("after") is None else tuple(record["after"]),
        )

    def check(self, place: Place, sizes: Mapping[str, int]) -> None:
        """Compare the object with its record, by the store's checksum where it gives one, else by size."""
        found = sizes.get(self.name)
        now = place.checksum(self.name) if found is not None and self.checksum is not None else self.checksum
        if found == self.bytes and now == self.checksum:
            return
        what = "is gone" if found is None else f"has {found:,} bytes and not {self.bytes:,}"
        raise PartChanged(
            f"{place.shown}/{self.name} {what if found != self.bytes else 'holds other bytes'} since it was written.",
            fix="let nobody else write into this place, then launch the export anew with overwrite=True",
            meta={"part": self.name, "bytes": found, "expected": self.bytes},
        )


def manifest_of(name: str, run_id: UUID, setup: ExportSetup, parts: Sequence[Part], *, until: str) -> dict[str, Any]:
    """Answer the manifest as JSON."""
    rows = setup.rows
    return {
        "version": _VERSION,
        "name": name,
        "run_id": str(run_id),
        "format": dict(setup.format),
        "rows": sum(part.rows for part in parts),
        "bytes": sum(part.bytes for part in parts),
        "parts": [{"name": p.name, "rows": p.rows, "bytes": p.bytes, "sha256": p.sha256} for p in parts],
        "schema": setup.schema.as_manifest(),
        "arrow_schema": base64.b64encode(setup.schema.arrow.serialize().to_pybytes()).decode(),
        "query": {
            "table": rows.table.qualified,
            "key": list(rows.table.key),
            "where": rows.source.get("where"),
            "params": rows.params,
            "until": rows.source.get("until"),
        },
        "started_at": rows.at,
        "finished_at": until,
    }


def write_manifest(place: Place, document: Mapping[str, Any]) -> None:
    """Write the manifest whole."""
    place.write(MANIFEST, json.dumps(document, indent=1).encode())
