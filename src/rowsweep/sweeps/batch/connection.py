"""The connection of a pass, and the transaction of one batch on it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, cast

from psycopg import sql
from psycopg.pq import TransactionStatus

from rowsweep.jobs import ambient
from rowsweep.steps.cancel import cancel_on_abort

if TYPE_CHECKING:
    from rowsweep.queue.contract import Driver, Stores
    from rowsweep.signals import RunSignal
    from rowsweep.sweeps.batch.source import Lender

MARKER: Final = "rowsweep.batch"
_PINNED: Final = {
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
}


_BEGIN: Final = "begin isolation level read committed, read write"
_BEGIN_READING: Final = "begin isolation level repeatable read, read only"
# The instant at which the transaction began, in a form that no setting changes.
_BEGAN: Final = "select extract(epoch from pg_catalog.now())::pg_catalog.text"
# A batch's statements are planned once: what a cursor's value would tell the planner changes no plan of a key range.
_PLANNED_ONCE: Final = {"plan_cache_mode": "force_generic_plan"}


# What a handler set for the session would hold in the batches behind it, until a pause or a crash: in none, then.
_FORGET: Final = (
    "set session authorization default; reset all; set timezone = 'UTC'; set jit = off; set idle_session_timeout = 0; "
    "unlisten *; select pg_catalog.pg_advisory_unlock_all()"
)


class CommitUnknown(Exception):
    """The connection broke during the commit: only the stored checkpoint says whether the batch is in."""


class BatchConnection:
    """Hold one connection over the batches of a pass; given back before every wait.

    When the run is aborted, the statement in flight on it is cancelled through libpq and the connection closed.
    Settings hold in each transaction only; where no handler could change them in between and the session is ours, the
    timeouts are set once for as long as the connection is held (its pool resets them). The forms of values never are: a
    trigger may leave others in the session, and a cursor written in one form is read in another after a crash.

    It keeps nobody waiting: asked back, it is given back before the next transaction, or at once where the asking
    thread is the holder's own, which would wait for itself.

    There too a batch may be begun together with the end of the one before (`chains`): `begun` then tells of it, until
    it is taken up, or whatever else is done with the connection rolls it back.
    """

    def __init__(
        self,
        driver: Driver | Lender,
        signal: RunSignal | None,
        settings: Mapping[str, str],
        *,
        runs_handlers: bool = True,
    ) -> None:
        self._driver = driver
        self._signal = signal
        self._is_pooled = bool(getattr(driver, "pooler", False))
        lasts = not runs_handlers and not self._is_pooled
        of_session = {name: value for name, value in settings.items() if lasts and name.endswith("_timeout")}
        of_batch = {name: value for name, value in settings.items() if name not in of_session}
        self._once = "; ".join(_set("session", {**of_session, **_PLANNED_ONCE})) if lasts else None
        self._settings = _set("local", of_batch)
        self._of_batch = _set_config(of_batch)
        self._lasts = lasts
        self.begun: Any = None
        self._forgets = runs_handlers and not self._is_pooled
        self._held: ExitStack | None = None
        self._connection: Any = None
        self._stores: Stores | None = None
        self._began: str | None = None
        self._thread = 0
        self.is_wanted = self._was_wanted = False
        self.stage: tuple[str, ...] | None = None

    @property
    def connection(self) -> Any:
        """The psycopg connection, taken from the pool when first asked for."""
        if self._held is None:
            self._thread, self.is_wanted = get_ident(), False
            with ExitStack() as stack:
                self._connection = stack.enter_context(self._driver.sweep_connection(self._wanted))
                if self._signal is not None:
                    stack.enter_context(cancel_on_abort(self._signal, self._connection))
                if self._once is not None:
                    self._connection.execute(self._once, prepare=False)
                self._held = stack.pop_all()
            self._stores = None
            self.stage = None
        return self._connection

    @property
    def backend_pid(self) -> int | None:
        """The server process behind the connection that is held; None between batches that hold none."""
        connection = self._connection
        return None if connection is None or connection.closed else int(connection.info.backend_pid)

    @property
    def is_shared(self) -> bool:
        """Whether a transaction pooler stands between: the session is another client's behind each transaction."""
        return self._is_pooled

    @property
    def chains(self) -> bool:
        """Whether a batch may be begun together with the end of the one before."""
        return self._lasts and bool(self.connection.takes_messages)

    @property
    def stores(self) -> Stores:
        """The queue's stores over that connection, in the transaction open there."""
        connection = self.connection
        if self._stores is None:
            self._stores = cast("Driver", self._driver).join(connection)
        return self._stores

    def release(self) -> None:
        """Give the connection back; one in a transaction, or broken, is closed."""
        self.abandon()
        held, self._held = self._held, None
        self._connection = self._stores = self.stage = None
        if held is not None:
            held.close()

    def give_way(self, *, for_long: bool = False) -> None:
        """Give the connection back where others wait for one; whoever asks for it next has their turn behind them.

        Before what takes long, and needs none, it is enough that somebody ever waited.
        """
        if (self.is_wanted or (for_long and self._was_wanted)) and self._is_between_batches:
            self.release()

    def _wanted(self) -> None:
        if self._thread == get_ident() and self._is_between_batches:
            self.release()
        else:
            self.is_wanted = self._was_wanted = True

    @property
    def _is_between_batches(self) -> bool:
        if self._held is None or self.begun is not None:
            return False
        return bool(self._connection.info.transaction_status == TransactionStatus.IDLE)

    @contextmanager
    def transaction(self, *, reads: bool = False) -> Iterator[str]:
        """Begin the batch's transaction and commit it; answers its marker. Everything else rolls back.

        One that only `reads` sees one moment of the database, and may be a standby's.
        Raises CommitUnknown where the connection broke during the commit.
        """
        self.abandon()
        self.give_way()
        connection = self.connection
        if self._is_pooled:
            self.stage = None  # the next transaction may run on another session, which has no such table
        marker = secrets.token_hex(8)
        if self._forgets:
            connection.execute(_FORGET, prepare=False)
        begin = [_BEGIN_READING if reads else _BEGIN, *self._settings, f"set local {MARKER} = '{marker}'", _BEGAN]
        cursor = connection.execute("; ".join(begin), prepare=False)
        while cursor.nextset():
            pass
        (self._began,) = cursor.fetchone()
        connection.batch_open = True
        try:
            with ambient.inside_transaction(connection):
                yield marker
            connection.batch_open = False
            self.commit()
        except BaseException:
            connection.batch_open = False
            self.roll_back()
            raise

    def is_as_begun(self) -> bool:
        """Whether the open transaction is the one that was begun: SQL may have ended that and begun another."""
        return bool(self.connection.execute(_BEGAN, prepare=False).fetchone() == (self._began,))

    def send_begin(self) -> None:
        """Begin a batch's transaction with its settings, inside a message: nothing is waited for."""
        self.connection.execute(_BEGIN, prepare=True)
        self.connection.execute(self._of_batch, prepare=True)

    def send_commit(self, *, begins: bool) -> Any:
        """Commit inside a message, with the next batch's transaction begun where asked; answer the commit's cursor."""
        cursor = self.connection.execute("commit and chain" if begins else "commit", prepare=False)
        if begins:
            self.connection.execute(self._of_batch, prepare=True)
        return cursor

    def commit(self) -> None:
        """Commit the open transaction; raises CommitUnknown where the connection broke meanwhile."""
        connection = self.connection
        try:
            cursor = connection.execute("commit", prepare=False)
        except Exception as error:
            if connection.closed or connection.broken:
                raise CommitUnknown from error
            raise
        check_committed(cursor)

    def abandon(self) -> None:
        """Roll back a batch that was begun ahead and not taken up."""
        if self.begun is not None:
            self.roll_back()

    def roll_back(self) -> None:
        """Roll the open transaction back; a connection that cannot is closed, which rolls back."""
        self.stage = self.begun = None
        if self._held is None:
            return
        connection = self._connection
        if connection.closed or connection.broken:
            self.release()
        elif connection.info.transaction_status != TransactionStatus.IDLE:
            try:
                connection.execute("rollback", prepare=False)
            except Exception:  # noqa: BLE001 - a connection that cannot roll back is closed, which rolls back
                connection.close()
                self.release()


def pinned() -> str:
    """Answer SQL that pins the forms of values anew in an open transaction, in which triggers and handlers ran."""
    return of_transaction(_PINNED)


def of_transaction(settings: Mapping[str, str]) -> str:
    """Answer SQL that sets these in an open transaction, for as long as that is open."""
    return "; ".join(_set("local", settings))


def check_committed(cursor: Any) -> None:
    """Make sure that a commit was not answered by a rollback."""
    if cursor.statusmessage != "COMMIT":
        msg = f"the batch's transaction ended with {cursor.statusmessage} instead of COMMIT"
        raise RuntimeError(msg)


def transaction_settings(
    *, lock_timeout_ms: int, statement_timeout_ms: int, idle_timeout_ms: int, tenant: str | None, cross_tenant: bool
) -> dict[str, str]:
    """Answer what holds inside a batch: timeouts, pinned text forms of values, and the tenant.

    Without a tenant `rowsweep.tenant` is empty, so that row-level-security policies fail closed.
    """
    return {
        "lock_timeout": str(lock_timeout_ms),
        "statement_timeout": str(statement_timeout_ms),
        "idle_in_transaction_session_timeout": str(idle_timeout_ms),
        **_PINNED,
        "rowsweep.tenant": tenant or "",
        "rowsweep.cross_tenant": "on" if cross_tenant else "off",
    }


def _set_config(settings: Mapping[str, str]) -> str:
    """Answer one statement that sets them for a transaction."""
    form = sql.SQL("pg_catalog.set_config({}, {}, true)")
    calls = [form.format(sql.Literal(name), sql.Literal(value)) for name, value in settings.items()]
    return (sql.SQL("select ") + sql.SQL(", ").join(calls)).as_string(None)


def _set(scope: str, settings: Mapping[str, str]) -> list[str]:
    form = sql.SQL("set local {} = {}" if scope == "local" else "set {} = {}")
    return [form.format(sql.SQL(name), sql.Literal(value)).as_string(None) for name, value in settings.items()]
