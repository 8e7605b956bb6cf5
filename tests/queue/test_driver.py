"""The driver itself: what it answers to, what a transaction keeps and undoes, what cannot be joined."""

from __future__ import annotations

import threading

import pytest

from rowsweep.errors import NotImplementedByDriver, RowsweepError
from rowsweep.queue.contract import Driver
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.records import Claim, claim_of
from rowsweep.queue.verdicts import Done, Settlement
from tests.queue.world import World, batch_close, fresh_id, new_backfill, new_job, step_put, totals, worker_info


def test_each_scenario_of_this_folder_runs_over_both_drivers(request: pytest.FixtureRequest) -> None:
    """S-436, S-069: one suite; whatever asks for a world is asked of each driver's."""
    over: dict[str, set[str]] = {}
    for item in request.session.items:
        given = getattr(item, "callspec", None)
        if given is not None and item.path.parent == request.path.parent and "world" in given.params:
            over.setdefault(item.nodeid.partition("[")[0], set()).add(given.params["world"])
    assert over or len(request.session.items) == 1, "nothing but this test was collected"
    assert {name: drivers for name, drivers in over.items() if not {"memory", "postgres"} <= drivers} == {}


def test_a_driver_says_who_it_is_and_where(world: World) -> None:
    """S-057."""
    assert world.driver.name in ("memory", "postgres")
    assert world.driver.place


def test_every_store_is_there(world: World) -> None:
    """S-057: both shipped drivers leave none out, in any way of reaching them."""
    with world.driver.transaction() as tx:
        for stores in (world.driver.stores(), world.driver.control(), tx.stores):
            assert None not in (stores.ledger, stores.inspection, stores.steering, stores.workers)
            assert None not in (stores.slots, stores.pauses)


def test_control_reaches_the_same_rows(world: World) -> None:
    """S-057."""
    job = world.running()
    assert world.driver.control().jobs.renew([claim_of(job)], visibility_seconds=60.0) == [True]


def test_an_exception_undoes_every_store_s_writes(world: World) -> None:
    """S-057: one unit of work over all the stores."""
    job, other = world.sweep(), world.running()
    before = (world.job(job.id), world.job(other.id), world.row(job.run_id), world.jobs.stats())
    new_run = fresh_id()
    with pytest.raises(KeyboardInterrupt), world.driver.transaction() as tx:  # noqa: PT012 - a transaction that the raise ends
        stores = tx.stores
        assert stores.ledger
        assert stores.workers
        stores.jobs.enqueue([new_job()])
        stores.jobs.record_progress(claim_of(job), {"current": 5})
        stores.steps.put(step_put(job), claim_of(job))
        stores.ledger.progress(batch_close(job, totals=totals(9)))
        stores.ledger.start(new_backfill(new_run))
        stores.ledger.steer(job.run_id, "pause")
        stores.workers.look(queues=["default"], names=["mail"], announce=worker_info("w9"))
        assert stores.jobs.settle([Settlement(claim=claim_of(other), verdict=Done())]) == [True]
        raise KeyboardInterrupt
    assert (world.job(job.id), world.job(other.id), world.row(job.run_id), world.jobs.stats()) == before
    assert world.steps.list(job.run_id) == []
    assert world.ledger.get(new_run) is None
    assert world.workers.live() == []


def test_a_refusal_inside_a_transaction_leaves_the_earlier_writes(world: World) -> None:
    """S-057: a refusal that is caught is the caller's business, as long as the database did not fail."""
    job = world.running()
    with world.driver.transaction() as tx:
        kept = tx.stores.jobs.enqueue([new_job()])[0].id
        assert tx.stores.steering is not None
        with pytest.raises(RowsweepError):
            tx.stores.steering.remove(job.id)
    assert world.job(kept).state == "ready"


def test_nobody_else_sees_a_transaction_s_writes_before_it_ends(world: World) -> None:
    """S-057, N-014: another thread finds the job after the commit, not before."""
    job_id = fresh_id()
    seen: list[bool] = []
    reader = threading.Thread(target=lambda: seen.append(world.inspection.get(job_id) is not None), daemon=True)
    with world.driver.transaction() as tx:
        tx.stores.jobs.enqueue([new_job(id=job_id)])
        reader.start()
        reader.join(timeout=0.2)
        assert True not in seen
    reader.join(timeout=30)
    assert len(seen) == 1
    assert world.inspection.get(job_id) is not None


def test_settings_are_taken_by_every_driver(world: World) -> None:
    """N-010: for this transaction only; a driver without settings has nobody to read them."""
    with world.driver.transaction(settings={"rowsweep.tenant": "acme"}) as tx:
        if tx.connection is not None:
            assert tx.connection.execute("select current_setting('rowsweep.tenant')").fetchone()[0] == "acme"
    with world.driver.transaction() as tx:
        if tx.connection is not None:
            row = tx.connection.execute("select current_setting('rowsweep.tenant', true)").fetchone()
            assert row[0] in (None, "")


@pytest.mark.parametrize("connection", [None, object(), "postgresql://localhost"])
def test_a_foreign_connection_is_not_joined(world: World, connection: object) -> None:
    """N-014."""
    with pytest.raises(RowsweepError):
        world.driver.join(connection).jobs.enqueue([new_job()])
    assert world.jobs.stats() == []


@pytest.fixture
def memory() -> MemoryDriver:
    return MemoryDriver()


def test_a_memory_transaction_is_joined_only_while_it_is_open(memory: MemoryDriver) -> None:
    """N-014: another driver's, or one that has ended, is refused with the way to do it."""
    with memory.transaction() as tx:
        assert memory.join(tx).jobs.enqueue([new_job()])[0].deduplicated is False
        with pytest.raises(NotImplementedByDriver):
            MemoryDriver().join(tx)
    with pytest.raises(NotImplementedByDriver) as refusal:
        memory.join(tx)
    assert refusal.value.meta["driver"] == "memory"


def test_a_memory_transaction_inside_another_is_a_savepoint(memory: MemoryDriver) -> None:
    """N-015: the inner one's end undoes only its own writes."""
    first, second = new_job(), new_job()
    with memory.transaction() as outer:
        outer.stores.jobs.enqueue([first])
        with pytest.raises(ZeroDivisionError), memory.transaction() as inner:  # noqa: PT012 - a transaction that the raise ends
            inner.stores.jobs.enqueue([second])
            raise ZeroDivisionError
    inspection = memory.stores().inspection
    assert inspection is not None
    assert inspection.get(first.id) is not None
    assert inspection.get(second.id) is None


def test_the_memory_driver_lends_no_connection_to_sweeps(memory: MemoryDriver) -> None:
    """S-400: it keeps no tables."""
    driver: Driver = memory
    with pytest.raises(NotImplementedByDriver) as refusal, driver.sweep_connection():
        pass
    assert refusal.value.code == "X_NOT_IMPLEMENTED"


def test_the_memory_store_forgets_a_key_with_its_last_slot(memory: MemoryDriver) -> None:
    """S-335: keys come from inputs, so what is free is not kept."""
    slots = memory.stores().slots
    assert slots is not None
    claim = Claim(job_id=fresh_id(), worker_id="w", claim=1)
    taken = slots.acquire("job:x", limit=1, claim=claim, ttl_seconds=30.0)
    assert taken is not None
    assert len(memory._state.slots) == 1
    slots.release([taken])
    assert memory._state.slots == {}
