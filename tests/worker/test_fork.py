"""A process that forks after it connected: the child's worker and scheduler begin anew, the parent's go on."""

from __future__ import annotations

import os
from collections.abc import Callable

import psycopg

import rowsweep as rs
from rowsweep.clock import real_monotonic
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.scheduler.scheduler import Scheduler
from tests.worker.shop import Shop


def in_child(body: Callable[[], str]) -> str:
    """Run it in a forked child, and answer what it says."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            said = body()
        except BaseException as error:  # noqa: BLE001 - said, for nobody sees a child's traceback
            said = repr(error)
        finally:
            os.write(writes, said.encode())
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        return pipe.read()


def test_a_forked_child_s_worker_is_idle_and_can_be_started(postgres: Shop) -> None:
    """N-002: what the parent's threads hold is none of the child's; stopping there waits for nobody."""
    worker = postgres.running()

    def started() -> str:
        before = worker.state

        @job("in-the-child", tenant="none")
        def here(ctx: Ctx) -> int:
            return os.getpid()

        worker.start()
        done = postgres.until_state(postgres.enqueue(here), "done")
        worker.stop()
        return f"{before} {done.result == os.getpid()} {worker.state}"

    assert in_child(started) == "idle True stopped"

    def stopped() -> str:
        began = real_monotonic()
        worker.stop()
        return f"{worker.state} {real_monotonic() - began < 1}"

    assert in_child(stopped) == "stopped True"
    assert worker.state == "running"

    @job("in-the-parent", tenant="none")
    def there(ctx: Ctx) -> int:
        return os.getpid()

    assert postgres.until_state(postgres.enqueue(there), "done").result == os.getpid()


def test_a_forked_child_s_scheduler_is_idle_and_does_not_lead(memory: Shop) -> None:
    """N-002."""
    scheduler = Scheduler(driver=memory.driver, tasks=[])
    scheduler.start()
    try:
        assert in_child(lambda: f"{scheduler.is_leading} {scheduler.state}") == "False idle"
        assert scheduler.state == "running"
    finally:
        scheduler.stop()


def test_a_forked_child_closes_an_app_that_its_parent_works_with(
    queue_dsn: str, queue_connection: psycopg.Connection
) -> None:
    """N-002, N-109: at once, and the parent's goes on."""
    app = rs.connect(queue_dsn)
    try:

        @rs.job("here", tenant="none")
        def here(ctx: rs.Ctx) -> None:
            return None

        app.work()

        def closed() -> str:
            began = real_monotonic()
            app.close()
            return str(real_monotonic() - began < 2)

        assert in_child(closed) == "True"
        job_id = here.enqueue().id
        inspection = app.stores().inspection
        assert inspection is not None
        give_up_at = real_monotonic() + 15
        while (found := inspection.get(job_id)) is None or found.state != "done":
            assert real_monotonic() < give_up_at
    finally:
        app.close()
