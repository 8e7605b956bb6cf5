"""What a snapshot shows of each shard of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import Backfill

_MOST_PERCENT_BEFORE_DONE: Final = 99.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSnapshot:
    """How one shard stands: its rows so far, and the range it is in, `(after, to]` as key texts.

    `percent` is of an even share of the run's estimate, None where there is none; after it took over a part of
    another's range a shard passes more than that, and the other less. `after` is None where the range begins with the
    table, `to` where it has no end.
    """

    number: int
    status: str
    rows: int
    written: int
    batches: int
    percent: float | None
    cursor: tuple[str, ...] | None
    after: tuple[str, ...] | None
    to: tuple[str, ...] | None


def shards_of(row: Backfill, total: int | None) -> tuple[ShardSnapshot, ...]:
    """Answer how the shards of a ledger row stand; none where the run is one job."""
    kept: list[dict[str, Any]] = row.shards or []
    return tuple(_shard(row, number, shard, total, len(kept)) for number, shard in enumerate(kept, 1))


def _shard(row: Backfill, number: int, kept: dict[str, Any], total: int | None, of: int) -> ShardSnapshot:
    cursor, after, to = (None if kept[name] is None else tuple(kept[name]) for name in ("cursor", "after", "to"))
    status = _status(row, str(kept["status"]))
    return ShardSnapshot(
        number=number,
        status=status,
        rows=int(kept["rows"]),
        written=int(kept["written"]),
        batches=int(kept["batches"]),
        percent=_percent(status, int(kept["rows"]), total, of),
        cursor=cursor,
        after=after,
        to=to,
    )


def _status(row: Backfill, kept: str) -> str:
    """Answer what was reported, unless the run as a whole says more of a shard that is not done."""
    if row.status == "done" or kept in ("done", "failed", "cancelled"):
        return "done" if row.status == "done" else kept
    if row.status == "failed":
        return "cancelling"
    return kept if row.status == "running" else row.status


def _percent(status: str, rows: int, total: int | None, of: int) -> float | None:
    if status == "done":
        return 100.0
    if total is None or total <= 0:
        return None
    return min(100.0 * rows * of / total, _MOST_PERCENT_BEFORE_DONE)
