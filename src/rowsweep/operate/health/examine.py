"""Look at everything, whatever of it fails."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import RowsweepError
from rowsweep.operate.health.finding import Finding, Health, fail, well
from rowsweep.operate.health.purges import look_at_purges
from rowsweep.operate.health.server import look_at_clock, look_at_room, look_at_server, look_at_tables, look_at_wake
from rowsweep.operate.health.upkeep import look_at_outbox, look_at_retention, look_at_scheduler
from rowsweep.operate.health.work import (
    look_at_dead,
    look_at_pauses,
    look_at_ready,
    look_at_sweeps,
    look_at_undeclared,
    look_at_workers,
)
from rowsweep.sweeps.purge.targets.own import RETENTION
from rowsweep.sweeps.snapshot import snapshot_of
from rowsweep.telemetry.events import error_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rowsweep.clock import Clock
    from rowsweep.queue.contract import Driver
    from rowsweep.queue.stores.health import HealthStore, ServerFacts
    from rowsweep.queue.stores.holds import Pause
    from rowsweep.queue.stores.ledger import BackfillStatus, SweepKind
    from rowsweep.queue.stores.outbox import OutboxStore
    from rowsweep.queue.stores.workers import WorkerInfo
    from rowsweep.sweeps.snapshot import Snapshot
    from rowsweep.telemetry.instruments import Depth

_MOST_RUNS: Final = 1_000
_DOCTOR: Final = "rowsweep doctor"


def examine(driver: Driver, clock: Clock, outbox: OutboxStore | None = None) -> Health:
    """Look at the queue and its server, and answer what was found; what cannot be told is a finding too.

    `outbox` is the one in another database that the application stages in, where there is one.
    """
    return Health(place=driver.place, looked_at=clock.now(), findings=tuple(_findings(driver, clock, outbox)))


def unreachable(error: RowsweepError, place: str, clock: Clock) -> Health:
    """Answer the health of a place that could not be connected to."""
    return Health(place=place, looked_at=clock.now(), findings=(_told("connection", error),))


def _findings(driver: Driver, clock: Clock, outbox: OutboxStore | None) -> Iterator[Finding]:
    """Look at the schema first, over a connection of its own: without it nothing else can be asked."""
    schema = _looked("connection", lambda: _look_at_schema(driver))
    if schema.name == "connection":
        yield schema
        return
    health = driver.stores().health
    if schema.level != "ok" or health is None:
        yield well("connection", driver.place)
        yield schema
        return
    patient = _Patient(driver, health, clock, outbox or driver.stores().outbox)
    for name, look in patient.looks().items():
        yield _looked(name, look)
        if name == "connection":
            yield schema


def _look_at_schema(driver: Driver) -> Finding:
    status = getattr(driver, "schema_status", None)
    if status is None:
        return well("schema", "none is needed")
    found: Any = status()
    if not found.is_current:
        missing = [*found.pending, *(f"the table {table}" for table in found.missing_tables)]
        return fail(
            "schema",
            f"{found.schema} is at version {found.version} of {found.latest}: {', '.join(missing[:3])} lacking.",
            "rowsweep schema install",
        )
    return well("schema", f"{found.schema}, version {found.version}")


class _Patient:
    """What is asked of one queue, each statement once."""

    def __init__(self, driver: Driver, health: HealthStore, clock: Clock, outbox: OutboxStore | None) -> None:
        self._driver = driver
        self._stores = driver.stores()
        self._health = health
        self._clock = clock
        self._outbox = outbox

    def looks(self) -> dict[str, Callable[[], Finding]]:
        """Answer what to look at, in the order it is told."""
        return {
            "connection": lambda: look_at_server(self._facts, self._driver.place),
            "connections": lambda: look_at_room(self._facts),
            "clock": self._clocks,
            "wake": lambda: look_at_wake(self._driver, self._workers),
            "workers": lambda: look_at_workers(self._workers, self._depths),
            "undeclared": lambda: look_at_undeclared(self._undeclared(), self._workers),
            "ready": lambda: look_at_ready(self._depths),
            "dead": lambda: look_at_dead(self._depths),
            "pauses": lambda: look_at_pauses(self._pauses()),
            "sweeps": lambda: look_at_sweeps(self._runs(status="running")),
            "purges": lambda: look_at_purges(self._runs(kind="purge")),
            "scheduler": lambda: look_at_scheduler(self._health.leaders(), self._facts.now),
            "retention": lambda: look_at_retention(self._health.kept(), self._last_purge(), self._facts.now),
            "outbox": self._staged,
            "tables": lambda: look_at_tables(self._health.tables(), self._facts),
        }

    @cached_property
    def _facts(self) -> ServerFacts:
        return self._health.server()

    @cached_property
    def _workers(self) -> list[WorkerInfo]:
        return [info for info, _ in self._stores.workers.live()] if self._stores.workers else []

    @cached_property
    def _depths(self) -> list[Depth]:
        return self._health.depths()

    def _staged(self) -> Finding:
        return well("outbox", "there is none") if self._outbox is None else look_at_outbox(self._outbox.backlog())

    def _clocks(self) -> Finding:
        """Read this machine's clock on both sides of the question, and take the middle."""
        before = self._clock.now()
        facts = self._health.server()
        return look_at_clock(facts, before + (self._clock.now() - before) / 2)

    def _undeclared(self) -> list[tuple[str, str, int]]:
        return self._stores.inspection.undeclared([]) if self._stores.inspection else []

    def _pauses(self) -> list[Pause]:
        return self._stores.pauses.list() if self._stores.pauses else []

    def _runs(
        self,
        *,
        status: BackfillStatus | None = None,
        name: str | None = None,
        kind: SweepKind | None = None,
        limit: int = _MOST_RUNS,
    ) -> list[Snapshot]:
        ledger = self._stores.ledger
        rows = [] if ledger is None else ledger.list(name=name, status=status, kind=kind, limit=limit)
        return [snapshot_of(row) for row in rows]

    def _last_purge(self) -> Snapshot | None:
        return next(iter(self._runs(name=RETENTION, status="done", limit=1)), None)


def _looked(name: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - what cannot be told is what is wrong; the other looks go on
        return _told(name, error)


def _told(name: str, error: Exception) -> Finding:
    shown = error_fields(error)
    says = str(shown.get("cause") or shown["error"]).splitlines()[0]
    return fail(name, says, str(shown.get("fix") or f"{_DOCTOR} again, and the server's log"))
