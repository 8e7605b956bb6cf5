"""Any rows may be bad, in any form of a sweep, at any size of its batches: each row is done once or listed once."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.jobs.registry import reset_jobs
from rowsweep.sweeps.declare import backfill
from rowsweep.sweeps.keyset.rows import Rows
from tests.sweeps.field import Field

ROWS = 300


def declare(form: str, batch_rows: int) -> Any:
    """Declare a sweep that counts each row once, in one of the forms; it looks at a bad one last."""
    reset_jobs()
    given: dict[str, Any] = {"rows": Rows("things", where="n < 5"), "batch_rows": batch_rows, "adapt": False}
    given |= {"on_error": "set-aside", "late": "report"}
    if form == "set":
        return backfill("count", set={"n": "n + 1 / good"}, **given)

    def look(batch: rs.Batch) -> None:
        if not all(row["good"] for row in batch.rows):
            raise ValueError("a bad one")

    def by_sql(batch: rs.Batch) -> None:
        batch.execute("update things set n = n + 1 where k = any (%s)", [[row["k"] for row in batch.rows]])
        look(batch)

    def by_frame(batch: rs.Batch) -> pl.DataFrame:
        look(batch)
        return batch.frame.select("k", pl.col("n") + 1)

    handler: Any = by_sql if form == "sql" else by_frame
    return backfill("count", handler, atomic=form != "outside", **given)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["set", "sql", "frame", "outside"])
@pytest.mark.parametrize("seed", range(6))
def test_each_row_is_done_once_or_listed_once_and_a_retry_does_the_rest(field: Field, form: str, seed: int) -> None:
    """N-084, N-086, N-060: whole pages of bad rows, none at all, and every share between."""
    chance = random.Random(seed)
    bad = sorted(chance.sample(range(1, ROWS + 1), chance.choice([0, 1, 2, 10, 40, 70])))
    field.sql("create table things (k int primary key, n int not null default 0, good int not null)")
    field.sql("insert into things select i, 0, 1 from generate_series(1, %s) i", [ROWS])
    field.sql("update things set good = 0 where k = any (%s)", [bad])
    run = declare(form, chance.choice([1, 3, 16, 100, 1_000])).launch()
    result = field.finish(run)
    assert (result["rows"], result["rejected"]) == (ROWS - len(bad), len(bad))
    assert sorted(int(key) for key in run.rejected()["key"]) == bad
    assert field.sql("select k from things where n = 0 order by k") == [(key,) for key in bad]
    assert field.one("select count(*) from things where n > 1") == 0
    if bad:
        field.sql("update things set good = 1")
        assert field.finish(run.retry_rejected())["rows"] == len(bad)
    assert run.rejected().height == 0
    assert field.sql("select n, count(*) from things group by n") == [(1, ROWS)]
