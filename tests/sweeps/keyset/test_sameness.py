"""A sweep whose table is replaced, or whose key gets another order, does not end as if it had seen every row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import SweepFailed
from rowsweep.sweeps.keyset.sameness import Identity
from rowsweep.sweeps.passes.table import Pass
from tests.sweeps.field import NOW, Field

ROWS = 60


def table(field: Field, kind: str = "int") -> None:
    field.sql(f"create table things (k {kind} primary key, n int not null default 0)")
    field.sql(f"insert into things (k) select (1000 + i)::{kind} from generate_series(1, {ROWS}) i")


def declare(**given: Any) -> Any:
    options: dict[str, Any] = {"rows": rs.Rows("things"), "batch_rows": 20, "adapt": False, "retry": NOW} | given
    return rs.backfill("count-up", set={"n": "n + 1"}, **options)


def between_batches(field: Field, monkeypatch: pytest.MonkeyPatch, *statements: str) -> None:
    """Execute statements before the second batch, while the pass holds no lock."""
    next_batch: Callable[[Pass], Any] = Pass._next_batch
    left = list(statements)

    def change(self: Pass) -> Any:
        if self._at.index == 0:
            self._release()
            while left:
                field.sql(left.pop(0))
        return next_batch(self)

    monkeypatch.setattr(Pass, "_next_batch", change)


SWAP = (
    "create table others (like things including all)",
    "insert into others select k, 0 from things",
    "alter table things rename to former",
    "alter table others rename to things",
)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_table_that_was_replaced_by_one_of_its_name_is_not_called_done(
    field: Field, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    """N-053: rows of the new one before the cursor were never seen; the fix is to begin again, not to resume."""
    table(field)
    between_batches(field, monkeypatch, *SWAP)
    run = declare(shards=shards).launch()
    with pytest.raises(SweepFailed, match="another table than the one that the sweep began with") as caught:
        field.finish(run)
    assert caught.value.fix == "launch the sweep anew: it begins at the first key"
    assert (field.row(run).status, field.row(run).last_error_code) == ("failed", "X_BACKFILL_CHANGED")
    assert field.one("select count(*) from things where n = 0") > 0


def test_a_sweep_that_is_launched_anew_goes_over_the_new_table(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-072: the failed run is not in its way."""
    table(field)
    between_batches(field, monkeypatch, *SWAP)
    sweep = declare()
    with pytest.raises(SweepFailed):
        field.sweep(sweep)
    monkeypatch.undo()
    assert field.sweep(sweep)["rows"] == ROWS
    assert field.one("select count(*) from things where n = 0") == 0


def test_a_key_that_got_another_order_is_not_called_done(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-053: what lay ahead of the cursor in one collation may lie behind it in the other."""
    table(field, "text")
    between_batches(field, monkeypatch, 'alter table things alter k type text collate "C"')
    with pytest.raises(SweepFailed, match="was text when the sweep began and is text collate C now"):
        field.sweep(declare())


def test_a_table_that_got_a_child_is_not_called_done(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-053: the child's rows are the table's, and none of them has a key that only one row can have."""
    table(field)
    child = ("create table more () inherits (things)", "insert into more select i, 0 from generate_series(1, 9) i")
    between_batches(field, monkeypatch, *child)
    with pytest.raises(SweepFailed, match="has inheritance children that it had not when the sweep began"):
        field.sweep(declare())


@pytest.mark.parametrize(
    "statement",
    [
        "alter table things alter k type bigint",
        "alter table things alter k type numeric",
        "vacuum full things",
        "alter table things drop constraint things_pkey",
        "alter table things add more text default 'x'",
        "truncate things",
    ],
)
def test_what_leaves_the_order_of_the_key_is_no_matter(
    field: Field, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """N-055: the table is the same, and so is the order of its keys."""
    table(field)
    between_batches(field, monkeypatch, statement)
    run = declare().launch()
    field.finish(run)
    assert field.row(run).status == "done"


def test_an_export_of_a_replaced_table_is_not_called_whole(
    field: Field, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """N-095: it has no manifest."""
    table(field)
    between_batches(field, monkeypatch, *SWAP)
    place = tmp_path / "out"
    with pytest.raises(SweepFailed, match="another table"):
        field.sweep(rs.export_rows("copy", rs.Rows("things"), str(place), part_rows=20, retry=NOW))
    assert not (place / "_manifest.json").exists()


def test_a_copy_in_another_cluster_may_be_the_same_table() -> None:
    """N-053: as after an upgrade by a logical copy, whose numbers of tables say nothing."""
    began = Identity(oid=1, system="7")
    assert Identity(oid=2, system="7").is_another_than(began)
    assert not Identity(oid=1, system="7").is_another_than(began)
    assert not Identity(oid=2, system="8").is_another_than(began)
