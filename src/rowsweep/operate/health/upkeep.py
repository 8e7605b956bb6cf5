"""Looking at what goes by the clock: the scheduler's leader, retention, the outbox."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rowsweep.operate.health.finding import Finding, ago, fail, some, warn, well

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rowsweep.queue.stores.health import Kept
    from rowsweep.queue.stores.outbox import Backlog
    from rowsweep.queue.stores.schedules import Leadership
    from rowsweep.sweeps.snapshot import Snapshot

RETENTION_LATE: Final = timedelta(hours=2)
OUTBOX_LATE_SECONDS: Final = 60.0
_WEEK: Final = timedelta(days=7)
_MONTH: Final = timedelta(days=30)


def look_at_scheduler(leaders: Sequence[Leadership], now: datetime) -> Finding:
    """Say who fires the tasks."""
    live = [lease for lease in leaders if lease.expires_at > now]
    if live:
        shown = [f"{lease.holder}, for {ago((now - lease.acquired_at).total_seconds())}" for lease in live]
        return well("scheduler", f"led by {some(shown)}")
    if leaders:
        last = max(leaders, key=lambda lease: lease.expires_at)
        since = ago((now - last.expires_at).total_seconds())
        return fail(
            "scheduler",
            f"the lease of {last.holder} ran out {since} ago, and nobody took it: no task is fired.",
            "rowsweep scheduler, or rowsweep up",
        )
    return warn(
        "scheduler", "no scheduler leads: no task is fired, retention included.", "rowsweep scheduler, or rowsweep up"
    )


def look_at_retention(kept: Kept, last: Snapshot | None, now: datetime) -> Finding:
    """Say whether finished jobs leave when they should; a late pass is none while there is nothing to remove."""
    ended = None if last is None else last.finished_at
    since = "has never ended" if ended is None else f"ended {ago((now - ended).total_seconds())} ago"
    overdue = [
        f"finished jobs are {ago(age)} old ({keep.days} d are kept)"
        for age, keep in ((kept.done_seconds, _WEEK), (kept.dead_seconds, _MONTH))
        if age is not None and age > (keep + RETENTION_LATE).total_seconds()
    ]
    if overdue and (ended is None or now - ended > RETENTION_LATE):
        return warn(
            "retention",
            f"late: {'; '.join(overdue)}; a pass {since}.",
            "rowsweep up, or rowsweep scheduler, and rowsweep worker: they purge hourly",
        )
    return well("retention", f"a pass {since}" if ended else "nothing is old enough to go")


def look_at_outbox(backlog: Backlog) -> Finding:
    """Say whether what is staged is published."""
    oldest = backlog.oldest_pending_seconds or 0.0
    if backlog.pending and oldest > OUTBOX_LATE_SECONDS:
        return fail(
            "outbox",
            f"{backlog.pending:,} staged jobs wait, the oldest for {ago(oldest)}: no relay publishes them.",
            "rowsweep relay, with --outbox-dsn where the outbox is in another database; or rowsweep up",
        )
    if backlog.dead:
        return warn("outbox", f"{backlog.dead:,} staged jobs could not be enqueued.", "rowsweep outbox ls --dead")
    return well("outbox", f"{backlog.pending:,} waiting" if backlog.pending else "empty")
