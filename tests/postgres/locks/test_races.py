"""Keys of live jobs that come and go between two statements of another session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from rowsweep.errors import DuplicateJob, InvariantBroken, RowsweepError
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.stores import enqueue as statements
from rowsweep.queue.records import ClaimOptions, claim_of
from rowsweep.queue.verdicts import Bury, Settlement
from tests.queue.world import ERROR, new_backfill, new_job
from tests.worker.shop import until

BLOCKED = "select count(*) from pg_locks where not granted and locktype = 'transactionid'"


def failed_sweep(driver: PostgresDriver) -> tuple[UUID, UUID]:
    """Bring a sweep's job to its dead end under the key `k`; answer its id and its run's."""
    stores = driver.stores()
    assert stores.ledger is not None
    stores.jobs.enqueue([new_job("totals", idempotency_key="k")])
    (job,) = stores.jobs.claim(ClaimOptions(queues=["default"], names=["totals"], worker_id="w", limit=1)).jobs
    stores.ledger.start(new_backfill(job.run_id))
    assert stores.jobs.settle([Settlement(claim=claim_of(job), verdict=Bury(error=ERROR), sweep=True)]) == [True]
    return job.id, job.run_id


def resume(driver: PostgresDriver, job_id: UUID, run_id: UUID) -> Any:
    ledger = driver.stores().ledger
    assert ledger is not None
    return ledger.steer(run_id, "run")


def requeue(driver: PostgresDriver, job_id: UUID, run_id: UUID) -> Any:
    steering = driver.stores().steering
    assert steering is not None
    return steering.requeue(job_id)


@pytest.mark.parametrize("verb", [resume, requeue])
def test_a_verb_that_loses_the_race_for_a_key_is_told_so(
    driver: PostgresDriver, other: psycopg.Connection[Any], verb: Callable[[PostgresDriver, UUID, UUID], Any]
) -> None:
    """N-079, S-394, S-047: the live job's key is not to be seen when it is checked, and stands when it is needed."""
    job_id, run_id = failed_sweep(driver)
    told: list[RowsweepError] = []

    def move() -> None:
        try:
            verb(driver, job_id, run_id)
        except RowsweepError as error:
            told.append(error)

    with other.transaction():
        driver.join(other).jobs.enqueue([new_job("totals", idempotency_key="k")])
        moving = threading.Thread(target=move, daemon=True)
        moving.start()
        until(lambda: other.execute(BLOCKED).fetchone() != (0,))
    moving.join(10)
    (refused,) = told
    assert isinstance(refused, DuplicateJob)
    assert refused.fix == "rowsweep jobs ls --name totals --json"
    with pytest.raises(DuplicateJob, match="has the key 'k' already"):
        verb(driver, job_id, run_id)


def test_an_enqueue_whose_twin_ended_before_it_was_found_is_sent_once_more(
    driver: PostgresDriver, other: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-049, S-050, S-048: the conflict was with a job that is over when the live one is looked for."""
    store = driver.stores().jobs
    store.enqueue([new_job("totals", idempotency_key="k")])
    find, looks = statements.find_live, 0

    def found_too_late(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 1:
            other.execute("update x_jobs set state = 'done'")
        return find(*given)

    monkeypatch.setattr(statements, "find_live", found_too_late)
    request = new_job("totals", idempotency_key="k")
    (result,) = store.enqueue([request])
    assert (result.id, result.deduplicated, looks) == (request.id, False, 2)
    (again,) = store.enqueue([new_job("totals", idempotency_key="k")])
    assert (again.id, again.deduplicated) == (request.id, True)


def test_a_conflict_with_no_live_job_twice_is_a_fault_of_the_index_and_no_loop(
    driver: PostgresDriver, other: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-049: X_INVARIANT after two inserts, with the index to look at."""
    store = driver.stores().jobs
    store.enqueue([new_job("totals", idempotency_key="k")])
    insert, inserts = statements._insert, 0

    def counted(*given: Any) -> Any:
        nonlocal inserts
        inserts += 1
        return insert(*given)

    monkeypatch.setattr(statements, "_insert", counted)
    monkeypatch.setattr(statements, "find_live", lambda *_: {})
    with pytest.raises(InvariantBroken, match="conflicts with a live job that cannot be found") as broken:
        store.enqueue([new_job("totals", idempotency_key="k")])
    assert "x_jobs_name_tenant_idempotency_live_idx" in broken.value.fix
    assert (inserts, other.execute("select count(*) from x_jobs").fetchone()) == (2, (1,))
