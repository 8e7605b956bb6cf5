"""The application of the outage test; as a script, its one worker or its one scheduler, as they are by default."""

from __future__ import annotations

import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import rowsweep as rs

START = datetime(2025, 6, 1, tzinfo=UTC)
SPEED = 1_200.0
"""How many times faster than the machine's the scheduler's wall clock runs: ten minutes of it in half a second."""


@rs.job("stamp", tenant="none", input=str)
def stamp(ctx: rs.Ctx, text: str) -> None:
    """Note an occurrence once, also where the run's end never reaches the server and the job is run again."""
    noted = ctx.step.checkpoint("noted")
    if noted.get() is None:
        with ctx.transaction() as tx:
            tx.connection.execute("insert into stamps (occurrence) values (%s)", [text])
            noted.put(True, tx=tx)


class FastClock:
    """Tell a wall time that runs fast from an instant on; the other clock is real."""

    def __init__(self, since: float) -> None:
        self._since = since

    def now(self) -> datetime:
        """Answer the wall time of the simulation."""
        return START + timedelta(seconds=(time.time() - self._since) * SPEED)

    def monotonic(self) -> float:
        """Answer real seconds: leases are real."""
        return time.monotonic()


def main() -> None:
    """Work, or schedule, until the process is killed."""
    from rowsweep.telemetry.console import configure_logging

    configure_logging(json=True)
    app = rs.connect(work=False)
    if sys.argv[1] == "worker":
        app.worker().start()
    else:
        rs.task(
            "ten-minutely",
            cron="*/10 * * * *",
            tz="UTC",
            enqueue=lambda at: [(stamp, f"{at:%d %H:%M}")],
            catch_up="run-all",
            max_catch_up=1_000,
        )
        leader = rs.LeaseLeader(app.driver)
        rs.Scheduler(driver=app.driver, leader=leader, clock=FastClock(float(sys.argv[2]))).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
