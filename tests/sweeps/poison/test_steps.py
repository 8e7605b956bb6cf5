"""Work outside the checkpoint's transaction: a failing page is done by parts, each a batch of its own."""

from __future__ import annotations

from typing import Any

import polars as pl
import psycopg
import pytest

import rowsweep as rs
from rowsweep.errors import SweepFailed
from rowsweep.queue.stores.ledger import Backfill
from rowsweep.sweeps.declare import backfill
from rowsweep.sweeps.keyset.rows import Rows
from tests.sweeps.batch.test_source import counts, other
from tests.sweeps.field import NOW, Field

__all__ = ["other"]
BAD = (7, 8, 21, 40)
FIXED: dict[str, Any] = {"batch_rows": 16, "adapt": False, "on_error": "set-aside"}


def test_a_handler_outside_is_called_with_parts_until_only_failing_rows_are_left(field: Field) -> None:
    """N-084, N-066: every other row was handed to a call that came back, with its frame written."""
    field.orders(60)
    seen: list[int] = []

    def index(batch: rs.Batch) -> pl.DataFrame:
        assert batch.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if set(BAD) & set(batch.frame["id"]):
            raise ValueError("refused")
        seen.extend(batch.frame["id"])
        return batch.frame.select("id", band=pl.lit("low"))

    run = backfill("index", index, rows=Rows("orders", columns=["id"]), atomic=False, **FIXED).launch()
    totals = field.finish(run)
    assert (totals["rows"], totals["written"], totals["rejected"]) == (56, 56, 4)
    assert [int(key) for key in run.rejected()["key"]] == list(BAD)
    assert seen == [number for number in range(1, 61) if number not in BAD]
    assert field.one("select count(*) from orders where band = 'low'") == 56


def test_each_part_is_planned_before_it_runs_and_keeps_its_key_when_repeated(field: Field) -> None:
    """N-066, N-067, N-084: a crash in a part repeats that part, over the same bounds and under the same key."""
    field.orders(16)
    calls: list[tuple[str, list[int]]] = []

    def index(batch: rs.Batch) -> None:
        ids = batch.frame["id"].to_list()
        calls.append((batch.key, ids))
        if 7 in ids:
            raise ValueError("refused")
        if ids == [5, 6] and len([key for key, _ in calls if key == batch.key]) == 1:
            raise psycopg.errors.ConfigurationLimitExceeded  # no row's fault: the attempt fails here

    run = backfill("index", index, rows=Rows("orders", columns=["id"]), atomic=False, retry=NOW, **FIXED).launch()
    field.tick()
    stored = field.steps(run)["sweep:pages"].output
    assert (stored["cursor"], stored["plan"]) == (["4"], {"to": ["6"], "rows": 2})
    assert field.finish(run)["rejected"] == 1
    parts = [key for key, ids in calls if ids == [5, 6]]
    assert (len(parts), len(set(parts))) == (2, 1)
    assert run.rejected()["key"].to_list() == ["7"]
    done = [number for _, ids in calls if 7 not in ids for number in ids]
    assert sorted(set(done)) == [number for number in range(1, 17) if number != 7]


def test_a_pause_is_obeyed_between_the_parts(field: Field) -> None:
    """N-080, N-084: what is listed by then stays; it goes on behind it."""
    field.orders(16)
    run: Any = None

    def index(batch: rs.Batch) -> None:
        ids = batch.frame["id"].to_list()
        if ids == [1, 2]:
            run.pause()
        if 3 in ids:
            raise ValueError("refused")

    run = backfill("index", index, rows=Rows("orders", columns=["id"]), atomic=False, **FIXED).launch()
    field.tick()
    row: Backfill = field.row(run)
    assert (row.status, row.rows) == ("paused", 2)
    run.resume()
    assert (field.finish(run)["rejected"], field.row(run).rows) == (1, 15)


@pytest.mark.parametrize("atomic", [True, False])
def test_rows_of_another_database_are_set_aside_here(field: Field, other: str, atomic: bool) -> None:
    """N-066, N-084, D-1: a failed part's writes there are rolled back with an atomic handler."""

    def add(batch: rs.Batch) -> None:
        ids = [row["id"] for row in batch.rows]
        if atomic:
            batch.execute("update items set n = n + 1 where id = any (%s)", [ids])
        if {3, 9} & set(ids):
            raise ValueError("refused")

    sweep = backfill("add", add, rows=Rows("items"), source=other, atomic=atomic, **FIXED)
    run = sweep.launch()
    assert field.finish(run)["rejected"] == 2
    assert run.rejected()["key"].to_list() == ["3", "9"]
    assert counts(other) == [int(atomic and number not in (3, 9)) for number in range(1, 11)]


def test_expressions_over_another_database_and_a_constraint_that_its_commit_checks(field: Field, other: str) -> None:
    """N-084: the source's commit is the part's own."""
    with psycopg.connect(other, autocommit=True) as there:
        there.execute("create table kinds (id int primary key); insert into kinds values (0), (1)")
        there.execute("alter table items add foreign key (n) references kinds deferrable initially deferred")
    add = {"n": "case when id in (3, 9) then 7 else 1 end"}
    run = backfill("add", rows=Rows("items"), set=add, source=other, **FIXED).launch()
    assert field.finish(run)["rejected"] == 2
    assert run.rejected()["key"].to_list() == ["3", "9"]
    assert counts(other) == [int(number not in (3, 9)) for number in range(1, 11)]


def test_rejected_rows_of_another_database_are_tried_again(field: Field, other: str) -> None:
    """N-086."""
    with psycopg.connect(other, autocommit=True) as there:
        there.execute("alter table items add q int default 1; update items set q = 0 where id in (3, 9)")
        run = backfill("add", rows=Rows("items"), set={"n": "n + 1 / q"}, source=other, **FIXED).launch()
        assert field.finish(run)["rejected"] == 2
        there.execute("update items set q = 1 where id = 9")
    again = run.retry_rejected()
    assert field.finish(again)["rows"] == 1
    assert run.rejected()["key"].to_list() == again.rejected()["key"].to_list() == ["3"]
    assert counts(other) == [int(number != 3) for number in range(1, 11)]


def test_a_share_that_is_too_large_stops_it_there_too(field: Field) -> None:
    """N-085: the rows found until then are listed, each of them with its own commit."""
    field.orders(400)

    def index(batch: rs.Batch) -> None:
        if any(number % 10 < 3 for number in batch.frame["id"]):
            raise ValueError("refused")

    run = backfill(
        "index", index, rows=Rows("orders", columns=["id"]), atomic=False, **(FIXED | {"batch_rows": 100})
    ).launch()
    with pytest.raises(SweepFailed, match="more than 25%"):
        field.finish(run)
    assert field.row(run).rows < 100
    assert run.rejected().height <= 26
