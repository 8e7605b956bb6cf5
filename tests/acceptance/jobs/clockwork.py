"""The application of the scheduler's acceptance test; as a script, one scheduler whose wall clock runs fast."""

from __future__ import annotations

import argparse
import os
import random
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

import rowsweep as rs
from rowsweep.queue.stores.schedules import ScheduledFire

START = datetime(2025, 3, 29, 12, tzinfo=UTC)
SWITCH = datetime(2025, 3, 30, 1, tzinfo=UTC)
"""When the clocks of London go forward."""
MOST_CATCH_UP = 1_000
WORKED_SECONDS = 0.004


@rs.job("note", tenant="none", input=str)
def note(ctx: rs.Ctx, text: str) -> None:
    """Do nothing: nobody works here."""


def entries(at: datetime) -> list[Any]:
    """Answer two jobs, after a moment of thought in which the process may be killed or stopped."""
    time.sleep(random.uniform(0, 2 * WORKED_SECONDS))
    return [(note, f"{at:%d %H:%M}"), (note, "second")]


def declare() -> list[rs.TaskHandle]:
    """Declare a task of each policy."""
    return [
        rs.task("all", cron="*/10 * * * *", tz="UTC", enqueue=entries, catch_up="run-all", max_catch_up=MOST_CATCH_UP),
        rs.task("few", cron="*/5 * * * *", tz="Asia/Kathmandu", enqueue=entries, catch_up="run-all", max_catch_up=3),
        rs.task("latest", cron="@hourly", tz="Europe/London", enqueue=entries),
        rs.task("nightly", cron="30 1 * * *", tz="Europe/London", enqueue=entries),
        rs.task("once", cron="*/20 * * * *", tz="America/New_York", enqueue=entries, catch_up="run-once"),
    ]


class FastClock:
    """Tell a wall time that runs so many times faster than the machine's since an instant; the other clock is real."""

    def __init__(self, since: float, speed: float) -> None:
        self._since = since
        self._speed = speed

    def now(self) -> datetime:
        """Answer the wall time of the simulation."""
        return START + timedelta(seconds=(time.time() - self._since) * self._speed)

    def monotonic(self) -> float:
        """Answer real seconds: leases are real."""
        return time.monotonic()


class Unfenced:
    """Fire by hand and wrongly: enqueue first, then move the watermark, whoever else has done so."""

    def __init__(self, driver: Any) -> None:
        self._stores = driver.control()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stores.schedules, name)

    def fire(self, fire: ScheduledFire) -> Any:
        """Leave a moment between the two, in which the process may be gone or another may lead."""
        results = self._stores.jobs.enqueue(fire.jobs)
        time.sleep(random.uniform(0, 15 * WORKED_SECONDS))
        with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
            connection.execute(
                "update x_scheduler_state set watermark = %s where task = %s", [fire.watermark_at, fire.task]
            )
        return results


def main() -> None:
    """Schedule until the process is killed."""
    from rowsweep.telemetry.console import configure_logging

    parser = argparse.ArgumentParser()
    parser.add_argument("--since", type=float, required=True)
    parser.add_argument("--speed", type=float, required=True)
    parser.add_argument("--lease", required=True)
    parser.add_argument("--renew-every", required=True)
    parser.add_argument("--unfenced", action="store_true")
    given = parser.parse_args()
    configure_logging(json=True)
    declare()
    app = rs.connect(work=False)
    scheduler = rs.Scheduler(
        driver=app.driver,
        leader=rs.LeaseLeader(app.driver, lease=given.lease, renew_every=given.renew_every),
        state=Unfenced(app.driver) if given.unfenced else None,
        clock=FastClock(given.since, given.speed),
        gap="5ms",
    )
    scheduler.start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
