"""A finished job that is to come to life again while another session gives its key to a live one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from rowsweep.errors import DuplicateJob, RowsweepError
from rowsweep.queue.postgres.driver import PostgresDriver
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
