"""What the queue's own tables let go of: by age, the oldest first, and never what something still needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rowsweep.queue.records import claim_of
from rowsweep.queue.stores.counters import CounterBucket, CounterTier
from rowsweep.queue.stores.retention import RETENTION_KINDS, RetentionKind, RetentionStore
from rowsweep.queue.stores.workers import WorkerInfo
from rowsweep.queue.verdicts import Done
from tests.queue.conftest import PostgresHands
from tests.queue.world import World, fresh_id, new_backfill, step_put, totals

DAY = 86_400.0


def store(world: World) -> RetentionStore:
    """Answer the store under test."""
    found = world.driver.stores().retention
    assert found is not None
    return found


def remove(world: World, kind: RetentionKind, *, seconds: float = 0.0, **more: Any) -> int:
    """Remove what has aged by more than so many seconds; answer how many rows."""
    return store(world).remove(kind, before=store(world).now() - timedelta(seconds=seconds), **more).rows


def removable(world: World, kind: RetentionKind, *, seconds: float = 0.0) -> int:
    """Count what has aged by more than so many seconds."""
    return store(world).removable(kind, before=store(world).now() - timedelta(seconds=seconds)).rows


@pytest.mark.parametrize("state", ["done", "cancelled", "failed", "dead"])
def test_a_finished_job_goes_by_its_state_once_it_is_old_enough(world: World, state: str) -> None:
    """D-39, N-029: by the instant at which it finished; the other states' jobs stay."""
    kind: Any = f"{state}-jobs"
    old = world.in_state(state)
    world.hands.pass_time(2 * DAY)
    young = world.in_state(state)
    others = [world.in_state(other) for other in ("done", "dead", "running", "ready") if other != state]
    assert removable(world, kind, seconds=DAY) == 1
    assert remove(world, kind, seconds=DAY) == 1
    assert removable(world, kind, seconds=DAY) == 0
    assert world.inspection.get(old) is None
    assert all(world.inspection.get(job_id) is not None for job_id in (young, *others))


def test_a_live_job_never_goes(world: World) -> None:
    """D-39."""
    live = [world.in_state(state) for state in ("suspended", "running", "delayed", "ready")]
    world.hands.pass_time(400 * DAY)
    assert [remove(world, kind) for kind in RETENTION_KINDS if kind.endswith("jobs")] == [0, 0, 0, 0]
    assert all(world.inspection.get(job_id) is not None for job_id in live)


def finished_with_steps(world: World, **changes: Any) -> Any:
    """Run a job that stores two steps to its end."""
    job = world.running(**changes)
    for name in ("one", "two"):
        world.steps.put(step_put(job, name), claim_of(job))
    world.settle(job, Done())
    return job


def test_a_job_takes_its_steps_along(world: World) -> None:
    """D-39, S-080: nobody could read them any more."""
    job, other = finished_with_steps(world), world.running()
    world.steps.put(step_put(other), claim_of(other))
    world.hands.pass_time(DAY)
    assert remove(world, "done-jobs") == 1
    assert world.steps.list(job.run_id) == []
    assert len(world.steps.list(other.run_id)) == 1


def test_the_steps_of_a_run_stay_while_one_of_its_jobs_does(world: World) -> None:
    """D-39, N-087: a run of several jobs keeps its steps until its last one goes."""
    job = finished_with_steps(world)
    sibling = world.enqueue(run_id=job.run_id, delay_seconds=10 * DAY)
    world.hands.pass_time(DAY)
    assert remove(world, "done-jobs") == 1
    assert len(world.steps.list(job.run_id)) == 2
    assert world.steering.cancel(sibling) is not None
    world.hands.pass_time(DAY)
    assert remove(world, "cancelled-jobs") == 1
    assert world.steps.list(job.run_id) == []


def test_rows_go_the_oldest_first_and_a_call_says_where_it_left_off(world: World) -> None:
    """D-8: a bounded part a statement; the cursor is carried from one to the next."""
    jobs = []
    for _ in range(5):
        jobs.append(world.in_state("done"))
        world.hands.pass_time(60)
    before = store(world).now()
    first = store(world).remove("done-jobs", before=before, limit=2)
    assert first.rows == 2
    assert first.last_at is not None
    assert [world.inspection.get(job_id) is None for job_id in jobs] == [True, True, False, False, False]
    second = store(world).remove("done-jobs", before=before, after=first.last_at, limit=10)
    assert second.rows == 3
    assert store(world).remove("done-jobs", before=before, after=second.last_at).rows == 0


def test_what_can_go_is_counted_with_its_oldest_and_newest(world: World) -> None:
    """D-8: what a preview shows."""
    nothing = store(world).removable("done-jobs", before=store(world).now())
    assert (nothing.rows, nothing.oldest_at, nothing.newest_at) == (0, None, None)
    old = world.job(world.in_state("done"))
    world.hands.pass_time(DAY)
    new = world.job(world.in_state("done"))
    world.hands.pass_time(60)
    seen = store(world).removable("done-jobs", before=store(world).now())
    assert seen.rows == 2
    assert seen.oldest_at is not None
    assert seen.newest_at is not None
    assert abs((new.updated_at - old.updated_at).total_seconds()) <= (seen.newest_at - seen.oldest_at).total_seconds()


def test_only_expired_events_go(world: World) -> None:
    """D-39, S-176."""
    world.publish(ttl_seconds=60.0)
    kept = world.publish(ttl_seconds=2 * DAY).event
    world.hands.pass_time(DAY)
    assert removable(world, "events") == 1
    assert remove(world, "events") == 1
    assert [event.id for event in world.events.list()] == [kept.id]


def announced(worker_id: str) -> WorkerInfo:
    """Announce a worker."""
    return WorkerInfo(
        id=worker_id, host="here", pid=1, app_version=None, queues=["default"], names=["mail"], concurrency=None,
        state="running", in_flight=0, processed=0, interrupted=0, wake=False,
    )  # fmt: skip


def test_only_workers_and_slots_that_expired_go(world: World) -> None:
    """D-39."""
    world.workers.look(queues=["default"], names=["mail"], announce=announced("gone"))
    job = world.running()
    assert world.slots.acquire("key", limit=1, ttl_seconds=30.0, claim=claim_of(job)) is not None
    world.hands.pass_time(DAY)
    world.workers.look(queues=["default"], names=["mail"], announce=announced("here"))
    assert (remove(world, "workers"), remove(world, "slots")) == (1, 0), "taking its slot would end the claim"
    world.settle(job, Done())
    assert (removable(world, "slots"), remove(world, "slots")) == (1, 1)
    assert [info.id for info, _ in world.workers.live()] == ["here"]
    assert (remove(world, "workers"), remove(world, "slots")) == (0, 0)


@pytest.mark.parametrize("ended", ["finished", "cancelled"])
def test_only_ended_purges_leave_the_ledger(world: World, ended: str) -> None:
    """D-3, D-39: the gate reads the rows of backfills and exports, however old; an open purge is at work."""
    rows = {}
    for kind in ("backfill", "export", "purge"):
        job = world.running()
        world.ledger.start(replace(new_backfill(job.run_id, kind), kind=kind))
        if ended == "finished":
            assert world.ledger.finish(claim_of(job), job.run_id, totals(1))
        else:
            world.ledger.steer(job.run_id, "cancel")
        rows[kind] = job.run_id
    at_work = world.running()
    world.ledger.start(replace(new_backfill(at_work.run_id, "purge"), kind="purge"))
    world.hands.pass_time(40 * DAY)
    assert removable(world, "purges", seconds=30 * DAY) == 1
    assert remove(world, "purges", seconds=30 * DAY) == 1
    assert world.ledger.get(rows["purge"]) is None
    assert all(world.ledger.get(run_id) is not None for run_id in (rows["backfill"], rows["export"], at_work.run_id))


def test_nothing_goes_before_its_time(world: World) -> None:
    """D-39: every kind, over rows of today."""
    for state in ("done", "cancelled", "failed", "dead"):
        world.in_state(state)
    world.publish()
    assert {kind: remove(world, kind, seconds=DAY) for kind in RETENTION_KINDS} == dict.fromkeys(RETENTION_KINDS, 0)


def test_a_counter_goes_only_once_a_coarser_one_holds_it(world: World) -> None:
    """D-39, D-20: what is not folded yet would be lost; a shard is a row like any other."""
    hour = world.hands.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)

    def put(tier: CounterTier, at: timedelta, name: str, *, shard: int = 0) -> None:
        world.hands.put_counter(CounterBucket(tier=tier, bucket_at=hour + at, name=name), shard=shard)

    put("minute", timedelta(minutes=7), "folded", shard=1)
    put("hour", timedelta(0), "folded")
    put("minute", timedelta(minutes=7), "unfolded", shard=1)
    put("day", timedelta(days=-500), "ancient")
    assert removable(world, "minute-counters", seconds=7_200) == 1
    assert remove(world, "minute-counters", seconds=7_200) == 1
    assert remove(world, "hour-counters", seconds=3_600) == 0
    assert remove(world, "day-counters", seconds=400 * DAY) == 1
    assert [bucket.name for bucket in world.counters.list()] == ["unfolded"]


@pytest.fixture
def execute(world: World) -> Callable[..., list[Any]]:
    """SQL on the tables of the Postgres driver."""
    if not isinstance(world.hands, PostgresHands):
        pytest.skip("the memory driver keeps no such rows")
    connection = world.hands._connection

    def run(text: str, *values: Any) -> list[Any]:
        cursor = connection.execute(text, values)
        return cursor.fetchall() if cursor.description else []

    return run


def test_published_outbox_rows_go_and_pending_ones_stay(world: World, execute: Callable[..., list[Any]]) -> None:
    """D-39."""
    execute("delete from x_outbox")
    insert = (
        "insert into x_outbox (id, name, input, idempotency_key, run_id, max_attempts, published_at, dead_at)"
        " values (%s, 'mail', 'null', %s, %s, 1, now() - make_interval(days => %s), now() - make_interval(days => %s))"
    )
    for published, dead in ((8, None), (6, None), (None, None), (None, 90)):
        row_id = fresh_id()
        execute(insert, row_id, str(row_id), row_id, published, dead)
    assert removable(world, "outbox", seconds=7 * DAY) == 1
    assert remove(world, "outbox", seconds=7 * DAY) == 1
    assert execute("select count(*) from x_outbox") == [(3,)]
    execute("delete from x_outbox")


def test_a_row_locked_elsewhere_is_passed_over(world: World, execute: Callable[..., list[Any]]) -> None:
    """D-39, S-217: the next pass takes it."""
    held, free = world.in_state("done"), world.in_state("done")
    world.hands.pass_time(DAY)
    with world.driver.transaction() as tx:
        tx.connection.execute("select from x_jobs where id = %s for update", [held])
        assert remove(world, "done-jobs") == 1
        assert world.inspection.get(free) is None
    assert remove(world, "done-jobs") == 1
