"""The workers of a sharded sweep killed and stopped at random moments, and then every row counted."""

from __future__ import annotations

import logging
import os
import random
import secrets
import time

import pytest

from tests.acceptance.harness import Process, Site, until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

WORKERS = 4
# One stopped between a batch's last statement and its commit holds its job's row until the server ends it, after 30 s.
TAKE_OVER_SECONDS = 60.0
_said = logging.getLogger("storm")


class ShardStorm:
    """Disturb whichever workers hold shards, while others stand by to take over."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.seed = int(os.environ.get("ROWSWEEP_STORM") or secrets.randbits(32))
        self.random = random.Random(self.seed)
        self.started = self.done = 0
        _said.warning("ROWSWEEP_STORM=%s", self.seed)

    def rage(self, *, kills: int, stops: int) -> None:
        """Do it all to random holders at random moments, as long as the run goes on."""
        for _ in range(WORKERS):
            self.start()
        kinds = ["kill"] * kills + ["stop"] * stops
        self.random.shuffle(kinds)
        for at, kind in enumerate(kinds):
            wanted = 0.9 * self.site.rows * at / len(kinds)
            self.site.until(lambda least=wanted: self.site.swept() >= least)  # type: ignore[misc]
            time.sleep(self.random.uniform(0.0, 0.1))
            held = self.holder()
            if held is None:
                return
            process, job = held
            self.done += 1
            _said.warning("%s %s at %s rows", kind, process.name, self.site.swept())
            if kind == "kill":
                process.kill()
                self.start()
            else:
                self.stop(process, job)

    def start(self) -> None:
        """Start another worker."""
        self.started += 1
        self.site.worker(f"w{self.started}", visibility="1s")

    def holder(self) -> tuple[Process, dict[str, object]] | None:
        """Wait for a living process that holds a shard, and answer it with its job; None once the run is done."""

        def held() -> tuple[Process, dict[str, object]] | None:
            query = "select id, claims, split_part(claimed_by, ':', 1) as name from x_jobs where state = 'running'"
            jobs = self.site.connection.execute(query).fetchall()
            self.random.shuffle(jobs)
            living = {process.name: process for process in self.site.processes if process.code is None}
            return next(((living[job["name"]], job) for job in jobs if job["name"] in living), None)

        self.site.until(lambda: held() or self.site.ledger()["status"] == "done")
        return held()

    def stop(self, process: Process, job: dict[str, object]) -> None:
        """Stop a process until another has its job or is past it, and wake it: what it still does must not land."""
        process.stop()
        query = "select claims > %s or state <> 'running' as is_over from x_jobs where id = %s"
        until(
            lambda: self.site.one(query, job["claims"], job["id"])["is_over"],
            self.site.shown,
            seconds=TAKE_OVER_SECONDS,
        )
        time.sleep(self.random.uniform(0.0, 0.5))
        process.wake()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("name", "shards"), [("sharded", 4), ("sharded-by-sql", 3)])
def test_every_row_is_written_once_by_shards_whose_workers_are_killed_and_stopped(
    site: Site, name: str, shards: int
) -> None:
    """N-060, N-087, N-088, N-119, S-323: ranges change hands meanwhile; the ledger counts the table's rows."""
    site.fill(80_000, least=0.01, most=0.05)
    site.launch(name)
    storm = ShardStorm(site)
    storm.rage(kills=10, stops=2)
    assert storm.done >= 5
    site.until(lambda: site.ledger()["status"] == "done", seconds=180)
    assert site.counts() == {1: site.rows}
    row = site.one("select rows, shards from x_backfills")
    assert row["rows"] == site.rows == sum(shard["rows"] for shard in row["shards"])
    assert {shard["status"] for shard in row["shards"]} == {"done"}

    def all_done() -> bool:
        jobs = site.connection.execute("select state, last_error from x_jobs").fetchall()
        return [(job["state"], job["last_error"]) for job in jobs] == [("done", None)] * shards

    site.until(all_done)
    finish = site.one("select output from x_job_steps where name = 'sweep:finish'")["output"]
    assert finish["shards"] == shards
    assert finish["ranges"] >= shards
    _said.warning("%s ranges in %s shards", finish["ranges"], shards)
