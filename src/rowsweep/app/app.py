"""A connected app: its driver, the workers of this process, and the ways in for terminal and notebook."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from rowsweep.app.agents import Agents
from rowsweep.errors import NotImplementedByDriver, SweepNotFound, did_you_mean
from rowsweep.jobs import ambient
from rowsweep.lifecycle import lifecycle
from rowsweep.operate.operator import Operator
from rowsweep.outbox.enqueue import enqueue
from rowsweep.queue.bus import EventBus
from rowsweep.sweeps.run import Run, ledger_of
from rowsweep.sweeps.snapshot import Snapshot, snapshot_of

if TYPE_CHECKING:
    import polars as pl

    from rowsweep.embedded import EmbeddedServer
    from rowsweep.jobs.request import EnqueueResult, NewJob
    from rowsweep.lifecycle import Shutdown
    from rowsweep.operate.health.finding import Health
    from rowsweep.outbox.relay import OutboxRelay
    from rowsweep.queue.contract import Driver, Stores
    from rowsweep.queue.postgres.driver import PostgresDriver
    from rowsweep.queue.postgres.install import SchemaStatus
    from rowsweep.queue.stores.ledger import Backfill, BackfillStatus, SweepKind
    from rowsweep.queue.stores.outbox import OutboxPlace
    from rowsweep.scheduler.leaders import Leader
    from rowsweep.scheduler.scheduler import Scheduler
    from rowsweep.show.notebook.board import BoardView
    from rowsweep.show.notebook.poller import Poller
    from rowsweep.sweeps.health.signals import HealthCheck
    from rowsweep.sweeps.late.receipts.receipt import Receipt
    from rowsweep.worker.worker import Worker

_LEAST_PREFIX: Final = 4
_LATEST: Final = 1_000  # runs among whose names the nearest is looked for


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
        self.sweep_health: tuple[HealthCheck, ...] = ()
        self._driver = driver
        self._works = work
        self.works_launched = work  # also where a worker of the caller's own does
        self._context = context or (lambda: None)
        self.agents = Agents(self)
        self._poller: Poller | None = None
        self._lock = threading.RLock()
        self.events = _bus_of(driver, self._woken)
        self.operate = Operator(driver, actor=actor)
        self._sources: dict[str, PostgresDriver] = {}
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

        given = {"on_dispatched": lambda _: self.agents.kick(), **options}
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
        self.agents.work(scheduler=scheduler, relay=relay)

    def source(self, dsn: str) -> PostgresDriver:
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
            self.agents.kick()
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
            known = dict.fromkeys(row.name for row in ledger.list(limit=_LATEST))
            raise _not_found(wanted, [] if found else known, is_ambiguous=bool(found))
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

    def receipt_html(self, receipt: Receipt) -> str:
        """Answer a receipt as a part of a page."""
        from rowsweep.show.html.receipt import receipt_html

        return receipt_html(receipt)

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
        self._remove_hook()
        if self._poller is not None:
            self._poller.close("This view's connection was closed. Run the cell again to go on watching.")
        self.agents.stop(deadline_at=deadline_at)
        if self.outbox is not None:
            self.outbox.close()
        for driver in (*self._sources.values(), self._driver):
            driver.close()
        if self.embedded is not None:
            self.embedded.leave()
        from rowsweep.app.connecting import disconnect

        disconnect(self)

    def _woken(self, queues: list[str]) -> None:
        if queues:
            self.agents.kick()

    def _closed_by(self, shutdown: Shutdown) -> None:
        self.close(deadline_at=shutdown.deadline_at)

    def _postgres(self) -> PostgresDriver:
        if not hasattr(self._driver, "install"):
            raise NotImplementedByDriver(
                f"The driver {self._driver.name!r} has no schema to install.", fix="rs.connect() with a Postgres DSN"
            )
        return cast("PostgresDriver", self._driver)


def _not_found(wanted: str, known: Iterable[str], *, is_ambiguous: bool) -> SweepNotFound:
    """Answer that no one run is meant, with the names that look like it."""
    asked = did_you_mean(wanted, known)
    cause = f"{wanted!r} begins more than one run id." if is_ambiguous else f"No run or sweep is called {wanted!r}."
    return SweepNotFound(f"{cause} {asked}".rstrip(), fix="rowsweep sweeps ls, rowsweep ledger", meta={"run": wanted})


def _bus_of(driver: Driver, published: Callable[[list[str]], None]) -> EventBus:
    """Answer the driver's own kind of bus: a fleet's events never end up in one process's heap."""
    make = getattr(driver, "event_bus", None)
    made: EventBus = EventBus(driver, published=published) if make is None else make(published=published)
    return made
