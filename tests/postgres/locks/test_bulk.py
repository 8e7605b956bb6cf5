"""What the bulk verbs lock, and what they do about rows and keys that others have."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from rowsweep.clock import real_monotonic
from rowsweep.queue.contract import SteeringStore, Stores
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.selection import BulkResult, JobSet
from tests.queue.world import new_backfill, new_job

Other = psycopg.Connection[Any]
Verb = Callable[[SteeringStore], BulkResult]
VERBS: dict[str, Verb] = {
    "requeue": lambda steering: steering.requeue_many(JobSet(state="dead"), limit=7),
    "remove": lambda steering: steering.remove_many(JobSet(), limit=7),
    "promote": lambda steering: steering.promote_many(JobSet(), limit=7),
}


class Undone(Exception):
    """Leave a transaction as if it had never been."""


def prepare(driver: PostgresDriver, other: Other, verb: str, amount: int) -> None:
    """Put rows there that the verb moves."""
    driver.stores().jobs.enqueue([new_job(delay_seconds=60) for _ in range(amount)])
    if verb != "promote":
        other.execute("update x_jobs set state = 'dead'")


def steering_of(stores: Stores) -> SteeringStore:
    assert stores.steering is not None
    return stores.steering


def wait_for_a_lock(other: Other) -> None:
    """Wait until a statement about jobs waits for a lock."""
    deadline_at = real_monotonic() + 30
    waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%x_jobs%'"
    while other.execute(waits).fetchone() == (0,):
        assert real_monotonic() < deadline_at, "nothing waited"


@pytest.mark.parametrize("verb", VERBS)
def test_a_bulk_verb_locks_no_more_rows_than_it_moves(driver: PostgresDriver, other: Other, verb: str) -> None:
    """S-399, DESIGN §4."""
    prepare(driver, other, verb, 50)
    with driver.transaction() as tx:
        assert VERBS[verb](steering_of(tx.stores)) == BulkResult(affected=7, remaining=43)
        assert len(other.execute("select id from x_jobs for update skip locked").fetchall()) == 43


@pytest.mark.parametrize("verb", VERBS)
def test_calls_side_by_side_skip_each_other_s_rows(driver: PostgresDriver, other: Other, verb: str) -> None:
    """D-27: `affected` counts a call's own; neither waits for the other."""
    prepare(driver, other, verb, 20)
    with driver.transaction() as tx:
        assert VERBS[verb](steering_of(tx.stores)) == BulkResult(affected=7, remaining=13)
        assert VERBS[verb](steering_of(driver.stores())) == BulkResult(affected=7, remaining=13)
    assert VERBS[verb](steering_of(driver.stores())) == BulkResult(affected=6, remaining=0)


@pytest.mark.parametrize("verb", VERBS)
def test_many_calls_at_once_move_every_row_once(driver: PostgresDriver, other: Other, verb: str) -> None:
    """D-27, S-399: with sweeps of several jobs among them, whose ledger rows they share."""
    amount = 300
    runs = [new_job(delay_seconds=60) for _ in range(10)]
    stores = driver.stores()
    assert stores.ledger is not None
    for job in runs:
        stores.ledger.start(new_backfill(job.run_id))
    shared = [new_job(run_id=runs[n % 10].run_id, delay_seconds=60) for n in range(amount - 10)]
    stores.jobs.enqueue([*runs, *shared])
    if verb != "promote":
        other.execute("update x_jobs set state = 'dead'")
    moved: list[int] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                result = VERBS[verb](steering_of(driver.stores()))
                moved.append(result.affected)
                if not result.remaining:
                    return
        except BaseException as error:  # noqa: BLE001 - a thread's failure is the test's
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert sum(moved) == amount


@pytest.mark.parametrize("single", [True, False])
def test_a_requeue_that_meets_an_enqueue_of_the_key_leaves_the_row(
    driver: PostgresDriver, other: Other, single: bool
) -> None:
    """S-396, S-394: the enqueue commits while the requeue waits for it; the others of the set are moved."""
    from rowsweep.errors import DuplicateJob

    taken, free = driver.stores().jobs.enqueue([new_job(idempotency_key="k"), new_job()])
    other.execute("update x_jobs set state = 'dead'")
    answers: list[Any] = []

    def requeue() -> None:
        steering = steering_of(driver.stores())
        try:
            answers.append(steering.requeue(taken.id) if single else steering.requeue_many(JobSet(state="dead")))
        except BaseException as error:  # noqa: BLE001 - it is what is asked about
            answers.append(error)

    thread = threading.Thread(target=requeue)
    with driver.transaction() as tx:
        tx.stores.jobs.enqueue([new_job(idempotency_key="k")])
        thread.start()
        wait_for_a_lock(other)
    thread.join(60)
    if single:
        assert isinstance(answers[0], DuplicateJob)
        return
    assert answers == [BulkResult(affected=1, remaining=0)]
    states = dict(other.execute("select id, state from x_jobs").fetchall())
    assert (states[taken.id], states[free.id]) == ("dead", "ready")


def test_a_requeue_and_an_enqueue_of_the_same_keys_never_deadlock(driver: PostgresDriver, other: Other) -> None:
    """S-396: both bring keys to life in one order, and one waits for the other."""
    keys = [f"k{number:03}" for number in range(200)]
    for key in reversed(keys):
        driver.stores().jobs.enqueue([new_job(idempotency_key=key)])
    other.execute("update x_jobs set state = 'dead'")
    failed: list[BaseException] = []
    is_over = threading.Event()

    def enqueue() -> None:
        try:
            while not is_over.is_set():
                with suppress(Undone), driver.transaction() as tx:
                    tx.stores.jobs.enqueue([new_job(idempotency_key=key) for key in keys])
                    raise Undone
        except BaseException as error:  # noqa: BLE001 - a thread's failure is the test's
            failed.append(error)

    thread = threading.Thread(target=enqueue)
    thread.start()
    try:
        for _ in range(15):
            with suppress(Undone), driver.transaction() as tx:
                steering_of(tx.stores).requeue_many(JobSet(state="dead"))
                raise Undone
    finally:
        is_over.set()
        thread.join(60)
    assert failed == []


def test_a_requeue_that_is_chosen_to_end_a_deadlock_begins_anew(driver: PostgresDriver, other: Other) -> None:
    """S-396, N-024: a transaction that enqueues one key and then another may hold what the requeue waits for."""
    driver.stores().jobs.enqueue([new_job(idempotency_key=key) for key in ("a", "b")])
    other.execute("update x_jobs set state = 'dead'")
    answers: list[Any] = []

    def requeue() -> None:
        try:
            answers.append(steering_of(driver.stores()).requeue_many(JobSet(state="dead")))
        except BaseException as error:  # noqa: BLE001 - it is what is asked about
            answers.append(error)

    thread = threading.Thread(target=requeue)
    with driver.transaction() as tx:
        tx.connection.execute("set local deadlock_timeout = '60s'")
        tx.stores.jobs.enqueue([new_job(idempotency_key="b")])
        thread.start()
        wait_for_a_lock(other)
        tx.stores.jobs.enqueue([new_job(idempotency_key="a")])
    thread.join(60)
    assert answers == [BulkResult(affected=0, remaining=0)]
