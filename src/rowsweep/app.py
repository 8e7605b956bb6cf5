"""The composition root: the one place that names a concrete driver."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from rowsweep.errors import DriverUnavailable, InvalidOption, NotImplementedByDriver, SweepNotFound
from rowsweep.jobs import ambient
from rowsweep.jobs.registry import registered_jobs
from rowsweep.lifecycle import lifecycle
from rowsweep.operate.operator import Operator
from rowsweep.outbox.enqueue import enqueue
from rowsweep.queue.bus import EventBus, use_event_bus
from rowsweep.sweeps.run import Run, ledger_of
from rowsweep.sweeps.snapshot import Snapshot, snapshot_of

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    import polars as pl

    from rowsweep.embedded import EmbeddedServer
    from rowsweep.jobs.request import EnqueueResult, NewJob
    from rowsweep.lifecycle import Shutdown
    from rowsweep.operate.health.finding import Health
    from rowsweep.outbox.relay import OutboxRelay
    from rowsweep.queue.contract import Driver, Stores
    from rowsweep.queue.counters import CounterBucket, CounterTier
    from rowsweep.queue.outbox import OutboxPlace
    from rowsweep.queue.postgres.driver import PostgresDriver
    from rowsweep.queue.postgres.install import SchemaStatus
    from rowsweep.queue.postgres.outbox.install import OutboxStatus
    from rowsweep.queue.records import Backfill, BackfillStatus, SweepKind
    from rowsweep.scheduler.leaders import Leader
    from rowsweep.scheduler.scheduler import Scheduler
    from rowsweep.show.notebook.board import BoardView
    from rowsweep.show.notebook.poller import Poller
    from rowsweep.worker.worker import Worker

KERNEL_CONCURRENCY: Final = 4
_LEAST_PREFIX: Final = 4

_lock = threading.RLock()
_current: App | None = None


class App:
    """A connected rowsweep: its driver, the workers of this process, and the ways in for terminal and notebook."""

    def __init__(  # noqa: PLR0913 - one parameter an option of `connect`
        self,
        driver: Driver,
        *,
        actor: str | None = None,
        app_version: str | None = None,
        work: bool = True,
        context: Callable[[], Any] | None = None,
        embedded: EmbeddedServer | None = None,
        outbox: OutboxPlace | None = None,
    ) -> None:
        self.actor = actor
        self.app_version = app_version
        self.embedded = embedded
        self.outbox = outbox
        self._driver = driver
        self._works = work
        self._context = context or (lambda: None)
        self._workers: dict[str, Worker] = {}
        self._pid = os.getpid()
        self._scheduler: Scheduler | None = None
        self._relay: OutboxRelay | None = None
        self._poller: Poller | None = None
        self._lock = threading.RLock()
        self.events = _bus_of(driver, self._woken)
        self.operate = Operator(driver, actor=actor)
        self._sources: dict[str, Driver] = {}
        self._remove_hook = lifecycle().on("close", f"rowsweep.app.{id(self)}", self._closed_by)

    @property
    def driver(self) -> Driver:
        """Where the queue and the ledger are."""
        return self._driver

    @property
    def place(self) -> str:
        """The database it is connected to, without a password."""
        return self._driver.place

    @property
    def announcement(self) -> str:
        """One line on what it is connected to."""
        return f"Connected to {self.place}." if self.embedded is None else self.embedded.announcement

    def stores(self) -> Stores:
        """Answer the driver's stores; each call commits by itself."""
        return self._driver.stores()

    def install(self) -> SchemaStatus:
        """Install the tables, or bring them up to this version; run again, it changes nothing."""
        return self._postgres().install()

    def schema_status(self) -> SchemaStatus:
        """Answer what is installed."""
        return self._postgres().schema_status()

    def health(self) -> Health:
        """Look at the server, the schema, the workers and what waits; each finding has a fix."""
        from rowsweep.clock import SystemClock
        from rowsweep.operate.health.examine import examine

        return examine(self._driver, SystemClock(), None if self.outbox is None else self.outbox.outbox)

    def worker(self, **options: Any) -> Worker:
        """Make a worker over this app's driver; takes `WorkerOptions`' keywords. It is not started yet."""
        from rowsweep.worker.options import WorkerOptions
        from rowsweep.worker.worker import Worker

        chosen = WorkerOptions(**{"app_version": self.app_version, **options})
        if hasattr(self._driver, "reserve"):
            self._driver.reserve(sum(chosen.concurrency_of(queue) for queue in chosen.queues))
        return Worker(driver=self._driver, context=self._context, options=chosen)

    def scheduler(self, *, leader: Leader | None = None, **options: Any) -> Scheduler:
        """Make a scheduler of this process's tasks, led by a lease where no `leader` is given; it is not started yet.

        Takes `SchedulerOptions`' keywords.
        """
        from rowsweep.scheduler.leaders import LeaseLeader
        from rowsweep.scheduler.scheduler import Scheduler

        given = {"on_dispatched": lambda _: self._kick(), **options}
        return Scheduler(driver=self._driver, leader=leader or LeaseLeader(self._driver), **given)

    def relay(self, **options: Any) -> OutboxRelay:
        """Make a relay of the outbox that this app knows of, else of the queue's own; it is not started yet.

        Takes `RelayOptions`' keywords.
        """
        from rowsweep.outbox.relay import OutboxRelay

        return OutboxRelay(driver=self._driver, place=self.outbox, **options)

    def work(self, *, scheduler: bool = False, relay: bool = False) -> None:
        """Work what this process has declared, on daemon threads of this process; look for work at once.

        With `scheduler` this process also stands for election to fire its tasks, with `relay` it publishes what is
        staged in the outbox.
        """
        with self._lock:
            self._forget_parent()
            if scheduler:
                self._scheduler = self._scheduler or self.scheduler()
                self._scheduler.start()
            if relay:
                self._relay = self._relay or self.relay()
                self._relay.start()
            for queue in {handle.options.queue for handle in registered_jobs()}:
                worker = self._workers.get(queue)
                if worker is None or worker.state in ("stopped", "draining"):
                    worker = self._workers[queue] = self.worker(queues=[queue], concurrency=KERNEL_CONCURRENCY)
                worker.start()
                worker.kick()

    def _forget_parent(self) -> None:
        """After a fork the parent's workers are none of this process's: their threads stayed behind."""
        if self._pid != os.getpid():
            self._pid, self._workers, self._scheduler, self._relay = os.getpid(), {}, None, None

    def source(self, dsn: str) -> Driver:
        """Answer a driver that lends connections to another database, which a sweep names as its source."""
        from rowsweep.queue.postgres.driver import PostgresDriver

        with self._lock:
            if dsn not in self._sources:
                self._sources[dsn] = PostgresDriver(dsn)
            return self._sources[dsn]

    def work_here(self) -> None:
        """Work what this process has declared, unless it was connected with `work=False`."""
        if self._works:
            self.work()

    def enqueue(self, requests: Sequence[NewJob], *, tx: Any = None, outbox: bool = False) -> list[EnqueueResult]:
        """Put the jobs on the queue, all or none: over `tx`, else in the ambient transaction, else by themselves."""
        results = enqueue(self._driver, requests, tx=tx, outbox=outbox, known=self.outbox)
        if tx is None and ambient.open_transaction() is None:
            self._kick()
        return results

    @contextmanager
    def transaction(self, tx: Any = None) -> Iterator[Any]:
        """Open a transaction and make it ambient: enqueues inside join it. Nested, it is a savepoint.

        With `tx` it is one of that connection's, opened in its library's own way.
        """
        outer = tx if tx is not None else ambient.open_transaction()
        if outer is not None and hasattr(self._driver, "begun"):
            with self._driver.begun(outer), ambient.inside_transaction(outer):
                yield outer
            return
        if tx is not None:
            self._driver.join(tx)  # refuses a connection that is none of the driver's
        with self._driver.transaction() as opened:
            connection = opened if opened.connection is None else opened.connection
            with ambient.inside_transaction(connection):
                yield connection

    def run_of(self, text: str | UUID) -> Run:
        """Find a run by its id, a unique prefix of it (4 characters or more), or a sweep's name: its newest run.

        Raises SweepNotFound.
        """
        ledger = ledger_of(self._driver)
        wanted = str(text)
        found = ledger.list(name=wanted, limit=1)
        if not found and len(wanted) >= _LEAST_PREFIX and set(wanted.lower()) <= set("0123456789abcdef-"):
            found = ledger.list(run_id_prefix=wanted.lower(), limit=2)
        if len(found) != 1:
            cause = f"{wanted!r} begins more than one run id." if found else f"No run or sweep is called {wanted!r}."
            raise SweepNotFound(cause, fix="rowsweep sweeps ls, rowsweep ledger", meta={"run": wanted})
        return Run(self, found[0].run_id, found[0].name)

    def runs(
        self,
        *,
        name: str | None = None,
        status: BackfillStatus | None = None,
        kind: SweepKind | None = None,
        limit: int = 100,
    ) -> list[Snapshot]:
        """Answer snapshots of the ledger's rows, newest first."""
        rows = ledger_of(self._driver).list(name=name, status=status, kind=kind, limit=limit)
        return [snapshot_of(row) for row in rows]

    def jobs(self, *, limit: int = 1_000, **filters: Any) -> pl.DataFrame:
        """Answer jobs as a polars frame, newest first; filters are those of `operate.list`."""
        from rowsweep.operate.frame import jobs_frame

        return jobs_frame(self.operate, limit=limit, **filters)

    def bundle(self, snapshot: Snapshot) -> dict[str, str]:
        """Answer a snapshot's display bundle; `text/plain` is always in it."""
        from rowsweep.show import bundle

        return bundle(snapshot)

    def show(self, run: Run) -> None:
        """Show a run below the cell that runs, live where that can be."""
        from rowsweep.show.notebook.live import show_run

        show_run(run, self.poller())

    def tell(self, row: Backfill) -> None:
        """Bring the open views of this process to a row of the ledger that was just read."""
        if self._poller is not None:
            self._poller.tell(row)

    def board(self) -> BoardView:
        """Answer everything at a glance; as the last line of a cell it is live."""
        from rowsweep.operate.board import take_board
        from rowsweep.show.notebook.board import BoardView

        return BoardView(lambda before: take_board(self._driver, before), self.run_of, self.poller())

    def poller(self) -> Poller:
        """Answer what keeps this process's open views up to date."""
        from rowsweep.show.notebook.poller import Poller

        with self._lock:
            self._poller = self._poller or Poller(lambda run_ids: ledger_of(self._driver).list(run_ids=run_ids))
            return self._poller

    def close(self, *, deadline_at: float | None = None) -> None:
        """Stop this process's workers, close the connections, and leave the embedded server."""
        global _current
        self._remove_hook()
        with self._lock:
            self._forget_parent()
            workers, self._workers = list(self._workers.values()), {}
            scheduler, self._scheduler = self._scheduler, None
            relay, self._relay = self._relay, None
        if self._poller is not None:
            self._poller.close("This view's connection was closed. Run the cell again to go on watching.")
        if scheduler is not None:
            scheduler.stop("close", deadline_at=deadline_at)
        for worker in workers:
            worker.stop("close", deadline_at=deadline_at)
        if relay is not None:
            relay.stop("close", deadline_at=deadline_at)
        if self.outbox is not None:
            self.outbox.close()
        for driver in (*self._sources.values(), self._driver):
            driver.close()
        if self.embedded is not None:
            self.embedded.leave()
        with _lock:
            if _current is self:
                _current = None
                ambient.use_enqueuer(None)
                use_event_bus(None)

    def _kick(self) -> None:
        for worker in list(self._workers.values()):
            worker.kick()

    def _woken(self, queues: list[str]) -> None:
        if queues:
            self._kick()

    def _closed_by(self, shutdown: Shutdown) -> None:
        self.close(deadline_at=shutdown.deadline_at)

    def _postgres(self) -> PostgresDriver:
        if not hasattr(self._driver, "install"):
            raise NotImplementedByDriver(
                f"The driver {self._driver.name!r} has no schema to install.", fix="rs.connect() with a Postgres DSN"
            )
        return cast("PostgresDriver", self._driver)


def connect(  # noqa: PLR0913 - one parameter an option
    dsn: str | None = None,
    *,
    driver: Driver | None = None,
    schema: str | None = None,
    pooler: bool = False,
    actor: str | None = None,
    app_version: str | None = None,
    work: bool = True,
    context: Callable[[], Any] | None = None,
    folder: str | Path | None = None,
    outbox: str | None = None,
) -> App:
    """Connect this process: to `dsn`, else `$DATABASE_URL`, else the embedded Postgres in `./.rowsweep`.

    The embedded server's schema is installed by itself; elsewhere `rowsweep schema install` does that. Connecting
    again to the same place answers the same app; to another one, the former is drained and closed first.
    `work=False` leaves launched sweeps to a fleet. `actor` is whom the ledger names as launching (default
    `user@host`), `app_version` the version it notes. `pooler=True` works behind a transaction pooler.
    `outbox` is the DSN of another database, which keeps the application's data: jobs are staged in its outbox, and
    `rowsweep relay --outbox-dsn` publishes them.

    Raises DriverUnavailable where the database cannot be reached.
    """
    global _current
    if driver is not None and dsn is not None:
        raise InvalidOption("dsn and driver exclude each other.", fix="rs.connect(driver=MemoryDriver())")
    with _lock:
        embedded = None
        if driver is None:
            address = dsn or os.environ.get("DATABASE_URL")
            if address is None:
                embedded = _start_embedded(folder)
                address = embedded.dsn
            if _current is not None and _is_same(_current, address, schema):
                _current.outbox = _current.outbox or _outbox_place(outbox, schema=schema, pooler=pooler)
                return _current
            driver = _postgres_driver(address, schema=schema, pooler=pooler, embedded=embedded is not None)
        if _current is not None:
            former, _current = _current, None
            shared = former.embedded is not None and embedded is not None
            if shared:
                former.embedded = None
            former.close()
        place = _outbox_place(outbox, schema=schema, pooler=pooler)
        app = App(
            driver, actor=actor, app_version=app_version, work=work, context=context, embedded=embedded, outbox=place
        )
        _current = app
        ambient.use_enqueuer(app)
        use_event_bus(app.events)
        if "IPython" in sys.modules:
            from rowsweep.show.notebook.outputs import show_previews

            show_previews()
        return app


def current() -> App:
    """Answer the connected app; DriverUnavailable before `connect()`."""
    return cast("App", ambient.enqueuer())


def install() -> SchemaStatus:
    """Install the connected database's tables, or bring them up to this version."""
    return current().install()


def install_outbox(dsn: str, schema: str | None = None) -> OutboxStatus:
    """Make the outbox alone in an application's own database, for a queue that is in another one."""
    return outbox_schema(dsn, schema, install=True)


def health() -> Health:
    """Look at everything `rowsweep doctor` looks at."""
    return current().health()


def attach(run: str | UUID) -> Run:
    """Find a run again: by its id, a unique prefix of it, or a sweep's name (its newest run)."""
    return current().run_of(run)


def runs(*, name: str | None = None, limit: int = 100) -> list[Snapshot]:
    """Answer snapshots of the newest runs."""
    return current().runs(name=name, limit=limit)


def board() -> BoardView:
    """Answer everything at a glance, live as the last line of a cell: sweeps, jobs, workers, schedules."""
    return current().board()


def ledger(*, name: str | None = None, limit: int = 1_000) -> pl.DataFrame:
    """Answer the ledger of sweeps, `x_backfills`, as a polars frame, newest first."""
    import polars as pl

    schema = _ledger_schema(pl)
    instants = ("started_at", "updated_at", "finished_at")
    rows = [snapshot.as_json() for snapshot in current().runs(name=name, limit=limit)]
    frame = pl.DataFrame([{column: row[column] for column in schema} for row in rows], schema=schema)
    return frame.with_columns(pl.col(column).str.to_datetime(time_unit="us", time_zone="UTC") for column in instants)


def counters(
    *,
    tier: CounterTier = "minute",
    name: str | None = None,
    since: str | timedelta | datetime | None = None,
    limit: int = 1_000,
) -> list[CounterBucket]:
    """Answer how runs ended by job name, newest bucket first: in minutes (kept 2 h), hours (14 d) or days (400 d).

    `since` is an aware instant, or how long ago (`"90m"`).
    """
    from rowsweep.operate.counters import read_counters

    return read_counters(current().driver, tier=tier, name=name, since=since, limit=limit)


def jobs(*, limit: int = 1_000, **filters: Any) -> pl.DataFrame:
    """Answer jobs as a polars frame, newest first: `jobs(state="dead")`, `jobs(name="mail", queue="slow")`.

    Filters are `queue`, `name`, `state`, `tenant_id`, `run_id`, `id_prefix`, `created_from` and `created_to`.
    """
    return current().jobs(limit=limit, **filters)


def work(*, scheduler: bool = False, relay: bool = False) -> None:
    """Work what this process has declared, in this process.

    With `scheduler` fire its tasks too, where it leads; with `relay` publish what is staged in the outbox.
    """
    current().work(scheduler=scheduler, relay=relay)


@contextmanager
def transaction(tx: Any = None) -> Iterator[Any]:
    """Open a transaction and make it ambient: enqueues inside join it. Answers its connection.

    It is one of the queue's database, or with `tx` of that connection (psycopg, SQLAlchemy or Django), opened in its
    library's own way. Nested, it is a savepoint.
    """
    with current().transaction(tx) as connection:
        yield connection


def schema_sql(schema: str | None = None, *, outbox_only: bool = False) -> str:
    """Answer the SQL that an install runs."""
    from rowsweep.queue.postgres.install import schema_sql as sql
    from rowsweep.queue.postgres.outbox.install import outbox_sql

    return outbox_sql(schema) if outbox_only else sql(schema)


def outbox_schema(dsn: str, schema: str | None = None, *, install: bool = False) -> OutboxStatus:
    """Answer whether a database has an outbox, with `install` after making it where it is missing."""
    from rowsweep.queue.postgres.outbox.install import install_outbox, outbox_status

    return install_outbox(dsn, schema) if install else outbox_status(dsn, schema)


def _ledger_schema(pl: Any) -> dict[str, Any]:
    text, whole, real = pl.String, pl.Int64, pl.Float64
    return {
        "run_id": text, "name": text, "kind": text, "status": text, "words": text, "rows": whole, "written": whole,
        "batches": whole, "total": whole, "total_is": text, "percent": real, "rows_per_second": real,
        "eta_seconds": real, "active_seconds": real, "waiting_for": text, "attempt": whole, "rejected_rows": whole,
        "last_error": text, "last_error_code": text, "launched_by": text, "environment": text, "app_version": text,
        "checksum": text, "started_at": text, "updated_at": text, "finished_at": text,
    }  # fmt: skip


def _start_embedded(folder: str | Path | None) -> EmbeddedServer:
    from rowsweep.embedded import EmbeddedUnavailable, start

    try:
        server = start(None if folder is None else Path(folder))
    except EmbeddedUnavailable as error:
        raise DriverUnavailable(error.cause, fix=error.fix) from error
    # The app leaves it behind its own drain; this hook was registered last, so at exit it would run first.
    atexit.unregister(server.leave)
    return server


def _postgres_driver(address: str, *, schema: str | None, pooler: bool, embedded: bool) -> PostgresDriver:
    from rowsweep.queue.postgres.driver import PostgresDriver

    driver = PostgresDriver(address, schema=schema, pooler=pooler)
    if embedded:
        driver.install()
    else:
        driver.schema_status()
    return driver


def _outbox_place(dsn: str | None, *, schema: str | None, pooler: bool) -> OutboxPlace | None:
    if dsn is None:
        return None
    from rowsweep.queue.postgres.outbox.places import PostgresOutboxPlace

    return PostgresOutboxPlace(dsn, schema=schema, pooler=pooler)


def reset_event_bus() -> None:
    """Publish into a fresh heap of this process from now on; for tests."""
    from rowsweep.queue.memory.events.bus import MemoryEventBus

    use_event_bus(MemoryEventBus())


def _bus_of(driver: Driver, published: Callable[[list[str]], None]) -> EventBus:
    """Answer the driver's own kind of bus: a fleet's events never end up in one process's heap."""
    make = getattr(driver, "event_bus", None)
    made: EventBus = EventBus(driver, published=published) if make is None else make(published=published)
    return made


def _is_same(app: App, address: str, schema: str | None) -> bool:
    return getattr(app.driver, "address", None) == (address, schema)
