"""`export_rows()`: declare an export; its handle previews and launches it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rowsweep.jobs import registry
from rowsweep.jobs.origin import origin_of
from rowsweep.spelling import spelled
from rowsweep.sweeps.export.formats.format import Format, as_format
from rowsweep.sweeps.export.places.place import Where
from rowsweep.sweeps.export.spec import ExportSpec, checksum
from rowsweep.sweeps.handle import TableSweep, sweep_options
from rowsweep.sweeps.keyset.rows import Rows

if TYPE_CHECKING:
    from uuid import UUID

    import polars as pl

    from rowsweep.steps.context import RunCtx

In = TypeVar("In")

PART_ROWS: Final = 250_000
_SPEC_OPTIONS: Final = (
    "rate",
    "health",
    "environments",
    "requires",
    "lock_timeout",
    "statement_timeout",
    "source",
    "shards",
)
_OWN: Final = ("rows", "to", "format", "part_rows", "overwrite", "as_text", *_SPEC_OPTIONS)


class Export(TableSweep[In]):
    """A declared export: `preview()` what it would write, then `launch()` it."""

    spec: ExportSpec

    def preview(self, n: int = 10, value: In | None = None, *, allow_effects: bool = False) -> pl.DataFrame:  # noqa: ARG002 - as any sweep's
        """Answer the first n matching rows as they would be exported; writes no object, job or ledger row."""
        from rowsweep.sweeps.export.preview import preview

        return preview(self, n, value)

    def check_place(self, value: In | None, run_id: UUID, *, is_worked_here: bool) -> None:
        """Refuse a launch whose place holds another export, as far as that can be seen from here."""
        from rowsweep.sweeps.export.vacancy import refuse_taken

        refuse_taken(self, value, run_id, is_worked_here=is_worked_here)

    def describe(self) -> dict[str, Any]:
        """Answer the declaration as plain JSON."""
        spec = self.spec
        return {
            **super().describe(),
            "columns": None if spec.rows.columns is None else list(spec.rows.columns),
            "to": getattr(spec.to, "__qualname__", repr(spec.to)) if callable(spec.to) else str(spec.to),
            "format": spec.format.as_json(),
            "overwrite": spec.overwrite,
        }

    def _checksum(self) -> str:
        return checksum(self.kind, self.spec)

    def _run_pass(self, ctx: RunCtx, value: Any = None) -> dict[str, Any]:
        from rowsweep.sweeps.export.passes import ExportPass
        from rowsweep.sweeps.export.sharding import ExportShardPass
        from rowsweep.sweeps.shards.amount import is_sharded

        return (ExportShardPass if is_sharded(self, ctx) else ExportPass)(self, ctx, value).run()


@spelled
def export_rows(  # noqa: PLR0913 - what an export is declared by
    name: str,
    rows: Rows,
    to: Where,
    *,
    format: str | Format = "parquet",
    part_rows: int = PART_ROWS,
    overwrite: bool = False,
    as_text: Sequence[str] = (),
    **given: Any,
) -> Export[Any]:
    """Declare an export of a table's rows into `to`, one object a part, `part-00000.parquet` and on.

    `to` is a path, a URI that `pyarrow.fs` opens (`s3://bucket/orders`), or a function of the input that answers one;
    it is asked once by a run, and before by a launch in the process that works it, which looks whether the place is
    free. `format` is "parquet", "csv", "ndjson" or "arrow", or its options such as `rs.Parquet(compression="snappy")`.
    A part spans `part_rows` keys, fewer rows where `where` leaves some out, and
    sees one moment of the table. Columns and types are fixed from the catalog when the run starts; those in `as_text`
    are exported as their text. Nothing is read across tenants.

    Parts appear whole under their names. `_manifest.json` (rows, bytes and SHA-256 of each part) comes last but one,
    the empty `_SUCCESS` last: without it an export is not complete. A run that was cut off writes at most one part
    again, over the same keys. A place that holds another export is refused, DestinationTaken, unless `overwrite=True`,
    which first removes what that one wrote.

    `shards` splits the key range into so many jobs (at most 64, or "auto") that a fleet works side by side, as a
    backfill's: the second writes `s02-part-00000.parquet` and on, one that is done takes over half of what another has
    left, and the manifest lists all parts in key order. `rate`, `health`, `environments`, `requires`, `source` and the
    timeouts are those of a backfill too, all other options a job's; `launch(batch_rows=)` is that run's `part_rows`.

    Raises InvalidDeclaration, InvalidOption, DuplicateJob.
    """
    registry.check_name(name, kind="export")
    own = {option: given.pop(option) for option in _SPEC_OPTIONS if option in given}
    given.setdefault("tenant", "none")
    spec = ExportSpec(
        rows=rows, to=to, format=as_format(format), overwrite=overwrite, as_text=as_text, batch_rows=part_rows,
        adapt=False, **own,
    )  # fmt: skip
    function = to if callable(to) else None
    handle: Export[Any] = Export(name, spec, sweep_options(name, kind="export", own=_OWN, **given), origin_of(function))
    registry.register(handle)
    return handle
