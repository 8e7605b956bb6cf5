"""Caps across processes that are killed and stopped: what bodies wrote under their fence never overlaps."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from typing import Any

import pytest

from rowsweep.jobs.handle import JobHandle
from tests.acceptance.harness import Process, Site, until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

APPLICATION = Path(__file__).with_name("capped.py")
TTL_SECONDS = 1.0
VISITS = """
create table visits (
  id bigint generated always as identity primary key, label text not null, run text not null, mark text not null,
  pid integer not null)
"""


class Fleet:
    """Workers of the capped jobs; one that is killed is replaced."""

    def __init__(self, site: Site, size: int) -> None:
        from rowsweep.queue.postgres.install import install

        install(site.dsn)
        site.connection.execute(VISITS)
        self.site = site
        self._numbers = itertools.count(1)
        self.workers = [self._started() for _ in range(size)]

    def _started(self) -> Process:
        name = f"w{next(self._numbers)}"
        return self.site.start(name, [str(APPLICATION), name])

    def caught(self, label: str) -> Process | None:
        """Answer the living worker whose run of the label is in the middle of its visit, None where none is."""
        rows = self.site.connection.execute(
            "select pid, mark from visits where label = %s order by id desc limit 1", [label]
        ).fetchall()
        pids = {row["pid"] for row in rows if row["mark"] != "out"}
        return next((worker for worker in self.workers if worker.pid in pids and worker.code is None), None)

    def until_caught(self, label: str) -> Process | None:
        """Wait for a run of the label to be in the middle of its visit; None once all jobs are done."""
        found = until(lambda: self.caught(label) or self.is_done, self.site.shown)
        return found if isinstance(found, Process) else None

    def kill(self, worker: Process) -> None:
        """Kill a worker and start another."""
        worker.kill()
        self.workers.remove(worker)
        self.workers.append(self._started())

    def stop_for(self, worker: Process, seconds: float) -> None:
        """Stop a worker where it stands, and wake it after so long."""
        worker.stop()
        time.sleep(seconds)  # what is measured is what happens when it slept longer than its slot lasts
        worker.wake()

    @property
    def is_done(self) -> bool:
        """Whether no job is left."""
        return self.left() == 0

    def left(self) -> int:
        """Answer how many jobs are not done."""
        return int(self.site.one("select count(*) as n from x_jobs where state <> 'done'")["n"])


def overlaps(site: Site, label: str) -> list[tuple[str, str]]:
    """Answer the pairs of runs of which one wrote between the first and the last writing of the other."""
    rows = site.connection.execute(
        "select run, min(id) as first, max(id) as last from visits where label = %s group by run order by min(id)",
        [label],
    ).fetchall()
    return [(a["run"], b["run"]) for a, b in itertools.pairwise(rows) if b["first"] < a["last"]]


def enqueue(site: Site, name: str, values: list[object]) -> None:
    """Put jobs on the queue from this process."""
    from rowsweep.app.connecting import connect
    from rowsweep.jobs.registry import reset_jobs

    app = connect(site.dsn, work=False, actor="test")
    try:
        from tests.acceptance.jobs import capped

        handles: dict[str, JobHandle[Any, Any]] = {"one": capped.one, "by-key": capped.by_key}
        handles[name].enqueue_many(values)
    finally:
        app.close()
        reset_jobs()


def test_a_cap_of_one_is_never_exceeded(site: Site) -> None:
    """S-343, S-332, S-338, N-117: holders are killed, or stopped for longer than their slot lasts, in mid-run.

    Woken, they go on as if nothing were: it is the fence that refuses what they write.
    """
    chance = random.Random(7)
    fleet = Fleet(site, 3)
    enqueue(site, "one", list(range(60)))
    for _ in range(16):
        worker = fleet.until_caught("one")
        if worker is None:
            break
        left = fleet.left()
        if chance.random() < 0.4:
            fleet.kill(worker)
        else:
            fleet.stop_for(worker, TTL_SECONDS * chance.uniform(1.0, 2.0))
        until(lambda left=left: fleet.left() < left, site.shown)  # type: ignore[misc]
    until(lambda: fleet.is_done, site.shown)
    assert overlaps(site, "one") == []
    ended = site.one("select count(distinct split_part(run, '/', 1)) as jobs from visits where mark = 'out'")
    assert ended["jobs"] == 60
    torn = "select run from visits group by run having not 'out' = any (array_agg(mark))"
    assert len(site.connection.execute(torn).fetchall()) >= 3, "no run was caught in the middle: nothing was proven"


def test_a_cap_by_key_is_never_exceeded_and_others_go_on(site: Site) -> None:
    """S-343, S-348: while one key's holder sleeps, the jobs of the others are done."""
    fleet = Fleet(site, 3)
    enqueue(site, "by-key", [key for _ in range(25) for key in "abc"])
    for label in "abca":
        worker = fleet.until_caught(label)
        if worker is not None:
            fleet.stop_for(worker, TTL_SECONDS * 1.5)
    worker = fleet.until_caught("b")
    if worker is not None:
        fleet.kill(worker)
    until(lambda: fleet.is_done, site.shown)
    for key in "abc":
        assert overlaps(site, key) == []
    together = site.one(
        """select count(*) as n
           from (select label, run, min(id) as first, max(id) as last from visits group by label, run) a
           join (select label, run, min(id) as first, max(id) as last from visits group by label, run) b
             on a.label < b.label and b.first between a.first and a.last"""
    )
    assert together["n"] > 0, "no two keys ran side by side: nothing was proven"
    assert site.one("select count(*) as n from visits where mark = 'out'")["n"] >= 75
