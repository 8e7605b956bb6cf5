"""One batch: all of it commits with its checkpoint, or nothing does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import polars as pl
import psycopg
import pytest

import rowsweep as rs
from rowsweep.errors import SweepFailed, TransactionEnded
from rowsweep.jobs.ctx import Ctx
from tests.sweeps.field import NOW, Background, Field, wait_for

ORDERS = rs.Rows("orders")
SMALL: dict[str, Any] = {"rows": ORDERS, "batch_rows": 4, "adapt": False}


def failed(field: Field, sweep: Any) -> str:
    """Sweep to a failure and answer what the ledger says."""
    run = sweep.launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    return field.row(run).last_error or ""


def test_a_handler_sees_where_it_is(field: Field) -> None:
    """S-184, N-067: index, key, input, signal, context and the batch's connection."""
    field.orders(6)
    seen: list[Any] = []

    @rs.backfill("look", input=int, rows=ORDERS, batch_rows=4, adapt=False)
    def look(batch: rs.Batch) -> None:
        assert batch.ctx is not None
        assert batch.signal is not None
        inside = batch.execute("select count(*) from orders where id = %s", [1]).fetchone()
        seen.append((batch.index, batch.input, batch.key, batch.ctx.job, batch.signal.aborted, inside))
        assert batch.connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS

    run = look.launch(7)
    field.finish(run)
    assert [one[:2] + one[3:] for one in seen] == [(0, 7, "look", False, (1,)), (1, 7, "look", False, (1,))]
    keys = [one[2] for one in seen]
    assert len(set(keys)) == 2
    assert all(key.startswith(f"{run.run_id}:") for key in keys)


def swallowed(batch: rs.Batch) -> None:
    batch.execute("update orders set band = 'x' where id = %s", [batch.rows[0]["id"]])
    with suppress(psycopg.Error):
        batch.execute("select 1 / 0")


def test_a_handler_that_swallows_a_database_error_has_done_nothing(field: Field) -> None:
    """N-060, N-063: the transaction is aborted, so the batch does not count as done."""
    field.orders(6)
    run = rs.backfill("swallow", swallowed, retry=NOW, **SMALL).launch()
    with pytest.raises(SweepFailed, match="swallowed a database error"):
        field.finish(run)
    row = field.row(run)
    assert (row.status, row.rows, row.batches, field.job(run).attempt) == ("failed", 0, 0, 3)
    assert "sweep:pages" not in field.steps(run)
    assert field.one("select count(*) from orders where band is not null") == 0


def test_a_savepoint_lets_a_handler_recover(field: Field) -> None:
    """N-063: `with batch.connection.transaction():` undoes only what is in it."""
    field.orders(6)

    def handler(batch: rs.Batch) -> None:
        batch.execute("update orders set band = 'kept' where id = any(%s)", [[row["id"] for row in batch.rows]])
        with suppress(psycopg.Error), batch.connection.transaction():
            batch.execute("update orders set band = 'lost'")
            batch.execute("select 1 / 0")

    assert field.sweep(rs.backfill("savepoint", handler, **SMALL))["rows"] == 6
    assert field.sql("select band, count(*) from orders group by 1") == [("kept", 6)]


def executing(*statements: str) -> Callable[[rs.Batch], None]:
    def handler(batch: rs.Batch) -> None:
        batch.execute("update orders set band = 'x' where id = %s", [batch.rows[0]["id"]])
        for statement in statements:
            batch.execute(statement)

    return handler


ENDINGS: dict[str, Callable[[rs.Batch], Any]] = {
    "COMMIT": executing("commit"),
    "ROLLBACK": executing("rollback"),
    "END and another BEGIN": executing("end", "begin"),
    "COMMIT AND CHAIN": executing("commit and chain"),
    "ROLLBACK AND CHAIN": executing("rollback and chain"),
    "connection.commit()": lambda batch: batch.connection.commit(),
    "connection.rollback()": lambda batch: batch.connection.rollback(),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_handler_that_ends_the_transaction_is_refused(field: Field, name: str) -> None:
    """N-063: X_SWEEP_TRANSACTION_ENDED, terminal; no checkpoint, no progress."""
    field.orders(6)
    run = rs.backfill("ending", ENDINGS[name], **SMALL).launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    row = field.row(run)
    assert (row.last_error_code, row.rows, field.job(run).attempt) == ("X_SWEEP_TRANSACTION_ENDED", 0, 1)
    assert "sweep:pages" not in field.steps(run)
    assert "atomic=False" in (row.last_error or "")
    if "commit" not in name.lower() and "END" not in name:
        assert field.one("select count(*) from orders where band is not null") == 0


CLEARING = """
create function clear_all() returns trigger language plpgsql as $$ begin reset all; return null; end $$;
create trigger clear_all after update on orders for each statement execute function clear_all();
"""
CLEARERS: dict[str, tuple[str, Any]] = {
    "a trigger": (CLEARING, executing("update orders set band = 'x' where id = 1")),
    "the handler": ("", executing("select set_config('rowsweep.batch', '', true)")),
}


@pytest.mark.parametrize("who", CLEARERS)
def test_a_batch_whose_proof_was_cleared_says_so_and_not_that_its_transaction_ended(field: Field, who: str) -> None:
    """N-063: its transaction is the one that was begun, but for the settings that were taken from it."""
    made, handler = CLEARERS[who]
    field.orders(6)
    field.sql(made or "select")
    run = rs.backfill("clearing", handler, **SMALL).launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    row = field.row(run)
    assert (row.last_error_code, row.rows) == ("X_SWEEP_TRANSACTION_ENDED", 0)
    assert "cleared the setting rowsweep.batch" in (row.last_error or "")
    assert "ended the batch" not in (row.last_error or "")
    assert field.one("select count(*) from orders where band is not null") == 0


def test_a_refused_commit_leaves_the_transaction_open(field: Field) -> None:
    """N-063: a handler that catches the refusal goes on in its batch."""
    field.orders(6)

    def handler(batch: rs.Batch) -> None:
        with pytest.raises(TransactionEnded):
            batch.connection.commit()
        batch.execute("update orders set band = 'x' where id = any(%s)", [[row["id"] for row in batch.rows]])

    assert field.sweep(rs.backfill("catching", handler, **SMALL))["rows"] == 6
    assert field.one("select count(*) from orders where band = 'x'") == 6


def test_an_enqueue_in_a_batch_joins_it(field: Field) -> None:
    """N-015, N-063: once for each committed batch, never for one that rolled back; a savepoint's goes with it."""
    field.orders(10)
    worker = field.worker()
    failures = iter([False, True, False, False, False])

    @rs.job("follow", tenant="none", input=int)
    def follow(ctx: Ctx, first: int) -> None:
        """Follow up."""

    def handler(batch: rs.Batch) -> None:
        follow.enqueue(batch.rows[0]["id"])
        with suppress(ZeroDivisionError), rs.transaction():
            follow.enqueue(-1)
            raise ZeroDivisionError
        if next(failures):
            raise RuntimeError("once")

    run = rs.backfill("enqueue", handler, retry=NOW, queue="sweeps", **SMALL).launch()
    swept = field.worker(queues=["sweeps"])
    swept.tick()
    assert field.queue_sql("select input from {x_jobs} where name = 'follow' order by id") == [(1,)]
    field.make_due(run)
    swept.tick()
    assert run.wait(timeout="1s")["rows"] == 10
    assert field.queue_sql("select input from {x_jobs} where name = 'follow' order by id") == [(1,), (5,), (9,)]
    assert len(worker.tick()) == 3


def test_a_constraint_that_is_deferred_fails_the_batch_at_its_commit(field: Field) -> None:
    """N-060, N-083: nothing of it counts, and the error says which keys it was about."""
    field.orders(10)
    field.sql("create table bands (name text primary key); insert into bands values ('good')")
    field.sql(
        "alter table orders add foreign key (band) references bands deferrable initially deferred, "
        "add constraint cheap check (total < 100)"
    )

    def handler(batch: rs.Batch) -> list[dict[str, Any]]:
        return [{"id": row["id"], "band": "good" if row["id"] < 5 else "bad"} for row in batch.rows]

    run = rs.backfill("bands", handler, retry=NOW, **SMALL).launch()
    with pytest.raises(SweepFailed, match="orders_band_fkey"):
        field.finish(run)
    row = field.row(run)
    assert (row.rows, row.batches, row.cursor) == (4, 1, ["4"])
    assert "in batch 1, keys after (4) up to (8)" in (row.last_error or "")
    assert field.sql("select band, count(*) from orders group by 1 order by 1") == [("good", 4), (None, 6)]


@pytest.mark.parametrize("form", ["set", "frame", "free"])
def test_an_error_says_which_keys_it_was_about(field: Field, form: str) -> None:
    """N-083: the batch's key range is in the error, for every form."""
    field.orders(10)
    field.sql("alter table orders add constraint cheap check (total < 6)")

    def free(batch: rs.Batch) -> None:
        batch.execute("update orders set total = id where id = any(%s)", [batch.frame["id"].to_list()])

    handlers: dict[str, Callable[[rs.Batch], Any]] = {
        "frame": lambda batch: batch.frame.select("id", total=pl.col("id")),
        "free": free,
    }
    given: dict[str, Any] = {"set": {"total": "id"}} if form == "set" else {"handler": handlers[form]}
    error = failed(field, rs.backfill("dear", retry=NOW, **SMALL, **given))
    assert "cheap" in error
    assert "in batch 1, keys after (4)" in error
    assert field.one("select count(*) from orders where total = id") == 4


def test_sql_that_is_wrong_in_itself_is_not_tried_again(field: Field) -> None:
    """D-12: SQLSTATE class 42 is terminal in a sweep, also behind an application's own error."""
    field.orders(6)

    def plain(batch: rs.Batch) -> None:
        batch.execute("update nothing set a = 1")

    def wrapped(batch: rs.Batch) -> None:
        try:
            batch.execute("select nothing from orders")
        except psycopg.Error as error:
            raise RuntimeError("could not look") from error

    for name, handler, word, first in (
        ("plain", plain, "nothing", "the table that is named above"),
        ("wrapped", wrapped, "could not look", "the column that is named above"),
    ):
        run = rs.backfill(name, handler, **SMALL).launch()
        with pytest.raises(SweepFailed, match=word) as failure:
            field.finish(run)
        assert failure.value.fix.startswith(f"look at {first}")
        assert f"; then run.resume() goes on behind the last batch (rowsweep sweeps resume {run.run_id})" in (
            failure.value.fix
        )
        assert "look at" not in failure.value.cause
        job = field.job(run)
        assert (job.state, job.attempt, job.stop_reason) == ("dead", 1, "terminal")
        field.queue_sql("delete from {x_jobs}")


def test_what_is_denied_under_way_is_said_first_and_the_run_goes_on_once_it_is_granted(
    field: Field, connection: psycopg.Connection[Any]
) -> None:
    """S-432: which privilege is for the error to say; the fix says that it is one, then to resume."""
    field.orders(10)
    field.sql(
        "create function denied() returns trigger language plpgsql as $$ begin "
        "raise insufficient_privilege using message = 'permission denied for table prices'; end $$"
    )
    field.sql("create trigger t before update on orders for each row when (new.id = 7) execute function denied()")
    run = rs.backfill("denied", set={"total": "id"}, **SMALL).launch()
    with pytest.raises(SweepFailed, match="permission denied for table prices") as failure:
        field.finish(run)
    assert failure.value.fix.startswith("look at the privileges: grant what is denied above")
    field.sql("drop trigger t on orders")
    run.resume()
    assert field.finish(run)["rows"] == 10


def test_any_other_error_follows_the_retry_policy(field: Field) -> None:
    """S-130, N-083: an application's error is tried again, from the checkpoint, and fails the run at last."""
    field.orders(10)
    calls: list[int] = []

    def handler(batch: rs.Batch) -> None:
        calls.append(batch.index)
        if batch.index == 1:
            raise ValueError("never")

    error = failed(field, rs.backfill("never", handler, retry=NOW, **SMALL))
    assert calls == [0, 1, 1, 1]
    assert error.startswith("ValueError: never")
    assert "in batch 1, keys after (4) up to (8)" in error


@pytest.mark.parametrize("form", ["set", "frame"])
def test_a_batch_whose_lease_was_lost_rolls_back(field: Field, form: str) -> None:
    """N-060, N-120: the fence is the last statement; the run ends as interrupted and settles nothing."""
    field.orders(6)
    stolen = threading.Event()

    def handler(batch: rs.Batch) -> pl.DataFrame:
        field.steal(run)
        stolen.set()
        return batch.frame.select("id", band=pl.lit("x"))

    if form == "set":
        field.sql(
            "create function steal() returns trigger language plpgsql as "
            f"$$begin update {field.queue}.x_jobs set claimed_by = 'thief', claims = claims + 1; return new; end$$"
        )
        field.sql("create trigger steal before update on orders for each row execute function steal()")
        field.sql("update orders set qty = 1")  # the trigger's own plan is made
        run = rs.backfill("lost", set={"band": "'x'"}, **SMALL).launch()
    else:
        run = rs.backfill("lost", handler, **SMALL).launch()
    execution = field.tick()
    assert (execution.outcome, getattr(execution.error, "code", None)) == ("interrupted", "X_JOB_LEASE_LOST")
    assert field.one("select count(*) from orders where band is not null") == 0
    row = field.row(run)
    assert (row.rows, row.batches, row.status) == (0, 0, "running")
    assert "sweep:pages" not in field.steps(run)
    if form != "set":
        assert field.job(run).claimed_by == "thief"


def test_rows_are_locked_while_a_handler_has_them(field: Field) -> None:
    """N-055: FOR NO KEY UPDATE; others may read, and insert rows that refer to them, but not change them."""
    field.orders(6)
    field.sql("create table lines (order_id bigint references orders)")
    inside, go_on = threading.Event(), threading.Event()

    def handler(batch: rs.Batch) -> pl.DataFrame:
        inside.set()
        wait_for(go_on)
        return batch.frame.select("id", band=pl.lit("swept"))

    run = rs.backfill("lock", handler, **SMALL).launch()
    sweeping = Background(field.tick)
    wait_for(inside)
    with field.other() as other:
        other.execute("set lock_timeout = '50ms'")
        other.execute("insert into lines values (1)")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("update orders set band = 'other' where id = 1")
        other.execute("update orders set band = 'other' where id = 6")
    go_on.set()
    sweeping.result()
    assert run.wait(timeout="1s")["rows"] == 6
    assert field.sql("select band, count(*) from orders group by 1") == [("swept", 6)]
