"""A handler in an executor: pages ahead, written back in order, and computed again where their rows changed."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import rowsweep as rs
from rowsweep.sweeps.batch.batch import BatchPlace
from rowsweep.sweeps.batch.work import HandlerCall
from tests.sweeps.executors import heavy
from tests.sweeps.executors.held import Held, over
from tests.sweeps.field import Field, until, wait_for


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
