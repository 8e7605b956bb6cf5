"""The system's own tables, purged by the shipped purge on its shipped cron."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.app.connecting import connect
from rowsweep.jobs.registry import find_job, reset_jobs
from rowsweep.jobs.tasks.registry import registered_tasks, reset_tasks
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.sweeps.purge.targets.own import OwnTarget, declare_retention
from rowsweep.sweeps.purge.targets.target import BatchedTarget
from rowsweep.testing.clock import FakeClock
from rowsweep.worker.worker import Worker
from tests.sweeps.field import Field, fields_of


@pytest.fixture(autouse=True)
def fresh_tasks() -> Iterator[None]:
    """Declare no task beyond the test."""
    reset_tasks()
    yield
    reset_tasks()


def finished(field: Field, days: int, state: str = "done") -> None:
    """Put a job that finished so many days ago, with a step."""
    field.queue_sql(
        "with job as (insert into {x_jobs} (id, name, state, input, idempotency_key, run_id, max_attempts, run_at, "
        "updated_at, created_at) select gen_random_uuid(), 'mail', %(state)s, 'null', gen_random_uuid()::text, "
        "gen_random_uuid(), 1, now(), now() - make_interval(days => %(days)s), now() - make_interval(days => %(days)s) "
        "returning run_id) insert into {x_job_steps} (run_id, name, kind, status, started_at) "
        "select run_id, 'one', 'run', 'done', now() from job",
        {"state": state, "days": days},
    )


def test_retention_removes_what_is_over_and_nothing_else(field: Field) -> None:
    """D-39, S-218: jobs with their steps by state and age; no share is too large."""
    for state in ("done", "cancelled", "dead", "failed"):
        for days in (1, 8, 31):
            finished(field, days, state)
    retention, _ = declare_retention()
    result = field.sweep(retention)
    assert result["removed"]["rowsweep-jobs"] == 4
    assert result["removed"]["rowsweep-dead-jobs"] == 2
    assert result["total"] == sum(result["removed"].values())
    left = field.queue_sql("select state, count(*) from {x_jobs} where name = 'mail' group by 1 order by 1")
    assert left == [("cancelled", 1), ("dead", 2), ("done", 1), ("failed", 2)]
    assert field.queue_sql("select count(*) from {x_job_steps} where name = 'one'") == [(6,)]


def test_ledger_rows_of_purges_go_and_others_stay_for_ever(field: Field) -> None:
    """D-3, D-39: the applied gate reads them."""
    field.orders(5)
    field.sweep(rs.backfill("totals", rows=rs.Rows("orders"), set={"total": "qty"}))
    retention, _ = declare_retention()
    field.sweep(retention)
    field.queue_sql(
        "update {x_backfills} set finished_at = now() - interval '31 days', started_at = now() - interval '31 days'"
    )
    result = field.sweep(retention)
    assert result["removed"]["rowsweep-purges"] == 1
    rows = field.queue_sql("select name, kind from {x_backfills} order by 1")
    assert rows == [("rowsweep-retention", "purge"), ("totals", "backfill")]
    assert find_job("totals").status_here()["state"] == "applied"  # type: ignore[union-attr]


def test_retention_goes_batch_by_batch(field: Field, caplog: pytest.LogCaptureFixture) -> None:
    """D-8: it can be stopped, paced and counted in between."""
    for _ in range(25):
        finished(field, 9)
    with pytest.MonkeyPatch.context() as patched, caplog.at_level("DEBUG", "rowsweep"):
        patched.setattr("rowsweep.sweeps.purge.targets.own._BATCH_ROWS", 10)
        run = rs.purge("small", targets=rs.own_targets, budget=rs.Budget(rows=20)).launch()
        result = field.finish(run)
    assert result["removed"]["rowsweep-jobs"] == 20
    assert result["backlog"]["rowsweep-jobs"] is None
    assert [batch["rows"] for batch in fields_of(caplog.records, "sweeps.batch")] == [10, 10]
    assert field.row(run).rows == 20


def test_own_targets_can_stand_beside_an_applications(field: Field) -> None:
    """D-39: in one purge; every one is a target like any."""
    targets = rs.own_targets()
    assert all(isinstance(target, BatchedTarget) for target in targets)
    assert len({target.name for target in targets}) == len(targets)
    field.sql("create table events (id int primary key, at timestamptz)")
    result = field.sweep(rs.purge("all", targets=lambda: [*rs.own_targets(), rs.expired("events", "at")]))
    assert set(result["removed"]) == {"events", *(target.name for target in targets)}


def test_retention_is_previewed(field: Field) -> None:
    """D-8: counts, and how old."""
    finished(field, 9)
    finished(field, 20)
    finished(field, 1)
    retention, _ = declare_retention()
    (line,) = [line for line in retention.preview().to_dicts() if line["target"] == "rowsweep-jobs"]
    now = field.one("select now()")
    assert (line["rows"], line["rows_are"]) == (2, "exact")
    assert timedelta(days=19) < now - line["oldest"] < timedelta(days=21)
    assert timedelta(days=8) < now - line["newest"] < timedelta(days=10)


def test_retention_is_declared_once_on_its_cron(field: Field) -> None:
    """S-218: the constant, the job and the task; what an application declared under the name stays."""
    assert rs.RETENTION_CRON == "17 * * * *"
    retention, hourly = declare_retention()
    assert declare_retention() == (retention, hourly)
    assert (retention.name, hourly.name) == ("rowsweep-retention", "rowsweep-retention")
    (task,) = registered_tasks()
    assert (task.options.cron, task.options.tz) == (rs.RETENTION_CRON, "UTC")
    assert task.options.enqueue(datetime(2026, 1, 1, tzinfo=UTC)) == [(retention, None)]


def test_an_application_may_declare_its_own_retention(field: Field) -> None:
    """S-218."""

    def targets() -> list[OwnTarget]:
        return rs.own_targets()[:1]

    mine = rs.purge("rowsweep-retention", targets=targets)
    assert declare_retention()[0] is mine


def test_retention_over_the_memory_driver() -> None:
    """D-39: structural targets need no table of Postgres."""
    reset_jobs()
    clock = FakeClock()
    driver = MemoryDriver(clock)
    app = connect(driver=driver, work=False)
    worker = Worker(driver=driver, context=lambda: None)
    try:

        @rs.job("mail", tenant="none")
        def mail(ctx: rs.Ctx) -> None:
            """Do nothing."""

        mail.enqueue()
        worker.tick()
        clock.advance(timedelta(days=8))
        retention, _ = declare_retention()
        run: Any = retention.launch()
        worker.tick()
        assert run.wait("1s")["removed"]["rowsweep-jobs"] == 1
        assert run.snapshot().rows == 1
    finally:
        worker.stop()
        app.close()
        reset_jobs()
