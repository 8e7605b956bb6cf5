"""Which errors are the moment's and not the batch's, and how long to wait after them."""

from __future__ import annotations

import random
from typing import Final

import psycopg

from rowsweep.errors import DriverUnavailable

TRIES_AT_ONE_ROW: Final = 20
_FIRST_SECONDS: Final = 0.25
_LONGEST_SECONDS: Final = 30.0
# A try at a server that is away takes a second or two itself, and work goes on within five of its return.
_LONGEST_LOST_SECONDS: Final = 3.0
_PASSING: Final = {
    "55P03": "lock timeout",
    "40P01": "deadlock",
    "40001": "serialization failure",
    "57014": "statement timeout",
    "54000": "page too large",
}
_LOST: Final = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "53300")
_READ_ONLY: Final = "read-only server"
NO_ROOM: Final = "a free connection"


class Patience:
    """Count a batch's failures in a row and answer the pause after each."""

    def __init__(self) -> None:
        self._failures = 0
        self._at_one_row = 0

    def succeeded(self) -> None:
        """Forget what failed: a batch is done."""
        self._failures = 0
        self._at_one_row = 0

    def pause_seconds(self, *, rows: int, lost: bool) -> float | None:
        """Answer the pause before the next try; None after twenty failures in a row at a single row.

        It doubles from 0.25 s to 30 s (3 s for a lost connection), with half of it jittered.
        """
        self._failures += 1
        self._at_one_row = self._at_one_row + 1 if rows <= 1 else 0
        if self._at_one_row >= TRIES_AT_ONE_ROW:
            return None
        longest = _LONGEST_LOST_SECONDS if lost else _LONGEST_SECONDS
        pause = min(_FIRST_SECONDS * 2.0 ** min(self._failures - 1, 12), longest)
        return float(pause) * (0.5 + random.random() / 2)


def database_error(error: BaseException) -> psycopg.Error | None:
    """Answer the database's error in this one or behind it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, psycopg.Error):
            return seen
        seen = seen.__cause__
    return None


def is_lost_connection(error: BaseException) -> bool:
    """Say whether the connection went away, rather than the statement failing on it."""
    behind = database_error(error)
    if behind is None:
        return isinstance(error, DriverUnavailable)
    state = behind.sqlstate
    if state is None:
        return isinstance(behind, psycopg.OperationalError)
    return state.startswith("08") or state in _LOST or is_read_only(behind)


def is_read_only(error: psycopg.Error) -> bool:
    """Say whether the server takes no writes, as during a failover; a standby begins no transaction for them either."""
    is_standby = isinstance(error, psycopg.errors.FeatureNotSupported) and "during recovery" in str(error)
    return is_standby or isinstance(error, psycopg.errors.ReadOnlySqlTransaction)


def is_without_room(error: BaseException) -> bool:
    """Say whether there was no connection to be had, of a server that is there."""
    return isinstance(error, DriverUnavailable) and "full" in error.meta


def is_passing(error: BaseException) -> bool:
    """Say whether the batch is worth trying again smaller: a lock, a deadlock, a timeout, a page too large."""
    behind = database_error(error)
    return is_lost_connection(error) or (behind is not None and behind.sqlstate in _PASSING)


def name_of(error: BaseException) -> str:
    """Name the reason of a pause, as operators read it."""
    if is_without_room(error):
        return NO_ROOM
    behind = database_error(error)
    if behind is not None and is_read_only(behind):
        return _READ_ONLY
    state = None if behind is None else behind.sqlstate
    return _PASSING.get(state or "", "lost connection")
