"""Connect this process, and answer what it is connected to."""

from __future__ import annotations

import atexit
import enum
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from rowsweep.app.app import App
from rowsweep.errors import DriverUnavailable, InvalidOption
from rowsweep.jobs import ambient
from rowsweep.queue.bus import use_event_bus
from rowsweep.spelling import spelled
from rowsweep.sweeps.health.choice import checks_of
from rowsweep.sweeps.health.signals import Health

if TYPE_CHECKING:
    from rowsweep.embedded import EmbeddedServer
    from rowsweep.queue.contract import Driver
    from rowsweep.queue.postgres.driver import PostgresDriver
    from rowsweep.queue.stores.outbox import OutboxPlace


class Unset(enum.Enum):
    """What an option is that nobody gave, where None says something."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET

_lock = threading.RLock()
_may_be_second: ContextVar[bool] = ContextVar("rowsweep_may_be_second", default=False)


_current: App | None = None


@spelled
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
    health: Health | Unset = UNSET,
) -> App:
    """Connect this process: to `dsn`, else `$DATABASE_URL`, else the embedded Postgres in `./.rowsweep`.

    The embedded server's schema is installed by itself, but for one beside another that has the tables already;
    elsewhere `rowsweep schema install` does that. Connecting again to the same place answers the same app; to another
    one, the former is drained and closed first.
    `work=False` leaves launched sweeps to a fleet. `actor` is whom the ledger names as launching (default
    `user@host`), `app_version` the version it notes. `pooler=True` works behind a transaction pooler.
    `outbox` is the DSN of another database, which keeps the application's data: jobs are staged in its outbox, and
    `rowsweep relay --outbox-dsn` publishes them. `health` is what sweeps heed that declare nothing else: functions
    that answer None or the reason to wait, signals such as `rs.replica_lag_below("10s")`, "on" for the default
    signals, None for nothing. Without it "on", except over the embedded server.

    Raises DriverUnavailable where the database cannot be reached, InvalidOption for a schema without tables where
    another one of the embedded server has them.
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
                if not isinstance(health, Unset):
                    _current.sweep_health = checks_of(health)
                return _current
            driver = _postgres_driver(address, schema=schema, pooler=pooler, embedded=embedded)
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
        app.sweep_health = checks_of(_usual_health(app) if isinstance(health, Unset) else health)
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


def _start_embedded(folder: str | Path | None) -> EmbeddedServer:
    from rowsweep.embedded import EmbeddedUnavailable, start

    try:
        server = start(None if folder is None else Path(folder))
    except EmbeddedUnavailable as error:
        raise DriverUnavailable(error.cause, fix=error.fix) from error
    # The app leaves it behind its own drain; this hook was registered last, so at exit it would run first.
    atexit.unregister(server.leave)
    return server


@contextmanager
def another_schema() -> Iterator[None]:
    """Let `connect()` install a second set of tables on the embedded server: somebody asked for an install."""
    token = _may_be_second.set(True)
    try:
        yield
    finally:
        _may_be_second.reset(token)


def _postgres_driver(
    address: str, *, schema: str | None, pooler: bool, embedded: EmbeddedServer | None
) -> PostgresDriver:
    from rowsweep.queue.postgres.driver import PostgresDriver

    driver = PostgresDriver(address, schema=schema, pooler=pooler)
    if embedded is None:
        driver.schema_status()
        return driver
    try:
        driver.install(is_only=not _may_be_second.get())
    except BaseException:
        embedded.leave()
        raise
    return driver


def _usual_health(app: App) -> Health:
    return "off" if app.embedded is not None or not hasattr(app.driver, "question_connection") else "on"


def _outbox_place(dsn: str | None, *, schema: str | None, pooler: bool) -> OutboxPlace | None:
    if dsn is None:
        return None
    from rowsweep.queue.postgres.outbox.places import PostgresOutboxPlace

    return PostgresOutboxPlace(dsn, schema=schema, pooler=pooler)


def _is_same(app: App, address: str, schema: str | None) -> bool:
    return getattr(app.driver, "address", None) == (address, schema)


def disconnect(app: App) -> None:
    """Forget an app that was closed, where it is the connected one."""
    global _current
    with _lock:
        if _current is app:
            _current = None
            ambient.use_enqueuer(None)
            use_event_bus(None)
