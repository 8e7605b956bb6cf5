"""A row is set aside and tried again by any kind of key."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from tests.sweeps.field import Field
from tests.sweeps.keyset.test_keys import KINDS, Kind, made


def declare(form: str, kind: Kind) -> Any:
    """Declare a sweep that adds 1 to `hits`, and fails for the row whose number is 1."""

    def frame(batch: rs.Batch) -> pl.DataFrame:
        if 1 in batch.frame["n"]:
            raise ValueError("no")
        return batch.frame.select(*kind.names, hits=pl.col("hits") + 1)

    options: dict[str, Any] = {"rows": rs.Rows("t"), "batch_rows": 3, "adapt": False, "on_error": "set-aside"}
    if form == "set":
        return rs.backfill("count", set={"hits": "hits + case when n = 1 then 1 / (n - 1) else 1 end"}, **options)
    return rs.backfill("count", frame, atomic=form != "outside", **options)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["set", "frame", "outside"])
@pytest.mark.parametrize("name", KINDS)
def test_one_row_is_set_aside_by_its_key_and_found_again(field: Field, name: str, form: str) -> None:
    """N-054, N-084, N-086: no value of any key is rounded, and none is taken for another."""
    kind = made(field, KINDS[name])
    field.sql("update t set n = n + 1000 where n <> 1")
    run = declare(form, kind).launch()
    assert field.finish(run)["rejected"] == 1
    assert field.sql("select n from t where hits = 0") == [(1,)]
    assert run.rejected().height == 1
    field.sql("update t set n = 1001 where n = 1")
    assert field.finish(run.retry_rejected())["rows"] == 1
    assert run.rejected().height == 0
    assert field.sql("select hits, count(*) from t group by 1") == [(1, len(kind.keys))]
