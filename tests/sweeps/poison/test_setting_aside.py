"""A failing batch is done by parts in its one transaction: what fails by itself is listed, the rest is done."""

from __future__ import annotations

import contextlib
import json
import logging
from math import log2
from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.errors import SweepFailed
from rowsweep.sweeps.declare import backfill
from rowsweep.sweeps.keyset.rows import Rows
from rowsweep.sweeps.poison import closing, work
from rowsweep.sweeps.run import Run
from tests.sweeps.field import NONE_SEEN, Field, fields_of, until

BAD = (7, 8, 21, 40)


def poisoned(field: Field, rows: int = 60, bad: tuple[int, ...] = BAD, *, more: str = "") -> None:
    """Make orders of which some divide by zero."""
    field.orders(rows, more=more)
    field.sql("update orders set qty = 0 where id = any (%s)", [list(bad)])


def listed(run: Run) -> list[int]:
    frame = run.rejected()
    assert frame.schema == {"key": pl.String, "error": pl.String, "at": pl.Datetime("us", "UTC")}
    assert run.snapshot().rejected_rows == frame.height
    return [int(key) for key in frame["key"]]


def done(field: Field) -> list[int]:
    return [row[0] for row in field.sql("select id from orders where total is not null order by id")]


def others(rows: int = 60, bad: tuple[int, ...] = BAD) -> list[int]:
    return [number for number in range(1, rows + 1) if number not in bad]


def in_database(**options: Any) -> Any:
    given: dict[str, Any] = {"batch_rows": 16, "adapt": False, "on_error": "set-aside"}
    return backfill("totals", rows=Rows("orders"), set={"total": "price / qty"}, **(given | options))


def test_rows_that_fail_in_the_database_are_listed_and_all_others_done(field: Field) -> None:
    """N-083, N-084, N-086, D-5: `rows` are those done, `rejected` those set aside."""
    poisoned(field)
    run = in_database().launch()
    totals = field.finish(run)
    assert totals == {"rows": 56, "written": 56, "batches": 4, "rejected": 4, "remaining": None, "late": NONE_SEEN}
    assert done(field) == others()
    assert listed(run) == list(BAD)
    assert run.rejected()["error"].to_list() == ["DivisionByZero: division by zero"] * 4
    assert run.rejected()["at"].is_sorted()


def test_a_handler_that_returns_a_frame_fails_for_some_rows_alone(field: Field) -> None:
    """N-064, N-084: also where the staging table came and went with a savepoint."""
    field.orders(60)

    @backfill("bands", rows=Rows("orders", columns=["id", "price"]), batch_rows=16, adapt=False, on_error="set-aside")
    def bands(batch: rs.Batch) -> pl.DataFrame:
        if bad := set(BAD) & set(batch.frame["id"]):
            raise ValueError(f"no band for {len(bad)} of them")
        return batch.frame.select("id", band=pl.lit("low"))

    run = bands.launch()
    assert field.finish(run)["rejected"] == 4
    assert listed(run) == list(BAD)
    assert field.one("select count(*) from orders where band = 'low'") == 56
    assert run.rejected()["error"][0] == "ValueError: no band for 1 of them"


def test_a_frame_made_of_dicts_is_checked_against_its_own_part(field: Field) -> None:
    """N-064, N-084: what an earlier part of the page staged is none of it."""
    field.orders(60)

    @backfill("bands", rows=Rows("orders", columns=["id"]), batch_rows=16, adapt=False, on_error="set-aside")
    def bands(batch: rs.Batch) -> pl.DataFrame:
        ids = [row["id"] for row in batch.rows]
        if set(BAD) & set(ids):
            raise ValueError("no")
        return pl.DataFrame({"id": ids, "band": ["low"] * len(ids)})

    run = bands.launch()
    field.finish(run)
    assert listed(run) == list(BAD)
    assert field.one("select count(*) from orders where band = 'low'") == 56


def test_a_handler_that_returns_dicts_fails_for_values_that_do_not_fit(field: Field) -> None:
    """N-064, N-084: a returned value that its column does not take is its row's fault, and needs no second try."""
    field.orders(60)
    calls = []

    @backfill("totals", rows=Rows("orders", columns=["id"]), batch_rows=60, adapt=False, on_error="set-aside")
    def totals(batch: rs.Batch) -> list[dict[str, Any]]:
        calls.append(len(batch.rows))
        return [{"id": row["id"], "total": "many" if row["id"] in BAD else "1.5"} for row in batch.rows]

    run = totals.launch()
    field.finish(run)
    assert listed(run) == list(BAD)
    assert done(field) == others()
    assert calls[:2] == [60, 30]


def test_sql_of_a_handler_is_rolled_back_with_the_part_that_failed(field: Field) -> None:
    """N-060, N-084: what the failed tries wrote is gone, what the others wrote is there once."""
    field.orders(60)
    field.sql("create table log (id bigint)")

    @backfill("logged", rows=Rows("orders", columns=["id"]), batch_rows=16, adapt=False, on_error="set-aside")
    def logged(batch: rs.Batch) -> None:
        for row in batch.rows:
            batch.execute("insert into log values (%s)", [row["id"]])
            batch.execute("select 1 / (%s::int)", [0 if row["id"] in BAD else 1])

    run = logged.launch()
    assert field.finish(run)["rows"] == 56
    assert listed(run) == list(BAD)
    assert [row[0] for row in field.sql("select id from log order by id")] == others()


def test_a_handler_that_swallows_an_error_of_the_database_fails_its_row(field: Field) -> None:
    """N-063, N-084: the aborted transaction is rolled back to the savepoint."""
    field.orders(60)

    @backfill("quiet", rows=Rows("orders", columns=["id"]), batch_rows=16, adapt=False, on_error="set-aside")
    def quiet(batch: rs.Batch) -> None:
        for row in batch.rows:
            with contextlib.suppress(Exception):
                batch.execute("update orders set total = 1 / %s::int where id = %s", [row["id"] not in BAD, row["id"]])

    run = quiet.launch()
    field.finish(run)
    assert listed(run) == list(BAD)
    assert done(field) == others()


def test_a_constraint_that_only_the_commit_checks_is_checked_a_part(field: Field) -> None:
    """N-084: with deferred constraints; a handler may still break one in between, as long as it mends it."""
    poisoned(field, bad=())
    field.sql("create table kinds (id int primary key); insert into kinds values (1), (2)")
    field.sql("alter table orders add kind int references kinds deferrable initially deferred")
    kind = "case when id in (7, 8, 21, 40) then 99 else 1 end"
    run = backfill(
        "kinds", rows=Rows("orders"), set={"kind": kind}, batch_rows=16, adapt=False, on_error="set-aside"
    ).launch()
    assert field.finish(run)["rejected"] == 4
    assert listed(run) == list(BAD)
    assert field.one("select count(*) from orders where kind = 1") == 56

    @backfill("mended", rows=Rows("orders", columns=["id"]), batch_rows=16, adapt=False, on_error="set-aside")
    def mended(batch: rs.Batch) -> None:
        for row in batch.rows:
            batch.execute("update orders set kind = 98 where id = %s", [row["id"]])
            if row["id"] not in BAD:
                batch.execute("update orders set kind = 2 where id = %s", [row["id"]])

    again = mended.launch()
    field.finish(again)
    assert listed(again) == list(BAD)
    assert field.one("select count(*) from orders where kind = 2") == 56


def test_rows_that_make_the_condition_itself_fail_are_found(field: Field) -> None:
    """N-084: the keys of a page are known whatever `where` says of them."""
    poisoned(field)
    run = backfill(
        "totals", rows=Rows("orders", where="price / qty < 1000"), set={"total": "1"}, batch_rows=16, adapt=False,
        on_error="set-aside",
    ).launch()  # fmt: skip
    assert field.finish(run)["rows"] == 56
    assert listed(run) == list(BAD)


def test_a_composite_key_of_texts_is_listed_with_its_names(field: Field) -> None:
    """N-084: keys of any type, as their own text."""
    field.sql('create table "Lines" (code text collate "C", at timestamptz, n int, total int, primary key (code, at))')
    field.sql(
        "insert into \"Lines\" select chr(64 + i % 5) || '\"é', '2026-01-01 00:00:00.5+00'::timestamptz + i * "
        "interval '1 day', i % 20 from generate_series(1, 60) i"
    )
    run = backfill(
        "lines", rows=Rows("Lines"), set={"total": "1 / n"}, batch_rows=16, adapt=False, on_error="set-aside"
    ).launch()
    assert field.finish(run)["rejected"] == 3
    field.sql("set timezone = 'UTC'")
    bad = field.sql('select code, at::text from "Lines" where n = 0 order by code, at')
    assert [json.loads(key) for key in run.rejected()["key"]] == [{"code": code, "at": at} for code, at in bad]


def test_a_failing_row_costs_at_most_twice_the_logarithm_in_savepoints(field: Field, savepoints: list[str]) -> None:
    """N-084: and a batch that does not fail costs none."""
    poisoned(field, 3_000, bad=(1_777,))
    run = in_database(batch_rows=1_000).launch()
    field.finish(run)
    assert listed(run) == [1_777]
    assert 10 <= len(savepoints) <= 2 * log2(1_000)


def test_the_pass_goes_on_at_its_former_size(field: Field) -> None:
    """N-084: a batch that was done by parts says nothing about the next one's size."""
    field.orders(200)
    sizes = []

    @backfill("sizes", rows=Rows("orders", columns=["id"]), batch_rows=50, on_error="set-aside")
    def sizes_of(batch: rs.Batch) -> None:
        sizes.append(batch.frame.height)
        if 60 in batch.frame["id"]:
            raise ValueError("no")

    run = sizes_of.launch()
    assert field.finish(run)["batches"] == 4
    assert sizes[0] == 50
    assert sizes[-2:] == [50, 50]


def test_a_failing_batch_is_tried_three_times_before_any_row_is_blamed(field: Field) -> None:
    """N-084: what passes by itself sets nothing aside; an error that no try can mend is tried once."""
    field.orders(10)
    calls = []

    @backfill("flaky", rows=Rows("orders", columns=["id"]), on_error="set-aside")
    def flaky(batch: rs.Batch) -> None:
        calls.append(batch.frame.height)
        if len(calls) < 3:
            raise ConnectionResetError("not now")

    assert field.sweep(flaky)["rejected"] == 0
    assert calls == [10, 10, 10]


def test_tries_are_a_second_apart_and_there_are_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-084: one of an error that no other try can mend."""
    monkeypatch.undo()
    nobody: Any = None
    aside = work.SettingAside(nobody, nobody, nobody)
    assert [aside.pause_seconds(ValueError()) for _ in range(3)] == [1.0, 1.0, 0.0]
    assert not aside.takes(ValueError())
    assert work.SettingAside(nobody, nobody, nobody).pause_seconds(Wrong()) == 0.0


def test_a_wait_between_tries_is_shown_and_ends_with_a_cancel(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-081, N-084: it holds no connection meanwhile, and nothing is set aside."""
    monkeypatch.setattr(work, "BETWEEN_TRIES_SECONDS", 600.0)
    poisoned(field)
    run = in_database().launch()
    with field.working():
        until(lambda: run.snapshot().waiting_for == "another try of a batch that fails", "the wait")
        run.cancel("enough")
        until(lambda: field.job(run).state == "cancelled", "the end")
    assert listed(run) == []
    assert done(field) == []


class Wrong(Exception):
    """An error that says of itself that no other try can mend it."""

    retry = "terminal"


def test_each_set_aside_row_is_logged_once_and_counted(
    field: Field, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-084: the log event has the key and no other value of the row; a password in the message is hidden."""
    field.orders(60)

    @backfill("said", rows=Rows("orders", columns=["id"]), on_error="set-aside", batch_rows=60)
    def said(batch: rs.Batch) -> None:
        if 33 in batch.frame["id"]:
            raise Wrong(f"no way to postgresql://ann:hunter2@shop/db {'x' * 600}\x00")

    caplog.set_level(logging.WARNING, "rowsweep")
    counted: list[tuple[str, int]] = []
    monkeypatch.setattr(closing, "record_rejected", lambda sweep, rows: counted.append((sweep, rows)))
    run = said.launch()
    field.finish(run)
    assert counted == [("said", 1)]
    (told,) = fields_of(caplog.records, "sweeps.row.set-aside")
    assert (told["sweep"], told["run_id"], told["key"]) == ("said", str(run.run_id), "id=33")
    (error,) = run.rejected()["error"]
    assert len(error) == 500
    assert "hunter2" not in error + caplog.text
    assert error.startswith("Wrong: no way to postgresql://ann:***@shop/db")


def test_a_database_s_detail_that_shows_the_row_is_not_kept(field: Field) -> None:
    """N-084: no value of the row beyond its key but what the message itself holds."""
    field.orders(60, more=", secret text default 'hush', check (total < 5)")
    run = backfill("checks", rows=Rows("orders"), set={"total": "id - 50"}, on_error="set-aside").launch()
    assert field.finish(run)["rejected"] == 6
    assert all("hush" not in error and "violates check" in error for error in run.rejected()["error"])


def test_stop_is_the_default_and_names_the_batch(field: Field) -> None:
    """N-083: everything before the batch is committed, its key range is in the error."""
    poisoned(field)
    run = in_database(on_error="stop", batch_rows=5, retry=rs.Retry(attempts=1)).launch()
    with pytest.raises(SweepFailed, match="division by zero"):
        field.finish(run)
    assert "keys after (5) up to (10)" in str(field.row(run).last_error)
    assert done(field) == [1, 2, 3, 4, 5]
    assert listed(run) == []


def test_a_trigger_that_leaves_other_forms_of_values_hides_no_row_of_the_parts_behind_it(field: Field) -> None:
    """N-084, N-054: the parts of a batch share a transaction; keys in another form would name no row of the table."""
    field.sql("create table spans (k float8 primary key, n int not null default 0)")
    field.sql("insert into spans select i / 7.0 from generate_series(1, 100) i")
    field.sql(
        "create function rounds() returns trigger language plpgsql as $$ begin "
        "perform set_config('extra_float_digits', '-5', true); return new; end $$"
    )
    field.sql("create trigger rounds before update on spans for each row execute function rounds()")

    def handler(batch: rs.Batch) -> pl.DataFrame:
        if 10.0 in batch.frame["k"]:
            raise ValueError("ten")
        return batch.frame.select("k", pl.col("n") + 1)

    given: dict[str, Any] = {"batch_rows": 50, "adapt": False, "on_error": "set-aside"}
    totals = field.sweep(backfill("spans", handler, rows=Rows("spans"), **given))
    assert (totals["rows"], totals["written"], totals["rejected"]) == (99, 99, 1)
    assert field.sql("select k from spans where n <> 1") == [(10.0,)]
