"""What becomes of the occurrences that are due: which are fired, in which order, and how many are dropped."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rowsweep.jobs.tasks.handle import TaskHandle
    from rowsweep.jobs.tasks.occurrences import Resolver

    Next = Callable[[datetime], datetime]

COUNTED: Final = 1_000
"""How many missed occurrences are counted one by one."""
_FIRST_LOOK: Final = timedelta(minutes=1)
_TICK: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The occurrences to fire, oldest first, each with the watermark it leaves; and what is dropped with the first.

    `dropped_is_least` says that more than `dropped` were missed. With nothing to fire, `next_at` is the next one.
    """

    fires: Sequence[tuple[datetime, datetime]]
    next_at: datetime
    is_catch_up: bool = False
    dropped: int = 0
    dropped_is_least: bool = False


def due(task: TaskHandle, watermark: datetime, now: datetime, resolve: Resolver) -> Due:
    """Apply a task's catch-up policy to what is due after its watermark, up to now; in bounded work."""

    def following(after: datetime) -> datetime:
        return resolve(task.cron, task.tz, after)

    first = following(watermark)
    if first > now:
        return Due(fires=[], next_at=first)
    wanted = task.max_catch_up if task.catch_up == "run-all" else 1
    newest, missed, after = _newest(following, first, now, wanted)
    is_one_for_all = task.catch_up == "run-once" and missed > 1
    fires = [(first, now)] if is_one_for_all else [(at, at) for at in newest]
    return Due(
        fires=fires,
        next_at=first,
        is_catch_up=missed > 1,
        dropped=missed - len(fires),
        dropped_is_least=after <= now,
    )


def latest_occurrence_by(following: Next, after: datetime, by: datetime) -> datetime | None:
    """Answer the latest occurrence later than `after` and not later than `by`, None without one.

    Looks back from `by` in doubling steps and halves what lies between, so that a year of minutes costs some sixty
    calls.
    """
    latest = following(after)
    if latest > by:
        return None
    back = _FIRST_LOOK
    while by - back > latest:
        if (at := following(by - back)) <= by:
            latest = at
            break
        back *= 2
    high = by
    while (at := following(latest)) <= by:
        middle = latest + (high - latest) / 2
        if (later := following(middle)) <= by:
            latest = later
        else:
            latest, high = at, middle
    return latest


def _newest(following: Next, first: datetime, now: datetime, wanted: int) -> tuple[Sequence[datetime], int, datetime]:
    """Answer the newest `wanted` due occurrences, how many are due, and the first that was not counted."""
    newest = deque([first], maxlen=wanted)
    missed, at = 1, following(first)
    while at <= now and missed < COUNTED + wanted:
        newest.append(at)
        missed, at = missed + 1, following(at)
    if at > now:
        return newest, missed, at
    found: deque[datetime] = deque()
    by = now
    while len(found) < wanted and (latest := latest_occurrence_by(following, first, by)) is not None:
        found.appendleft(latest)
        by = latest - _TICK
    return found, missed, at
