"""The pass of an export: parts, checkpoints, manifest, and going on wherever it was cut off."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import psycopg
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import rowsweep as rs
from rowsweep.clock import SystemClock
from rowsweep.errors import ChangedSinceApplied, SweepFailed
from rowsweep.jobs.registry import reset_jobs
from rowsweep.sweeps.batch.closing import Closer
from rowsweep.sweeps.batch.pages import PageFinder
from rowsweep.sweeps.export.passes import ExportPass
from rowsweep.sweeps.export.places.local import LocalDraft, LocalPlace
from rowsweep.sweeps.export.reading import PartReader, ReadSize
from rowsweep.sweeps.export.work import PartWork
from tests.sweeps.field import NOW, Background, Field, wait_for

ORDERS = rs.Rows("orders")


def once(function: Callable[..., Any], at: int, error: BaseException) -> Callable[..., Any]:
    """Raise at the n-th call, before or instead of the function."""
    calls = 0

    def call(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise error
        return function(*given, **named)

    return call


def orders(folder: Path, **given: Any) -> rs.Export[Any]:
    """Declare an export of `orders` in parts of four keys, retried at once."""
    options: dict[str, Any] = {"rows": ORDERS, "to": folder, "part_rows": 4, "retry": NOW}
    return rs.export_rows("orders", **(options | given))


def names(folder: Path) -> list[str]:
    """Answer what is in the folder."""
    return sorted(entry.name for entry in folder.iterdir())


def ids(folder: Path) -> list[int]:
    """Read the exported keys back, in order."""
    return rs.read_export(folder, verify=True).collect()["id"].to_list()


PARTS = ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
WHOLE = ["_SUCCESS", "_manifest.json", *PARTS]


def test_an_export_writes_a_part_a_page_and_a_manifest_that_tells_the_truth(field: Field, tmp_path: Path) -> None:
    """S-207, S-209, D-7, N-093, N-094, N-095: names, result, manifest, ledger and steps."""
    field.orders(10)
    run = orders(tmp_path / "new" / "out").launch()
    totals = field.finish(run)
    folder = tmp_path / "new" / "out"
    assert names(folder) == WHOLE
    manifest = json.loads((folder / "_manifest.json").read_text())
    sizes = [(folder / name).stat().st_size for name in PARTS]
    hashes = [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in PARTS]
    assert [part["name"] for part in manifest["parts"]] == PARTS
    assert [part["rows"] for part in manifest["parts"]] == [4, 4, 2]
    assert [part["bytes"] for part in manifest["parts"]] == sizes
    assert [part["sha256"] for part in manifest["parts"]] == hashes
    assert (manifest["rows"], manifest["bytes"], manifest["run_id"]) == (10, sum(sizes), str(run.run_id))
    assert manifest["query"]["key"] == ["id"]
    assert manifest["format"]["name"] == "parquet"
    assert (folder / "_SUCCESS").read_bytes() == b""
    expected = {"rows": 10, "bytes": sum(sizes), "parts": 3, "manifest": f"{folder}/_manifest.json", "writers": 0}
    assert field.job(run).result == expected
    assert expected.items() <= totals.items()
    row = field.row(run)
    assert (row.kind, row.status, row.rows, row.batches) == ("export", "done", 10, 3)
    steps = field.steps(run)
    assert sorted(steps) == [
        "part:00000", "part:00001", "part:00002", "sweep:finish", "sweep:pages", "sweep:setup",
    ]  # fmt: skip
    assert steps["part:00001"].kind == "part"
    assert "part:00001" not in field.app.stores().steps.recorded(run.run_id)


def test_the_folder_is_read_as_it_is_by_polars_duckdb_and_pyarrow(field: Field, tmp_path: Path) -> None:
    """N-095: markers and manifest are in nobody's way."""
    field.orders(10)
    field.sweep(orders(tmp_path))
    expected = [price for (price,) in field.sql("select price from orders order by id")]
    assert pl.scan_parquet(tmp_path / "*.parquet").collect()["price"].to_list() == expected
    assert pl.scan_parquet(tmp_path, hidden_file_prefix="_").collect()["price"].to_list() == expected
    assert pads.dataset(tmp_path, format="parquet").to_table()["price"].to_pylist() == expected
    with duckdb.connect() as duck:
        found = duck.execute(f"select price from read_parquet('{tmp_path}/*.parquet') order by id").fetchall()
    assert [price for (price,) in found] == expected


def test_a_part_holds_the_rows_that_match_among_its_keys(field: Field, tmp_path: Path) -> None:
    """N-055, S-191, S-211: a key range without rows is no part; `to` is asked with the input, once a run."""
    field.orders(40)
    asked: list[str] = []

    def to(day: str) -> Path:
        asked.append(day)
        return tmp_path / day

    rows = rs.Rows("orders", columns=["price"], where="id <= %(a)s or id > %(b)s", params={"a": 2, "b": 38})
    export = orders(tmp_path, rows=rows, to=to, input=str)
    field.sweep(export, "monday")
    assert asked == ["monday"]
    assert ids(tmp_path / "monday") == [1, 2, 39, 40]
    assert [pq.read_metadata(tmp_path / "monday" / name).num_rows for name in PARTS[:2]] == [2, 2]
    assert pq.read_schema(tmp_path / "monday" / PARTS[0]).names == ["id", "price"]


def test_no_rows_make_no_part_but_a_manifest_with_the_schema(field: Field, tmp_path: Path) -> None:
    """N-096: and reading it back answers no rows of the right types."""
    field.orders(0)
    totals = field.sweep(orders(tmp_path))
    assert (totals["rows"], totals["parts"]) == (0, 0)
    assert names(tmp_path) == ["_SUCCESS", "_manifest.json"]
    frame = rs.read_export(tmp_path).collect()
    assert frame.schema == {
        "id": pl.Int64, "price": pl.Decimal(10, 2), "qty": pl.Int32, "total": pl.Decimal(12, 2), "band": pl.String,
    }  # fmt: skip


CUTS = [
    (LocalDraft, "seal", 2, "before a rename"),
    (LocalDraft, "publish", 2, "instead of a rename"),
    (Closer, "close", 4, "between rename and checkpoint"),
    (ExportPass, "_finish_ledger", 1, "before the manifest"),
    (LocalPlace, "write", 3, "between manifest and mark"),
]


@pytest.mark.parametrize(("where", "what", "at"), [cut[:3] for cut in CUTS], ids=[cut[3] for cut in CUTS])
def test_a_run_that_was_cut_off_writes_at_most_one_part_again(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, what: str, at: int
) -> None:
    """N-093, N-094, N-096: a checkpointed part keeps its bytes, nothing half-written stays, every row is there once."""
    field.orders(10)
    run = orders(tmp_path).launch()
    monkeypatch.setattr(where, what, once(getattr(where, what), at, RuntimeError("cut off")))
    assert field.tick().outcome == "retried"
    done = {name: (tmp_path / name).stat().st_mtime_ns for name in PARTS[: field.row(run).batches]}
    assert not (tmp_path / "_SUCCESS").exists()
    field.finish(run)
    assert names(tmp_path) == WHOLE
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in done} == done
    assert ids(tmp_path) == list(range(1, 11))


def test_a_part_is_written_again_over_the_range_that_was_stored(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-7, N-066: rows that come into the range between the tries belong to it, the next part begins behind it."""
    field.orders(10)
    field.sql("delete from orders where id in (2, 3)")
    run = orders(tmp_path).launch()
    monkeypatch.setattr(LocalDraft, "publish", once(LocalDraft.publish, 2, RuntimeError("cut off")))
    field.tick()
    assert field.steps(run)["sweep:pages"].output["plan"] == {"to": ["6"], "rows": 0}
    field.sql("insert into orders (id, price, qty) values (2, 1, 1), (3, 1, 1)")
    field.finish(run)
    manifest = json.loads((tmp_path / "_manifest.json").read_text())
    assert [part["rows"] for part in manifest["parts"]] == [6, 4]
    assert ids(tmp_path) == list(range(1, 11))


@pytest.mark.parametrize(
    ("closes", "gone", "parts"),
    [(6, "id > 8", PARTS[:2]), (4, "id in (5, 6, 7, 8)", PARTS[:2]), (2, "true", [])],
    ids=["the last part", "one in between", "all of them"],
)
def test_a_part_whose_rows_went_before_it_was_checkpointed_goes_too(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closes: int, gone: str, parts: list[str]
) -> None:
    """N-093, N-095: published by a try that was cut off, empty in the next one: the export ends with what there is."""
    field.orders(10)
    run = orders(tmp_path).launch()
    monkeypatch.setattr(Closer, "close", once(Closer.close, closes, RuntimeError("cut off")))
    assert field.tick().outcome == "retried"
    assert PARTS[closes // 2 - 1] in names(tmp_path)
    field.sql(f"delete from orders where {gone}")
    field.finish(run)
    assert names(tmp_path) == sorted(["_SUCCESS", "_manifest.json", *parts])
    assert ids(tmp_path) == [key for (key,) in field.sql("select id from orders order by id")]


def test_a_place_that_was_taken_keeps_its_new_owner_s_part_where_ours_has_no_rows_left(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-095: what lies under the name of a part of ours is removed only while the marker names our run."""
    field.orders(10)
    run = orders(tmp_path, rows=rs.Rows("orders", where="id <= 8")).launch()
    written = PartWork._written

    def taken(work: PartWork, at: Any, to: Any) -> Any:
        if at.index == 1:
            (tmp_path / "_rowsweep.json").write_text(json.dumps({"run_id": "another", "name": "second"}))
            (tmp_path / PARTS[2]).write_text("theirs")
        return written(work, at, to)

    monkeypatch.setattr(PartWork, "_written", taken)
    with pytest.raises(SweepFailed, match="'second'"):
        field.finish(run)
    assert (tmp_path / PARTS[2]).read_text() == "theirs"


def test_what_a_killed_attempt_left_is_removed_and_nothing_else(field: Field, tmp_path: Path) -> None:
    """N-096: temporary files of the run only."""
    field.orders(3)
    run = orders(tmp_path).launch()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / f".part-00000.parquet.{run.run_id.hex}-1.tmp").write_text("half")
    (tmp_path / ".part-00000.parquet.0000-1.tmp").write_text("another run's")
    field.finish(run)
    assert names(tmp_path) == [
        ".part-00000.parquet.0000-1.tmp", "_SUCCESS", "_manifest.json", "notes.txt", "part-00000.parquet",
    ]  # fmt: skip


def test_a_lost_claim_publishes_nothing(field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-093: the fence is asked right before the rename."""
    field.orders(10)
    run = orders(tmp_path).launch()
    seal = LocalDraft.seal

    def stolen(draft: LocalDraft) -> None:
        seal(draft)
        if draft._final.name == PARTS[1]:
            field.steal(run)

    monkeypatch.setattr(LocalDraft, "seal", stolen)
    field.tick()
    assert [name for name in names(tmp_path) if name.startswith((".", "part"))] == [PARTS[0]]


def test_a_pause_and_a_cancel_stop_behind_a_part(field: Field, tmp_path: Path) -> None:
    """N-079, N-080, N-082: an export is steered as any sweep, and goes on where it stopped."""
    field.orders(10)
    run = orders(tmp_path).launch()
    reached, go_on = threading.Event(), threading.Event()
    read = PartReader._read

    def held(reader: PartReader, *given: Any) -> bytes:
        reached.set()
        wait_for(go_on)
        return read(reader, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartReader, "_read", held)
        ticking = Background(field.tick)
        wait_for(reached)
        run.pause("look")
        go_on.set()
        ticking.result()
    assert (run.snapshot().words, field.row(run).batches) == ("paused", 1)
    assert not (tmp_path / "_manifest.json").exists()
    run.resume()
    field.finish(run)
    assert ids(tmp_path) == list(range(1, 11))


def test_an_export_never_crosses_tenants_and_only_reads(field: Field, tmp_path: Path) -> None:
    """S-208, N-010: with row-level security it sees what the tenant sees; its transaction may write nothing."""
    field.orders(4)
    seen = "current_setting('rowsweep.cross_tenant') || current_setting('transaction_read_only')"
    level = "current_setting('transaction_isolation')"
    where = f"{seen} = 'offon' and {level} = 'repeatable read'"
    field.sweep(orders(tmp_path, rows=rs.Rows("orders", where=where)))
    assert ids(tmp_path) == [1, 2, 3, 4]


def test_a_changed_declaration_does_not_go_on_into_the_same_parts(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-071: neither format, columns nor condition may change under way."""
    field.orders(10)
    run = orders(tmp_path).launch()
    with monkeypatch.context() as patch:
        patch.setattr(LocalDraft, "publish", once(LocalDraft.publish, 2, RuntimeError("cut off")))
        field.tick()
    reset_jobs()
    orders(tmp_path, format="csv")
    with pytest.raises(SweepFailed, match="The format of 'orders' changed"):
        field.finish(run)
    assert field.row(run).last_error_code == ChangedSinceApplied.code


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("add column late int", "'late' was added"),
        ("drop column band", "'band' was dropped"),
        ("alter column qty type bigint", "'qty' was integer and is bigint now"),
    ],
)
def test_a_column_that_changes_under_way_ends_the_export_and_is_named(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, said: str
) -> None:
    """N-092: parts of two shapes never lie side by side."""
    field.orders(10)
    run = orders(tmp_path).launch()
    publish = LocalDraft.publish

    def altered(draft: LocalDraft) -> None:
        publish(draft)
        if draft._final.name == PARTS[0]:
            with psycopg.connect(field.dsn, autocommit=True) as other:
                other.execute(f"alter table orders {change}")

    monkeypatch.setattr(LocalDraft, "publish", altered)
    with pytest.raises(SweepFailed, match=said):
        field.finish(run)
    assert not (tmp_path / "_SUCCESS").exists()


def test_a_preview_answers_the_rows_as_they_would_be_exported_and_writes_nothing(field: Field, tmp_path: Path) -> None:
    """N-091: the frame has the exported types; no object, job or ledger row."""
    field.orders(10)
    export = orders(tmp_path / "out", rows=rs.Rows("orders", columns=["price"], where="id > 3"))
    frame = export.preview(3)
    assert frame.schema == {"id": pl.Int64, "price": pl.Decimal(10, 2)}
    assert frame["id"].to_list() == [4, 5, 6]
    assert not (tmp_path / "out").exists()
    assert field.queue_sql("select count(*) from {x_jobs}") == [(0,)]
    field.sql("delete from orders")
    assert export.preview(3).schema == frame.schema


def test_reads_adapt_to_the_width_of_the_rows(field: Field, tmp_path: Path) -> None:
    """N-058: a part of wide rows is read in many small texts, none of them much beyond a megabyte."""
    field.orders(0)
    field.sql(
        "insert into orders (id, price, qty, band) "
        "select i, 1, 1, repeat(md5(i::text), 300) from generate_series(1, 3000) i"
    )
    sizes: list[int] = []
    noted = ReadSize.read

    def note(size: ReadSize, read: int) -> None:
        sizes.append(read)
        noted(size, read)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReadSize, "read", note)
        field.sweep(orders(tmp_path, part_rows=3000))
    assert len(sizes) > 4
    assert max(sizes[2:]) < 6_000_000
    assert rs.read_export(tmp_path).select(pl.col("band").str.len_bytes().sum()).collect().item() == 3000 * 9600


def test_a_timeout_narrows_the_part_in_question_and_no_other(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hasty: None
) -> None:
    """N-069: a range that takes too long to find is halved; one that is stored is kept, and read in smaller pieces."""
    field.orders(10)
    late = psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
    monkeypatch.setattr(PageFinder, "find", once(PageFinder.find, 1, late))
    monkeypatch.setattr(PartReader, "_read", once(PartReader._read, 3, late))
    field.sweep(orders(tmp_path))
    manifest = json.loads((tmp_path / "_manifest.json").read_text())
    assert [part["rows"] for part in manifest["parts"]] == [2, 4, 4]
    assert ids(tmp_path) == list(range(1, 11))


def test_an_aborted_run_stops_within_its_part(field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-081: a cancel does not wait for the part's end, and leaves nothing half-written."""
    field.orders(10)
    run = orders(tmp_path).launch()
    seal = LocalDraft.seal

    def cancelled(draft: LocalDraft) -> None:
        if draft._final.name == PARTS[1]:
            run.cancel()
        seal(draft)

    monkeypatch.setattr(LocalDraft, "seal", cancelled)
    field.tick()
    assert field.row(run).status == "cancelled"
    assert names(tmp_path) == ["_rowsweep.json", PARTS[0]]


@pytest.mark.parametrize("off", [timedelta(hours=1), timedelta(hours=-1)], ids=["ahead", "behind"])
def test_a_manifest_s_instants_are_the_database_s(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: timedelta
) -> None:
    """N-095, S-009: an export on a machine whose clock is off does not end before it began."""
    field.orders(3)
    now = SystemClock.now
    monkeypatch.setattr(SystemClock, "now", lambda self: now(self) + off)
    field.sweep(orders(tmp_path))
    manifest = json.loads((tmp_path / "_manifest.json").read_text())
    began, ended = (datetime.fromisoformat(manifest[name]) for name in ("started_at", "finished_at"))
    assert began <= ended <= field.one("select now()")
