"""The server is gone for a while under a worker, a scheduler and a sweep: all go on by themselves once it is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rowsweep.embedded import EmbeddedServer
from rowsweep.embedded.cluster import ShutdownMode
from tests.acceptance.harness import Process, Site, until
from tests.acceptance.jobs import outage

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = str(Path(outage.__file__))
BACK_WITHIN_SECONDS = 5.0
TEN_MINUTES = 10


class Watch:
    """What each of the three has done so far."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def swept(self) -> int:
        """Answer how many rows the sweep has done."""
        return self._site.swept()

    def stamped(self) -> int:
        """Answer how many occurrences the worker has noted."""
        return int(self._site.one("select count(*) as n from stamps")["n"])

    def fired(self) -> Any:
        """Answer up to where the scheduler has fired."""
        return self._site.one("select max(watermark)::text as at from x_scheduler_state")["at"]


def failures(process: Process) -> list[dict[str, Any]]:
    """Answer what a worker's failed passes said."""
    return process.events("jobs.worker.tick-failed")


def seconds_until_moved(site: Site, look: Callable[[], Any], before: Any, since: float) -> float:
    """Wait for a figure to be another than before, and answer how long after `since` it was."""
    site.until(lambda: look() != before, seconds=60)
    return time.monotonic() - since


@pytest.mark.parametrize(("seconds", "mode"), [(60.0, "fast"), (8.0, "immediate")])
def test_all_go_on_within_seconds_of_the_server_s_return(
    private_server: EmbeddedServer, sites: Callable[[str], Site], seconds: float, mode: ShutdownMode
) -> None:
    """N-024, S-323, S-247, N-060, N-046: nothing is lost, and nothing done twice that is to be done once.

    The server goes at the moment at which a job's work has been committed and its settlement is on the way: that job is
    run again, as any may be, and finds in its checkpoint that the work was done.
    """
    site = sites(private_server.dsn)
    site.connection.execute("alter system set synchronous_commit = on")
    site.connection.execute("select pg_reload_conf()")
    site.fill(60_000, least=0.1)
    site.connection.execute("create table stamps (occurrence text not null, at timestamptz not null default now())")
    site.launch("by-sql")
    watch = Watch(site)
    started = time.time()
    processes = [
        site.worker("sweeper", visibility="30s"),
        site.start("worker", [SCRIPT, "worker"]),
        site.start("scheduler", [SCRIPT, "scheduler", str(started)]),
    ]
    site.until(lambda: watch.swept() >= 5_000 and watch.stamped() >= 5)
    private_server.stop(mode)
    site.disconnect()
    time.sleep(seconds)
    private_server.restart()
    back = time.monotonic()
    swept, stamped, fired = watch.swept(), watch.stamped(), watch.fired()
    took = {
        "scheduler": seconds_until_moved(site, watch.fired, fired, back),
        "worker": seconds_until_moved(site, watch.stamped, stamped, back),
        "sweep": seconds_until_moved(site, watch.swept, swept, back),
    }
    assert max(took.values()) < BACK_WITHIN_SECONDS, took
    _assert_nothing_lost_or_doubled(site, processes)


def test_a_sweep_waits_out_a_server_that_takes_no_writes(
    private_server: EmbeddedServer, sites: Callable[[str], Site]
) -> None:
    """N-024, N-069: as after a failover, until the standby is promoted; in the same attempt."""
    site = sites(private_server.dsn)
    site.fill(20_000, least=0.05)
    site.launch("by-sql")
    sweeper = site.worker("sweeper", visibility="60s")
    site.until_swept(4_000)
    private_server.stop()
    site.disconnect()
    (private_server.folder / "pg" / "standby.signal").touch()
    private_server.restart()
    until(lambda: sum("takes no writes" in event["cause"] for event in failures(sweeper)) > 20, sweeper.log)
    site.connection.execute("select pg_promote()")
    site.until_state("done", seconds=90)
    site.assert_exact()
    assert (site.job()["claims"], site.job()["attempt"]) == (1, 1)


def _assert_nothing_lost_or_doubled(site: Site, processes: list[Process]) -> None:
    """Wait for the sweep's end and the worker to have caught up, then count everything."""
    site.until(lambda: site.ledger()["status"] == "done", seconds=120)
    assert site.counts() == {1: site.rows}
    (_, _, scheduler) = processes
    scheduler.stop()
    waiting = "select count(*) as n from x_jobs where name = 'stamp' and state <> 'done'"
    until(lambda: site.one(waiting)["n"] == 0, site.shown)
    noted = [row["occurrence"] for row in site.connection.execute("select occurrence from stamps").fetchall()]
    assert len(noted) == len(set(noted))
    minutes = sorted(_minute(text) for text in noted)
    assert minutes == list(range(minutes[0], minutes[-1] + 1, TEN_MINUTES)), "every occurrence was fired"
    assert [process.code for process in processes] == [None] * 3
    told = [event for process in processes for event in failures(process)]
    told += scheduler.events("jobs.scheduler.tick-failed")
    assert {event["code"] for event in told} == {"X_DRIVER_UNAVAILABLE"}


def _minute(occurrence: str) -> int:
    """Answer an occurrence's minute of the month."""
    day, _, clock = occurrence.partition(" ")
    hour, _, minute = clock.partition(":")
    return (int(day) * 24 + int(hour)) * 60 + int(minute)
