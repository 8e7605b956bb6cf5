"""`read_export()`: an export as a polars LazyFrame, checked against its manifest."""

from __future__ import annotations

import base64
import glob
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rowsweep.errors import InvalidOption, PartChanged
from rowsweep.spelling import spelled
from rowsweep.sweeps.export.destination import MANIFEST, SUCCESS
from rowsweep.sweeps.export.manifest import Part
from rowsweep.sweeps.export.places.place import open_place, resolve
from rowsweep.sweeps.export.readback.restoring import readable, scan_texts

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from rowsweep.sweeps.export.places.place import Place


@spelled
def read_export(path: str | Path, *, verify: bool = False) -> pl.LazyFrame:
    """Answer a complete export as a polars LazyFrame over its parts, in key order.

    Every part's size is compared with the manifest, with `verify` also its SHA-256, which reads it whole. Columns have
    the types that were exported whatever the format; polars holds no decimal of more than 38 digits, which is its text.
    csv and ndjson of an object store are read into memory. Raises InvalidOption where there is no complete export,
    PartChanged for a part that is gone or another.
    """
    where = resolve(path, None)
    place = open_place(where)
    sizes = place.sizes()
    if MANIFEST not in sizes or SUCCESS not in sizes:
        raise InvalidOption(
            f"{place.shown} holds no complete export: {SUCCESS!r} is written last, behind {MANIFEST!r}.",
            fix="wait for its run to end (rowsweep sweeps ls --kind export), or name the folder it was exported to",
            meta={"path": place.shown},
        )
    document = json.loads(place.read(MANIFEST) or b"{}")
    parts = [Part.from_record(record) for record in document["parts"]]
    for part in parts:
        part.check(place, sizes)
        if verify:
            _verify(place, part)
    return _scan(place, where, document, [part.name for part in parts])


def _verify(place: Place, part: Part) -> None:
    found = hashlib.sha256(place.read(part.name) or b"").hexdigest()
    if found != part.sha256:
        raise PartChanged(
            f"{place.shown}/{part.name} has the SHA-256 {found}, the manifest says {part.sha256}.",
            fix="restore that part, or launch the export anew with overwrite=True",
            meta={"part": part.name},
        )


def _scan(place: Place, where: str, document: Mapping[str, Any], names: Sequence[str]) -> pl.LazyFrame:
    import polars as pl
    import pyarrow as pa

    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["arrow_schema"])))
    if not names:
        return cast("pl.DataFrame", pl.from_arrow(readable(schema).empty_table())).lazy()
    form = str(document["format"]["name"])
    # Polars takes a path for a pattern: unescaped, one with a bracket would read what another folder holds.
    files = [glob.escape(f"{where}/{name}") for name in names]
    if form in ("csv", "ndjson"):
        sources: Any = files
        if not place.renames:
            sources = [io.BytesIO(place.read(name) or b"") for name in names]
        return scan_texts(form, sources, schema)
    if place.renames and readable(schema) == schema:
        return pl.scan_parquet(files) if form == "parquet" else pl.scan_ipc(files)
    return pl.scan_pyarrow_dataset(_dataset(where, form, readable(schema), names))


def _dataset(where: str, form: str, schema: pa.Schema, names: Sequence[str]) -> Any:
    from pyarrow import dataset, fs

    system, base = fs.FileSystem.from_uri(where if "://" in where else Path(where).as_uri())
    files = [f"{base.rstrip('/')}/{name}" for name in names]
    return dataset.dataset(files, schema=schema, filesystem=system, format=form)
