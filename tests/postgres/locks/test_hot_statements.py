"""What the hot statements lock, and what they do about rows that others have locked."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import psycopg
import pytest

from rowsweep.errors import LeaseLost
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.records import Claim, ClaimOptions, Job, claim_of
from rowsweep.queue.stores.steps import StepPut
from rowsweep.queue.verdicts import Bury, Done, Park, Settlement
from tests.queue.world import ERROR, batch_close, new_backfill, new_job

Other = psycopg.Connection[Any]


def options(limit: int, worker: str = "w1", *, lapsed: bool = False) -> ClaimOptions:
    """Claim `mail` jobs."""
    return ClaimOptions(queues=["default"], names=["mail"], worker_id=worker, limit=limit, lapsed=lapsed)


def take(driver: PostgresDriver, amount: int) -> list[Job]:
    """Enqueue jobs and claim them."""
    driver.stores().jobs.enqueue([new_job() for _ in range(amount)])
    return driver.control().jobs.claim(options(amount)).jobs


def free_rows(other: Other) -> int:
    """Count the rows that another session may still lock."""
    return len(other.execute("select id from x_jobs for update skip locked").fetchall())


def test_a_claim_locks_no_more_rows_than_its_limit(driver: PostgresDriver, other: Other) -> None:
    """S-091, DESIGN §4: the overscan reads rows, and leaves all it does not hand out free for other workers."""
    driver.stores().jobs.enqueue([new_job(priority=n % 3) for n in range(200)])
    with driver.transaction() as tx:
        assert len(tx.stores.jobs.claim(options(7)).jobs) == 7
        assert free_rows(other) == 193


def test_a_lapsed_pass_locks_no_more_rows_than_its_limit(driver: PostgresDriver, other: Other) -> None:
    """S-092: nor does the pass over lapsed rows."""
    take(driver, 50)
    other.execute("update x_jobs set visible_at = now() - interval '1 second'")
    with driver.transaction() as tx:
        assert len(tx.stores.jobs.claim(options(7, "w2", lapsed=True)).jobs) == 7
        assert free_rows(other) == 43


def test_workers_that_meet_at_the_head_find_the_rows_behind(driver: PostgresDriver) -> None:
    """D-16: a pass is full although the rows at the head are another worker's, not yet committed."""
    driver.stores().jobs.enqueue([new_job() for _ in range(30)])
    with driver.transaction() as tx:
        first = tx.stores.jobs.claim(options(10)).jobs
        second = driver.control().jobs.claim(options(10, "w2")).jobs
    assert len(first) == len(second) == 10
    assert not {job.id for job in first} & {job.id for job in second}


def test_many_workers_claim_each_row_once(driver: PostgresDriver) -> None:
    """S-091: no row twice and none left, with claims and settles side by side."""
    driver.stores().jobs.enqueue([new_job(priority=n % 4) for n in range(600)])
    claimed: list[Any] = []

    def work(worker: str) -> None:
        while jobs := driver.control().jobs.claim(options(9, worker)).jobs:
            claimed.extend(job.id for job in jobs)
            settle_all(driver, [Settlement(claim=claim_of(job), verdict=Done()) for job in jobs])

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(claimed) == len(set(claimed)) == 600


def test_a_locked_row_is_neither_settled_nor_lost(driver: PostgresDriver, other: Other) -> None:
    """N-035, N-038: None for the locked one, and the others are not held up."""
    locked, free = take(driver, 2)
    with other.transaction():
        other.execute("select from x_jobs where id = %s for no key update", [locked.id])
        claims = [claim_of(locked), claim_of(free)]
        assert driver.control().jobs.renew(claims, visibility_seconds=30) == [None, True]
        settlements = [Settlement(claim=claim, verdict=Done()) for claim in claims]
        assert driver.control().jobs.settle(settlements) == [None, True]
    assert driver.control().jobs.settle(settlements) == [True, False]


def test_a_locked_row_of_another_s_claim_is_lost(driver: PostgresDriver, other: Other) -> None:
    """N-038: the fence is asked before the lock."""
    (job,) = take(driver, 1)
    other.execute("update x_jobs set claims = claims + 1")
    with other.transaction():
        other.execute("select from x_jobs for no key update")
        assert driver.control().jobs.renew([claim_of(job)], visibility_seconds=30) == [False]


def test_a_put_holds_the_job_row_until_its_transaction_ends(driver: PostgresDriver, other: Other) -> None:
    """N-117: nobody may claim, renew, settle or cancel in between."""
    (job,) = take(driver, 1)
    put = StepPut(run_id=job.run_id, name="one", kind="run", status="done")
    with driver.transaction() as tx:
        tx.stores.steps.put(put, claim_of(job))
        assert free_rows(other) == 0
        assert driver.control().jobs.renew([claim_of(job)], visibility_seconds=30) == [None]
    assert free_rows(other) == 1


def test_a_guard_holds_the_job_row_and_misses_a_lost_claim(driver: PostgresDriver, other: Other) -> None:
    """N-117: true with the row locked, false once the claim is another's."""
    (job,) = take(driver, 1)
    with driver.transaction() as tx:
        assert tx.stores.steps.guard(claim_of(job)) is True
        assert free_rows(other) == 0
    other.execute("update x_jobs set claims = claims + 1")
    assert driver.stores().steps.guard(claim_of(job)) is False


def test_a_put_that_misses_writes_nothing(driver: PostgresDriver, other: Other) -> None:
    """S-159: the fence and the write are one statement."""
    (job,) = take(driver, 1)
    other.execute("update x_jobs set claims = claims + 1")
    with pytest.raises(LeaseLost):
        driver.stores().steps.put(StepPut(run_id=job.run_id, name="one", kind="run", status="done"), claim_of(job))
    assert driver.stores().steps.list(job.run_id) == []


def test_a_close_that_waited_for_the_job_row_reads_the_checkpoint_committed_meanwhile(
    driver: PostgresDriver, other: Other
) -> None:
    """N-062: of two closes of one batch the second finds the checkpoint moved, although it began before."""
    (job,) = take(driver, 1)
    ledger = driver.stores().ledger
    assert ledger is not None
    ledger.start(new_backfill(job.run_id))
    assert ledger.progress(batch_close(job, expected=None, value={"index": 0})).expected
    answers = []
    again = batch_close(job, expected={"index": 0}, value={"index": 1})
    with driver.transaction() as tx:
        assert tx.stores.ledger is not None
        assert tx.stores.ledger.progress(again).expected
        waiting = threading.Thread(target=lambda: answers.append(ledger.progress(again)))
        waiting.start()
        wait_until_blocked(other)
    waiting.join(30)
    assert (answers[0].held, answers[0].expected) == (True, False)


def test_the_settle_that_waited_for_the_ledger_row_sees_the_resume(driver: PostgresDriver, other: Other) -> None:
    """N-080: `wanted` is asked under the ledger row's lock, not in the statement's snapshot."""
    (job,) = take(driver, 1)
    ledger = driver.stores().ledger
    assert ledger is not None
    ledger.start(new_backfill(job.run_id))
    ledger.steer(job.run_id, "pause")
    answers = []
    parked = Settlement(claim=claim_of(job), verdict=Park(pausing=True), sweep=True)
    with other.transaction():
        other.execute("update x_backfills set wanted = 'run'")
        settling = threading.Thread(target=lambda: answers.append(driver.control().jobs.settle([parked])))
        settling.start()
        wait_until_blocked(other)
    settling.join(30)
    row = ledger.get(job.run_id)
    assert answers == [[True]]
    assert row is not None
    assert row.status == "running"
    (due,) = other.execute("select run_at <= now() from x_jobs").fetchall()
    assert due == (True,)


def test_a_slot_is_not_taken_from_a_holder_inside_a_fenced_transaction(driver: PostgresDriver, other: Other) -> None:
    """S-332, N-117: what it writes there is still under its slot; then the slot goes, and its claim with it."""
    (job,) = take(driver, 1)
    slots = driver.control().slots
    assert slots is not None
    claim = Claim(job_id=uuid.uuid4(), worker_id="w2", claim=1)
    assert slots.acquire("job:mail", limit=1, ttl_seconds=30, claim=claim_of(job)) is not None
    other.execute("update x_job_leases set expires_at = now() - interval '1 second'")
    with driver.transaction() as tx:
        assert tx.stores.steps.guard(claim_of(job)) is True
        assert slots.acquire("job:mail", limit=1, ttl_seconds=30, claim=claim) is None
    assert slots.acquire("job:mail", limit=1, ttl_seconds=30, claim=claim) is not None
    assert driver.stores().steps.guard(claim_of(job)) is False


def test_settles_and_renewals_of_the_same_rows_never_deadlock(driver: PostgresDriver) -> None:
    """N-035: whatever the order a group was given in; nobody waits for a job row, and all else is locked in order."""
    jobs = take(driver, 60)
    claims = [claim_of(job) for job in jobs]
    stop = threading.Event()
    failures: list[BaseException] = []

    def renew(order: int) -> None:
        try:
            while not stop.is_set():
                driver.control().jobs.renew(claims[::order], visibility_seconds=30)
        except BaseException as error:  # noqa: BLE001 - any failure of the thread is the test's
            failures.append(error)

    threads = [threading.Thread(target=renew, args=(order,)) for order in (1, -1)]
    for thread in threads:
        thread.start()
    for start in range(0, 60, 20):
        group = claims[start : start + 20]
        settle_all(driver, [Settlement(claim=claim, verdict=Bury(error=ERROR)) for claim in reversed(group)])
    stop.set()
    for thread in threads:
        thread.join(30)
    assert failures == []


def settle_all(driver: PostgresDriver, group: list[Settlement]) -> None:
    """Settle until all have landed: another worker's claim may look at a row, and lock it, that it then leaves."""
    while group:
        answers = driver.control().jobs.settle(group)
        assert False not in answers
        group = [one for one, answer in zip(group, answers, strict=True) if answer is None]


def wait_until_blocked(other: Other) -> None:
    """Wait until some session waits for a lock that this one's database holds."""
    for _ in range(2_000):
        waiting = other.execute(
            "select count(*) from pg_locks l where not l.granted and l.locktype in ('transactionid', 'tuple')"
        ).fetchone()
        if waiting is not None and waiting[0] > 0:
            return
    pytest.fail("nobody waits for the lock")
