"""Rows that cannot go: locked by others, held by a foreign key, kept by a trigger; and rows that go along."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

import rowsweep as rs
from rowsweep.errors import InvalidDeclaration, SweepFailed
from rowsweep.sweeps.purge import passes, work
from rowsweep.sweeps.purge.work import DeleteWork
from tests.sweeps.field import Background, Field, until
from tests.sweeps.purge.events import OLD, declare, left, make_events, old_events


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pauses before another round be short."""
    monkeypatch.setattr(passes, "_FIRST_ROUND_SECONDS", 0.001)


def test_locked_rows_are_taken_up_again_at_the_end_of_the_pass(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-8: nothing waits for them meanwhile, and they are never forgotten."""
    make_events(field, 100, 10)
    at_end = DeleteWork._at_end
    rounds: list[tuple[int, int]] = []
    with field.other() as other:
        other.execute("begin; select from events where id in (3, 50, 99) for share")

        def released(self: DeleteWork, at: Any) -> Any:
            rounds.append((at.rows, at.skipped))
            if len(rounds) == 2:
                other.execute("rollback")
            return at_end(self, at)

        monkeypatch.setattr(DeleteWork, "_at_end", released)
        result = field.sweep(declare(batch_rows=20, adapt=False))
    assert rounds[:2] == [(97, 3), (97, 3)]
    assert rounds[-1] == (100, 0)
    assert (result["removed"], result["backlog"]) == ({"events": 100}, {})
    assert left(field) == 10


def test_rows_that_stay_locked_are_a_backlog(field: Field, quick: None) -> None:
    """D-8: the next pass is due in a minute; until then nothing is lost and nothing failed."""
    make_events(field, 50, 10)
    with field.other() as other:
        other.execute("begin; select from events where id <= 2 for update")
        run = declare().launch()
        result = field.finish(run)
        assert (result["removed"], result["backlog"]) == ({"events": 48}, {"events": 2})
        assert field.row(run).status == "done"
        other.execute("rollback")
    field.queue_sql("update {x_jobs} set run_at = now() where state = 'delayed'")
    field.tick()
    assert left(field) == 10


def test_a_row_that_stops_being_due_under_its_lock_stays(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-055: what is due is asked again once the row is locked."""
    make_events(field, 10, 0, index=False)
    find = DeleteWork._find

    def touched(self: DeleteWork, *given: Any) -> Any:
        page = find(self, *given)
        with field.other() as other:
            other.execute("update events set created_at = now() where id = 4")
        return page

    monkeypatch.setattr(DeleteWork, "_find", touched)
    assert field.sweep(declare())["removed"] == {"events": 9}
    assert field.sql("select id from events") == [(4,)]


@pytest.mark.parametrize(("moved", "stays"), [("now()", True), ("created_at - interval '1 hour'", False)])
def test_a_row_that_moves_while_its_delete_waits(field: Field, moved: str, stays: bool) -> None:
    """N-055: in the one statement too, and the walk's place is not moved along with it: none behind it is missed."""
    make_events(field, 40, 0)
    with field.other() as other:
        other.execute(f"begin; update events set created_at = {moved} where id = 30")
        purging = Background(lambda: field.sweep(declare(batch_rows=10, adapt=False, lock_timeout="20s")))
        waiting = "select count(*) from pg_locks where not granted and locktype in ('transactionid', 'tuple')"
        until(lambda: field.one(waiting) > 0, "the delete waits")
        other.execute("commit")
        result = purging.result()
    assert result["removed"] == {"events": 39 if stays else 40}
    assert field.sql("select id from events") == ([(30,)] if stays else [])


def orders(field: Field, clause: str = "", *, table: str = "notes", index: bool = True) -> None:
    """Let another table refer to every tenth event."""
    field.sql(
        f"create table {table} (id int primary key, event_id bigint constraint {table}_fk references events {clause})"
    )
    field.sql(f"insert into {table} select id, id from events where id % 10 = 0")
    if index:
        field.sql(f"create index on {table} (event_id)")


@pytest.mark.parametrize("clause", ["", "on delete restrict", "deferrable initially deferred"])
def test_rows_that_a_foreign_key_holds_are_reported_and_passed(field: Field, clause: str) -> None:
    """D-8: with the key and the constraint; the rest goes on."""
    make_events(field, 100, 10)
    orders(field, clause)
    run = declare(batch_rows=25, adapt=False).launch()
    result = field.finish(run)
    assert result["removed"] == {"events": 90}
    (held,) = result["blocked"]["events"].items()
    assert held[0].startswith("notes_fk of ")
    assert held[1]["rows"] == 10
    assert set(held[1]["keys"]) <= {str(number) for number in range(10, 101, 10)}
    assert len(held[1]["keys"]) >= 4
    assert result["backlog"] == {}
    assert left(field) == 20
    assert field.row(run).rows == 90


def test_two_keys_hold_and_a_set_null_does_not(field: Field) -> None:
    """D-8."""
    make_events(field, 100, 10)
    orders(field)
    orders(field, table="marks")
    orders(field, "on delete set null", table="links")
    field.sql("update links set event_id = event_id - 5")
    field.sql("delete from marks; insert into marks select id, id from events where id % 25 = 0")
    result = field.sweep(declare(batch_rows=25, adapt=False))
    blocked = {name.partition(" ")[0]: held["rows"] for name, held in result["blocked"]["events"].items()}
    assert (result["removed"], blocked) == ({"events": 88}, {"notes_fk": 10, "marks_fk": 2})
    assert field.one("select count(*) from links where event_id is null") == 8


@pytest.fixture
def role(field: Field, server_dsn: str) -> Iterator[str]:
    """A role that may delete events, and not read what refers to them."""
    name = f"purger_{secrets.token_hex(4)}"
    named = sql.Identifier(name)
    schema = field.one("select current_schema()")
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("create role {}").format(named))
        for place in (schema, field.queue):
            connection.execute(sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(place), named))
        connection.execute(
            sql.SQL("grant all on all tables in schema {} to {}").format(sql.Identifier(field.queue), named)
        )
        yield name
        connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(named))


@pytest.mark.parametrize("hidden", ["by privilege", "by policy"])
def test_what_holds_a_row_need_not_be_readable(
    field: Field, role: str, hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-8: then the rows are found by halves."""
    make_events(field, 60, 10)
    orders(field)
    field.sql(f"grant select, update, delete on events to {role}")
    if hidden == "by policy":
        field.sql(f"grant select on notes to {role}; alter table notes enable row level security")
    execute = psycopg.Connection.execute

    def begun(self: Any, query: Any, *given: Any, **more: Any) -> Any:
        answer = execute(self, query, *given, **more)
        if str(query).startswith("begin isolation"):
            execute(self, f"set local role {role}")
        return answer

    monkeypatch.setattr(psycopg.Connection, "execute", begun)
    result = field.sweep(declare(batch_rows=16, adapt=False))
    monkeypatch.undo()
    (held,) = result["blocked"]["events"].items()
    assert held[0].startswith("notes_fk of ")
    assert held[1] == {"rows": 6, "keys": ["60", "50", "40", "30", "20", "10"]}
    assert (result["removed"], left(field)) == ({"events": 54}, 16)


def test_a_tree_in_one_table_goes_from_its_leaves(field: Field) -> None:
    """D-8: rounds go on while they free rows of the table itself; what a young row refers to stays."""
    make_events(field, 40, 2)
    field.sql("alter table events add parent bigint references events; create index on events (parent)")
    # Every old row is the child of the next older one; the youngest of them has a young child.
    field.sql("update events set parent = id + 1 where id < 20")
    field.sql("update events set parent = 30 where id = 41")
    result = field.sweep(declare(batch_rows=5, adapt=False))
    assert result["removed"] == {"events": 39}
    ((name, held),) = result["blocked"]["events"].items()
    assert name.startswith("events_parent_fkey")
    assert held == {"rows": 1, "keys": ["30"]}
    assert left(field) == 3


def test_a_row_that_is_referred_to_in_the_meantime_is_left(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-8: a reference that commits between the page and its delete is no failure of the pass."""
    make_events(field, 30, 0, index=False)
    field.sql("create table notes (event_id bigint references events)")
    find = DeleteWork._find

    def referred(self: DeleteWork, *given: Any) -> Any:
        page = find(self, *given)
        with field.other() as other:
            other.execute("insert into notes select 7 where not exists (select from notes)")
        return page

    monkeypatch.setattr(DeleteWork, "_find", referred)
    result = field.sweep(declare())
    assert (result["removed"], left(field)) == ({"events": 29}, 1)


def test_rows_that_a_trigger_keeps_are_reported(field: Field) -> None:
    """D-8: a soft delete is no removal, and no reason to go on for ever."""
    make_events(field, 30, 5)
    field.sql(
        "create function keep() returns trigger language plpgsql as "
        "$$ begin if old.id % 3 = 0 then return null; end if; return old; end $$"
    )
    field.sql("create trigger keep before delete on events for each row execute function keep()")
    result = field.sweep(declare())
    assert result["removed"] == {"events": 20}
    assert result["blocked"] == {"events": {work.BY_TRIGGER: {"rows": 10, "keys": []}}}
    assert result["backlog"] == {}


@pytest.mark.parametrize(
    "rule",
    ["do instead nothing", "where old.id % 3 = 0 do instead nothing", "do also insert into seen values (old.id)"],
)
def test_a_table_with_a_rule_for_delete_is_refused_before_the_first_one(field: Field, rule: str) -> None:
    """D-8: it would fail with words of Postgres's own, behind the pages whose rows nobody holds."""
    make_events(field, 30, 5)
    field.sql("create table seen (id bigint)")
    field.sql(f"create rule keep as on delete to events {rule}")
    purge = declare(batch_rows=10, adapt=False)
    run = purge.launch()
    with pytest.raises(SweepFailed, match=r"events has a rule for DELETE \(keep\)"):
        field.finish(run)
    assert (field.row(run).last_error_code, field.job(run).attempt, left(field)) == (InvalidDeclaration.code, 1, 35)
    with pytest.raises(InvalidDeclaration, match="has a rule for DELETE"):
        purge.preview()
    field.sql("alter table events disable rule keep")
    assert field.sweep(purge)["removed"] == {"events": 30}


def test_cascades_are_counted_beforehand(field: Field) -> None:
    """D-8: by table, however many keys away."""
    make_events(field, 100, 10)
    orders(field, "on delete cascade")
    field.sql("create table marks (note_id int references notes on delete cascade, n int)")
    field.sql("insert into marks select id, n from notes, generate_series(1, 3) n")
    field.sql("create table links (event_id bigint references events on delete cascade)")
    purge = declare()
    words = purge.preview()["cascades"].item()
    assert left(field) == 110
    result = field.sweep(purge)
    schema = field.one("select current_schema()")
    counted = {table.removeprefix(f"{schema}."): rows for table, rows in result["cascades"]["events"].items()}
    assert counted == {"notes": 10, "marks": 30, "links": 0}
    assert "notes: 10" in words
    assert (left(field, "notes"), left(field, "marks")) == (1, 3)
    assert result["removed"] == {"events": 100}


def test_a_cascade_into_the_same_table_is_counted(field: Field) -> None:
    """D-8."""
    make_events(field, 20, 5)
    field.sql("alter table events add parent bigint references events on delete cascade")
    field.sql("update events set parent = 1 where id > 20")
    purge = declare()
    (cascades,) = purge.preview()["cascades"].to_list()
    result = field.sweep(purge)
    assert cascades.endswith("events: 5")
    assert left(field) == 0
    assert result["removed"] == {"events": 20}


@pytest.mark.parametrize("index", [True, False], ids=["index", "key"])
def test_a_partitioned_table_is_purged_by_key(field: Field, index: bool) -> None:
    """D-8: rows of different partitions have the same ctid."""
    field.sql(
        "create table events (id bigint, created_at timestamptz not null, primary key (id, created_at)) "
        "partition by range (created_at)"
    )
    field.sql(
        "do $$ begin execute format('create table events_old partition of events for values from (minvalue) to (%L)', "
        "now() - interval '100 days'); "
        "execute format('create table events_mid partition of events for values from (%L) to (%L)', "
        "now() - interval '100 days', now() - interval '50 days'); end $$"
    )
    field.sql("create table events_rest partition of events default")
    field.sql("insert into events select i, now() - i * interval '1 hour' from generate_series(1, 4000) i")
    if index:
        field.sql("create index on events (created_at)")
    due = field.one("select count(*) from events where created_at < now() - interval '90 days'")
    assert field.one("select count(*) from events_mid where created_at < now() - interval '90 days'") > 0
    result = field.sweep(declare(batch_rows=300, adapt=False))
    assert result["removed"] == {"events": due}
    assert left(field) == 4_000 - due
    assert field.one("select min(created_at) > now() - interval '90 days' - interval '1 minute' from events")


def test_a_partitioned_table_can_be_held_too(field: Field, quick: None) -> None:
    """D-8."""
    field.sql("create table events (id bigint primary key, created_at timestamptz not null) partition by hash (id)")
    for part in range(3):
        field.sql(f"create table e{part} partition of events for values with (modulus 3, remainder {part})")
    field.sql(f"insert into events select i, {OLD} from generate_series(1, 90) i")
    field.sql("create table notes (event_id bigint constraint notes_fk references events)")
    field.sql("insert into notes values (5), (50)")
    with field.other() as other:
        other.execute("begin; select from events where id = 9 for update")
        result = field.sweep(declare(batch_rows=20, adapt=False))
        other.execute("rollback")
    assert (result["removed"], result["backlog"]) == ({"events": 87}, {"events": 1})
    assert sum(held["rows"] for held in result["blocked"]["events"].values()) == 2
    assert field.sql("select id from events order by 1") == [(5,), (9,), (50,)]


def test_old_rows_that_come_while_the_pass_is_under_way_are_another_passes(field: Field) -> None:
    """S-217, N-057: a repeated pass finds what is left."""
    make_events(field, 30, 0)
    purge = declare(batch_rows=10, adapt=False)
    field.sweep(purge)
    field.sql(f"insert into events (created_at) select {OLD} from generate_series(1, 5)")
    assert field.sweep(purge)["removed"] == {"events": 5}


def test_two_purges_of_one_table_share_its_rows(field: Field) -> None:
    """S-217, D-8: skipped rows are the other's; each row goes once and is counted once."""
    make_events(field, 600, 10)
    totals: list[int] = []
    purges = [declare(name=name, batch_rows=20, adapt=False) for name in ("one", "two")]
    runs = [purge.launch() for purge in purges]
    workers = [field.worker(queues=["default"], names=[purge.name]) for purge in purges]
    threads = [threading.Thread(target=worker.tick, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    totals = [rs.attach(run.run_id).wait("5s")["total"] for run in runs]
    assert sum(totals) == 600
    assert left(field) == 10


def test_a_row_that_is_old_events_only_by_name(field: Field) -> None:
    """D-8: a target may be given a name of its own."""
    make_events(field, 5, 5)
    result = field.sweep(declare(old_events(name="by age"), old_events(where="kind = 'none'")))
    assert result["removed"] == {"by age": 5, "events": 0}
