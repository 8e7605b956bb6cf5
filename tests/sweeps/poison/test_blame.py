"""Whose fault an error is: never the rows', where the moment, the machine, the claim or the code is to blame."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

import rowsweep as rs
from rowsweep.errors import (
    CursorStuck,
    DriverUnavailable,
    InvalidFrame,
    LeaseLost,
    RateLimited,
    SweepFailed,
    TransactionEnded,
)
from rowsweep.sweeps.batch.connection import CommitUnknown
from rowsweep.sweeps.declare import backfill
from rowsweep.sweeps.keyset.rows import Rows
from rowsweep.sweeps.poison.blame import may_blame_rows, row_error
from tests.sweeps.field import NOW, Field, fields_of, wait_for

FIXED: dict[str, Any] = {"batch_rows": 16, "adapt": False, "on_error": "set-aside", "retry": NOW}


class Later(Exception):
    """An error that says when to come back."""

    retry = "retry-after"
    retry_after_seconds = 0.01


NEVER = [
    LeaseLost("-", fix="-"), TransactionEnded("-", fix="-"), CursorStuck("-", fix="-"), DriverUnavailable("-", fix="-"),
    CommitUnknown(), MemoryError(), Later(), RateLimited("-", fix="-"), KeyboardInterrupt(),
    pg.LockNotAvailable(), pg.DeadlockDetected(), pg.SerializationFailure(), pg.QueryCanceled(), pg.AdminShutdown(),
    pg.UndefinedColumn(), pg.InsufficientPrivilege(), pg.DiskFull(), pg.OutOfMemory(), pg.IoError(),
    psycopg.OperationalError("server closed the connection unexpectedly"),
]  # fmt: skip
ROWS = [
    ValueError("no"), ConnectionResetError(), InvalidFrame("-", fix="-"), pg.DivisionByZero(), pg.UniqueViolation(),
    pg.RaiseException(), pg.InFailedSqlTransaction(), psycopg.DataError("PostgreSQL text fields cannot contain NUL"),
]  # fmt: skip


@pytest.mark.parametrize("error", NEVER, ids=lambda error: type(error).__name__)
def test_what_is_never_the_rows_fault(error: BaseException) -> None:
    """N-084."""
    assert not may_blame_rows(error)


@pytest.mark.parametrize("error", ROWS, ids=lambda error: type(error).__name__)
def test_what_may_be_the_rows_fault(error: BaseException) -> None:
    """N-084."""
    assert may_blame_rows(error)


def test_an_application_s_error_that_wraps_the_moment_s_is_the_moment_s() -> None:
    """N-069, N-084."""
    wrapped = ValueError("our own words")
    wrapped.__cause__ = pg.LockNotAvailable()
    assert not may_blame_rows(wrapped)
    assert row_error(wrapped) == "ValueError: our own words"


def test_wrong_sql_fails_the_run_at_once_and_sets_nothing_aside(field: Field) -> None:
    """N-084: class 42 is the code's."""
    field.orders(40)

    def handler(batch: rs.Batch) -> None:
        batch.execute("select nothing_of_the_kind from orders")

    run = backfill("wrong", handler, rows=Rows("orders"), **FIXED).launch()
    with pytest.raises(SweepFailed, match="UndefinedColumn"):
        field.finish(run)
    assert run.rejected().height == 0


@pytest.mark.usefixtures("hasty")
def test_a_lock_in_the_middle_of_a_search_is_waited_for_and_no_row_is_blamed_for_it(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    """N-069, N-084: the page is searched again, smaller, once the lock is gone."""
    field.orders(32)
    field.sql("update orders set qty = 0 where id = 20")
    searching, locked = threading.Event(), threading.Event()
    other = field.other()

    def lock_later() -> None:
        wait_for(searching)
        other.execute("begin; update orders set band = band where id = 22")
        locked.set()

    threading.Thread(target=lock_later, daemon=True, name="rowsweep-test-lock").start()

    def handler(batch: rs.Batch) -> None:
        ids = [row["id"] for row in batch.rows]
        if ids == [17, 18, 19, 20]:  # which holds the locks of these alone
            searching.set()
            wait_for(locked)
        if fields_of(caplog.records, "sweeps.batch.shrunk"):
            other.close()
        batch.execute("update orders set total = price / qty where id = any (%s)", [ids])

    run = backfill("locked", handler, rows=Rows("orders", columns=["id"]), lock_timeout="50ms", **FIXED).launch()
    totals = field.finish(run)
    assert [told["sqlstate"] for told in fields_of(caplog.records, "sweeps.batch.shrunk")] == ["55P03"]
    assert run.rejected()["key"].to_list() == ["20"]
    assert totals["rows"] == 31
    assert field.sql("select id from orders where total is null") == [(20,)]


@pytest.mark.parametrize("text", ["commit", "rollback", "commit; begin"])
def test_a_handler_that_ends_the_transaction_is_refused_in_a_search_too(field: Field, text: str) -> None:
    """N-063, N-084: no row is to blame for it, and what it left behind is not made worse."""
    field.orders(16)

    def handler(batch: rs.Batch) -> None:
        if len(batch.rows) > 8:
            raise ValueError("no")
        batch.execute(text)

    run = backfill("ending", handler, rows=Rows("orders", columns=["id"]), **FIXED).launch()
    with pytest.raises(SweepFailed) as failed:
        field.finish(run)
    assert failed.value.meta["code"] == "X_SWEEP_TRANSACTION_ENDED"
    assert run.rejected().height == 0


def test_a_stolen_claim_ends_a_search_with_nothing_listed(field: Field) -> None:
    """N-060, N-084: whoever has the run now lists its rows."""
    field.orders(16)
    run: Any = None

    def handler(batch: rs.Batch) -> None:
        if len(batch.rows) == 1:
            field.steal(run)
        if any(row["id"] == 3 for row in batch.rows):
            raise ValueError("no")

    run = backfill("stolen", handler, rows=Rows("orders", columns=["id"]), **FIXED).launch()
    field.tick()
    assert run.rejected().height == 0
    assert "sweep:pages" not in field.steps(run)
