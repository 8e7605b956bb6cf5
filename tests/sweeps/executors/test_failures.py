"""Errors on their way between two processes."""

from __future__ import annotations

import pickle
from typing import Any

import psycopg
import pytest

from rowsweep.errors import InvalidFrame
from rowsweep.sweeps.batch.patience import database_error
from rowsweep.sweeps.executors.failures import RemoteTraceback, SentError
from tests.sweeps.executors.heavy import OddError


def travelled(error: BaseException) -> BaseException:
    """Raise an error, and send it through a pickle."""
    try:
        raise error
    except BaseException as raised:  # noqa: BLE001 - whatever it is
        sent = pickle.dumps(SentError.of(raised))
    back: SentError = pickle.loads(sent)
    return back.restored()


def test_an_error_stays_what_it_was() -> None:
    """N-083: type, text, notes, data."""
    error = InvalidFrame("No.", fix="yes", meta={"column": "a"})
    error.add_note("a note")
    back = travelled(error)
    assert isinstance(back, InvalidFrame)
    assert (str(back), back.code, back.meta) == (str(error), "X_SWEEP_FRAME_INVALID", {"column": "a"})
    assert back.__notes__[0] == "a note"
    assert "test_failures.py" in back.__notes__[1]


def test_the_database_behind_an_error_is_still_found_behind_it() -> None:
    """N-069: a deadlock in a handler's own connection is the moment's, there as here."""
    error = RuntimeError("wrapped")
    error.__cause__ = psycopg.errors.DeadlockDetected("deadlock")
    found = database_error(travelled(error))
    assert isinstance(found, psycopg.errors.DeadlockDetected)
    assert isinstance(found.__cause__, RemoteTraceback)


class Explosive(Exception):
    """An error that does not even tell its text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __reduce__(self) -> Any:
        raise RuntimeError("no pickle")


@pytest.mark.parametrize(
    ("error", "name", "text"),
    [
        (OddError(1, why="one"), "OddError", "row 1 is odd: one"),
        (Explosive(), "Explosive", "<Explosive without a text>"),
    ],
)
def test_an_error_that_cannot_travel_is_told_by_its_name(error: Exception, name: str, text: str) -> None:
    """N-083: a pool would break over it, and hide what happened."""
    back = travelled(error)
    assert (type(back).__name__, str(back)) == (name, text)
    assert getattr(back, "retry", None) == getattr(error, "retry", None)
