"""A snapshot of the end of a sweep tells rows that came behind it from those that it did: only the former are swept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import polars as pl
import psycopg
import pytest

import rowsweep as rs
from rowsweep.app.connecting import connect
from rowsweep.clock import real_monotonic
from rowsweep.queue.postgres.connections import Connections
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.signals import RunSignal
from rowsweep.sweeps.batch.source import Lender
from rowsweep.sweeps.keyset.catalog import find_table
from rowsweep.sweeps.late.unseen import look, scan
from rowsweep.sweeps.late.unseen.snapshot import EndSnapshot
from tests.sweeps.field import NOW, Background, Field, fields_of, until
from tests.sweeps.late.test_look import ONE_UNPROVED, has_found_writers, swept_while_open, waits_for_writers, writing

LATE = "insert into counted (id) values (3)"
TOUCH = "update counted set note = 'theirs' where id = 5"


def counted(field: Field, *without: int, rows: int = 20) -> None:
    field.sql("create table counted (id bigint primary key, done int not null default 0, note text)")
    field.sql("insert into counted (id) select i from generate_series(1, %s) i", [rows])
    field.sql("delete from counted where id = any (%s)", [list(without)])


def counting(**given: Any) -> Any:
    """Declare a sweep that adds one to each row: done twice it shows, and nothing tells a done row from another."""
    rows = rs.Rows("counted", until=given.pop("until", "end"))
    given.setdefault("set", {"done": "done + 1"})
    return rs.backfill("counting", rows=rows, batch_rows=4, adapt=False, **given)


def odd(field: Field) -> list[tuple[int, int]]:
    """Answer the rows that were not done just once."""
    return field.sql("select id, done from counted where done <> 1 order by id")


def late(rows: int, unsure: int | None = 0, writers: int = 0) -> dict[str, int | bool | None]:
    return {"rows": rows, "writers": writers, "unsure": unsure, "proved": False}


@pytest.mark.parametrize("until_", ["end", "start"])
def test_what_came_behind_is_done_once_and_what_was_there_is_counted(field: Field, until_: str) -> None:
    """N-057, N-060: of a writer that is open across the sweep, under savepoints too; the sweep's own rows are none."""
    counted(field, 3, 4)
    with writing(field, LATE, "savepoint a", "insert into counted (id) values (4)", "release a") as writer:

        def end() -> None:
            writer.execute("savepoint b")
            writer.execute(TOUCH)
            writer.execute("release b")
            writer.commit()

        totals = swept_while_open(field, counting(until=until_), end)
    assert (totals["rows"], totals["late"]) == (20, late(2, unsure=1))
    assert odd(field) == []


def test_what_a_savepoint_wrote_that_was_over_before_the_end_is_found(field: Field) -> None:
    """N-057: its transaction id is in no snapshot's list, and those of the sweep's own batches lie around it."""
    counted(field, 3)
    with writing(field, "savepoint a", LATE, "release a") as writer:
        assert swept_while_open(field, counting(), writer.commit)["late"] == ONE_UNPROVED
    assert odd(field) == []


def test_a_handler_sees_each_row_once(field: Field) -> None:
    """N-057, N-060: what it does elsewhere in the database for a late row is done once as well."""
    counted(field, 3)
    field.sql("create table seen (id int)")

    @rs.backfill("seen", rows=rs.Rows("counted"), batch_rows=4, adapt=False)
    def seen(batch: rs.Batch) -> None:
        batch.execute("insert into seen select unnest(%s::int[])", [[row["id"] for row in batch.rows]])

    with writing(field, LATE) as writer:

        def end() -> None:
            writer.execute(TOUCH)
            writer.commit()

        assert swept_while_open(field, seen, end)["late"] == late(1, unsure=1)
    assert field.sql("select count(*), count(distinct id) from seen") == [(20, 20)]


def test_a_key_that_was_there_and_is_given_again_is_in_doubt_and_one_that_was_free_is_new(field: Field) -> None:
    """N-057: 5 is deleted and inserted again behind the end; 6 was gone by then, and is a new row."""
    counted(field, 3)
    reads = "delete from counted where id = 6"

    @rs.backfill("counting", rows=rs.Rows("counted"), batch_rows=4, adapt=False)
    def sweep(batch: rs.Batch) -> pl.DataFrame:
        if batch.index == 3:
            field.sql(reads)
            writer.execute("insert into counted (id) values (6)")
        return batch.frame.select("id", done=pl.col("done") + 1)

    with writing(field, LATE) as writer:

        def end() -> None:
            writer.execute("delete from counted where id = 5")
            writer.execute("insert into counted (id) values (5)")
            writer.commit()

        assert swept_while_open(field, sweep, end)["late"] == late(2, unsure=1)
    assert odd(field) == [(5, 0)]


def test_a_row_whose_key_is_changed_is_another_row(field: Field) -> None:
    """N-057: it is done under its new key, as it is where its key is changed to one ahead of the pages."""
    counted(field, 3)
    with writing(field, "insert into counted (id) values (100)") as writer:

        def end() -> None:
            writer.execute("update counted set id = 3 where id = 9")
            writer.commit()

        assert swept_while_open(field, counting(), end)["late"] == late(2)
    assert odd(field) == [(3, 2)]


def test_a_row_whose_key_is_changed_is_done_once_where_late_rows_are_only_counted(field: Field) -> None:
    """N-057: as README says, for tables whose keys change."""
    counted(field, 3)
    with writing(field, "insert into counted (id) values (100)") as writer:

        def end() -> None:
            writer.execute("update counted set id = 3 where id = 9")
            writer.commit()

        swept_while_open(field, counting(late="report"), end)
    assert odd(field) == [(100, 0)]


def test_rows_of_a_partitioned_table_are_told_by_their_whole_key(field: Field) -> None:
    """N-057, N-053: the key has the partition's column; a row that comes to another partition has another key."""
    field.sql(
        "create table counted (id int, day int, done int default 0, primary key (id, day)) partition by list(day)"
    )
    field.sql("create table one partition of counted for values in (1)")
    field.sql("create table two partition of counted for values in (2)")
    field.sql("insert into counted select i, 1 + i %% 2 from generate_series(1, 12) i".replace("%%", "%"))
    with writing(field, "insert into two (id, day) values (2, 2)") as writer:

        def end() -> None:
            writer.execute("update counted set day = 1 where id = 7")
            writer.execute("update counted set done = done where id = 8")
            writer.commit()

        assert swept_while_open(field, counting(), end)["late"] == late(2, unsure=1)
    assert field.sql("select id, day, done from counted where done <> 1") == [(7, 1, 2)]


def test_a_writer_that_rolls_back_leaves_nothing_and_one_that_stays_is_told(field: Field) -> None:
    """N-057: two are waited for; what the one that commits wrote is found while the other is open."""
    counted(field, 3, 4)
    with writing(field, LATE) as first, writing(field, "insert into counted (id) values (4)") as second:
        run = counting(late_wait="500ms").launch()
        sweeping = Background(lambda: field.finish(run))
        until(has_found_writers(field, run))
        first.commit()
        assert sweeping.result()["late"] == late(1, writers=1)
        second.rollback()
    assert odd(field) == []


def test_a_table_nobody_else_writes_to_is_not_looked_over(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-057: who only reads is none to wait for."""
    counted(field)

    def looked(self: scan.Scan) -> Any:
        raise AssertionError(self)

    monkeypatch.setattr(scan.Scan, "next", looked)
    with field.other() as reader:
        reader.execute("begin; select from counted")
        assert field.sweep(counting(set={"note": "id::text"}))["late"] == late(0)


def waiting(field: Field, **given: Any) -> tuple[Any, Background]:
    run = counting(**given).launch()
    ticking = Background(field.tick)
    until(has_found_writers(field, run))
    return run, ticking


@pytest.mark.slow
def test_behind_a_pause_in_the_wait_what_is_open_still_is_found_and_what_was_committed_is_counted(field: Field) -> None:
    """N-057, N-080: the snapshot of the next attempt proves as much, for less."""
    counted(field, 3, 4)
    with writing(field, LATE) as first, writing(field, "insert into counted (id) values (4)") as second:
        run, ticking = waiting(field)
        run.pause()
        assert ticking.result().outcome == "suspended"
        first.commit()
        run.resume()
        sweeping = Background(lambda: field.finish(run))
        until(waits_for_writers(field, run))
        second.commit()
        assert sweeping.result()["late"] == late(1, unsure=1)
    assert odd(field) == [(3, 0)]


def test_a_snapshot_that_is_cut_off_proves_nothing_and_that_is_said(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    """N-057: an administrator may end its session; no row is done on a guess, and nothing is claimed to be counted."""
    counted(field, 3)
    with writing(field, LATE) as writer:
        run, ticking = waiting(field)
        (pid,) = [row[0] for row in snapshots(field)]
        field.sql("select pg_terminate_backend(%s)", [pid])
        until(lambda: not snapshots(field))
        writer.commit()
        assert ticking.result().outcome == "completed"
    assert run.wait(timeout="1s")["late"] == late(0, unsure=None)
    assert odd(field) == [(3, 0)]
    (said,) = fields_of(caplog.records, "sweeps.late.unseen")
    assert (said["writers"], said["rows"]) == (0, None)


def snapshots(field: Field) -> list[tuple[int, float]]:
    """Answer the sessions that hold the lightest lock on the table in an idle transaction, and for how long."""
    return field.sql(
        "select a.pid, extract(epoch from clock_timestamp() - a.state_change)::float8 from pg_locks l "
        "join pg_stat_activity a using (pid) where l.relation = 'counted'::regclass and l.mode = 'AccessShareLock' "
        "and l.granted and a.state = 'idle in transaction'"
    )


def test_a_snapshot_that_cannot_be_had_leaves_late_rows_counted(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-057: as where the pool has no second connection, or a table's owner waits for its lock."""
    counted(field, 3)
    monkeypatch.setattr(EndSnapshot, "take", lambda *_: False)
    with writing(field, LATE) as writer:
        assert swept_while_open(field, counting(), writer.commit)["late"] == late(0, unsure=1)
    assert odd(field) == [(3, 0)]


def test_behind_an_owner_who_waits_for_the_table_no_snapshot_is_waited_for(field: Field) -> None:
    """N-057: a rewrite that is queued is let go first; that ends nothing but the snapshot."""
    counted(field)
    snapshot = EndSnapshot(find_table(field.connection, rs.Rows("counted")), RunSignal())
    with writing(field, LATE.replace("3", "30")) as writer, field.other() as owner:
        altering = Background(lambda: owner.execute("alter table counted add column more int default 1"))
        until(lambda: field.one("select count(*) from pg_locks where not granted and relation = 'counted'::regclass"))
        assert snapshot.take(cast("Lender", field.app.driver), {"lock_timeout": "50"}) is False
        assert (snapshot.is_lost, snapshot.backend_pid) == (True, None)
        writer.commit()
        altering.result()
    again = EndSnapshot(find_table(field.connection, rs.Rows("counted")), RunSignal())
    assert again.take(cast("Lender", field.app.driver), {"lock_timeout": "50"}) is True
    assert again.writers.open == ()
    again.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look the table over by pages of four keys, and keep three keys at a time."""
    monkeypatch.setattr(scan, "PAGE_KEYS", 4)
    monkeypatch.setattr(look, "MOST_KEYS", 3)


@pytest.mark.usefixtures("small")
def test_many_late_rows_are_kept_some_at_a_time(field: Field) -> None:
    """N-057, N-058: each part is a step of its own, kept before its first row is swept."""
    counted(field, *range(1, 19, 2))
    many = "insert into counted (id) select i from generate_series(1, 18, 2) i"
    run = counting().launch()
    with writing(field, many) as writer:
        sweeping = Background(lambda: field.finish(run))
        until(has_found_writers(field, run))
        writer.commit()
        assert sweeping.result()["late"] == late(9)
    assert odd(field) == []
    assert field.steps(run)["sweep:unseen"].output["is_all"] is True


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("fails_at", [4, 5, 6])
def test_a_look_that_fails_goes_on_with_what_it_found_and_repeats_nothing(field: Field, fails_at: int) -> None:
    """N-057, N-060: the rows whose keys were kept are done; of others it is said that they were not counted."""
    counted(field, 3, 4, 11, 12, 15, 16)
    calls: list[list[int]] = []

    @rs.backfill("counting", rows=rs.Rows("counted"), batch_rows=4, adapt=False, retry=NOW)
    def sweep(batch: rs.Batch) -> pl.DataFrame:
        ids = batch.frame["id"].to_list()
        if batch.index == fails_at and ids not in calls:
            calls.append(ids)
            raise RuntimeError("once")
        calls.append(ids)
        return batch.frame.select("id", done=pl.col("done") + 1)

    with writing(field, "insert into counted (id) select unnest('{3,4,11,12,15,16}'::int[])") as writer:
        totals = swept_while_open(field, sweep, writer.commit)
    missed = field.sql("select id from counted where done = 0")
    assert field.sql("select id from counted where done > 1") == []
    assert totals["late"] == late(6 - len(missed), unsure=None if missed else 0)
    assert (totals["rows"], len(missed)) == (20 - len(missed), {4: 2, 5: 0}.get(fails_at, 0))


def test_late_rows_that_fail_are_set_aside_as_any_are(field: Field) -> None:
    """N-084, N-057: and rows that were, and are written again, are neither tried nor counted."""
    counted(field, 3, 4)
    field.sql("alter table counted add check (note is distinct from 'bad' or done = 0)")
    field.sql("update counted set note = 'bad' where id = 8")
    with writing(field, "insert into counted values (3, 0, 'bad'), (4, 0, null)") as writer:

        def end() -> None:
            writer.execute("update counted set note = 'bad' where id = 8")
            writer.commit()

        totals = swept_while_open(field, counting(on_error="set-aside"), end)
    assert (totals["rejected"], totals["late"]) == (2, late(1))
    assert odd(field) == [(3, 0), (8, 0)]


@contextmanager
def connected(driver: PostgresDriver, field: Field) -> Iterator[Field]:
    """Connect an app by another driver to what a field works on."""
    field.app.close()
    app = connect(driver=driver, work=False, actor="tester", health="off")
    made = Field(app, field.dsn, field.connection, field.queue)
    yield made
    for worker in made.workers:
        worker.stop(deadline_at=real_monotonic() + 5)
    app.close()


@pytest.fixture
def hurried(field: Field) -> Iterator[Field]:
    """An app whose sessions may neither idle in a transaction nor have a long one."""
    hurry = "-c idle_in_transaction_session_timeout=150"
    if field.connection.info.server_version >= 170_000:
        hurry += " -c transaction_timeout=400"
    options = f"{psycopg.conninfo.conninfo_to_dict(field.dsn).get('options', '')} {hurry}"
    dsn = psycopg.conninfo.make_conninfo(field.dsn, options=options)
    with connected(PostgresDriver(dsn, schema=field.queue), field) as made:
        yield made


def test_a_role_s_own_timeouts_do_not_end_it(hurried: Field) -> None:
    """N-057: the library sets what it needs, in its own transaction."""
    field = hurried
    counted(field, 3)
    with writing(field, LATE) as writer:
        run = counting().launch()
        sweeping = Background(lambda: field.finish(run))
        until(lambda: any(seconds > 0.6 for _, seconds in snapshots(field)))
        writer.commit()
        assert sweeping.result()["late"] == ONE_UNPROVED
    assert odd(field) == []


@pytest.mark.slow
def test_where_connections_are_few_a_sweep_ends_without_a_snapshot(field: Field) -> None:
    """N-057: as under a role's limit; a snapshot takes none that is the last one."""
    driver = PostgresDriver(Connections(dsn=field.dsn, wait_seconds=0.5), schema=field.queue)
    driver._pools._role_limit = lambda: 4
    with connected(driver, field) as few:
        counted(few, 3)
        with writing(few, LATE) as writer:
            assert swept_while_open(few, counting(), writer.commit)["late"] == late(0, unsure=1)
    assert odd(field) == [(3, 0)]
