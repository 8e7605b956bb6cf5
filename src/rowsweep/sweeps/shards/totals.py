"""What the shards of a run come to: sums of their positions, and the exact figures at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rowsweep.queue.stores.ledger import MOST_SAMPLES, SweepTotals
from rowsweep.queue.stores.shards import ShardFigures
from rowsweep.sweeps.passes.position import Position

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import Backfill
    from rowsweep.sweeps.passes.position import KeyRange


def summed(shards: Sequence[Position]) -> Position:
    """Answer one position with the counts of all."""
    return Position(
        index=sum(at.batches for at in shards) - 1,
        rows=sum(at.rows for at in shards),
        written=sum(at.written for at in shards),
        ended=True,
    )


def ranges_of(shards: Sequence[Position]) -> list[KeyRange]:
    """Answer every range that any of them passed; one without an end only where nothing was found behind its beginning.

    Where keys were, by now, another range begins where that one does.
    """
    ranges = [each for at in shards for each in (*at.behind, at.range) if each is not None]
    ended = [each for each in ranges if each.to is not None]
    begun = {each.after for each in ended}
    return [*ended, *dict.fromkeys(each for each in ranges if each.to is None and each.after not in begun)]


def end_of(shards: Sequence[Position]) -> tuple[str, ...] | None:
    """Answer the last key that shards which have all ended know of; None where a bound was set to what they pass."""
    ranges = ranges_of(shards)
    for at in shards:
        if at.range is not None and at.range.to is None and at.range in ranges:
            return at.cursor
    last = _last_of(ranges)
    return None if last is None else last.to


def without_end(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """Answer ranges that begin at each other's ends with none to the last of them: nothing was found behind it."""
    last = _last_of(ranges)
    return [replace(each, to=None) if each is last else each for each in ranges]


def _last_of(ranges: Sequence[KeyRange]) -> KeyRange | None:
    begun = {each.after for each in ranges}
    return next((each for each in ranges if each.to not in begun), None)


def final_figures(row: Backfill, shards: Sequence[Position]) -> list[ShardFigures]:
    """Answer the figures of shards that are all done; their time at work stays as each reported it."""
    told: list[dict[str, Any]] = row.shards or [{} for _ in shards]
    return [_done(number, at, known) for number, (at, known) in enumerate(zip(shards, told, strict=True), 1)]


def _done(number: int, at: Position, known: dict[str, Any]) -> ShardFigures:
    after, to = (None, None) if at.range is None else at.range.as_json()
    return ShardFigures(
        number=number,
        status="done",
        rows=at.rows,
        written=at.written,
        batches=at.batches,
        after=after,
        to=to,
        active_seconds=float(known.get("active_seconds", 0.0)),
    )


def final_totals(row: Backfill, at: Position) -> SweepTotals:
    """Answer the run's exact figures; time and samples as the shards together reported them."""
    samples = [*(row.samples or ()), [row.active_seconds, at.rows]]
    return SweepTotals(
        rows=at.rows,
        written=at.written,
        batches=at.batches,
        cursor=None,
        active_seconds=row.active_seconds,
        samples=samples[-MOST_SAMPLES:],
    )
