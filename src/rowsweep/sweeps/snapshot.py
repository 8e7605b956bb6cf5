"""A frozen picture of one sweep: its ledger row, and what can honestly be derived from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from rowsweep.sweeps.shards.shown import ShardSnapshot, shards_of

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import Backfill

TotalIs = Literal["exact", "estimate", "at least", "unknown"]

_RATE_WINDOW_SECONDS: Final = 300.0
_LEAST_ACTIVE_SECONDS: Final = 5.0
_MOST_PERCENT_BEFORE_DONE: Final = 99.0
_OPEN: Final = ("running", "paused")
_LEAST_QUIET_SECONDS: Final = 5.0
_QUIET_BATCHES: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Snapshot:
    """What is known of a sweep at one moment; plain and JSON-safe through `as_json()`.

    `words` says its state in words, also where that is derived ("stalled", "retrying at …"). `percent` is of 100 and
    None where the total is unknown; `rows_per_second` and `eta_seconds` are over active time only, None where there is
    nothing honest to say. `batch_rows` and `batch_ms` are means of the batches since the snapshot before, else of all.
    `shards` is empty where the run is one job. `destination` is where an export writes, without any secret, once its
    pass has begun. `quiet_seconds` is how old the figures are, where they are older than a
    run at work has them: its worker may be gone, which shows for certain once its lease lapses. Else None.
    """

    run_id: str
    name: str
    kind: str
    status: str
    words: str
    rows: int
    written: int
    batches: int
    total: int | None
    total_is: TotalIs
    percent: float | None
    rows_per_second: float | None
    eta_seconds: float | None
    active_seconds: float
    batch_rows: float | None
    batch_ms: float | None
    waiting_for: str | None
    quiet_seconds: float | None = None
    attempt: int | None
    max_attempts: int | None
    retry_at: datetime | None
    rejected_rows: int
    last_error: str | None
    last_error_code: str | None
    launched_by: str | None
    environment: str
    app_version: str | None
    checksum: str
    input: Any
    options: Any
    samples: tuple[tuple[float, int], ...]
    shards: tuple[ShardSnapshot, ...] = ()
    destination: str | None = None
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None

    def __repr__(self) -> str:
        return f"<Snapshot of {self.name!r}: {self.words}, {self.rows:,} rows, run {self.run_id}>"

    @property
    def is_open(self) -> bool:
        """Whether work is due or being done, or it is paused."""
        return self.status in _OPEN

    def as_json(self) -> dict[str, Any]:
        """Answer the snapshot as plain JSON, instants as ISO 8601 text."""
        plain = asdict(self)
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in plain.items()}


def snapshot_of(row: Backfill, before: Snapshot | None = None) -> Snapshot:
    """Take the picture of a ledger row; `before` is an earlier one of the same run, for the latest batches' figures."""
    samples = tuple((float(seconds), int(rows)) for seconds, rows in row.samples or ())
    total, total_is = _total(row)
    rate = rows_per_second(samples, row.active_seconds, row.rows)
    batch_rows, batch_ms = _batch_figures(row, before)
    return Snapshot(
        run_id=str(row.run_id),
        name=row.name,
        kind=row.kind,
        status=row.status,
        words=_words(row),
        rows=row.rows,
        written=row.written,
        batches=row.batches,
        total=total,
        total_is=total_is,
        percent=_percent(row, total, total_is),
        rows_per_second=rate,
        eta_seconds=_eta(row, total, total_is, rate, len(samples)),
        active_seconds=row.active_seconds,
        batch_rows=batch_rows,
        batch_ms=batch_ms,
        waiting_for=row.waiting_for,
        quiet_seconds=_quiet(row),
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        retry_at=row.retry_at,
        rejected_rows=row.rejected_rows,
        last_error=row.last_error,
        last_error_code=row.last_error_code,
        launched_by=row.launched_by,
        environment=row.environment,
        app_version=row.app_version,
        checksum=row.checksum,
        input=row.input,
        options=row.options,
        samples=samples,
        shards=shards_of(row, total),
        destination=row.options.get("destination") if isinstance(row.options, dict) else None,
        started_at=row.started_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
    )


def rows_per_second(samples: Sequence[tuple[float, int]], active_seconds: float, rows: int) -> float | None:
    """Answer the rate over the last five minutes of active time; None before five active seconds or two samples."""
    if active_seconds < _LEAST_ACTIVE_SECONDS or len(samples) < 2:
        return None
    base = samples[0]
    for sample in samples:
        if active_seconds - sample[0] < _RATE_WINDOW_SECONDS:
            break
        base = sample
    seconds = active_seconds - base[0]
    return (rows - base[1]) / seconds if seconds > 0 else None


def _total(row: Backfill) -> tuple[int | None, TotalIs]:
    if row.status == "done":
        return row.rows, "exact"
    if row.estimated_rows is None:
        return None, "unknown"
    if row.rows >= max(row.estimated_rows, 1):
        return row.rows, "at least"
    return row.estimated_rows, "estimate"


def _percent(row: Backfill, total: int | None, total_is: TotalIs) -> float | None:
    if row.status == "done":
        return 100.0
    if total_is == "at least":
        return _MOST_PERCENT_BEFORE_DONE
    if total is None or total <= 0:
        return None
    return min(100.0 * row.rows / total, _MOST_PERCENT_BEFORE_DONE)


def _eta(row: Backfill, total: int | None, total_is: TotalIs, rate: float | None, samples: int) -> float | None:
    if row.status not in _OPEN or total is None or total_is != "estimate" or not rate or rate <= 0 or samples < 2:
        return None
    return (total - row.rows) / rate


def _batch_figures(row: Backfill, before: Snapshot | None) -> tuple[float | None, float | None]:
    rows, batches, seconds = row.rows, row.batches, row.active_seconds
    if before is not None and row.batches > before.batches:
        rows, batches = rows - before.rows, batches - before.batches
        seconds -= before.active_seconds
    elif before is not None and before.batch_rows is not None:
        return before.batch_rows, before.batch_ms
    if batches <= 0:
        return None, None
    return rows / batches, 1000.0 * max(seconds, 0.0) / batches


def _quiet(row: Backfill) -> float | None:
    """Answer the figures' age where batches that take as long as those before would have brought newer ones."""
    if _words(row) != "running" or row.waiting_for is not None or not row.batches:
        return None
    usual = max(_QUIET_BATCHES * row.active_seconds / row.batches, _LEAST_QUIET_SECONDS)
    return row.quiet_seconds if row.quiet_seconds > usual else None


def _words(row: Backfill) -> str:
    if row.status == "running":
        return _running_words(row)
    if row.status == "paused" and row.wanted == "run":
        return "resuming"
    return row.status


def _running_words(row: Backfill) -> str:
    if row.live:
        steering = {"pause": "pausing", "cancel": "cancelling"}.get(row.wanted)
        return steering or "running"
    if row.job_state in ("ready", "delayed", "suspended"):
        if row.retry_at is not None:
            return (
                f"retrying at {row.retry_at:%Y-%m-%d %H:%M:%S} UTC"
                if row.attempt
                else f"due at {row.retry_at:%H:%M:%S} UTC"
            )
        return "waiting for a worker"
    return "stalled"
