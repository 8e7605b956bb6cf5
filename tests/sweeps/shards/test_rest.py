"""What comes behind the last range of a sharded run after its shard has ended is swept too, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.sweeps.shards.lending import Lending
from tests.sweeps.field import NOW, Field

ROWS, MORE, SHARDS = 3_000, 250, 3


def begun(field: Field, sweep: Any) -> Any:
    """Launch, and let one worker do shard after shard until only the end of the run is left to do."""
    run = sweep.launch()
    worker = field.worker(concurrency=1)
    for _ in range(SHARDS):
        worker.tick()
    assert [shard["status"] for shard in field.row(run).shards] == ["done"] * SHARDS
    assert field.row(run).status == "running"
    return run


def table(field: Field) -> None:
    field.sql("create table things (k int primary key, n int not null default 0)")
    field.sql(f"insert into things select generate_series(1, {ROWS})")
    field.sql("analyze things")


def add(field: Field, *, behind: int = ROWS) -> None:
    field.sql(f"insert into things select generate_series({behind + 1}, {behind + MORE})")


def declare(**given: Any) -> Any:
    options: dict[str, Any] = {"rows": rs.Rows("things"), "batch_rows": 100, "adapt": False, "shards": SHARDS} | given
    return rs.backfill("count-up", set={"n": "n + 1"}, retry=NOW, **options)


def counted(field: Field) -> list[tuple[int, int]]:
    return field.sql("select n, count(*) from things group by n order by n")


def test_rows_that_come_behind_a_shard_that_has_ended_are_swept_at_the_end(field: Field) -> None:
    """N-056, N-088: one job would have gone on to them; the ranges still tile, and the figures are the table's."""
    table(field)
    run = begun(field, declare())
    add(field)
    totals = field.finish(run)
    assert counted(field) == [(1, ROWS + MORE)]
    assert (totals["rows"], totals["ranges"]) == (ROWS + MORE, SHARDS + 1)
    row = field.row(run)
    assert (row.status, row.rows) == ("done", ROWS + MORE)
    assert sum(shard["rows"] for shard in row.shards) == ROWS + MORE
    covered = rs.attach(run.run_id).verify().covered
    assert len(covered) == SHARDS + 1


def test_a_run_whose_table_did_not_grow_has_no_more_ranges(field: Field) -> None:
    """N-087: nothing is taken that has no keys."""
    table(field)
    assert field.finish(begun(field, declare()))["ranges"] == SHARDS


def test_a_bound_that_was_fixed_at_the_start_is_kept(field: Field) -> None:
    """N-056: `until="start"` passes nothing beyond it."""
    table(field)
    run = begun(field, declare(rows=rs.Rows("things", until="start")))
    add(field)
    assert field.finish(run)["rows"] == ROWS
    assert counted(field) == [(0, MORE), (1, ROWS)]


def test_a_last_range_whose_rows_all_went_is_followed_from_its_beginning(field: Field) -> None:
    """N-056: no key was found in it before the end, and some are now."""
    table(field)
    run = declare().launch()
    worker = field.worker(concurrency=1)
    worker.tick()
    field.sql("delete from things where k > %s", [field.one("select max(k) from things where n = 1")])
    left = field.one("select count(*) from things")
    for _ in range(SHARDS - 1):
        worker.tick()
    add(field)
    totals = field.finish(run)
    assert counted(field) == [(1, left + MORE)]
    assert totals["rows"] == left + MORE


def test_a_run_that_is_cut_off_in_what_came_goes_on_behind_its_batch(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-060, N-062: neither the range that is begun nor a batch of it is done twice, whatever breaks in between."""
    table(field)
    run = begun(field, declare())
    add(field)
    rest = Lending.rest

    def cut_off(self: Lending, *given: Any) -> Any:
        monkeypatch.undo()
        rest(self, *given)
        raise ValueError("the process ends here")

    monkeypatch.setattr(Lending, "rest", cut_off)
    field.make_due(run)
    assert field.tick().outcome == "retried"
    add(field, behind=ROWS + MORE)
    assert field.finish(run)["rows"] == ROWS + 2 * MORE
    assert counted(field) == [(1, ROWS + 2 * MORE)]


def test_an_export_by_shards_has_what_came_too(field: Field, tmp_path: Path) -> None:
    """N-056, N-095: in parts of the first shard's names, in the manifest behind all others."""
    table(field)
    place = tmp_path / "out"
    sweep = rs.export_rows("copy", rs.Rows("things"), str(place), part_rows=500, shards=SHARDS, retry=NOW)
    run = begun(field, sweep)
    add(field)
    totals = field.finish(run)
    assert totals["rows"] == ROWS + MORE
    copied = rs.read_export(str(place)).collect()
    assert copied["k"].to_list() == list(range(1, ROWS + MORE + 1))
    assert isinstance(copied, pl.DataFrame)
