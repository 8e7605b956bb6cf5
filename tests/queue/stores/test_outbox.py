"""The outbox's store over both drivers: staging, leases, marks, failures."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from rowsweep.errors import InvalidOption, RowsweepError
from rowsweep.queue.stores.outbox import StagedJob
from tests.queue.world import World, new_job


def stage(world: World, *names: str, **changes: Any) -> list[UUID]:
    """Stage a job of each name; answer their ids."""
    return [result.id for result in world.outbox.stage([new_job(name, **changes) for name in names or ("mail",)])]


def claim(world: World, relay: str = "r1", *, limit: int = 10) -> list[StagedJob]:
    return world.outbox.claim(relay, limit=limit, lease_seconds=30).rows


def ids(rows: list[StagedJob]) -> list[UUID]:
    return [row.job.id for row in rows]


def test_a_staged_job_is_none_yet_and_keeps_all_that_was_asked_for(world: World) -> None:
    """S-356, S-366, N-028: every column of a request, the trace context with it."""
    asked = new_job(
        "mail",
        queue="post",
        priority=7,
        input={"to": ["ann", None, 1.5]},
        tenant_id="t",
        concurrency_key="c",
        max_attempts=3,
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        enqueued_by="ann@shop",
    )
    (answer,) = world.outbox.stage([asked])
    assert (answer.id, answer.run_id, answer.state, answer.deduplicated) == (asked.id, asked.run_id, "staged", False)
    (row,) = world.outbox.list()
    assert row.job == asked
    assert (row.status, row.attempts, row.claimed_by, row.lease_until) == ("pending", 0, None, None)
    assert abs(row.created_at - world.hands.now()) < timedelta(seconds=10)
    assert world.jobs.stats() == []
    assert world.outbox.stage([]) == []


def test_a_delay_counts_from_the_staging(world: World) -> None:
    """D-24: a job that is published late is not late twice; without one it is due when it is published."""
    stage(world, delay_seconds=3_600.0)
    stage(world)
    at_once, later = world.outbox.list()
    assert later.job.delay_seconds is None
    assert later.job.run_at is not None
    assert abs(later.job.run_at - world.hands.now() - timedelta(hours=1)) < timedelta(seconds=10)
    assert at_once.job.run_at is None


def test_staging_is_all_or_nothing(world: World) -> None:
    """S-356: a second row of one id refuses the statement."""
    twice = new_job("mail")
    with pytest.raises(RowsweepError):
        world.outbox.stage([new_job("mail"), twice, twice])
    assert world.outbox.list() == []


def test_a_transaction_that_rolls_back_stages_nothing(world: World) -> None:
    """S-356: the row is its caller's transaction's."""
    with pytest.raises(ZeroDivisionError), world.driver.transaction() as tx:  # noqa: PT012 - a transaction that the raise ends
        assert tx.stores.outbox is not None
        tx.stores.outbox.stage([new_job("mail")])
        raise ZeroDivisionError
    assert world.outbox.list() == []
    with world.driver.transaction() as tx:
        assert tx.stores.outbox is not None
        tx.stores.outbox.stage([new_job("mail")])
    assert len(world.outbox.list()) == 1


def test_a_claim_takes_the_smallest_ids_and_nobody_else_gets_them(world: World) -> None:
    """D-22, S-360: batches in id order, under a lease."""
    staged = stage(world, *(f"job-{number}" for number in range(5)))
    assert ids(claim(world, limit=2)) == staged[:2]
    second = claim(world, "r2", limit=2)
    assert ids(second) == staged[2:4]
    assert {row.claimed_by for row in second} == {"r2"}
    assert all(row.lease_until is not None and row.lease_until > world.hands.now() for row in second)
    assert ids(claim(world)) == staged[4:]
    assert claim(world) == []


def test_a_lease_that_lapsed_is_taken_over(world: World) -> None:
    """S-361: a relay that died in a batch strands nothing, and marks nothing any more."""
    staged = stage(world, "a", "b")
    claim(world, "r1")
    world.hands.pass_time(31)
    assert ids(claim(world, "r2")) == staged
    assert world.outbox.publish(staged, "r1") == []
    assert world.outbox.release(staged, "r1") == []
    assert world.outbox.refuse(staged[0], "r1", error="no", delay_seconds=1, attempts=20) is None
    assert world.outbox.publish(staged, "r2") == staged


def test_a_published_row_is_never_claimed_again(world: World) -> None:
    """S-362, D-22: on Postgres it stays with its instant, in memory it is gone."""
    (staged,) = stage(world)
    claim(world)
    assert world.outbox.publish([staged], "r1") == [staged]
    world.hands.pass_time(3_600)
    assert claim(world) == []
    assert world.outbox.list(status="pending") == []
    kept = world.outbox.list()
    if world.driver.name == "memory":
        assert kept == []
    else:
        assert [row.status for row in kept] == ["published"]
        assert kept[0].published_at is not None
        assert world.outbox.list(status="published") == kept
    assert world.outbox.publish([staged], "r1") == []


def test_what_was_not_published_is_given_back(world: World) -> None:
    """S-365: due at once, for anybody."""
    staged = stage(world, "a", "b")
    claim(world)
    world.outbox.publish(staged[:1], "r1")
    assert world.outbox.release(staged, "r1") == staged[1:]
    (row,) = claim(world, "r2")
    assert (row.job.id, row.attempts) == (staged[1], 0)


def test_a_failure_waits_and_counts(world: World) -> None:
    """D-22: attempts + 1 and the error, due again after the delay; the others go on."""
    first, second = stage(world, "a", "b")
    claim(world)
    refused = world.outbox.refuse(first, "r1", error="ValueError: no", delay_seconds=60, attempts=20)
    assert refused is not None
    assert (refused.attempts, refused.last_error, refused.claimed_by) == (1, "ValueError: no", None)
    assert refused.status == "pending"
    world.outbox.publish([second], "r1")
    taken = world.outbox.claim("r2", limit=10, lease_seconds=30)
    assert taken.rows == []
    assert taken.next_at == refused.lease_until
    assert taken.next_in_seconds == pytest.approx(60, abs=5)
    world.hands.pass_time(61)
    (again,) = claim(world, "r2")
    assert (again.job.id, again.attempts) == (first, 1)


def test_the_last_failure_is_the_end_until_somebody_retries(world: World) -> None:
    """D-22: `dead_at`, and not claimed any more; retried it begins anew."""
    first, second = stage(world, "a", "b")
    claim(world)
    for failed in (first, second):
        dead = world.outbox.refuse(failed, "r1", error="no", delay_seconds=60, attempts=1)
        assert dead is not None
        assert (dead.status, dead.lease_until) == ("dead", None)
    world.hands.pass_time(3_600)
    assert claim(world) == []
    assert ids(world.outbox.list(status="dead")) == [second, first]
    assert world.outbox.retry([first]) == [first]
    (row,) = claim(world)
    assert (row.job.id, row.attempts, row.dead_at) == (first, 0, None)
    assert world.outbox.retry() == [second]
    assert ids(claim(world, "r2")) == [second]
    assert world.outbox.retry() == []


def test_a_row_that_waits_is_retried_by_its_id_alone(world: World) -> None:
    """D-40: `outbox retry ID` does not wait for the curve, and takes nothing out of a relay's hands."""
    waiting, claimed = stage(world, "a", "b")
    claim(world)
    world.outbox.refuse(waiting, "r1", error="no", delay_seconds=300, attempts=20)
    assert world.outbox.retry() == []
    assert world.outbox.retry([waiting, claimed]) == [waiting]
    assert ids(claim(world, "r2")) == [waiting]


def test_a_full_pass_says_nothing_of_what_comes_next(world: World) -> None:
    """D-22: another is taken at once then; an empty outbox has nothing to come."""
    assert world.outbox.claim("r1", limit=1, lease_seconds=30).next_at is None
    stage(world, "a", "b")
    assert world.outbox.claim("r1", limit=1, lease_seconds=30).next_at is None
    assert world.outbox.claim("r2", limit=1, lease_seconds=30).next_at is None
    lapses = world.outbox.claim("r3", limit=1, lease_seconds=30).next_at
    assert lapses is not None
    assert timedelta(seconds=20) < lapses - world.hands.now() <= timedelta(seconds=30)


def test_the_backlog_is_counted(world: World) -> None:
    """N-105: pending, how long the oldest has waited, and the dead."""
    assert (world.outbox.backlog().pending, world.outbox.backlog().oldest_pending_seconds) == (0, None)
    dead, gone, _ = stage(world, "a", "b", "c")
    claim(world, limit=2)
    world.outbox.refuse(dead, "r1", error="no", delay_seconds=1, attempts=1)
    world.outbox.publish([gone], "r1")
    world.hands.pass_time(90)
    backlog = world.outbox.backlog()
    assert (backlog.pending, backlog.dead) == (1, 1)
    assert backlog.oldest_pending_seconds is not None
    assert 89 < backlog.oldest_pending_seconds < 120


def test_staging_says_so_on_the_wake_once(world: World) -> None:
    """D-25: `*outbox`, once a statement and never a row; a retry says it too, giving back does not."""
    source = world.driver.listen()
    assert source is not None
    staged = stage(world, *("mail" for _ in range(50)))
    assert source.hear(10) == ["*outbox"]
    claim(world, limit=50)
    world.outbox.release(staged, "r1")
    assert source.hear(0) == []
    claim(world, limit=50)
    world.outbox.refuse(staged[0], "r1", error="no", delay_seconds=1, attempts=1)
    world.outbox.retry()
    assert source.hear(10) == ["*outbox"]
    world.outbox.claim("r1", limit=1, lease_seconds=30, proof="*proof:x:1")
    assert source.hear(10) == ["*proof:x:1"]
    source.close()


def test_newest_rows_are_listed_first_up_to_the_limit(world: World) -> None:
    """D-40."""
    staged = stage(world, *(f"job-{number}" for number in range(5)))
    assert ids(world.outbox.list(limit=2)) == [staged[4], staged[3]]
    assert world.outbox.list(limit=0) == []


@pytest.mark.parametrize("limit", [-1, True, 1.5, 2**63])
def test_a_list_s_limit_that_is_no_count_is_refused(world: World, limit: Any) -> None:
    """S-355, D-35."""
    with pytest.raises(InvalidOption):
        world.outbox.list(limit=limit)
