"""Installing over the tables of an earlier release, with rows of every kind in them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from rowsweep.queue.postgres import install as installing
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.migrations import migrations
from rowsweep.queue.records import JOB_STATES, ClaimOptions, JobFilter
from tests.queue.world import new_job

Rows = psycopg.Connection[Any]
FILL = """
insert into x_jobs (id, name, state, input, idempotency_key, run_id, max_attempts, run_at, claims, attempt,
                    claimed_by, visible_at, updated_at)
select gen_random_uuid(), 'mail', s.state, '{}', s.state || n, gen_random_uuid(), 3, now() - interval '1 minute', 1, 1,
       case when s.state = 'running' then 'gone' end,
       case when s.state = 'running' then now() - interval '1 minute' end, now() - n * interval '1 hour'
from unnest(%s::text[]) as s (state) cross join generate_series(1, 3) n"""


@pytest.fixture
def upgraded(dsn: str, connection: Rows, monkeypatch: pytest.MonkeyPatch) -> PostgresDriver:
    """A driver over tables that were of version 2 when their rows, three of each state, went in."""
    with monkeypatch.context() as earlier:
        earlier.setattr(installing, "migrations", lambda: migrations()[:2])
        installing.install(connection)
    connection.execute(FILL, [list(JOB_STATES)])
    assert [row[0] for row in connection.execute("select max(version) from x_schema")] == [2]
    assert installing.install(dsn).is_current
    return PostgresDriver(dsn)


def test_rows_of_every_state_are_what_they_were(upgraded: PostgresDriver) -> None:
    """S-075, S-389: each is listed under its state, and counted."""
    inspection = upgraded.stores().inspection
    assert inspection is not None
    for state in JOB_STATES:
        found = inspection.list(JobFilter(state=state))
        assert sorted(job.idempotency_key for job in found) == [f"{state}{n}" for n in (1, 2, 3)]
    (stats,) = upgraded.stores().jobs.stats()
    assert (stats.ready, stats.delayed, stats.running, stats.suspended) == (6, 0, 3, 3)
    assert (stats.done, stats.failed, stats.dead, stats.cancelled) == (3, 3, 3, 3)
    assert [job.idempotency_key for job in inspection.dead_letters(limit=2)] == ["dead1", "dead2"]
    upgraded.close()


def test_running_rows_of_an_earlier_release_are_taken_once_they_lapse(upgraded: PostgresDriver) -> None:
    """S-075, S-092: the workers that ran them are gone by then."""
    options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w1", limit=20)
    claimed = upgraded.control().jobs.claim(options).jobs
    assert [job.idempotency_key[:-1] for job in claimed[:3]] == ["running"] * 3
    assert sorted(job.claims for job in claimed) == [2] * 12
    upgraded.close()


def test_keys_of_live_rows_are_still_taken_and_those_of_finished_ones_free(upgraded: PostgresDriver) -> None:
    """S-075, S-047."""
    jobs = upgraded.stores().jobs
    results = jobs.enqueue([new_job(idempotency_key=key) for key in ("running1", "suspended2", "done3", "cancelled1")])
    assert [result.deduplicated for result in results] == [True, True, False, False]
    upgraded.close()
