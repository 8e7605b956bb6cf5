"""A sweep over an executor, paused, tuned, cancelled or bereft of its claim while pages are out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import rowsweep as rs
from rowsweep.errors import SweepCancelled
from tests.sweeps.executors import heavy
from tests.sweeps.executors.held import Held, over
from tests.sweeps.field import Background, Field, fields_of, until, wait_for


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
