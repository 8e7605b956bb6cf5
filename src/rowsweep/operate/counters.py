"""Reading how runs ended: counts by job name, in minutes, hours or days."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rowsweep.clock import SystemClock
from rowsweep.errors import NotImplementedByDriver
from rowsweep.operate.wanted import check_texts
from rowsweep.options import duration
from rowsweep.queue.stores.counters import COUNTERS_DEFAULT, CounterBucket, CounterTier

if TYPE_CHECKING:
    from rowsweep.clock import Clock
    from rowsweep.queue.contract import Driver


def read_counters(
    driver: Driver,
    *,
    tier: CounterTier = "minute",
    name: str | None = None,
    since: str | timedelta | datetime | None = None,
    limit: int = COUNTERS_DEFAULT,
    clock: Clock | None = None,
) -> list[CounterBucket]:
    """Answer how runs ended, the newest bucket first and by job name.

    Minutes are kept for 2 hours, hours for 14 days, days for 400 days. `since` is an aware instant, or how long ago
    (`"90m"`); the bucket it lies in is taken in. The hour and the day under way are added up from what is finer.

    Raises InvalidOption, NotImplementedByDriver.
    """
    check_texts(name=name)
    store = driver.stores().counters
    if store is None:
        raise NotImplementedByDriver(
            f"the driver {driver.name!r} keeps no counters.",
            fix="rs.connect() with the Postgres driver",
            meta={"driver": driver.name, "feature": "counters"},
        )
    at = since if since is None or isinstance(since, datetime) else _ago(since, clock or SystemClock())
    return store.list(tier=tier, name=name, since=at, limit=limit)


def _ago(since: str | timedelta, clock: Clock) -> datetime:
    return clock.now() - duration(since, option="since")
