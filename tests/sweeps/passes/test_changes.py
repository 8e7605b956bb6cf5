"""Rows that appear, vanish or move while they are swept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.sweeps.passes import table as passes
from tests.sweeps.field import Field

FORMS = ["set", "frame", "outside"]


def made(field: Field, keys: range) -> None:
    """Make `t` with these keys and a counter of how often a row was swept."""
    field.sql("create table t (k bigint primary key, hits int not null default 0, note text not null default '')")
    field.sql("insert into t (k) select unnest(%s::bigint[])", [list(keys)])


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], Any]], None]:
    """Call something when a batch of this index was committed, before the next page is looked for."""

    def arrange(index: int, action: Callable[[], Any]) -> None:
        committed = passes.Pass._committed

        def call(self: passes.Pass, done: Any, *given: Any) -> None:
            committed(self, done, *given)
            if done.at.index == index:
                self._held.abandon()
                action()

        monkeypatch.setattr(passes.Pass, "_committed", call)

    return arrange


def declare(form: str, rows: rs.Rows, batch_rows: int = 4) -> Any:
    """Declare a sweep that adds 1 to `hits`."""

    def handler(batch: rs.Batch) -> pl.DataFrame:
        return batch.frame.select("k", hits=pl.col("hits") + 1)

    options: dict[str, Any] = {"rows": rows, "batch_rows": batch_rows, "adapt": False}
    if form == "set":
        return rs.backfill("count", set={"hits": "hits + 1"}, **options)
    return rs.backfill("count", handler, atomic=form != "outside", **options)


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_appear_ahead_are_swept_and_those_behind_are_not(
    field: Field, form: str, after: Callable[[int, Callable[[], Any]], None]
) -> None:
    """N-056, N-057: ahead of the cursor and behind the former end; a key already passed is not seen."""
    made(field, range(10, 50, 2))
    after(1, lambda: field.sql("insert into t (k) values (1), (11), (25), (27), (29), (31), (33), (999)"))
    totals = field.sweep(declare(form, rs.Rows("t")))
    assert field.sql("select k from t where hits = 0 order by k") == [(1,), (11,)]
    assert field.sql("select max(hits) from t") == [(1,)]
    assert totals["rows"] == 26


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_vanish_or_move_are_met_at_most_once_where_they_are(
    field: Field, form: str, after: Callable[[int, Callable[[], Any]], None]
) -> None:
    """N-055: the cursor moves over keys that are gone; a key that moved ahead is another row's."""
    made(field, range(1, 21))

    def change() -> None:
        field.sql("delete from t where k in (9, 10, 11, 12, 20)")
        field.sql("update t set k = 100 where k = 14")
        field.sql("update t set k = -1 where k = 15")

    after(1, change)
    totals = field.sweep(declare(form, rs.Rows("t")))
    assert field.sql("select k from t where hits = 0") == [(-1,)]
    assert field.sql("select max(hits) from t") == [(1,)]
    assert totals["rows"] == 14


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_stop_matching_are_left_alone(
    field: Field, form: str, after: Callable[[int, Callable[[], Any]], None]
) -> None:
    """N-055: `where` is asked again when the page's turn comes, and the last key found still counts."""
    made(field, range(1, 13))
    after(0, lambda: field.sql("update t set note = 'done' where k in (5, 8, 12)"))
    totals = field.sweep(declare(form, rs.Rows("t", where="note = ''")))
    assert field.sql("select k from t where hits = 0 order by k") == [(5,), (8,), (12,)]
    assert (totals["rows"], totals["batches"]) == (9, 3)


@pytest.mark.parametrize("form", FORMS)
def test_a_sweep_may_stop_its_own_rows_from_matching(field: Field, form: str) -> None:
    """N-055: the page is a range of keys, so nothing is skipped when rows leave the condition."""
    made(field, range(1, 31))
    totals = field.sweep(declare(form, rs.Rows("t", where="hits = 0")))
    assert (totals["rows"], totals["remaining"]) == (30, 0)
    assert field.sql("select hits, count(*) from t group by 1") == [(1, 30)]


@pytest.mark.parametrize("form", FORMS)
def test_until_start_passes_nothing_beyond_the_highest_key_of_the_start(
    field: Field, form: str, after: Callable[[int, Callable[[], Any]], None]
) -> None:
    """N-056: the bound is the highest key by its own order, 9 before 10; rows below it that appear are swept."""
    made(field, range(1, 13))
    after(0, lambda: field.sql("insert into t (k) values (0), (13), (14), (-5)"))
    field.sql("delete from t where k = 11")
    after(1, lambda: field.sql("insert into t (k) values (11)"))
    run = declare(form, rs.Rows("t", until="start")).launch()
    totals = field.finish(run)
    assert field.steps(run)["sweep:setup"].output["upper"] == ["12"]
    assert field.sql("select k from t where hits = 0 order by k") == [(-5,), (0,), (13,), (14,)]
    assert totals["rows"] == 12


@pytest.mark.parametrize("form", FORMS)
def test_until_start_of_an_empty_table_sweeps_nothing_that_comes_later(
    field: Field, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-056: no key at setup, no key to sweep."""
    made(field, range(0))
    from rowsweep.sweeps.setup import set_up

    def then_filled(*given: Any) -> Any:
        setup = set_up(*given)
        field.sql("insert into t (k) select generate_series(1, 9)")
        return setup

    monkeypatch.setattr("rowsweep.sweeps.passes.table.set_up", then_filled)
    totals = field.sweep(declare(form, rs.Rows("t", until="start")))
    assert (totals["rows"], field.one("select count(*) from t where hits = 0")) == (0, 9)


@pytest.mark.parametrize("form", ["set", "frame"])
def test_a_column_that_appears_under_way_changes_nothing(
    field: Field, form: str, after: Callable[[int, Callable[[], Any]], None]
) -> None:
    """D-5: the columns are those of the setup; statements prepared before an ALTER TABLE go on."""
    made(field, range(1, 21))
    after(2, lambda: field.sql("alter table t add column late int default 5, alter column note drop not null"))
    assert field.sweep(declare(form, rs.Rows("t"), batch_rows=2))["rows"] == 20
    assert field.sql("select hits, count(*) from t group by 1") == [(1, 20)]


def test_a_row_inserted_into_a_page_between_its_locks_and_its_read_counts_as_swept(field: Field) -> None:
    """N-055, N-064: what a handler was given is what is counted."""
    made(field, range(2, 20, 2))
    seen: list[int] = []

    def handler(batch: rs.Batch) -> pl.DataFrame:
        if batch.index == 0:
            field.sql("insert into t (k) values (3)")
        seen.extend(batch.frame["k"])
        return batch.frame.select("k", hits=pl.col("hits") + 1)

    totals = field.sweep(rs.backfill("count", handler, rows=rs.Rows("t"), batch_rows=4, adapt=False))
    swept = field.one("select count(*) from t where hits = 1")
    assert swept == len(seen)
    assert (totals["rows"], totals["written"]) == (swept, swept)
