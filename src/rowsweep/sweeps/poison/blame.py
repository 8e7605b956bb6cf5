"""Which errors are the rows' own, and how each is written down."""

from __future__ import annotations

from typing import Final

import psycopg

from rowsweep.errors import (
    CursorStuck,
    InvalidCheckpoint,
    InvalidSweepSql,
    InvariantBroken,
    LeaseLost,
    TooManyRejected,
    TransactionEnded,
)
from rowsweep.jobs.attempts.classify import classify
from rowsweep.sweeps.batch.closing import CheckpointMoved
from rowsweep.sweeps.batch.connection import CommitUnknown
from rowsweep.sweeps.batch.patience import database_error, is_passing
from rowsweep.telemetry.text import error_text, storable_text

MOST_ERROR_CHARACTERS: Final = 500
_NEVER: Final = (
    CheckpointMoved,
    CommitUnknown,
    CursorStuck,
    InvalidCheckpoint,
    InvalidSweepSql,
    InvariantBroken,
    LeaseLost,
    MemoryError,
    TooManyRejected,
    TransactionEnded,
)
# Wrong SQL, resources that ran out, an operator who stepped in, the server's own trouble: no row is to blame.
_NO_ROWS_CLASSES: Final = ("42", "53", "57", "58")


def may_blame_rows(error: BaseException) -> bool:
    """Say whether rows may be set aside for this error, where they fail with it by themselves."""
    if not isinstance(error, Exception) or isinstance(error, _NEVER):
        return False
    if is_passing(error) or classify(error) == "retry-after":
        return False
    behind = database_error(error)
    return behind is None or not (behind.sqlstate or "").startswith(_NO_ROWS_CLASSES)


def row_error(error: BaseException) -> str:
    """Write down why a row was set aside, in 500 characters.

    Of a database's error that is its first line alone: the detail may show the whole row.
    """
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return storable_text(f"{type(error).__name__}: {error.diag.message_primary}", MOST_ERROR_CHARACTERS)
    return error_text(error, MOST_ERROR_CHARACTERS)
