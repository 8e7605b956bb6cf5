"""The destination: never shared with another export, and left without a stale tail or a half-written part."""

from __future__ import annotations

import errno
import json
import resource
from pathlib import Path
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import DestinationTaken, InvalidDeclaration, InvalidOption, PartChanged, SweepFailed
from rowsweep.show.html.run import snapshot_html
from rowsweep.show.plain import details
from rowsweep.sweeps.export.places.local import LocalDraft
from rowsweep.sweeps.export.places.place import resolve
from rowsweep.sweeps.export.position import as_position
from tests.sweeps.field import NOW, Field

ORDERS = rs.Rows("orders")


def exporting(name: str, folder: Path, **given: Any) -> rs.Export[Any]:
    """Declare an export of `orders` in parts of four keys, retried at once."""
    options: dict[str, Any] = {"rows": ORDERS, "to": folder, "part_rows": 4, "retry": NOW}
    return rs.export_rows(name, **(options | given))


def names(folder: Path) -> list[str]:
    """Answer what is in the folder."""
    return sorted(entry.name for entry in folder.iterdir())


def ids(folder: Path) -> list[int]:
    """Read the exported keys back, in order."""
    return rs.read_export(folder, verify=True).collect()["id"].to_list()


def refused(field: Field, export: rs.Export[Any]) -> str:
    """Run an export that its destination refuses, and answer what it said."""
    run = export.launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    row = field.row(run)
    assert row.last_error_code == DestinationTaken.code
    return row.last_error or ""


def test_a_place_that_holds_another_export_is_refused_and_left_as_it_is(field: Field, tmp_path: Path) -> None:
    """N-095: X_EXPORT_DESTINATION_TAKEN names the other export; nothing is touched."""
    field.orders(10)
    field.sweep(exporting("first", tmp_path))
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    said = refused(field, exporting("second", tmp_path))
    assert "'first'" in said
    assert "overwrite=True" in said
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before


def test_overwriting_leaves_no_stale_tail_and_touches_nothing_else(field: Field, tmp_path: Path) -> None:
    """N-124: a later, shorter export of another format removes what the former one's manifest names, and only that."""
    field.orders(10)
    field.sweep(exporting("first", tmp_path))
    (tmp_path / "notes.txt").write_text("mine")
    field.sql("delete from orders where id > 3")
    field.sweep(exporting("second", tmp_path, overwrite=True, format="csv"))
    assert names(tmp_path) == ["_SUCCESS", "_manifest.json", "notes.txt", "part-00000.csv"]
    assert ids(tmp_path) == [1, 2, 3]
    field.sweep(exporting("third", tmp_path, overwrite=True))
    assert names(tmp_path) == ["_SUCCESS", "_manifest.json", "notes.txt", "part-00000.parquet"]


def test_what_an_unfinished_export_left_is_refused_and_replaced_as_a_finished_one(field: Field, tmp_path: Path) -> None:
    """N-095, N-124: a run that was cancelled has no manifest; its marker says whose the parts are."""
    field.orders(10)
    run = exporting("first", tmp_path).launch()
    with pytest.MonkeyPatch.context() as patch:
        publish = LocalDraft.publish
        patch.setattr(LocalDraft, "publish", lambda draft: fail_at("part-00002.parquet", draft, publish))
        field.tick()
    run.cancel()
    assert names(tmp_path) == ["_rowsweep.json", "part-00000.parquet", "part-00001.parquet"]
    assert "'first'" in refused(field, exporting("second", tmp_path))
    field.sql("delete from orders where id > 3")
    field.sweep(exporting("third", tmp_path, overwrite=True))
    assert names(tmp_path) == ["_SUCCESS", "_manifest.json", "part-00000.parquet"]


def fail_at(name: str, draft: LocalDraft, publish: Any) -> None:
    """Publish, but for one name."""
    if draft._final.name == name:
        raise RuntimeError("cut off")
    publish(draft)


def test_parts_that_nobody_names_are_refused_even_with_overwrite(field: Field, tmp_path: Path) -> None:
    """N-095, N-124: they may be anybody's, so they are neither removed nor mixed with ours."""
    field.orders(10)
    (tmp_path / "part-00007.parquet").write_bytes(b"anybody's")
    assert "part-00007.parquet" in refused(field, exporting("first", tmp_path))
    assert "no manifest names" in refused(field, exporting("second", tmp_path, overwrite=True))
    assert names(tmp_path) == ["part-00007.parquet"]


@pytest.mark.parametrize("parts", [None, 5, [1], {"a": 1}, [{"name": "../orders.csv"}]])
def test_a_manifest_that_no_export_wrote_is_refused_and_replaced_when_asked(
    field: Field, tmp_path: Path, parts: Any
) -> None:
    """N-095, N-124: whatever it says of parts: refused with the fix that helps, and nothing it names is touched."""
    field.orders(10)
    folder = tmp_path / "out"
    folder.mkdir()
    (tmp_path / "orders.csv").write_text("mine")
    (folder / "_manifest.json").write_text(json.dumps({"parts": parts}))
    assert "overwrite=True" in refused(field, exporting("first", folder))
    field.sweep(exporting("second", folder, overwrite=True))
    assert ids(folder) == list(range(1, 11))
    assert (tmp_path / "orders.csv").read_text() == "mine"


def test_a_run_whose_place_was_taken_by_another_ends_and_lets_it_be(field: Field, tmp_path: Path) -> None:
    """N-095: two exports never mix their parts, also where the second overwrote the first under way."""
    field.orders(10)
    first = exporting("first", tmp_path).launch()
    with pytest.MonkeyPatch.context() as patch:
        publish = LocalDraft.publish
        patch.setattr(LocalDraft, "publish", lambda draft: fail_at("part-00001.parquet", draft, publish))
        field.tick()
    (tmp_path / "_rowsweep.json").write_text(json.dumps({"run_id": "another", "name": "second"}))
    with pytest.raises(SweepFailed, match="'second'"):
        field.finish(first)
    assert field.row(first).last_error_code == DestinationTaken.code


@pytest.mark.parametrize(
    ("file", "text", "stays"),
    [
        ("_rowsweep.json", '{"run_id": "another", "name": "second"}', "part-00000.parquet"),
        ("_rowsweep.json", None, "part-00000.parquet"),
        ("part-00009.parquet", "late", "part-00009.parquet"),
    ],
    ids=["taken", "unmarked", "a stray part"],
)
def test_a_place_that_somebody_else_comes_into_is_noticed_under_way(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str | None, stays: str
) -> None:
    """N-095: before the next part is published, and once more before the manifest."""
    field.orders(10)
    run = exporting("first", tmp_path).launch()
    seal = LocalDraft.seal

    def meanwhile(draft: LocalDraft) -> None:
        seal(draft)
        if draft._final.name == "part-00001.parquet":
            (tmp_path / file).unlink(missing_ok=True) if text is None else (tmp_path / file).write_text(text)

    monkeypatch.setattr(LocalDraft, "seal", meanwhile)
    field.tick()
    assert field.row(run).last_error_code == DestinationTaken.code
    parts = [name for name in names(tmp_path) if name.startswith("part")]
    assert parts[-1] == stays
    assert "_SUCCESS" not in names(tmp_path)


@pytest.mark.parametrize("change", ["gone", "longer"])
def test_a_part_that_was_changed_since_is_found_before_the_manifest(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """N-095, N-123: X_EXPORT_PART_CHANGED names the part; the export is never marked whole."""
    field.orders(10)
    run = exporting("first", tmp_path).launch()
    publish = LocalDraft.publish

    def changed(draft: LocalDraft) -> None:
        publish(draft)
        if draft._final.name == "part-00002.parquet":
            part = tmp_path / "part-00001.parquet"
            part.unlink() if change == "gone" else part.write_bytes(part.read_bytes() + b"x")

    monkeypatch.setattr(LocalDraft, "publish", changed)
    with pytest.raises(SweepFailed, match="part-00001"):
        field.finish(run)
    assert field.row(run).last_error_code == PartChanged.code
    assert "_SUCCESS" not in names(tmp_path)


def test_a_disk_that_is_full_fails_the_attempt_and_leaves_nothing_half_written(field: Field, tmp_path: Path) -> None:
    """N-093, N-096: the error says what; once there is room the run goes on behind the parts that it has."""
    field.orders(0)
    field.sql("insert into orders (id, price, qty) select i, 1, 1 from generate_series(1, 8) i")
    wide = "select string_agg(md5(random()::text), '') from generate_series(1, 9000)"
    field.sql(f"update orders set band = ({wide}) where id = 6")
    run = exporting("first", tmp_path).launch()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        assert field.tick().outcome == "retried"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == ["_rowsweep.json", "part-00000.parquet"]
    assert "File too large" in (field.row(run).last_error or "")
    field.finish(run)
    assert names(tmp_path) == ["_SUCCESS", "_manifest.json", "part-00000.parquet", "part-00001.parquet"]
    assert ids(tmp_path) == list(range(1, 9))


def test_a_place_is_named_by_path_uri_or_function_and_holds_no_password(tmp_path: Path) -> None:
    """D-7, S-211: what is stored of a run names no secret."""
    assert resolve("~/x", None) == str(Path("~/x").expanduser())
    assert resolve(tmp_path.as_uri(), None) == str(tmp_path)
    assert resolve("out", None) == str(Path("out").absolute())
    assert resolve(lambda: "s3://lake/a", None) == "s3://lake/a"
    assert resolve(lambda day: f"s3://lake/{day}", "mon") == "s3://lake/mon"
    for wrong in ("", 5, None):
        with pytest.raises(InvalidDeclaration, match="to must be"):
            rs.export_rows("x", ORDERS, wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidDeclaration, match="password") as refusal:
        rs.export_rows("x", ORDERS, "s3://key:verysecret@lake/a")
    assert "verysecret" not in str(refusal.value)


@pytest.mark.parametrize(
    "to",
    [str, Path, dict, max, lambda a, b: f"{a}{b}", lambda *, day: f"{day}"],
    ids=["str", "Path", "dict", "max", "two", "named"],
)
def test_what_cannot_be_asked_where_to_is_refused_when_it_is_declared(to: Any) -> None:
    """D-7, S-012: a type instead of a text, or a function of something else than the input."""
    with pytest.raises(InvalidDeclaration) as refusal:
        rs.export_rows("x", ORDERS, to)
    assert "to must be a path, a URI, or a function of the input" in refusal.value.cause
    assert repr(to)[:40] in refusal.value.cause
    assert 'to="exports/orders"' in refusal.value.fix


async def elsewhere() -> str:
    """Answer a place too late."""
    return "x"


def test_a_place_is_asked_with_the_input_or_with_nothing() -> None:
    """D-7: by what the function takes; a coroutine is none."""
    assert resolve(lambda *days: f"/{days}", "mon") == "/('mon',)"
    assert resolve(lambda day="tue", *, ending="x": f"/{day}.{ending}", "mon") == "/mon.x"
    assert resolve(lambda *, ending="x": f"/{ending}", "mon") == "/x"
    with pytest.raises(InvalidDeclaration, match="elsewhere"):
        rs.export_rows("x", ORDERS, elsewhere)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["client_secret", "sas_token", "secret_key", "account_key", "sig", "Password"])
def test_a_secret_among_a_place_s_options_is_refused_too(name: str) -> None:
    """D-7, S-211: an Azure URI may hold one; declared or answered, it is neither stored nor shown."""
    where = f"abfs://lake@shop.dfs.core.windows.net/a?tenant_id=7&{name}=verysecret"
    for ask in (lambda: rs.export_rows("x", ORDERS, where), lambda: resolve(lambda: where, None)):
        with pytest.raises(InvalidDeclaration, match=name) as refusal:
            ask()
        assert "verysecret" not in str(refusal.value)
    assert resolve("abfs://lake@shop.dfs.core.windows.net/a?enable_tls=true", None).endswith("enable_tls=true")


NO_POSITIONS: list[Any] = [[], {"index": 0}, {"index": -1, "cursor": None, "rows": 0, "written": 0, "plan": None}]


@pytest.mark.parametrize("value", NO_POSITIONS)
def test_a_checkpoint_that_no_export_stored_is_refused(value: Any) -> None:
    """S-186: X_SWEEP_CHECKPOINT_INVALID."""
    with pytest.raises(rs.RowsweepError, match="X_SWEEP_CHECKPOINT_INVALID"):
        as_position(value)


def test_a_refusal_names_its_own_fix_and_not_a_resumption_that_would_be_refused_again(
    field: Field, tmp_path: Path
) -> None:
    """S-013: what was refused before the first part has nothing to go on behind."""
    field.orders(10)
    field.finish(exporting("first", tmp_path).launch())
    with pytest.raises(SweepFailed) as failed:
        field.finish(exporting("second", tmp_path).launch())
    assert failed.value.fix == "overwrite=True replaces what that export wrote; another to= leaves it"


def _with_a_folder_in_the_way(folder: Path) -> tuple[Path, str]:
    (folder / "part-00001.parquet").mkdir()
    return folder, "part-00001.parquet cannot be read or written: Is a directory"


def _with_a_name_too_long(folder: Path) -> tuple[Path, str]:
    return folder / ("x" * 300), "xxx cannot be read or written: File name too long"


def _with_a_marker_in_the_way(folder: Path) -> tuple[Path, str]:
    (folder / "_rowsweep.json").mkdir()
    return folder, "_rowsweep.json cannot be read or written: Is a directory"


@pytest.mark.parametrize("place", [_with_a_folder_in_the_way, _with_a_name_too_long, _with_a_marker_in_the_way])
def test_a_place_that_no_other_try_would_make_writable_ends_the_run_by_its_path(
    field: Field, tmp_path: Path, place: Any
) -> None:
    """S-013: terminal, with the path, instead of an attempt after the other with the system's own words."""
    field.orders(10)
    folder, words = place(tmp_path)
    run = exporting("out", folder).launch()
    with pytest.raises(SweepFailed, match=words):
        field.finish(run)
    assert (field.row(run).last_error_code, field.job(run).attempt) == (InvalidOption.code, 1)


def test_a_folder_that_may_not_be_written_ends_the_run_and_a_full_disk_does_not(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-013: the one stays as it is, the other may pass."""
    field.orders(10)
    opened = LocalDraft.__init__
    errors = [OSError(errno.ENOSPC, "No space left on device"), PermissionError(errno.EACCES, "Permission denied")]

    def failing(self: LocalDraft, final: Path, temporary: Path) -> None:
        if errors and final.name.startswith("part-"):
            raise errors.pop(0)
        opened(self, final, temporary)

    monkeypatch.setattr(LocalDraft, "__init__", failing)
    run = exporting("out", tmp_path).launch()
    with pytest.raises(SweepFailed, match=r"part-00000\.parquet cannot be read or written: Permission denied"):
        field.finish(run)
    assert field.job(run).attempt == 2


def test_a_file_is_no_place_for_an_export(field: Field, tmp_path: Path) -> None:
    """S-013: said at the first attempt, with what to name in its place; the reader says the same."""
    field.orders(10)
    (tmp_path / "orders.parquet").write_text("mine")
    run = exporting("filed", tmp_path / "orders.parquet").launch()
    with pytest.raises(SweepFailed, match="is a file"):
        field.finish(run)
    assert field.row(run).last_error_code == InvalidOption.code
    with pytest.raises(InvalidOption, match="is a file"):
        rs.read_export(tmp_path / "orders.parquet")
    assert (tmp_path / "orders.parquet").read_text() == "mine"


# -- at the launch --------------------------------------------------------------------------------------------------


def test_a_launch_refuses_a_folder_that_holds_another_export_where_it_is_worked(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-095: at once, and nothing is on the queue or in the ledger; also where `to` is a function of the input."""
    field.orders(10)
    field.sweep(exporting("first", tmp_path / "monday"))
    monkeypatch.setattr(field.app, "works_launched", True)
    second = exporting("second", tmp_path, to=lambda day: tmp_path / day, input=str)
    with pytest.raises(DestinationTaken, match="'first'"):
        second.launch("monday")
    assert field.queue_sql("select count(*) from {x_backfills} where name = 'second'") == [(0,)]
    assert field.queue_sql("select count(*) from {x_jobs} where name = 'second'") == [(0,)]
    second.launch("tuesday")
    assert second.launch("tuesday").attached
    exporting("third", tmp_path / "monday", overwrite=True).launch()


def test_a_launch_for_a_fleet_says_nothing_of_a_folder_of_its_own_machine(field: Field, tmp_path: Path) -> None:
    """N-095, S-211: the folder that counts is the worker's, whose run refuses it."""
    field.orders(10)
    field.sweep(exporting("first", tmp_path))
    assert "'first'" in refused(field, exporting("second", tmp_path))


@pytest.mark.slow
def test_a_place_that_cannot_be_asked_at_the_launch_is_left_to_the_run(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-211: a function that answers only on workers, and a store that nobody may list from here."""
    field.orders(10)
    monkeypatch.setattr(field.app, "works_launched", True)

    def on_workers() -> Path:
        raise KeyError("EXPORT_ROOT")

    exporting("function", tmp_path, to=on_workers).launch()
    exporting("store", tmp_path, to="s3://bucket/orders?scheme=nonsense").launch()


def test_where_an_export_went_is_shown(field: Field, tmp_path: Path) -> None:
    """N-102: in the snapshot and in every view of it, once its pass knows the place."""
    field.orders(10)
    run = exporting("first", tmp_path / "out").launch()
    assert run.snapshot().destination is None
    field.finish(run)
    seen = run.snapshot()
    assert seen.destination == str(tmp_path / "out")
    assert ("exported to", str(tmp_path / "out")) in details(seen)
    assert str(tmp_path / "out") in snapshot_html(seen)
    assert "options" not in dict(details(seen))


# -- under way ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["sealed", "published"])
def test_a_folder_that_becomes_a_file_under_way_is_named_as_what_it_is(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """S-432: by its own path, not by that of a part in it, with what to do; whatever was about to be written."""
    field.orders(10)
    folder, publish = tmp_path / "out", LocalDraft.publish

    def replaced(draft: LocalDraft) -> None:
        if moment == "published":
            publish(draft)
        if draft._final.name == "part-00001.parquet":
            folder.rename(tmp_path / "moved")
            folder.write_text("a file")
        if moment == "sealed":
            publish(draft)

    monkeypatch.setattr(LocalDraft, "publish", replaced)
    run = exporting("archive", folder).launch()
    with pytest.raises(SweepFailed) as failure:
        field.finish(run)
    said = field.row(run).last_error or ""
    assert field.job(run).attempt == 1
    assert said.startswith(f"InvalidOption: X_OPTION_INVALID: {folder} is a file; an export is a folder of parts.")
    assert "part-00001" not in said
    assert "_rowsweep.json" not in said
    assert f"move it away, or name another folder, such as '{folder}.d'" in failure.value.fix
