"""A connected app over a fresh schema, a worker to tick, and hands on the database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from rowsweep.app.app import App
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.lifecycle import Lifecycle
from rowsweep.queue.records import Job
from rowsweep.queue.stores.ledger import Backfill
from rowsweep.queue.stores.steps import Step
from rowsweep.sweeps.batch.chain import _Behind
from rowsweep.sweeps.run import Run, ledger_of
from rowsweep.worker.run.execution import Execution
from rowsweep.worker.worker import Worker

PATIENCE_SECONDS = 45.0
QUEUE_TABLES = ("x_jobs", "x_job_steps", "x_backfills", "x_job_workers", "x_job_counters", "x_job_pauses")
NONE_LATE = {"rows": 0, "writers": 0, "unsure": 0, "proved": True}
NONE_SEEN = {**NONE_LATE, "proved": False}
NOW = Retry(attempts=3, base="0s", jitter=False)


class Field:
    """What a test of a sweep works with; its own tables are found before the queue's, which are in another schema."""

    def __init__(self, app: App, dsn: str, connection: psycopg.Connection[Any], queue: str) -> None:
        self.app = app
        self.dsn = dsn
        self.connection = connection
        self.queue = queue
        self.workers: list[Worker] = []

    def sql(self, text: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Execute SQL in autocommit mode and answer its rows."""
        cursor = self.connection.execute(text, values)
        return cursor.fetchall() if cursor.description else []

    def one(self, text: str, values: Any = None) -> Any:
        """Answer the one value of the one row."""
        ((value,),) = self.sql(text, values)
        return value

    def queue_sql(self, text: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Execute SQL whose `{x_…}` names tables of the queue."""
        named = {table: sql.Identifier(self.queue, table) for table in QUEUE_TABLES}
        return self.sql(sql.SQL(text).format(**named).as_string(self.connection), values)

    def orders(self, rows: int, *, more: str = "") -> None:
        """Make the table `orders` (id 1…rows, price, qty, total, band)."""
        self.sql(
            f"create table orders (id bigint primary key, price numeric(10,2) not null, qty int not null, "
            f"total numeric(12,2), band text{more})"
        )
        self.sql(
            "insert into orders (id, price, qty) select i, i * 0.25, i %% 7 + 1 from generate_series(1, %s) i", [rows]
        )

    def worker(self, **given: Any) -> Worker:
        """Make a worker that looks often; it is stopped after the test."""
        often: dict[str, Any] = {"poll": "50ms", "poll_floor": "10ms", "lifecycle": Lifecycle()}
        made = Worker(driver=self.app.driver, context=lambda: None, **(often | given))
        self.workers.append(made)
        return made

    def tick(self, worker: Worker | None = None) -> Execution:
        """Let a worker do the one due run, and answer how it ended."""
        (execution,) = (worker or self._own()).tick()
        return execution

    def finish(self, run: Run, *, ticks: int = 30) -> dict[str, Any]:
        """Tick, retries due at once, until the run ended; answer or raise as `wait` does."""
        worker = self._own()
        for _ in range(ticks):
            if not run.snapshot().is_open:
                break
            self.make_due(run)
            worker.tick()
        return run.wait(timeout="1s")

    def sweep(self, sweep: Any, value: Any = None, **launch: Any) -> dict[str, Any]:
        """Launch and finish."""
        return self.finish(sweep.launch(value, **launch))

    @contextmanager
    def working(self, **given: Any) -> Iterator[Worker]:
        """Run a started worker for the block."""
        worker = self.worker(**given)
        worker.start()
        try:
            yield worker
        finally:
            worker.stop()

    def make_due(self, run: Run) -> None:
        """Let a retry of the run be due now."""
        self.queue_sql("update {x_jobs} set run_at = now() where run_id = %s and state = 'ready'", [run.run_id])

    def job(self, run: Run) -> Job:
        """Read the run's job."""
        inspection = self.app.stores().inspection
        assert inspection is not None
        ((job_id,),) = self.queue_sql("select id from {x_jobs} where run_id = %s", [run.run_id])
        found = inspection.get(job_id)
        assert found is not None
        return found

    def row(self, run: Run | UUID) -> Backfill:
        """Read the run's ledger row."""
        found = ledger_of(self.app.driver).get(run if isinstance(run, UUID) else run.run_id)
        assert found is not None
        return found

    def steps(self, run: Run) -> dict[str, Step]:
        """Read the run's steps by name."""
        return {step.name: step for step in self.app.stores().steps.list(run.run_id)}

    def steal(self, run: Run, worker_id: str = "thief") -> None:
        """Move the run's claim to another worker, as the queue does once a lease lapsed."""
        self.queue_sql(
            "update {x_jobs} set claimed_by = %s, claims = claims + 1, visible_at = now() + interval '1 hour' "
            "where run_id = %s",
            [worker_id, run.run_id],
        )

    def other(self) -> psycopg.Connection[Any]:
        """Open another connection in the same schema, in autocommit mode."""
        return psycopg.connect(self.dsn, autocommit=True)

    def _own(self) -> Worker:
        return self.workers[0] if self.workers else self.worker()


class Background:
    """Call a function on a thread and hand on what it answered or raised."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._answer: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function,), daemon=True)
        self._thread.start()

    def _run(self, function: Callable[[], Any]) -> None:
        try:
            self._answer = function()
        except BaseException as error:  # noqa: BLE001 - raised again by result()
            self._error = error

    def result(self, timeout: float = PATIENCE_SECONDS) -> Any:
        """Wait for the function's end."""
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the background call did not come back"
        if self._error is not None:
            raise self._error
        return self._answer


def cut_off(monkeypatch: pytest.MonkeyPatch, *, lands: Callable[[], bool] | None) -> list[int]:
    """Lose the connection under the first commit that travels behind a batch's closing statement, once.

    With `lands` once the server has it and that holds, without before the server hears of it. Answers where it is
    noted that it happened.
    """
    happened: list[int] = []
    send = _Behind.send

    def cut(self: _Behind) -> None:
        if happened:
            send(self)
            return
        happened.append(1)
        connection = self._held.connection
        if lands is not None:
            send(self)
            for command in (*connection._pipeline.command_queue, connection.pgconn.pipeline_sync):
                command()
            connection.pgconn.flush()
            until(lands, "the commit")
        connection.pgconn.finish()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(_Behind, "send", cut)
    return happened


def until(holds: Callable[[], Any], what: str = "the condition") -> None:
    """Poll until something holds; fail when it does not in time."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"never came: {what}")
        time.sleep(0.01)


def wait_for(event: threading.Event) -> None:
    """Wait for a signal that the code under test gives."""
    assert event.wait(PATIENCE_SECONDS), "the signal never came"


def fields_of(records: Sequence[Any], event: str) -> list[dict[str, Any]]:
    """Answer the fields of every log line of one event."""
    return [record.fields for record in list(records) if record.getMessage() == event]
