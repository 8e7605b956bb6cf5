"""An export by several jobs: every row in one part, the parts listed in key order, whatever changes hands or breaks."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import DestinationTaken, InvalidOption, SweepFailed
from rowsweep.jobs.registry import reset_jobs
from rowsweep.sweeps.batch.closing import Closer
from rowsweep.sweeps.export import sharding
from rowsweep.sweeps.export.destination import Destination
from rowsweep.sweeps.export.passes import ExportPass
from rowsweep.sweeps.export.places.local import LocalDraft, LocalPlace
from rowsweep.sweeps.export.places.place import open_place
from rowsweep.sweeps.passes.position import KeyRange
from rowsweep.sweeps.shards import amount, sharded
from rowsweep.sweeps.shards.ranges import KeySpace
from tests.sweeps.export.test_passes import names, once
from tests.sweeps.field import NOW, Field, until, wait_for
from tests.sweeps.keyset.test_keys import other_collation

ROWS = 600
SLOW = ("uuid", "composite")
PART = re.compile(r"(?:s(\d\d)-)?part-(\d{5})\.parquet")
KEYS = {
    "bigint": ("k bigint", "i * 3 - 600", ["k"]),
    "uuid": ("k uuid", "md5(i::text)::uuid", ["k"]),
    "text": ("k text collate {other}", "(case when i % 2 = 0 then 'é' else 'E' end) || md5(i::text)", ["k"]),
    "composite": ("a text, k int", "'shop ' || i % 5, i", ["a", "k"]),
}


def table(field: Field, kind: str = "bigint", *, rows: int = ROWS) -> list[str]:
    """Make the table `goods` with a key of that kind, and answer the key's columns."""
    columns, values, key = KEYS[kind]
    columns = columns.format(other=other_collation(field) if kind == "text" else "")
    field.sql(f"create table goods ({columns}, n int, note text, primary key ({', '.join(key)}))")
    field.sql(
        f"insert into goods ({', '.join(key)}, n, note) "
        f"select {values}, i, nullif('note ' || i % 7, 'note 3') from generate_series(1, {rows}) i"
    )
    field.sql("analyze goods")
    return key


def goods(folder: Path, **given: Any) -> rs.Export[Any]:
    """Declare an export of `goods` by three shards in parts of sixty keys, retried at once."""
    options: dict[str, Any] = {"rows": rs.Rows("goods"), "to": folder, "part_rows": 60, "shards": 3, "retry": NOW}
    return rs.export_rows("goods", **(options | given))


def listed(folder: Path) -> list[str]:
    """Answer the parts as the manifest lists them."""
    return [part["name"] for part in json.loads((folder / "_manifest.json").read_text())["parts"]]


def read(folder: Path) -> list[tuple[Any, ...]]:
    """Read the export back, each part checked, in the manifest's order."""
    return [tuple(map(str, row)) for row in rs.read_export(folder, verify=True).collect().iter_rows()]


def stored(field: Field, key: list[str]) -> list[tuple[Any, ...]]:
    """Answer the rows of the table in the order of its key."""
    columns = ", ".join(dict.fromkeys([*key, "n", "note"]))
    return [tuple(map(str, row)) for row in field.sql(f"select {columns} from goods order by {', '.join(key)}")]


def is_whole(field: Field, folder: Path, key: list[str]) -> bool:
    """Whether the folder holds the table's rows, each once and in key order, and nothing beside what it lists."""
    return read(folder) == stored(field, key) and names(folder) == sorted(
        ["_SUCCESS", "_manifest.json", *listed(folder)]
    )


@pytest.mark.parametrize("kind", ["bigint", "text", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)])
def test_the_parts_of_all_shards_hold_every_row_once_in_key_order(field: Field, tmp_path: Path, kind: str) -> None:
    """D-7, N-087, N-095: exactly the rows that one job exports, whatever the key; each shard has names of its own."""
    key = table(field, kind)
    run = goods(tmp_path / "by-three").launch()
    with field.working(concurrency=3):
        totals = run.wait("30s")
    assert is_whole(field, tmp_path / "by-three", key)
    found = [PART.fullmatch(name) for name in listed(tmp_path / "by-three")]
    assert {part and part[1] for part in found} == {None, "02", "03"}
    assert (totals["rows"], totals["shards"]) == (ROWS, 3)


def test_it_reads_back_as_the_export_of_one_job(field: Field, tmp_path: Path) -> None:
    """D-7: the frames are equal, in values, types and order; the job alone has no word of shards."""
    table(field, "composite")
    field.sweep(goods(tmp_path / "by-three"))
    reset_jobs()
    alone = field.sweep(goods(tmp_path / "alone", shards=1))
    assert {"shards", "ranges"}.isdisjoint(alone)
    one, three = (rs.read_export(tmp_path / name).collect() for name in ("alone", "by-three"))
    assert one.equals(three)
    assert one.schema == three.schema


def test_there_is_one_run_with_a_bar_a_shard_and_a_manifest_of_all(field: Field, tmp_path: Path) -> None:
    """N-088, N-094, N-095: the result, the ledger and the shards' figures are sums that the manifest confirms."""
    table(field)
    run = goods(tmp_path).launch()
    with field.working(concurrency=3):
        totals = run.wait("30s")
    manifest = json.loads((tmp_path / "_manifest.json").read_text())
    assert (manifest["rows"], manifest["bytes"], len(manifest["parts"])) == (
        ROWS, totals["bytes"], totals["parts"],
    )  # fmt: skip
    assert totals["manifest"] == f"{tmp_path}/_manifest.json"
    assert totals["ranges"] >= 3
    row = field.row(run)
    assert (row.kind, row.status, row.rows, row.batches) == ("export", "done", ROWS, totals["parts"])
    shards = run.snapshot().shards
    assert [shard.status for shard in shards] == ["done"] * 3
    assert sum(shard.rows for shard in shards) == ROWS
    assert sum(shard.batches for shard in shards) == totals["parts"]
    results = field.queue_sql("select result from {x_jobs} where run_id = %s order by created_at, id", [run.run_id])
    assert [result["shard"] for (result,) in results[1:]] == [2, 3]
    assert sum(result["parts"] for (result,) in results[1:]) < totals["parts"]
    parts = {name for name in field.steps(run) if name.startswith("part:")}
    assert {name[-4:] for name in parts} >= {":s02", ":s03"}
    assert len(parts) == totals["parts"]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranges of any size be worth halving."""
    monkeypatch.setattr(sharding, "_PARTS_WORTH_HALVING", 0)


def skewed(monkeypatch: pytest.MonkeyPatch, *bounds: int) -> None:
    """Divide the keys at these."""
    edges = [None, *((str(bound),) for bound in bounds), None]
    ranges = [KeyRange(after=edges[at], to=edges[at + 1]) for at in range(len(edges) - 1)]
    monkeypatch.setattr(KeySpace, "divide", lambda *_: ranges)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_part_is_published_once_although_what_lies_behind_it_is_taken_over_meanwhile(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    """N-087, N-093: the range of a part under way stays its shard's; the manifest still goes by key, not by name."""
    key = table(field)
    skewed(monkeypatch, -500)  # 33 rows up to it
    sealed: list[str] = []
    began, go = threading.Event(), threading.Event()
    seal = LocalDraft.seal

    def held(draft: LocalDraft) -> None:
        seal(draft)
        name = draft._final.name
        sealed.extend([name] if PART.fullmatch(name) else [])
        if name == "s02-part-00000.parquet":
            began.set()
            wait_for(go)
        elif name == "part-00000.parquet":
            wait_for(began)

    monkeypatch.setattr(LocalDraft, "seal", held)
    run = goods(tmp_path, shards=2, **({"source": field.dsn} if elsewhere else {})).launch()
    with field.working(concurrency=2):
        wait_for(began)
        until(lambda: field.steps(run)["sweep:pages"].output["behind"], "a part taken over")
        go.set()
        assert run.wait("30s")["ranges"] > 2
    assert is_whole(field, tmp_path, key)
    assert sorted(sealed) == sorted(listed(tmp_path)) != listed(tmp_path)
    assert run.wait()["bytes"] == sum((tmp_path / name).stat().st_size for name in sealed)


CUTS = [
    (LocalDraft, "seal", 4, "before a rename"),
    (LocalDraft, "publish", 4, "instead of a rename"),
    (Closer, "close", 9, "between rename and checkpoint"),
    (sharded.Sharded, "_await_others", 1, "before the others are waited for"),
    (ExportPass, "_finish_ledger", 1, "before the manifest"),
    (sharded.Sharded, "_end_ledger", 1, "behind the mark"),
    (LocalPlace, "write", 3, "between manifest and mark"),
]


QUICK = ("between rename and checkpoint", "between manifest and mark")


@pytest.mark.parametrize(
    ("where", "what", "at"),
    [pytest.param(*cut[:3], id=cut[3], marks=[] if cut[3] in QUICK else pytest.mark.slow) for cut in CUTS],
)
def test_a_shard_that_was_cut_off_writes_at_most_one_part_again(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, what: str, at: int
) -> None:
    """N-093, N-094, N-096, N-087: whichever it is, no row is missing, none is there twice, and nothing lies beside."""
    key = table(field, rows=300)
    cut, begun = RuntimeError("cut off"), list[str]()
    draft = LocalPlace.draft

    def noted(place: LocalPlace, name: str, tag: str) -> LocalDraft:
        begun.extend([name] if PART.fullmatch(name) else [])
        return draft(place, name, tag)

    monkeypatch.setattr(LocalPlace, "draft", noted)
    monkeypatch.setattr(where, what, once(getattr(where, what), at, cut))
    assert field.sweep(goods(tmp_path))["rows"] == 300
    assert cut.__traceback__ is not None
    assert is_whole(field, tmp_path, key)
    assert len(begun) <= len(listed(tmp_path)) + 1


def test_a_shard_that_fails_stops_the_run_and_resume_ends_it_exactly(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-088, N-082: the parts there are stay, no manifest is written before all shards have ended."""
    key = table(field)
    publish = LocalDraft.publish

    def broken(draft: LocalDraft) -> None:
        if draft._final.name.startswith("s02-part-00001"):
            raise RuntimeError("the disk is full")
        publish(draft)

    run = goods(tmp_path, retry=rs.Retry(attempts=1)).launch()
    with monkeypatch.context() as patch, field.working(concurrency=3):
        patch.setattr(LocalDraft, "publish", broken)
        with pytest.raises(SweepFailed, match="the disk is full"):
            run.wait("30s")
        live = "select count(*) from {x_jobs} where state in ('ready', 'running', 'delayed', 'suspended')"
        until(lambda: field.queue_sql(live) == [(0,)], "all jobs ended")
    assert not {"_SUCCESS", "_manifest.json"} & {*names(tmp_path)}
    assert "s02-part-00000.parquet" in names(tmp_path)
    run.resume()
    with field.working(concurrency=3):
        run.wait("30s")
    assert is_whole(field, tmp_path, key)


def test_a_shard_leaves_the_half_written_parts_of_the_others_alone(tmp_path: Path, field: Field) -> None:
    """N-096: they are at work; at the end of the run all are removed that are left."""
    table(field, rows=10)
    run = goods(tmp_path).launch()
    drafts = [f".{stem}part-00000.parquet.{run.run_id.hex}-1.tmp" for stem in ("", "s02-", "s03-", "s04-")]
    for draft in drafts:
        (tmp_path / draft).write_text("half")
    place = open_place(str(tmp_path))
    for shard in (2, 1):
        Destination(place=place, run_id=run.run_id, name="goods", suffix=".parquet", shard=shard).remove_leftovers()
        drafts.pop(shard - 1)
        assert names(tmp_path) == sorted(drafts)
    field.finish(run)
    assert not [name for name in names(tmp_path) if name.endswith(".tmp")]


def test_the_parts_of_shards_are_replaced_and_refused_as_any(field: Field, tmp_path: Path) -> None:
    """N-095, N-124: by an export of one job, and the other way round; parts that nobody names are not touched."""
    key = table(field)
    field.sweep(goods(tmp_path))
    assert any(name.startswith("s03-") for name in names(tmp_path))
    reset_jobs()
    refused = rs.export_rows("others", rs.Rows("goods"), tmp_path, shards=2, retry=NOW).launch()
    with pytest.raises(SweepFailed, match="'goods'"):
        field.finish(refused)
    assert field.row(refused).shards is None
    assert field.queue_sql("select count(*) from {x_jobs} where run_id = %s", [refused.run_id]) == [(1,)]
    field.sweep(rs.export_rows("fewer", rs.Rows("goods"), tmp_path, overwrite=True))
    assert names(tmp_path) == ["_SUCCESS", "_manifest.json", "part-00000.parquet"]
    field.sweep(goods(tmp_path, overwrite=True))
    assert is_whole(field, tmp_path, key)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "s07-part-00003.parquet").write_bytes(b"anybody's")
    reset_jobs()
    run = goods(tmp_path / "other").launch()
    with pytest.raises(SweepFailed, match="s07-part-00003"):
        field.finish(run)
    assert field.row(run).last_error_code == DestinationTaken.code


def test_rows_that_no_part_has_and_a_table_for_one_shard(field: Field, tmp_path: Path) -> None:
    """N-096, N-087, S-191: no matching row is no part, in any shard; one range is an ordinary run with its names."""
    key = table(field)
    totals = field.sweep(goods(tmp_path / "none", rows=rs.Rows("goods", where="n < 0")))
    assert (totals["rows"], totals["parts"], totals["shards"]) == (0, 0, 3)
    assert names(tmp_path / "none") == ["_SUCCESS", "_manifest.json"]
    reset_jobs()
    field.sql("delete from goods where n > 1")
    field.sql("analyze goods")
    run = goods(tmp_path / "one", shards=8).launch()
    totals = field.finish(run)
    assert (totals["rows"], totals["parts"]) == (1, 1)
    assert {"shards", "ranges"}.isdisjoint(totals)
    assert field.row(run).shards is None
    assert listed(tmp_path / "one") == ["part-00000.parquet"]
    assert is_whole(field, tmp_path / "one", key)


def test_rows_behind_the_end_belong_to_the_last_shard(field: Field, tmp_path: Path) -> None:
    """N-056, N-089: unless the export is bounded."""
    key = table(field)
    run = goods(tmp_path / "all").launch()
    field.tick()
    field.sql("insert into goods (k, n) select 90000 + i, i from generate_series(1, 60) i")
    field.finish(run)
    assert is_whole(field, tmp_path / "all", key)
    reset_jobs()
    before = stored(field, key)
    run = goods(tmp_path / "bounded", rows=rs.Rows("goods", until="start")).launch()
    field.tick()
    field.sql("insert into goods (k, n) select 95000 + i, i from generate_series(1, 60) i")
    field.finish(run)
    assert read(tmp_path / "bounded") == before


@pytest.mark.parametrize("shards", [0, 65, 2.5, "many", True, None])
def test_a_number_of_shards_that_is_none_is_refused_by_name(tmp_path: Path, shards: Any) -> None:
    """D-7, N-087: at the declaration, with what is allowed."""
    with pytest.raises(InvalidOption, match="shards"):
        goods(tmp_path, shards=shards)


def test_how_many_are_declared_is_told_and_is_no_part_of_what_is_exported(tmp_path: Path) -> None:
    """D-2, N-087: another number is the same export."""
    export = goods(tmp_path)
    assert (export.describe()["shards"], export.has_shards, export.most_jobs) == (3, True, 3)
    reset_jobs()
    alone = goods(tmp_path, shards="auto")
    assert (alone.describe()["shards"], alone.most_jobs) == ("auto", 1)
    assert alone.checksum == export.checksum


def test_auto_gives_each_shard_a_whole_part(field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-1, D-7: a shard a worker that declares it, and no more than there are parts."""
    table(field)
    monkeypatch.setattr(amount, "ROWS_A_SHARD", 100)
    export = goods(tmp_path, shards="auto", part_rows=300)
    workers = field.app.stores().workers
    assert workers is not None
    with field.working(), field.working(), field.working():
        until(lambda: len(workers.live()) == 3, "all announced")
        assert export.launch().wait("30s")["shards"] == 2
