"""What passes by itself is waited for, in smaller batches; it fails no run, and no batch is done twice or never."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import polars as pl
import psycopg
import pytest

import rowsweep as rs
from rowsweep.errors import DriverUnavailable, SweepFailed
from rowsweep.sweeps.batch import patience
from rowsweep.sweeps.batch.connection import BatchConnection
from rowsweep.sweeps.batch.patience import Patience, is_lost_connection, is_passing, name_of
from rowsweep.sweeps.passes import steered
from rowsweep.sweeps.passes.recovering import RecoveringPass
from rowsweep.sweeps.passes.steered import SteeredPass
from tests.sweeps.field import NOW, Background, Field, cut_off, fields_of, until

ORDERS = rs.Rows("orders")


def counted(field: Field, rows: int) -> None:
    """Make `orders` with a counter of how often a row was swept."""
    field.orders(rows, more=", hits int not null default 0")


def is_past(field: Field, run: rs.Run, rows: int) -> bool:
    """Say whether more rows are swept."""
    return field.row(run).rows > rows


def all_once(field: Field, run: rs.Run, rows: int) -> None:
    """Check that every row was swept exactly once, by one attempt, and that the ledger says so."""
    assert field.sql("select hits, count(*) from orders group by 1") == [(1, rows)]
    row, job = field.row(run), field.job(run)
    assert (row.status, row.rows, row.written, job.state, job.attempt) == ("done", rows, rows, "done", 1)


def declare(form: str, batch_rows: int, inside: Callable[[rs.Batch], Any] | None = None, **options: Any) -> Any:
    """Declare a sweep that adds 1 to `hits`."""

    def handler(batch: rs.Batch) -> Any:
        if inside is not None:
            inside(batch)
        return batch.frame.select("id", hits=pl.col("hits") + 1)

    given: dict[str, Any] = {"set": {"hits": "hits + 1"}} if form == "set" else {"handler": handler}
    return rs.backfill("count", rows=ORDERS, batch_rows=batch_rows, adapt=False, **given, **options)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("form", ["set", "frame"])
def test_rows_that_another_session_has_locked_are_waited_for(
    field: Field, form: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-069: half the size after each lock timeout, on when the lock is released, and the size comes back."""
    monkeypatch.setattr(patience, "TRIES_AT_ONE_ROW", 1_000)
    counted(field, 40)
    shrunk: list[dict[str, Any]] = []
    sweep = declare(form, 16, lock_timeout="20ms")
    with field.other() as other, other.transaction():
        other.execute("update orders set qty = 99 where id = 20")
        run = sweep.launch()
        sweeping = Background(field.tick)
        until(lambda: len(fields_of(caplog.records, "sweeps.batch.shrunk")) >= 6, "six tries")
        assert field.row(run).rows == 19
        shrunk = fields_of(caplog.records, "sweeps.batch.shrunk")
    sweeping.result()
    all_once(field, run, 40)
    assert [one["batch_rows"] for one in shrunk][:6] == [8, 4, 2, 2, 1, 1]
    assert {one["sqlstate"] for one in shrunk} == {"55P03"}
    assert all(one["sweep"] == "count" for one in shrunk)
    assert field.one("select qty from orders where id = 20") == 99
    assert field.row(run).batches < 40


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("form", ["set", "frame"])
def test_a_deadlock_costs_the_batch_a_retry_and_no_more(
    field: Field, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    """N-069: whichever of the two Postgres ends, the sweep goes on."""
    counted(field, 4)
    field.sql("create table gate (id int primary key); insert into gate values (1)")
    first = threading.Event()

    def inside(batch: rs.Batch) -> None:
        if not first.is_set():
            first.set()
            batch.execute("set local deadlock_timeout = '2s'")
            batch.execute("select from gate where id = 1 for update")

    if form == "set":
        field.sql(
            "create function gated() returns trigger language plpgsql as $$begin "
            "set local deadlock_timeout = '2s'; perform from gate for update; return new; end$$"
        )
        field.sql(
            "create trigger gated before update on orders for each row when (new.id = 4) execute function gated()"
        )
    run = declare(form, 4, inside, lock_timeout="10s").launch()
    with field.other() as other, suppress(psycopg.errors.DeadlockDetected), other.transaction():
        other.execute("set local deadlock_timeout = '1h'")
        other.execute("select from gate for update")
        sweeping = Background(field.tick)
        waiting = "select count(*) from pg_locks where not granted and pid <> pg_backend_pid()"
        until(lambda: field.one(waiting), "the sweep waits for the gate")
        other.execute("select from orders for update")
    sweeping.result()
    all_once(field, run, 4)
    assert [one["sqlstate"] for one in fields_of(caplog.records, "sweeps.batch.shrunk")] == ["40P01"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("form", ["set", "frame"])
def test_a_batch_that_takes_too_long_is_cut_smaller(field: Field, form: str, caplog: pytest.LogCaptureFixture) -> None:
    """N-069: a statement timeout of a batch too large goes away with its size."""
    counted(field, 12)
    slow = "case when pg_sleep(0.03) is null then 0 else hits + 1 end"

    def inside(batch: rs.Batch) -> None:
        batch.execute("select pg_sleep(0.03 * %s)", [len(batch.rows)])

    if form == "set":
        sweep: Any = rs.backfill(
            "count", rows=ORDERS, set={"hits": slow}, batch_rows=12, adapt=False, statement_timeout="150ms"
        )
    else:
        sweep = declare(form, 12, inside, statement_timeout="150ms")
    run = sweep.launch()
    field.tick()
    all_once(field, run, 12)
    assert {one["sqlstate"] for one in fields_of(caplog.records, "sweeps.batch.shrunk")} == {"57014"}


ONCE = """
create sequence once;
create function killed() returns trigger language plpgsql as $$begin
  if nextval('once') = 1 then perform pg_terminate_backend(pg_backend_pid()); end if; return null; end$$;
create constraint trigger killed after update on orders deferrable initially {when}
  for each row when (new.id = 6) execute function killed();
"""


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("form", ["set", "frame"])
@pytest.mark.parametrize("when", ["immediate", "deferred"])
def test_a_backend_that_dies_under_a_batch_costs_nothing_but_that_batch(
    field: Field, form: str, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    """N-062, N-069: in a statement or during the commit; the checkpoint says that the batch is not in."""
    counted(field, 12)
    field.sql(ONCE.format(when=when))
    run = declare(form, 4).launch()
    field.tick()
    all_once(field, run, 12)
    assert field.one("select last_value from once") == 2
    assert len(fields_of(caplog.records, "sweeps.batch.shrunk")) == 1


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("swallows", [False, True])
def test_a_handler_may_lose_its_connection(field: Field, swallows: bool, caplog: pytest.LogCaptureFixture) -> None:
    """N-069: also one that catches the error: the batch is tried again, not refused."""
    counted(field, 12)
    killed: list[int] = []

    def inside(batch: rs.Batch) -> None:
        frame = batch.frame
        if batch.index == 1 and not killed:
            killed.append(batch.connection.info.backend_pid)
            with suppress(psycopg.Error if swallows else ZeroDivisionError):
                batch.execute("select pg_terminate_backend(pg_backend_pid())")
        assert frame.height == 4 or killed

    run = declare("frame", 4, inside).launch()
    field.tick()
    all_once(field, run, 12)
    assert len(fields_of(caplog.records, "sweeps.batch.shrunk")) == 1


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_whose_answer_is_lost_is_looked_up_before_anything_is_repeated(
    field: Field, lands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-062: the batch is in, or it is not; the checkpoint alone tells."""
    counted(field, 12)
    commit = BatchConnection.commit
    commits: list[int] = []

    def cut(self: BatchConnection) -> None:
        commits.append(1)
        if len(commits) == 4:  # the setup's, the first and the second batch's came through
            connection = self.connection
            if lands:
                commit(self)
            connection.pgconn.finish()
        commit(self)

    monkeypatch.setattr(BatchConnection, "commit", cut)
    run = declare("frame", 4).launch()
    commits.clear()
    field.tick()
    all_once(field, run, 12)
    assert field.row(run).batches == (3 if lands else 4)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_that_travels_with_the_next_batch_is_looked_up_too(
    field: Field, lands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-062: neither the batch nor the one that was sent behind it is done twice, or never."""
    counted(field, 40)
    run = declare("set", 4).launch()
    happened = cut_off(monkeypatch, lands=(lambda: is_past(field, run, 4)) if lands else None)
    field.tick()
    assert happened
    all_once(field, run, 40)


@pytest.mark.parametrize("trouble", ["lock", "data"])
def test_what_fails_in_a_batch_sent_ahead_is_that_batch_s(
    field: Field, trouble: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """N-069, N-083: the batch before it stays done; the error names the keys of the one that failed."""
    counted(field, 40)
    if trouble == "data":
        field.sql("update orders set hits = 2147483647 where id = 30")
        run = declare("set", 4, retry=rs.Retry(attempts=1)).launch()
        with pytest.raises(SweepFailed, match=r"batch 7, keys after \(28\) up to \(32\)"):
            field.finish(run)
        assert field.row(run).rows == 28
        assert field.one("select count(*) from orders where hits = 1") == 28
        return
    with field.other() as other:
        other.execute("begin; select from orders where id = 30 for update")
        recover = RecoveringPass._recover
        at: list[int] = []

        def recovered(self: RecoveringPass, error: Exception) -> None:
            at.append(self._at.index)
            other.execute("rollback")
            recover(self, error)

        monkeypatch.setattr(RecoveringPass, "_recover", recovered)
        run = declare("set", 4, lock_timeout="50ms").launch()
        field.tick()
    all_once(field, run, 40)
    assert at == [6]
    assert [one["index"] for one in fields_of(caplog.records, "sweeps.batch.shrunk")] == [7]


@pytest.mark.usefixtures("hasty")
def test_twenty_failures_in_a_row_at_one_row_fail_the_attempt(
    field: Field, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """N-069, N-083: with that error, and the key in it."""
    monkeypatch.setattr(patience, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(patience, "_LONGEST_SECONDS", 0.0)
    counted(field, 8)
    with field.other() as other, other.transaction():
        other.execute("select from orders where id = 5 for update")
        run = declare("set", 4, lock_timeout="1ms", retry=rs.Retry(attempts=1)).launch()
        with pytest.raises(SweepFailed, match="LockNotAvailable"):
            field.finish(run)
    shrunk = fields_of(caplog.records, "sweeps.batch.shrunk")
    assert [one["batch_rows"] for one in shrunk] == [2, 1] + [1] * 19
    row = field.row(run)
    assert (row.rows, row.status) == (4, "failed")
    assert "in batch 1, keys after (4) up to (5)" in (row.last_error or "")
    run.resume()
    field.finish(run)
    assert field.sql("select hits, count(*) from orders group by 1") == [(1, 8)]


@pytest.mark.slow
def test_a_pass_that_waits_says_what_for_until_it_goes_on(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-069, D-6: `waiting_for` is shown while it waits, each time, and gone when a batch is done."""
    monkeypatch.setattr(patience, "_FIRST_SECONDS", 2.0)
    monkeypatch.setattr(patience, "_LONGEST_SECONDS", 2.0)
    counted(field, 8)
    run = declare("set", 4, lock_timeout="1ms").launch()
    others = [field.other(), field.other()]
    for other, locked in zip(others, (2, 6), strict=True):
        other.execute("begin")
        other.execute("select from orders where id = %s for update", [locked])
    sweeping = Background(field.tick)
    for other, locked in zip(others, (2, 6), strict=True):
        until(lambda: field.row(run).waiting_for == "lock timeout", f"it waits at {locked}")
        assert field.one(LOCKERS) <= len(others)
        other.close()
        until(functools.partial(is_past, field, run, locked - 2), "it goes on")
    sweeping.result()
    all_once(field, run, 8)
    assert field.row(run).waiting_for is None


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_a_batch_that_is_tried_again_takes_the_place_of_the_rate_that_was_waited_for(field: Field) -> None:
    """N-069, D-6: also where its pauses are too short to be shown by themselves."""
    counted(field, 8)
    run = declare("set", 4, lock_timeout="1ms", rate="2/s").launch()
    with field.other() as other, other.transaction():
        other.execute("select from orders where id = 6 for update")
        sweeping = Background(field.tick)
        until(lambda: field.row(run).waiting_for == "rate", "it keeps its rate")
        until(lambda: field.row(run).waiting_for == "lock timeout", "it meets the lock")
        run.cancel()
    assert sweeping.result().outcome == "interrupted"


LOCKERS = """select count(distinct l.pid) from pg_locks l join pg_class c on c.oid = l.relation
    where c.relname = 'orders' and l.pid <> pg_backend_pid()"""


@pytest.mark.usefixtures("hasty")
def test_a_wait_ends_at_once_when_the_run_is_cancelled(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-6, N-081: no wait outlasts a wish."""
    monkeypatch.setattr(patience, "_FIRST_SECONDS", 600.0)
    monkeypatch.setattr(patience, "_LONGEST_SECONDS", 600.0)
    counted(field, 8)
    with field.other() as other, other.transaction():
        other.execute("select from orders where id = 5 for update")
        run = declare("set", 4, lock_timeout="1ms").launch()
        sweeping = Background(field.tick)
        until(lambda: field.row(run).waiting_for, "it waits")
        run.cancel()
        assert sweeping.result(5).outcome == "interrupted"
    assert field.sql("select hits, count(*) from orders group by 1 order by 1") == [(0, 4), (1, 4)]


def test_what_it_takes_to_say_that_a_pass_waits_is_part_of_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-024: a server that is away takes a second to say that it cannot be told."""
    now, waits = [0.0], list[float]()

    def later(seconds: float) -> None:
        now[0] += seconds

    def wait(seconds: float) -> None:
        waits.append(seconds)
        later(seconds)

    monkeypatch.setattr(steered, "real_monotonic", lambda: now[0])
    waiting: Any = SimpleNamespace(
        _release=lambda: None,
        _waiting_for=None,
        _show_waiting=lambda _: later(1.0),
        _heed_latest=lambda: False,
        _ctx=SimpleNamespace(signal=SimpleNamespace(wait=wait)),
    )
    SteeredPass._wait(waiting, 3.0, "lost connection")
    assert now[0] == pytest.approx(3.0)
    assert sum(waits) == pytest.approx(2.0)


def test_pauses_double_up_to_their_limit_with_half_of_them_jittered() -> None:
    """N-069, N-024: 0.25 s to 30 s, 3 s for a lost connection; a batch that is done starts anew."""
    waits = Patience()
    pauses = [waits.pause_seconds(rows=100, lost=False) for _ in range(12)]
    for at, pause in enumerate(pauses):
        longest = min(0.25 * 2**at, 30.0)
        assert pause is not None
        assert longest / 2 <= pause <= longest
    lost = waits.pause_seconds(rows=100, lost=True)
    assert lost is not None
    assert 1.5 <= lost <= 3.0
    waits.succeeded()
    again = waits.pause_seconds(rows=1, lost=False)
    assert again is not None
    assert again <= 0.25
    assert [waits.pause_seconds(rows=1, lost=False) for _ in range(19)][-1] is None


def test_which_errors_pass_by_themselves() -> None:
    """N-069, N-024: locks, deadlocks, serialization, timeouts, lost connections, a standby; also behind another one."""

    def error(state: str | None) -> psycopg.Error:
        return psycopg.OperationalError() if state is None else psycopg.errors.lookup(state)()

    def behind(cause: BaseException) -> BaseException:
        made = RuntimeError("wrapped")
        made.__cause__ = cause
        return made

    passing = ["55P03", "40P01", "40001", "57014", "57P01", "57P03", "08006", "53300", "25006", None]
    assert all(is_passing(error(state)) and is_passing(behind(error(state))) for state in passing)
    assert [is_lost_connection(error(state)) for state in passing] == [False] * 4 + [True] * 6
    assert is_lost_connection(DriverUnavailable("gone", fix="none"))
    standby = psycopg.errors.FeatureNotSupported("cannot set transaction read-write mode during recovery")
    assert is_lost_connection(standby)
    assert name_of(standby) == name_of(error("25006")) == "read-only server"
    assert not any(is_passing(error(state)) for state in ("23505", "42P01", "22P02", "25P02", "0A000"))
    assert not is_passing(ValueError("mine"))
    assert NOW.attempts == 3
