"""Partitions that come and go while their table is swept: no row that came with one is silently left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.sweeps.passes import table as passes
from tests.sweeps.field import NONE_SEEN, NOW, Field

FORMS = ["set", "frame", "sql"]
BEHIND = """
    create table behind (like t including all);
    insert into behind (k) select generate_series(-9, 0);
    alter table t attach partition behind for values from (-9) to (1)"""
AHEAD = """
    create table ahead (like t including all);
    insert into ahead (k) select generate_series(41, 50);
    alter table t attach partition ahead for values from (41) to (51)"""
TREE = """
    create table tree (like t including all) partition by range (k);
    create table leaf partition of tree for values from (-9) to (-4);
    insert into tree (k) values (-9), (-5);
    alter table t attach partition tree for values from (-9) to (1)"""
AGAIN = "alter table t detach partition t1; alter table t attach partition t1 for values from (1) to (21)"
EMPTY = """
    create table empty partition of t for values from (41) to (51);
    insert into t (k) select generate_series(41, 50)"""


def parted(field: Field) -> None:
    """Make `t` with the keys 1 to 40 in two partitions."""
    field.sql("create table t (k bigint primary key, hits int not null default 0) partition by range (k)")
    field.sql("create table t1 partition of t for values from (1) to (21)")
    field.sql("create table t2 partition of t for values from (21) to (41)")
    field.sql("insert into t (k) select generate_series(1, 40)")


def counting(form: str, where: str | None = None, **given: Any) -> Any:
    """Declare a sweep that adds one to each row: done twice it shows, and a handler leaves every fifth as it is."""
    options: dict[str, Any] = {"rows": rs.Rows("t", where=where), "batch_rows": 4, "adapt": False, "retry": NOW}

    def by_frame(batch: rs.Batch) -> pl.DataFrame:
        return batch.frame.filter(pl.col("k") % 5 != 0).with_columns(hits=pl.col("hits") + 1)

    def by_sql(batch: rs.Batch) -> None:
        batch.execute(
            "update t set hits = hits + 1 where k %% 5 <> 0 and k = any (%s)", [[row["k"] for row in batch.rows]]
        )

    if form == "set":
        return rs.backfill("counting", set={"hits": "hits + 1"}, **(options | given))
    return rs.backfill("counting", by_frame if form == "frame" else by_sql, **(options | given))


@pytest.fixture
def under_way(field: Field, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Execute SQL when the seventh batch was committed: of one pass it has done the keys up to 28."""

    def arrange(text: str) -> None:
        committed, calls = passes.Pass._committed, [0]

        def call(self: passes.Pass, *given: Any) -> None:
            committed(self, *given)
            calls[0] += 1
            if calls[0] == 7:
                self._held.abandon()
                field.sql(text)

        monkeypatch.setattr(passes.Pass, "_committed", call)

    return arrange


def swept(field: Field, sweep: Any) -> tuple[int, dict[str, Any]]:
    """Sweep to the end; answer how many rows, and what is told of those that came late."""
    run = sweep.launch()
    totals = field.finish(run)
    told = (run.snapshot().options or {}).get("late")
    assert told == (totals["late"] if totals["late"]["unsure"] else None)
    return totals["rows"], totals["late"]


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("text", "rows"), [(BEHIND, 10), (TREE, 2)], ids=["behind", "tree"])
def test_rows_that_came_with_a_partition_behind_the_sweep_are_in_doubt(
    field: Field, under_way: Callable[[str], None], form: str, shards: int, text: str, rows: int
) -> None:
    """N-057: they were written before, so no writer of theirs is open at the end, and they were called nothing."""
    parted(field)
    under_way(text)
    assert swept(field, counting(form, shards=shards)) == (40, NONE_SEEN | {"unsure": rows})
    assert field.one("select count(*) from t where k < 1 and hits = 0") == rows


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", [AHEAD, EMPTY], ids=["ahead", "empty"])
def test_rows_that_came_with_a_partition_ahead_are_swept_and_in_no_doubt(
    field: Field, under_way: Callable[[str], None], form: str, text: str
) -> None:
    """N-056: a batch has written or locked each of them, also those that its handler leaves as they are."""
    parted(field)
    under_way(text)
    assert swept(field, counting(form)) == (50, NONE_SEEN)
    assert field.one("select count(*) from t where hits = 0") == (0 if form == "set" else 10)


def test_a_partition_that_was_away_for_a_moment_is_in_doubt(field: Field, under_way: Callable[[str], None]) -> None:
    """N-057: what was loaded into it meanwhile cannot be told from what the sweep had done."""
    parted(field)
    under_way(AGAIN)
    assert swept(field, counting("set")) == (40, NONE_SEEN | {"unsure": 20})


@pytest.mark.parametrize("form", ["set", "sql"])
def test_a_condition_that_is_used_up_tells_what_came_with_a_partition(
    field: Field, under_way: Callable[[str], None], form: str
) -> None:
    """N-057: its rows are done behind the last page, each once."""
    parted(field)
    under_way(BEHIND)
    rows, late = swept(field, counting(form, where="hits = 0 and k % 5 <> 0"))
    assert (rows, late) == (40, NONE_SEEN | {"rows": 8, "proved": True})
    assert field.sql("select hits, count(*) from t where k % 5 <> 0 group by 1") == [(1, 40)]


def test_a_condition_that_names_the_whole_table_leaves_the_number_unknown(
    field: Field, under_way: Callable[[str], None]
) -> None:
    """N-057: of a partition alone it cannot be asked."""
    parted(field)
    under_way(BEHIND)
    whole = f"{field.one('select current_schema')}.t.hits >= 0"
    assert swept_unknown(field, counting("set", where=whole)) is None


def swept_unknown(field: Field, sweep: Any) -> Any:
    """Sweep to the end and answer how many rows are in doubt."""
    return field.sweep(sweep)["late"]["unsure"]
