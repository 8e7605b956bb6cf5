"""A pass of a purge: what goes, and what the result, the ledger and the steps say of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import RowsweepError, SweepFailed
from rowsweep.sweeps.purge.work import DeleteWork
from tests.sweeps.field import NOW, Field, fields_of
from tests.sweeps.purge.events import OLD, declare, left, make_events, old_events


class Noted:
    """A target of an application's own, which notes what it was asked."""

    def __init__(self, name: str = "noted", answer: Any = 0) -> None:
        self.name = name
        self.answer = answer
        self.asked: list[datetime] = []

    def purge_expired(self, at: datetime) -> int:
        """Note the instant."""
        self.asked.append(at)
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: int = self.answer
        return answer


def code_of(field: Field, run: rs.Run) -> str | None:
    """Answer the code a run failed with."""
    with pytest.raises(SweepFailed):
        field.finish(run)
    return field.row(run).last_error_code


@pytest.mark.parametrize("index", [True, False], ids=["index", "key"])
@pytest.mark.parametrize("batch_rows", [7, 40, 250, 1_000])
def test_old_rows_go_and_young_ones_stay(field: Field, index: bool, batch_rows: int) -> None:
    """D-8, S-212: along the column's index, or the key; the result, the ledger and the job say the same."""
    make_events(field, 250, 750, index=index)
    run = declare(batch_rows=batch_rows, adapt=False).launch()
    result = field.finish(run)
    assert (result["removed"], result["total"]) == ({"events": 250}, 250)
    assert (result["blocked"], result["backlog"], result["cascades"]) == ({}, {}, {})
    assert left(field) == 750
    assert field.one(f"select count(*) from events where created_at < {OLD}") == 0
    row = field.row(run)
    assert (row.kind, row.status, row.rows, row.written) == ("purge", "done", 250, 250)
    assert (row.estimated_rows, row.estimate_source) == (250, "count")
    assert row.cursor == {name: result[name] for name in row.cursor}, "the report, also in the ledger"
    assert row.cursor == field.job(run).result
    if index:
        assert row.batches == -(-250 // batch_rows)


def test_the_setup_says_what_is_walked(field: Field) -> None:
    """D-8: the index, or the key where none orders by the column."""
    make_events(field, 5, 5)
    make_events(field, 5, 5, table="plain", index=False)
    field.sql("create index on plain (created_at) where kind = 'seen'")
    run = declare(old_events(), old_events("plain")).launch()
    field.finish(run)
    steps = field.steps(run)
    assert steps["purge:events:setup"].output["walks"] == "index events_created_at_idx"
    assert steps["purge:plain:setup"].output["walks"] == "the key"


def test_a_function_is_a_target_under_its_own_name(field: Field) -> None:
    """S-216: it is called with the pass's instant and answers how many rows it removed."""
    asked: list[datetime] = []

    def caches(at: datetime) -> int:
        asked.append(at)
        return 3

    result = field.finish(rs.purge("own", lambda: [caches]).launch())
    assert result["removed"] == {"caches": 3}
    assert [at.utcoffset() for at in asked] == [timedelta(0)]


def test_each_target_is_one_step(field: Field) -> None:
    """S-213: a target that is done is not asked again when the pass is."""
    make_events(field, 5, 5)
    first, last = Noted("first", 3), Noted("last", RuntimeError("no"))
    run = declare(first, old_events(), last, retry=NOW).launch()
    assert field.tick().outcome == "retried"
    steps = field.steps(run)
    assert steps["purge:first"].output["removed"] == 3
    assert steps["purge:events"].output["removed"] == 5
    assert steps["purge:last"].status == "failed"
    last.answer = 4
    result = field.finish(run)
    assert result["removed"] == {"first": 3, "events": 5, "last": 4}
    assert (result["total"], field.row(run).rows) == (12, 12)
    assert len(first.asked) == 1


def test_the_clock_is_read_once_and_every_target_goes_by_it(field: Field) -> None:
    """S-214: the database's, by a resumed pass too."""
    make_events(field, 5, 5)
    first, last = Noted("first"), Noted("last", RuntimeError("no"))
    run = declare(first, old_events(), last, retry=NOW).launch()
    field.tick()
    field.sql(f"insert into events (created_at) select {OLD} from generate_series(1, 3)")
    last.answer = 0
    result = field.finish(run)
    (at,) = {*first.asked, *last.asked}
    assert at.tzinfo is UTC or at.utcoffset() == timedelta(0)
    assert datetime.fromisoformat(result["at"]) == at
    assert abs(at - field.one("select now()")) < timedelta(minutes=1)
    cutoff = datetime.fromisoformat(field.steps(run)["purge:events:setup"].output["cutoff"])
    assert cutoff == at - timedelta(days=90)


def test_two_targets_of_one_name_are_refused_before_the_first_delete(field: Field) -> None:
    """S-215."""
    make_events(field, 5, 5)
    noted = Noted("events")
    run = declare(old_events(), noted).launch()
    assert code_of(field, run) == "X_INVARIANT"
    assert (left(field), noted.asked) == (10, [])


def test_targets_are_asked_for_when_the_purge_runs(field: Field) -> None:
    """S-216: neither when it is declared nor when it is launched."""
    asked: list[int] = []

    def targets() -> list[Noted]:
        asked.append(1)
        return [Noted()]

    run = rs.purge("retention", targets=targets).launch()
    assert asked == []
    field.finish(run)
    assert asked == [1]


@pytest.mark.parametrize("answer", [None, -1, True, "3"])
def test_a_target_that_does_not_answer_a_count_is_refused(field: Field, answer: Any) -> None:
    """S-216."""
    assert code_of(field, declare(Noted("odd", answer)).launch()) == "X_INVARIANT"


@pytest.mark.parametrize("answer", [None, 3, [object()], "events"])
def test_a_function_that_answers_no_targets_is_refused(field: Field, answer: Any) -> None:
    """S-216."""
    assert code_of(field, rs.purge("odd", targets=lambda: answer).launch()) == "X_JOB_DECLARATION_INVALID"


def test_no_targets_and_no_rows_are_a_pass_too(field: Field) -> None:
    """D-8."""
    make_events(field, 0, 5)
    assert field.sweep(declare())["removed"] == {"events": 0}
    assert field.sweep(rs.purge("nothing", targets=list))["removed"] == {}


def test_a_pass_goes_on_behind_its_checkpoint_with_true_counts(field: Field) -> None:
    """S-193, D-8: what an earlier attempt removed is counted, once."""
    make_events(field, 100, 10)
    field.sql(
        "create function refuse() returns trigger language plpgsql as "
        "$$ begin if old.id = 55 then raise exception 'not yet'; end if; return old; end $$"
    )
    field.sql("create trigger refuse before delete on events for each row execute function refuse()")
    run = declare(batch_rows=10, adapt=False, retry=NOW).launch()
    assert field.tick().outcome == "retried"
    row = field.row(run)
    assert row.rows == 110 - left(field)
    assert row.rows > 0
    assert "events: the rows behind" in (row.last_error or "")
    field.sql("drop trigger refuse on events")
    assert field.finish(run)["removed"] == {"events": 100}
    assert (left(field), field.row(run).rows, field.row(run).batches) == (10, 100, 10)


def test_a_target_that_changed_under_way_is_refused(field: Field) -> None:
    """N-071: the run goes by what it began with."""
    make_events(field, 10, 10)
    days = [90]
    late = Noted("late", RuntimeError("no"))
    purge = rs.purge(
        "retention",
        targets=lambda: [rs.older_than("events", "created_at", days=days[0]), late],
        confirm=1.0,
        retry=NOW,
    )
    run = purge.launch()
    field.tick()
    days[0] = 30
    assert code_of(field, run) == "X_BACKFILL_CHANGED"


def test_sizes_adapt_from_a_thousand_rows(field: Field, caplog: pytest.LogCaptureFixture) -> None:
    """D-8, N-068: by the controller of the sweeps."""
    make_events(field, 20_000, 10)
    with caplog.at_level("DEBUG", "rowsweep"):
        field.sweep(declare())
    rows = [batch["rows"] for batch in fields_of(caplog.records, "sweeps.batch")]
    assert rows[:3] == [1_000, 1_000, 1_000]
    assert max(rows) > 1_000
    assert sum(rows) == 20_000


@pytest.mark.parametrize("index", [True, False], ids=["index", "key"])
def test_a_condition_leaves_what_it_does_not_say(field: Field, index: bool) -> None:
    """D-8: one's own SQL; null is no yes. Rows it leaves stall no walk."""
    make_events(field, 1_000, 10, index=index)
    field.sql("update events set kind = case when id % 100 = 0 then 'gone' when id % 2 = 0 then null else 'kept' end")
    result = field.sweep(declare(old_events(where="kind = 'gone' or kind like '100%'"), batch_rows=3, adapt=False))
    assert result["removed"] == {"events": 10}
    assert field.one("select count(*) from events where kind = 'gone'") == 0
    assert left(field) == 1_000


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (lambda: old_events("nowhere"), "X_SWEEP_SOURCE_UNKNOWN"),
        (lambda: rs.older_than("events", "made_at", days=1), "X_SWEEP_SOURCE_UNKNOWN"),
        (lambda: rs.older_than("events", "kind", days=1), "X_JOB_DECLARATION_INVALID"),
        (lambda: old_events(where="kind ="), "X_SWEEP_SQL_INVALID"),
        (lambda: old_events(where="true) or (true"), "X_SWEEP_SQL_INVALID"),
        (lambda: old_events("keyless"), "X_SWEEP_KEY_INVALID"),
        (lambda: old_events("seen"), "X_SWEEP_KEY_INVALID"),
    ],
)
def test_what_cannot_be_purged_is_refused_before_the_first_delete(field: Field, target: Any, code: str) -> None:
    """N-049, N-050, N-052: and a later target's fault keeps an earlier one from starting."""
    make_events(field, 5, 5)
    field.sql("create table keyless (created_at timestamptz)")
    field.sql("create view seen as select id, created_at from events")
    run = declare(old_events(name="first"), target()).launch()
    assert code_of(field, run) == code
    assert left(field) == 10


@pytest.mark.parametrize("kind", ["text", "pair", "odd"])
def test_any_key_that_can_carry_a_sweep_carries_a_purge(field: Field, kind: str) -> None:
    """N-052: also a name that has to be quoted, and one whose key begins with the column."""
    tables = {
        "text": "create table events (id text primary key, created_at timestamptz)",
        "pair": "create table events (id int, part int, created_at timestamptz, primary key (created_at, part, id))",
        "odd": 'create table "E%v (ents)" ("i d" int primary key, "created%at" timestamptz)',
    }
    field.sql(tables[kind])
    table, key, column = ("E%v (ents)", "i d", "created%at") if kind == "odd" else ("events", "id", "created_at")
    quoted, more = (f'"{table}"', "") if kind == "odd" else (table, ", part" if kind == "pair" else "")
    values = ", i" if kind == "pair" else ""
    field.sql(
        f'insert into {quoted} ("{key}", "{column}"{more}) '
        f"select i, {OLD} - (i / 10) * interval '1 s'{values} from generate_series(1, 300) i"
    )
    field.sql(f'create index on {quoted} ("{column}")')
    target = rs.older_than((table,), column, days=90)
    assert field.sweep(declare(target, batch_rows=13, adapt=False))["total"] == 300


def test_a_pass_reads_its_rows_once_however_many_share_a_value(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-8: many rows of one date are walked with a bounded number of searches."""
    field.sql("create table events (id int primary key, created_on date not null)")
    field.sql("insert into events select i, current_date - 100 from generate_series(1, 5000) i")
    field.sql("create index on events (created_on)")
    searches: list[int] = []
    search = DeleteWork._search

    def counted(self: DeleteWork, *given: Any) -> Any:
        searches.append(1)
        return search(self, *given)

    monkeypatch.setattr(DeleteWork, "_search", counted)
    target = rs.older_than("events", "created_on", days=90)
    assert field.sweep(declare(target, batch_rows=50, adapt=False))["total"] == 5_000
    assert len(searches) <= 6


def test_a_declaration_that_cannot_work_is_refused() -> None:
    """D-8, S-029."""
    refused: list[Any] = [
        lambda: rs.older_than("events", "created_at"),
        lambda: rs.older_than("events", "created_at", days=1, age="1h"),
        lambda: rs.older_than("events", "created_at", days=0),
        lambda: rs.older_than("events", "created_at", age="0s"),
        lambda: rs.older_than("events", "", days=1),
        lambda: rs.older_than("a.b.c", "created_at", days=1),
        lambda: rs.older_than("events", "created_at", days=1, tz="Mars/Olympus"),
        lambda: rs.older_than("events", "created_at", days=1, tz=""),
        lambda: rs.older_than("events", "created_at", days=1, where=" "),
        lambda: rs.purge("p", targets=[old_events()]),  # type: ignore[arg-type]
        lambda: rs.purge("p", targets=list, budget="10m"),
        lambda: rs.purge("p", targets=list, confirm=1.5),
        lambda: rs.purge("p", targets=list, confirm="a lot"),
        lambda: rs.purge("p", targets=list, batch_rows=0),
        lambda: rs.purge("p", targets=list, rows=rs.Rows("events")),
        lambda: rs.purge("p", targets=list, input=int),
        lambda: rs.Budget(rows=0),
        lambda: rs.Budget(time="0s"),
    ]
    for declaration in refused:
        with pytest.raises(RowsweepError) as caught:
            declaration()
        assert caught.value.code in ("X_JOB_DECLARATION_INVALID", "X_OPTION_INVALID")
        assert caught.value.fix


def test_a_purge_is_described_as_plain_data(field: Field) -> None:
    """S-015."""
    described = declare(rate="100/s", environments=("production",)).describe()
    assert (described["kind"], described["budget"]) == ("purge", {"time": "10m", "rows": 5_000_000})
    assert (described["rate"], described["environments"]) == ("100/s", ["production"])


def test_the_gate_is_asked_and_a_purge_may_repeat(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-4: applied is asked of backfills only."""
    make_events(field, 5, 5)
    purge = declare(environments=("production",))
    with pytest.raises(RowsweepError) as caught:
        purge.launch()
    assert caught.value.code == "X_BACKFILL_ENVIRONMENT"
    monkeypatch.setenv("ROWSWEEP_ENV", "production")
    assert field.sweep(purge)["total"] == 5
    assert field.sweep(purge)["total"] == 0


def test_a_purge_acts_for_its_tenant(field: Field) -> None:
    """N-009, N-010: nobody's purge asks to see all tenants' rows, somebody's does not."""
    make_events(field, 4, 0)
    field.sql("create table seen (tenant text, crosses text)")
    field.sql(
        "create function note() returns trigger language plpgsql as $$ begin insert into seen values "
        "(current_setting('rowsweep.tenant', true), current_setting('rowsweep.cross_tenant', true)); return old; end $$"
    )
    field.sql("create trigger note before delete on events for each row execute function note()")
    field.sweep(declare(batch_rows=2, adapt=False))
    field.sql(f"insert into events (created_at) select {OLD}")
    field.sweep(declare(name="acme", tenant=lambda _: "acme"))
    assert field.sql("select distinct tenant, crosses from seen order by 1") == [("", "on"), ("acme", "off")]
