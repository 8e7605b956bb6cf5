"""Turn psycopg's errors into the package's own, in this folder and nowhere else."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import errors as pg

from rowsweep.errors import DriverUnavailable, InvariantBroken, SchemaMissing, SchemaOutdated, TimedOut
from rowsweep.telemetry.redact import redact_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rowsweep.errors import RowsweepError

INSTALL: Final = "rowsweep schema install"
LIVE_KEY_INDEX: Final = "x_jobs_name_tenant_idempotency_live_idx"
_MORE_ROOM: Final = (
    "raise max_connections, or the role's connection limit; or fewer connections: "
    "rs.connect(dsn, pooler=True) through a pooler, or fewer runs at a time (concurrency)"
)
_CROWDED: Final = ("too many clients", "too many connections", "remaining connection slots", "are in use")
_REACH: Final = 'rs.connect("postgresql://…"), $DATABASE_URL, or rs.connect(driver=MemoryDriver())'
# What is told of a connect that failed has no SQLSTATE either: libpq's words, psycopg's, and the server's in English.
_REFUSALS: Final = (
    ("password authentication failed", "correct the user or the password in the DSN, or put it into ~/.pgpass"),
    ("no password supplied", "put the password into the DSN, $PGPASSWORD or ~/.pgpass"),
    ("does not exist", "correct the name in the DSN, or create it on that server"),
    ("failed to resolve host", "correct the host in the DSN"),
    ("Is the server running", "start the server there, or correct host and port in the DSN; pg_isready asks it"),
    ("Connection refused", "start the server there, or correct host and port in the DSN; pg_isready asks it"),
    ("timeout expired", "correct host and port in the DSN, or see what lies between: a firewall, a VPN"),
)
# Class 08 is the connection's own; then a server that is stopping, starting, or has no connection left.
_LOST_STATES: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "53300", "25P03", "25P04"})


def is_lost(error: BaseException) -> bool:
    """Say whether the error means that the connection, not the statement, failed."""
    if isinstance(error, psycopg.Error):
        state = error.sqlstate
        if state is not None:
            return state.startswith("08") or state in _LOST_STATES
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return isinstance(error, OSError)


def unreachable(place: str, why: object) -> DriverUnavailable:
    """Answer that the database cannot be reached."""
    told = str(why).strip()
    is_full = is_crowded(told)
    return DriverUnavailable(
        f"the database {place} cannot be reached: {redact_text(told)}",
        fix=_MORE_ROOM if is_full else next((fix for words, fix in _REFUSALS if words in told), _REACH),
        meta={"place": place, **({"full": True} if is_full else {})},
    )


def is_crowded(told: str) -> bool:
    """Say whether a server refuses only for want of room; what libpq tells of a failed connect has no SQLSTATE."""
    return any(words in told for words in _CROWDED)


def is_read_only(error: psycopg.Error) -> bool:
    """Say whether the server takes no writes; a standby already refuses to begin a transaction for them."""
    is_standby = isinstance(error, pg.FeatureNotSupported) and "during recovery" in _primary(error)
    return is_standby or isinstance(error, pg.ReadOnlySqlTransaction)


def read_only(place: str, error: psycopg.Error) -> DriverUnavailable:
    """Answer that the server takes no writes: a standby, or what was the primary until a failover."""
    return DriverUnavailable(
        f"the database {place} takes no writes now: {_primary(error)}",
        fix="point the DSN at the primary, such as host=a,b target_session_attrs=read-write",
        meta={"place": place, "sqlstate": error.sqlstate},
    )


def is_live_key(error: BaseException | None) -> bool:
    """Say whether a statement failed because a live job has the key."""
    return isinstance(error, pg.UniqueViolation) and error.diag.constraint_name == LIVE_KEY_INDEX


def schema_missing(place: str) -> SchemaMissing:
    """Answer that the place has no tables of this package."""
    return SchemaMissing(f"{place} has no rowsweep tables.", fix=INSTALL, meta={"place": place})


def schema_outdated(place: str, found: int, needed: int) -> SchemaOutdated:
    """Answer that the place's tables are older than the code."""
    return SchemaOutdated(
        f"the rowsweep tables of {place} are at version {found}; this release needs {needed}.",
        fix=INSTALL,
        meta={"place": place, "found": found, "needed": needed},
    )


@contextmanager
def own_errors(place: str) -> Iterator[None]:
    """Raise the package's error for whatever a statement over the driver's own connections raised.

    A deadlock, a serialization failure and a lock timeout stay as they are: the caller repeats the statement.
    """
    try:
        yield
    except psycopg.Error as error:
        made = translated(error, place)
        if made is None:
            raise
        raise made from error


@contextmanager
def lost_errors(place: str) -> Iterator[None]:
    """Raise DriverUnavailable for a connection that is lost or takes no writes; what else is refused is its owner's."""
    try:
        yield
    except psycopg.Error as error:
        if is_read_only(error):
            raise read_only(place, error) from error
        if not is_lost(error):
            raise
        raise unreachable(place, error) from error


@contextmanager
def joined_errors(place: str) -> Iterator[None]:
    """Raise the package's error where the schema is at fault; in a caller's transaction all else is the caller's."""
    try:
        yield
    except psycopg.ProgrammingError as error:
        made = _schema_fault(error, place)
        if made is None:
            raise
        raise made from error


def translated(error: psycopg.Error, place: str) -> RowsweepError | None:
    """Answer the package's error for psycopg's, None where it has none."""
    if is_lost(error):
        return unreachable(place, error)
    fault = _schema_fault(error, place)
    if fault is not None:
        return fault
    if is_read_only(error):
        return read_only(place, error)
    if isinstance(error, pg.InsufficientPrivilege):
        return DriverUnavailable(
            f"the role that connects to {place} may not do that: {_primary(error)}",
            fix='grant it what the README lists under "Your own database"; \\dp x_* in psql shows what it has',
            meta={"place": place, "sqlstate": error.sqlstate},
        )
    if isinstance(error, pg.QueryCanceled):
        return TimedOut(
            f"a statement on {place} was cancelled: {_primary(error)}",
            fix="look for what holds it up: select pid, query from pg_stat_activity where wait_event_type = 'Lock'",
            meta={"place": place, "sqlstate": error.sqlstate},
        )
    if isinstance(error, (psycopg.DataError, psycopg.IntegrityError)):
        return InvariantBroken(
            f"Postgres refused a value: {_primary(error)}{_taken_key(error)}",
            fix="the values sent and the columns of the schema disagree; see rowsweep schema status",
            meta={"place": place, "sqlstate": error.sqlstate},
        )
    return None


def _schema_fault(error: psycopg.Error, place: str) -> RowsweepError | None:
    message = _primary(error)
    if isinstance(error, (pg.UndefinedTable, pg.InvalidSchemaName)) and (
        "x_" in message or isinstance(error, pg.InvalidSchemaName)
    ):
        return schema_missing(place)
    if isinstance(error, pg.UndefinedColumn):
        return SchemaOutdated(
            f"the rowsweep tables of {place} lack a column: {message}", fix=INSTALL, meta={"place": place}
        )
    return None


def _taken_key(error: psycopg.Error) -> str:
    """Name the id that is taken; any other constraint's detail may show an application's values."""
    name, detail = error.diag.constraint_name, error.diag.message_detail
    return f" ({detail})" if detail and name and name.endswith("_pkey") else ""


def _primary(error: psycopg.Error) -> str:
    return redact_text(error.diag.message_primary or str(error))
