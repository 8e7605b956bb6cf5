"""A handler in an executor: pages ahead, written back in order, and computed again where their rows changed."""

from __future__ import annotations

import logging
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import rowsweep as rs
from rowsweep.errors import SweepCancelled, SweepFailed
from rowsweep.sweeps.batch.batch import BatchPlace
from rowsweep.sweeps.batch.work import HandlerCall
from tests.sweeps.executors import heavy
from tests.sweeps.field import NOW, Background, Field, fields_of, until, wait_for

ORDERS = heavy.ORDERS


def over(threads: Any, handler: Any = heavy.doubled, *, name: str = "heavy", **given: Any) -> Any:
    """Declare a sweep of pages of four rows that runs in these threads."""
    options: dict[str, Any] = {"rows": ORDERS, "batch_rows": 4, "adapt": False, "ahead": 3}
    return rs.backfill(name, handler, executor=threads, **(options | given))


class Held:
    """Hold up the handler at one batch, until it is let go."""

    def __init__(self, index: int) -> None:
        self.reached = threading.Event()
        self.free = threading.Event()
        self.calls: list[tuple[int, int]] = []
        self._index = index
        heavy.hooks.append(self)

    def __call__(self, batch: rs.Batch) -> None:
        self.calls.append((batch.index, batch.frame.height))
        if batch.index == self._index and not self.free.is_set():
            self.reached.set()
            wait_for(self.free)

    def until_called(self, times: int) -> None:
        until(lambda: len(self.calls) >= times, f"{times} calls")


def test_pages_are_computed_ahead_and_written_in_key_order(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-058, N-060: never more pages out than asked for; the first held up, none behind it is written."""
    field.orders(30)
    held = Held(0)
    run = over(threads).launch()
    with field.working():
        wait_for(held.reached)
        held.until_called(3)
        assert sorted(held.calls) == [(0, 4), (1, 4), (2, 4)]
        assert field.one("select count(total) from orders") == 0
        held.free.set()
        totals = run.wait(timeout="20s")
    assert (totals["rows"], totals["written"], totals["batches"]) == (30, 30, 8)
    assert field.one("select count(*) from orders where total = qty * 2") == 30
    assert sorted(held.calls) == [(index, 2 if index == 7 else 4) for index in range(8)]


def test_rows_that_changed_meanwhile_are_computed_again_under_their_locks(
    field: Field, threads: ThreadPoolExecutor
) -> None:
    """N-055, N-060: changed, gone, come, no longer and newly matching rows; other pages stay as they are."""
    field.orders(20)
    field.sql("update orders set band = 'not yet' where id in (3, 10)")
    rows = rs.Rows("orders", columns=["id", "qty"], where="band is null")
    held = Held(0)
    run = over(threads, rows=rows, ahead=5).launch()
    with field.working():
        wait_for(held.reached)
        held.until_called(5)
        field.sql("update orders set qty = 100 where id = 6")
        field.sql("delete from orders where id = 9")
        field.sql("update orders set band = null where id = 10")
        field.sql("update orders set band = 'done' where id = 14")
        held.free.set()
        totals = run.wait(timeout="20s")
    assert totals["rows"] == 17
    assert field.sql("select id, total from orders where total is distinct from qty * 2") == [(3, None), (14, None)]
    assert field.one("select total from orders where id = 6") == 200
    repeated = [index for index, _ in held.calls[5:]]
    assert repeated == [1, 2, 3]


def test_a_row_that_is_inserted_into_a_page_ahead_is_swept(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-055, N-056: into a page between its reading and its turn, and behind the end."""
    field.orders(8)
    field.sql("update orders set id = id * 10")
    held = Held(0)
    run = over(threads).launch()
    with field.working():
        wait_for(held.reached)
        held.until_called(2)
        field.sql("insert into orders (id, price, qty) values (55, 1, 5), (99, 1, 9)")
        held.free.set()
        assert run.wait(timeout="20s")["rows"] == 10
    assert field.one("select count(*) from orders where total = qty * 2") == 10


def test_a_row_that_changes_back_to_what_was_seen_costs_nothing(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-060: compared is what the handler saw, so a column that it does not read is none of it."""
    field.orders(8)
    held = Held(0)
    run = over(threads).launch()
    with field.working():
        wait_for(held.reached)
        held.until_called(2)
        field.sql("update orders set price = 7 where id = 6")
        held.free.set()
        run.wait(timeout="20s")
    assert sorted(held.calls) == [(0, 4), (1, 4)]


def test_no_lock_is_held_while_pages_are_computed_and_the_written_ones_are_locked(
    field: Field, threads: ThreadPoolExecutor
) -> None:
    """N-060: another writer waits for a page only from its check to its commit."""
    field.orders(8)
    held = Held(1)
    run = over(threads).launch()
    with field.working(), field.other() as other:
        wait_for(held.reached)
        until(lambda: field.row(run).rows == 4)
        other.execute("set lock_timeout = '2s'")
        other.execute("update orders set qty = 50 where id = 6")
        held.free.set()
        assert run.wait(timeout="20s")["rows"] == 8
    assert field.one("select total from orders where id = 6") == 100


def test_rows_that_were_found_unchanged_stay_so_until_they_are_written(
    field: Field, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-060: the check takes the locks, or a change behind it would be written over."""
    field.orders(4)
    refused: list[str | None] = []
    write = HandlerCall.write

    def disturbed(self: HandlerCall, *given: Any) -> int:
        with field.other() as other:
            other.execute("set lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
                other.execute("update orders set qty = 50 where id = 3")
            refused.append(caught.value.sqlstate)
        return write(self, *given)

    monkeypatch.setattr(HandlerCall, "write", disturbed)
    assert field.sweep(over(threads))["rows"] == 4
    assert refused == ["55P03"]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_others_write_ahead_of_the_cursor_is_what_is_swept(
    field: Field, threads: ThreadPoolExecutor, seed: int
) -> None:
    """N-055, N-060: random writes to pages that are out; in the end every row's total is of the quantity it has."""
    field.orders(60)
    chance = random.Random(seed)
    lock = threading.Lock()
    ids = list(range(1, 90))

    def disturb(batch: rs.Batch) -> None:
        last = batch.frame["id"].max()
        with lock:
            ahead = [number for number in ids if number > int(str(last))]
            if not ahead:
                return
            number = chance.choice(ahead)
            statement = chance.choice(
                [
                    "update orders set qty = qty + 1 where id = %(id)s",
                    "delete from orders where id = %(id)s",
                    "insert into orders (id, price, qty) values (%(id)s, 1, 3) on conflict do nothing",
                ]
            )
            with field.other() as other:
                other.execute(statement, {"id": number})

    heavy.hooks.append(disturb)
    totals = field.sweep(over(threads, batch_rows=chance.choice([1, 3, 7]), ahead=chance.choice([2, 4])))
    assert field.one("select count(*) from orders where total is distinct from qty * 2") == 0
    assert totals["rows"] >= field.one("select count(*) from orders")


def test_index_key_and_input_are_those_of_the_page(field: Field, threads: ThreadPoolExecutor) -> None:
    """S-182, N-067: as in process; pages without rows have none of the indexes."""
    field.orders(16)
    rows = rs.Rows("orders", columns=["id"], where="id not between 5 and 8 and note is null")
    field.sql("alter table orders add note text")
    run = over(threads, heavy.placed, rows=rows, input=int).launch(7)
    field.finish(run)
    for index, first in enumerate([1, 9, 13]):
        after = None if first == 1 else (str(first - 1),)
        key = BatchPlace(run_id=str(run.run_id), index=index, after=after, to=(str(first + 3),)).key
        assert field.one("select band from orders where id = %s", [first]) == f"{index} {key} 7 None"


def test_an_empty_page_that_fills_moves_the_indexes_behind_it(field: Field, threads: ThreadPoolExecutor) -> None:
    """S-182: pages that were sent out under another index are computed again under theirs."""
    field.orders(16)
    field.sql("update orders set qty = -1 where id between 5 and 8")
    held = Held(0)
    run = over(threads, rows=rs.Rows("orders", columns=["id", "qty"], where="qty > 0"), ahead=4).launch()
    with field.working():
        wait_for(held.reached)
        held.until_called(3)
        assert sorted(held.calls) == [(0, 4), (1, 4), (2, 4)]
        field.sql("update orders set qty = 1 where id = 6")
        held.free.set()
        assert run.wait(timeout="20s")["batches"] == 4
    assert sorted(held.calls[3:]) == [(1, 1), (2, 4), (3, 4)]
    assert field.one("select count(*) from orders where total = qty * 2") == 13


@pytest.mark.parametrize("handler", [heavy.by_rows, heavy.read_both])
def test_a_handler_over_dicts_gets_them(field: Field, threads: ThreadPoolExecutor, handler: Any) -> None:
    """S-184: what is sent out is what the handler reads; a row that changed is computed again there too."""
    field.orders(10)
    assert field.sweep(over(threads, handler))["rows"] == 10
    assert field.one("select count(*) from orders where total = qty * 2") == 10


def test_a_page_of_dicts_that_changed_is_computed_again(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-060: the digest is the database's own, whatever form the page travels in."""
    field.orders(8)
    held = Held(0)
    run = over(threads, heavy.by_rows).launch()
    with field.working():
        wait_for(held.reached)
        field.sql("update orders set qty = 100 where id = 6")
        held.free.set()
        assert run.wait(timeout="20s")["rows"] == 8
    assert field.one("select count(*) from orders where total = qty * 2") == 8


def failed(field: Field, sweep: Any) -> Any:
    """Sweep to a failure and answer the ledger's row."""
    run = sweep.launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    return field.row(run)


def test_what_a_handler_raises_fails_its_own_batch(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-083: everything before it is committed; the error has its name, text, class, place and key range."""
    field.orders(20)
    row = failed(field, over(threads, heavy.odd))
    assert (row.status, row.rows, row.batches) == ("failed", 4, 1)
    assert row.last_error.startswith("OddError: row 6 is odd: six")
    assert "in batch 1, keys after (4) up to (8)" in row.last_error
    assert "in the executor, at " in row.last_error
    assert "heavy.py" in row.last_error


def test_what_a_handler_raised_over_rows_that_changed_since_does_not_count(
    field: Field, threads: ThreadPoolExecutor
) -> None:
    """N-060, N-083: in the transaction it would have seen the row as it is."""
    field.orders(12)
    held = Held(0)
    run = over(threads, heavy.odd, retry=NOW).launch()
    with field.working():
        wait_for(held.reached)
        held.until_called(2)
        field.sql("update orders set id = 100 where id = 6")
        held.free.set()
        assert run.wait(timeout="20s")["rows"] == 12
    assert field.job(run).attempt == 1


def test_rows_that_fail_by_themselves_are_set_aside(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-084: the parts of a failing page are computed out there too, one by one; the pass goes on ahead behind it."""
    field.orders(20)
    run = over(threads, heavy.odd, on_error="set-aside").launch()
    assert field.finish(run)["rows"] == 19
    assert run.rejected().select("key", "error").rows() == [("6", "OddError: row 6 is odd: six")]
    assert field.one("select count(*) from orders where total = qty * 2") == 19


def test_rejected_rows_are_tried_again_out_there(
    field: Field, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-086: over exactly these keys, which are read ahead as any others."""
    monkeypatch.setattr("rowsweep.sweeps.poison.work.BETWEEN_TRIES_SECONDS", 0.0)
    field.orders(60)
    field.sql("update orders set qty = 13 where id % 9 = 0")
    run = over(threads, heavy.unlucky, on_error="set-aside", ahead=2).launch()
    assert field.finish(run)["rejected"] == 6
    field.sql("update orders set qty = 1 where id % 9 = 0 and id < 50")
    again = run.retry_rejected()
    assert field.finish(again)["rows"] == 5
    assert run.rejected()["key"].to_list() == ["54"]
    assert field.one("select count(*) from orders where total = qty * 2") == 59


def test_a_transaction_that_commits_behind_the_cursor_is_swept_too(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-057: the second look has its own pages, and its own keys, through the same executor."""
    field.orders(12)
    field.sql("delete from orders where id = 3")
    rows = rs.Rows("orders", columns=["id", "qty"], where="total is null")
    run = over(threads, rows=rows).launch()
    with field.other() as other, field.working():
        other.execute("begin")
        other.execute("insert into orders (id, price, qty) values (3, 1, 5)")
        until(lambda: "open transaction" in (field.row(run).waiting_for or ""))
        other.execute("commit")
        totals = run.wait(timeout="20s")
    assert (totals["rows"], totals["late"]["rows"]) == (12, 1)
    assert field.one("select count(*) from orders where total = qty * 2") == 12


def test_shards_read_ahead_within_their_own_ranges(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-087: also where half of a range is taken over while its pages are out; each row is written once."""
    field.orders(400, more=", hits int not null default 0")
    field.sql("analyze orders")
    heavy.hooks.append(lambda batch: threading.Event().wait(0.02 if batch.frame["id"].max() > 200 else 0))  # type: ignore[operator]
    rows = rs.Rows("orders", columns=["id", "hits"])
    run = over(threads, heavy.counting, rows=rows, shards=2).launch()
    with field.working(concurrency=2):
        assert run.wait(timeout="20s")["rows"] == 400
    assert field.sql("select hits, count(*) from orders group by 1") == [(1, 400)]


def test_a_frame_that_does_not_fit_fails_its_own_batch(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-064: found where it is written back, and, of Python objects, where it cannot travel."""
    field.orders(20)
    row = failed(field, over(threads, heavy.wrong))
    assert (row.last_error_code, row.rows) == ("X_SWEEP_FRAME_INVALID", 4)
    assert "'totl'" in row.last_error
    row = failed(field, over(threads, heavy.objects, name="objects"))
    assert (row.last_error_code, row.rows) == ("X_SWEEP_FRAME_INVALID", 0)
    assert "Python objects" in row.last_error


def test_a_page_that_cannot_be_read_fails_when_its_turn_comes(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-083: reading ahead fails no page before it."""
    field.orders(16, more=", at timestamp default now()")
    field.sql("update orders set at = 'infinity' where id = 11")
    rows = rs.Rows("orders", columns=["id", "qty", "at"])
    row = failed(field, over(threads, rows=rows, ahead=4))
    assert (row.last_error_code, row.rows) == ("X_SWEEP_FRAME_INVALID", 8)


@pytest.mark.parametrize(("handler", "name"), [(heavy.executing, "batch.connection"), (heavy.stepping, "batch.ctx")])
def test_what_stays_behind_is_refused_by_name(
    field: Field, threads: ThreadPoolExecutor, handler: Any, name: str
) -> None:
    """N-060: the transaction is another process's; trying again changes nothing."""
    field.orders(4)
    sweep = over(threads, handler)
    row = failed(field, sweep)
    assert row.last_error_code == "X_JOB_DECLARATION_INVALID"
    assert f"{name} does not reach into an executor" in row.last_error


def test_a_locked_page_shrinks_and_is_done(
    field: Field, threads: ThreadPoolExecutor, hasty: None, caplog: pytest.LogCaptureFixture
) -> None:
    """N-069: an error of the moment at the write-back; the pages ahead are read again, each row is done once."""
    field.orders(16, more=", hits int not null default 0")
    rows = rs.Rows("orders", columns=["id", "hits"])
    run = over(threads, heavy.counting, rows=rows, lock_timeout="100ms").launch()
    with field.other() as other, field.working():
        other.execute("begin")
        other.execute("select 1 from orders where id = 6 for update")
        until(lambda: fields_of(caplog.records, "sweeps.batch.shrunk"))
        other.execute("commit")
        assert run.wait(timeout="20s")["rows"] == 16
    assert field.sql("select hits, count(*) from orders group by 1") == [(1, 16)]
    assert {shrunk["index"] for shrunk in fields_of(caplog.records, "sweeps.batch.shrunk")} == {1}


def test_a_pause_drops_the_pages_ahead_and_a_resume_reads_them_again(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-080: the page in flight is finished, what was ahead of it is not."""
    field.orders(40, more=", hits int not null default 0")
    held = Held(1)
    run = over(threads, heavy.counting, rows=rs.Rows("orders", columns=["id", "hits"])).launch()
    with field.working():
        wait_for(held.reached)
        run.pause()
        held.free.set()
        until(lambda: run.snapshot().status == "paused")
        assert 4 <= field.row(run).rows <= 8
        run.resume()
        assert run.wait(timeout="20s")["rows"] == 40
    assert field.sql("select hits, count(*) from orders group by 1") == [(1, 40)]


def test_smaller_batches_that_somebody_asks_for_do_not_wait_for_the_pages_ahead(
    field: Field, threads: ThreadPoolExecutor
) -> None:
    """N-122: felt in the next batch."""
    field.orders(40)
    held = Held(1)
    run = over(threads).launch()
    with field.working():
        wait_for(held.reached)
        held.until_called(4)
        run.tune(batch_rows=1)
        held.free.set()
        assert run.wait(timeout="20s")["batches"] == 2 + 32
    assert field.one("select count(*) from orders where total = qty * 2") == 40


def test_what_has_not_begun_when_a_run_is_paused_never_begins(field: Field) -> None:
    """N-080: the pages ahead are cancelled in an executor that was given, too."""
    field.orders(40)
    heavy.hooks.clear()
    with ThreadPoolExecutor(1) as one:
        held, behind = Held(1), Held(2)
        run = over(one, ahead=6).launch()
        with field.working():
            wait_for(held.reached)
            until(lambda: field.row(run).rows == 4)
            run.pause()
            held.free.set()
            until(lambda: run.snapshot().status == "paused")
            behind.free.set()
    heavy.hooks.clear()
    assert [index for index, _ in held.calls] == [0, 1, 2]


def test_a_cancel_does_not_wait_for_the_page_that_is_out(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-081: no half batch, and what has not begun out there never begins."""
    field.orders(40)
    held = Held(1)
    run = over(threads).launch()
    with field.working():
        wait_for(held.reached)
        until(lambda: field.row(run).rows == 4)
        run.cancel("enough")
        with pytest.raises(SweepCancelled):
            run.wait(timeout="20s")
        until(lambda: field.job(run).state == "cancelled")
        assert field.one("select count(total) from orders") == 4
        held.free.set()


def test_a_lost_claim_writes_nothing(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-060: the closing statement's fence holds wherever the handler ran."""
    field.orders(8)
    held = Held(1)
    run = over(threads).launch()
    worker = field.worker()
    ticking = Background(worker.tick)
    wait_for(held.reached)
    until(lambda: field.row(run).rows == 4)
    field.steal(run)
    held.free.set()
    ticking.result()
    assert field.one("select count(total) from orders") == 4


def test_a_preview_runs_out_there(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-090: the real path; nothing stays."""
    field.orders(10)
    names: set[str] = set()
    heavy.hooks.append(lambda _batch: names.add(threading.current_thread().name))
    frame = over(threads).preview(3)
    assert frame["total_after"].to_list() == [2 * qty for qty in frame["qty"]]
    assert field.one("select count(total) from orders") == 0
    assert names
    assert all(name.startswith("ThreadPoolExecutor") for name in names)


def test_a_preview_locks_no_row_while_its_executor_starts(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-090: a cluster may take its time."""
    field.orders(4)

    def make() -> ThreadPoolExecutor:
        with field.other() as other:
            other.execute("set lock_timeout = '1s'")
            other.execute("update orders set qty = 5")
        return threads

    assert over(make).preview(4)["total_after"].to_list() == [10, 10, 10, 10]


def test_an_executor_that_was_shut_down_is_no_rows_fault(field: Field) -> None:
    """N-084: the attempt fails, to be made again, and nothing is set aside."""
    field.orders(4)
    given = ThreadPoolExecutor(1)
    given.shutdown()
    run = over(given, on_error="set-aside", retry=NOW).launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    assert run.rejected().height == 0
    assert "after shutdown" in (field.row(run).last_error or "")
    assert field.job(run).attempt == 3


def test_a_passs_own_executor_ends_with_it_and_the_callers_does_not(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-058: made when first needed, one for each pass."""
    field.orders(8)
    made: list[ThreadPoolExecutor] = []

    def make() -> ThreadPoolExecutor:
        made.append(ThreadPoolExecutor(2))
        return made[-1]

    sweep = over(make)
    assert made == []
    field.sweep(sweep)
    field.sweep(sweep, force=True)
    assert len(made) == 2
    for pool in made:
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(int)
    field.sweep(over(threads, name="given"))
    assert threads.submit(int).result() == 0


def test_the_time_that_an_executor_takes_to_start_is_no_batchs(field: Field, caplog: pytest.LogCaptureFixture) -> None:
    """N-068: or the first pages, and those after them, would be cut to pieces for it."""
    field.orders(8)
    caplog.set_level(logging.DEBUG, logger="rowsweep")

    def make() -> ThreadPoolExecutor:
        threading.Event().wait(1.5)
        return ThreadPoolExecutor(2)

    field.sweep(over(make))
    durations = [batch["duration_ms"] for batch in fields_of(caplog.records, "sweeps.batch")]
    assert len(durations) == 2
    assert max(durations) < 1_400


def test_a_closed_connection_between_two_pages_is_taken_anew(
    field: Field, threads: ThreadPoolExecutor, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-062, N-069: a lost connection costs the pages ahead and nothing else."""
    field.orders(24, more=", hits int not null default 0")
    pids: list[int] = []
    write = HandlerCall.write

    def noted(self: HandlerCall, *given: Any) -> int:
        pids.append(self.finder.held.connection.info.backend_pid)
        return write(self, *given)

    monkeypatch.setattr(HandlerCall, "write", noted)
    held = Held(2)
    run = over(threads, heavy.counting, rows=rs.Rows("orders", columns=["id", "hits"])).launch()
    with field.working():
        wait_for(held.reached)
        until(lambda: field.row(run).rows == 8)
        assert field.one("select pg_terminate_backend(%s)", [pids[-1]])
        held.free.set()
        assert run.wait(timeout="20s")["rows"] == 24
    assert len(set(pids)) == 2
    assert field.sql("select hits, count(*) from orders group by 1") == [(1, 24)]
