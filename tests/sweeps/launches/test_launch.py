"""Launching: the gate, the live run it attaches to, the input, and the `Run` that is watched."""

from __future__ import annotations

import datetime as dt
import threading
import time
from typing import Any

import polars as pl
import pytest
from pydantic import BaseModel

import rowsweep as rs
from rowsweep.errors import (
    AlreadyApplied,
    ChangedSinceApplied,
    DriverUnavailable,
    InvalidInput,
    InvalidOption,
    RequirementMissing,
    SchemaMissing,
    SweepFailed,
    SweepNotFound,
    TimedOut,
    UnknownSource,
    WrongEnvironment,
)
from rowsweep.jobs.registry import reset_jobs
from rowsweep.sweeps.run import Run
from tests.sweeps.field import NONE_SEEN, Background, Field, until, wait_for

ORDERS = rs.Rows("orders")


def totals(expression: str = "price * qty", **options: Any) -> Any:
    """Declare the sweep `totals` anew."""
    reset_jobs()
    return rs.backfill("totals", rows=ORDERS, set={"total": expression}, **options)


def test_an_applied_sweep_is_refused_until_it_is_forced(field: Field) -> None:
    """D-4, S-199, S-202: by name, input and checksum; a changed one says so."""
    field.orders(5)
    first = totals().launch()
    field.finish(first)
    with pytest.raises(AlreadyApplied) as applied:
        totals().launch()
    assert str(first.run_id) in str(applied.value)
    assert "force=True" in applied.value.fix
    assert "rowsweep ledger --name totals" in applied.value.fix
    with pytest.raises(ChangedSinceApplied):
        totals("price").launch()
    forced = totals("price").launch(force=True)
    assert field.row(forced).options == {"force": True}
    assert field.finish(forced)["rows"] == 5
    assert field.one("select bool_and(total = price) from orders")
    with pytest.raises(ChangedSinceApplied):
        totals().launch()
    with pytest.raises(AlreadyApplied):
        totals("price").launch()


def test_a_failed_or_cancelled_run_is_no_application(field: Field) -> None:
    """D-4: only a done row is a ground."""
    field.orders(5)
    totals().launch().cancel()
    assert field.finish(totals().launch())["rows"] == 5


def test_another_input_is_another_sweep_to_the_gate(field: Field) -> None:
    """D-4, N-072: applied and live are by input."""
    field.orders(5)
    sweep = totals(input=int)
    runs = [sweep.launch(1), sweep.launch(2)]
    assert runs[0].run_id != runs[1].run_id
    assert sweep.launch(1).run_id == runs[0].run_id
    field.worker().tick()
    with pytest.raises(AlreadyApplied):
        totals(input=int).launch(2)


def test_the_environment_must_be_one_of_those_declared(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-4: `$ROWSWEEP_ENV`, development by default; force does not override it."""
    field.orders(5)
    sweep = totals(environments=("production", "staging"))
    with pytest.raises(WrongEnvironment, match=r"'development'.*\$ROWSWEEP_ENV"):
        sweep.launch(force=True)
    monkeypatch.setenv("ROWSWEEP_ENV", "staging")
    run = sweep.launch()
    assert field.row(run).environment == "staging"
    monkeypatch.setenv("ROWSWEEP_ENV", "test")
    with pytest.raises(SweepFailed, match="'test'") as failed:
        field.finish(run)
    assert str(failed.value).count("Fix: ") == 1
    row, job = field.row(run), field.job(run)
    assert (row.last_error_code, job.attempt, job.state) == ("X_BACKFILL_ENVIRONMENT", 1, "dead")


def test_what_a_sweep_requires_must_be_done(field: Field) -> None:
    """D-4: by name in the ledger; also when the pass starts."""
    field.orders(5)

    def later() -> Any:
        return rs.backfill("later", rows=ORDERS, set={"band": "'x'"}, requires=("totals",))

    sweep = totals()
    with pytest.raises(RequirementMissing, match="rowsweep sweeps launch totals"):
        later().launch()
    run = sweep.launch()
    with pytest.raises(RequirementMissing):
        rs.backfill("later2", rows=ORDERS, set={"band": "'x'"}, requires=("totals",)).launch(force=True)
    field.finish(run)
    reset_jobs()
    assert field.sweep(later())["rows"] == 5


def test_the_gate_is_asked_again_when_the_pass_starts(field: Field) -> None:
    """D-4: an enqueued run that was applied meanwhile ends, terminal; its own row is no ground against it."""
    field.orders(5)
    sweep = totals()
    inspection = field.app.stores().inspection
    assert inspection is not None
    field.finish(sweep.launch())
    late = sweep.enqueue()
    field.worker().tick()
    job = inspection.get(late.id)
    assert job is not None
    assert (job.state, job.last_error_code, job.attempt) == ("dead", "X_BACKFILL_APPLIED", 1)


def test_two_runs_of_one_sweep_with_one_input_never_work_at_once(field: Field) -> None:
    """N-073: one that was enqueued beside the live run waits for its slot; another input's does not."""
    field.orders(5)
    inside, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    @rs.backfill("held", rows=ORDERS, input=int, atomic=False)
    def held(batch: rs.Batch) -> None:
        seen.append(batch.input)
        if batch.input == 1:
            inside.set()
            wait_for(go_on)

    run = held.launch(1)
    first = Background(field.worker().tick)
    wait_for(inside)
    beside, other = held.enqueue(1), held.enqueue(2)
    second = field.worker()
    second.tick()
    inspection = field.app.stores().inspection
    assert inspection is not None
    states = [job.state for job in (inspection.get(beside.id), inspection.get(other.id)) if job is not None]
    assert states == ["ready", "done"]
    go_on.set()
    first.result()
    assert run.wait(timeout="1s")["rows"] == 5
    assert seen == [1, 2]


def test_launching_what_is_live_attaches_to_it(field: Field) -> None:
    """N-072, DESIGN §4: also from another version of the declaration, which the note says; paused ones too."""
    field.orders(5)
    run = totals().launch()
    again = totals().launch()
    assert (again.run_id, again.attached) == (run.run_id, True)
    assert "live already" in (again.note or "")
    changed = totals("price").launch()
    assert changed.run_id == run.run_id
    assert "another version" in (changed.note or "")
    run.pause()
    assert "run.resume()" in (totals().launch().note or "")
    assert (run.attached, run.note) == (False, None)
    assert field.queue_sql("select count(*) from {x_jobs}") == [(1,)]


def test_two_launches_at_once_are_one_run(field: Field) -> None:
    """N-072: the key decides where both saw nothing live."""
    field.orders(5)
    sweep = totals()
    start = threading.Barrier(4)

    def launched() -> Run:
        start.wait(10)
        return sweep.launch()  # type: ignore[no-any-return]

    runs = [Background(launched) for _ in range(4)]
    found = {run.result().run_id for run in runs}
    assert len(found) == 1
    assert field.queue_sql("select count(*) from {x_jobs} union all select count(*) from {x_backfills}") == [(1,), (1,)]


class Window(BaseModel):
    """A typed input."""

    since: dt.date
    most: int = 3


def test_an_input_is_typed_and_validated_at_launch_and_again_at_the_run(field: Field) -> None:
    """S-041, S-042: nothing is queued for a wrong one; a stored one that no longer parses is terminal."""
    field.orders(5)
    seen: list[Any] = []

    @rs.backfill("window", rows=ORDERS, input=Window)
    def window(batch: rs.Batch) -> None:
        seen.append(batch.input)

    with pytest.raises(InvalidInput, match=r"\$\.since"):
        window.launch({"since": "never"})
    with pytest.raises(InvalidInput):
        window.launch()
    assert field.queue_sql("select count(*) from {x_jobs}") == [(0,)]
    run = window.launch(Window(since=dt.date(2025, 1, 31)))
    assert field.row(run).input == {"since": "2025-01-31", "most": 3}
    assert window.launch({"since": "2025-01-31"}).run_id == run.run_id
    field.finish(run)
    assert seen == [Window(since=dt.date(2025, 1, 31), most=3)]
    broken = window.launch({"since": "2025-02-01"})
    field.queue_sql("update {x_jobs} set input = %s::jsonb where run_id = %s", ['{"since": 5.5}', broken.run_id])
    with pytest.raises(SweepFailed, match="input"):
        field.finish(broken)
    assert (field.row(broken).last_error_code, field.job(broken).attempt) == ("X_JOB_INPUT_INVALID", 1)


def test_a_launch_may_be_delayed_and_steered_before_it_is_due(field: Field) -> None:
    """N-072: its row is there at once."""
    field.orders(5)
    run = totals().launch(delay="1h")
    assert field.worker().tick() == []
    snapshot = run.snapshot()
    assert (snapshot.status, snapshot.rows) == ("running", 0)
    assert snapshot.words.startswith(("due at", "waiting"))
    assert run.cancel().status == "cancelled"


def test_options_of_a_launch_are_screened(field: Field) -> None:
    """D-4, S-014."""
    field.orders(5)
    for option in ({"rate": "fast"}, {"batch_rows": 0}, {"batch_rows": 2**70}, {"delay": "soon"}):
        with pytest.raises(InvalidOption, match=next(iter(option))):
            totals().launch(**option)
    assert field.queue_sql("select count(*) from {x_jobs}") == [(0,)]


def test_the_ledger_row_says_who_launched_what(field: Field) -> None:
    """S-198, N-011."""
    field.orders(5)
    sweep = totals()
    run = sweep.launch()
    row = field.row(run)
    assert (row.name, row.kind, row.checksum, row.launched_by) == ("totals", "backfill", sweep.checksum, "tester")
    assert (row.environment, row.status, row.wanted, row.rows, row.batches) == ("development", "running", "run", 0, 0)
    assert sweep.status_here() == {
        "state": "live",
        "run_id": str(run.run_id),
        "checksum": sweep.checksum,
        "applied_checksum": None,
    }
    field.finish(run)
    assert sweep.status_here()["state"] == "applied"
    assert totals("price").status_here()["state"] == "changed"
    assert rs.backfill("other", rows=ORDERS, set={"band": "'x'"}).status_here()["state"] == "pending"


def test_waiting_ends_with_the_run_or_with_its_error(field: Field) -> None:
    """N-078: totals, the last error, a cancel's reason, a timeout that ends nothing."""
    field.orders(5)
    run = totals().launch()
    with pytest.raises(TimedOut, match="It goes on"):
        run.wait(timeout="10ms")
    waiting = Background(lambda: run.wait(timeout="20s"))
    field.tick()
    assert waiting.result() == {
        "rows": 5,
        "written": 5,
        "batches": 1,
        "rejected": 0,
        "remaining": None,
        "late": NONE_SEEN,
    }

    @rs.backfill("failing", rows=ORDERS, retry=rs.Retry(attempts=1))
    def failing(batch: rs.Batch) -> None:
        raise ValueError("no such band")

    broken = failing.launch()
    field.worker().tick()
    with pytest.raises(SweepFailed, match=r"(?s)no such band.*run\.resume\(\)") as failed:
        broken.wait()
    assert failed.value.meta["run_id"] == str(broken.run_id)


def test_ctrl_c_in_a_wait_leaves_the_run_going(
    field: Field, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-078: and says how to find it again."""
    field.orders(5)
    run = totals().launch()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("rowsweep.sweeps.run.RunSignal.wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.wait()
    assert f"rs.attach('{run.run_id}')" in capsys.readouterr().err
    assert field.row(run).status == "running"
    assert field.finish(run)["rows"] == 5


def test_a_run_is_found_by_id_prefix_or_name(field: Field) -> None:
    """N-078: a name's newest run; what is ambiguous or unknown is refused."""
    field.orders(5)
    first = totals().launch()
    first.cancel()
    second = totals().launch()
    assert rs.attach("totals").run_id == second.run_id
    assert rs.attach(first.run_id).run_id == first.run_id
    assert rs.attach(str(second.run_id)).run_id == second.run_id
    assert rs.attach(str(first.run_id)[:-1]).run_id == first.run_id
    for unknown in ("nothing", "ffff", "%", str(first.run_id)[:3]):
        with pytest.raises(SweepNotFound):
            rs.attach(unknown)
    with pytest.raises(SweepNotFound, match="more than one"):
        rs.attach(str(first.run_id)[:4])


def test_the_ledger_is_a_frame(field: Field) -> None:
    """N-078: also when it is empty, or nothing in it has ended."""
    field.orders(5)
    assert rs.ledger().height == 0
    run = totals().launch()
    frame = rs.ledger()
    assert frame.row(0, named=True)["status"] == "running"
    assert frame["finished_at"].to_list() == [None]
    assert frame.schema["started_at"] == pl.Datetime("us", "UTC")
    field.finish(run)
    (row,) = rs.ledger(name="totals").rows(named=True)
    assert (row["run_id"], row["rows"], row["status"], row["total"]) == (str(run.run_id), 5, "done", 5)
    assert row["finished_at"] >= row["started_at"]
    assert (rs.ledger(name="other").height, rs.ledger(limit=0).height) == (0, 0)
    assert rs.ledger().schema == frame.schema
    field.queue_sql("update {x_backfills} set started_at = date_trunc('second', started_at)")
    field.queue_sql(
        "insert into {x_backfills} (run_id, name, kind, checksum, environment, status, started_at, updated_at) "
        "values (gen_random_uuid(), 'x', 'backfill', '', 'development', 'paused', now(), now())"
    )
    assert rs.ledger().height == 2


def test_a_run_shows_itself_as_text_and_html(field: Field) -> None:
    """N-078: a repr for a terminal, a bundle for a notebook."""
    field.orders(5)
    run = totals().launch()
    field.finish(run)
    assert "totals" in repr(run)
    assert "done" in repr(run)
    bundle = run._repr_mimebundle_()
    assert bundle["text/plain"] == repr(run)


def test_nothing_is_launched_before_anything_is_connected(field: Field) -> None:
    """N-109: with the line that connects."""
    field.orders(5)
    sweep = totals()
    field.app.close()
    with pytest.raises(DriverUnavailable, match=r"rs\.connect"):
        sweep.launch()


def test_a_launch_works_in_this_process_unless_told_otherwise(field: Field) -> None:
    """N-072: one worker for what is declared here, on its queues."""
    field.orders(40)
    field.app._works = True
    sweep = totals(queue="slow", batch_rows=4)
    assert sweep.launch().wait(timeout="20s")["rows"] == 40
    inside, go_on = threading.Event(), threading.Event()

    @rs.backfill("held", rows=ORDERS, batch_rows=4, adapt=False)
    def held(batch: rs.Batch) -> None:
        inside.set()
        wait_for(go_on)

    run = held.launch()
    wait_for(inside)
    run.pause()
    go_on.set()
    until(lambda: run.snapshot().status == "paused", "it pauses")
    began = time.monotonic()
    run.resume()
    assert run.wait(timeout="20s")["rows"] == 40
    assert time.monotonic() - began < 10


def test_a_run_of_a_schema_that_is_not_installed_says_what_to_run(dsn: str) -> None:
    """N-114: X_SCHEMA_MISSING names the command; connecting is allowed, or nothing could be installed."""
    reset_jobs()
    app = rs.connect(dsn, work=False)
    try:
        with pytest.raises(SchemaMissing, match="rowsweep schema install"):
            totals().launch()
        app.install()
        with pytest.raises(UnknownSource):
            totals().launch()
    finally:
        app.close()
        reset_jobs()


@pytest.mark.parametrize(
    ("option", "said", "fix"),
    [
        (
            "shards",
            "has no option 'shards': it is declared",
            "declare it with shards=, or use one of force, delay, rate",
        ),
        (
            "batch_row",
            "nearest: batch_rows",
            "remove batch_row=, or use one of force, delay, rate, batch_rows, on_error",
        ),
        ("confirm", "has no option 'confirm'", "remove confirm="),
        ("retry_of", "has no option 'retry_of'", "remove retry_of="),
    ],
)
def test_an_option_that_no_launch_has_is_refused_by_name(field: Field, option: str, said: str, fix: str) -> None:
    """S-013, N-072: with what is allowed; nothing is launched."""
    field.orders(1)
    with pytest.raises(InvalidOption, match=said) as refused:
        totals().launch(**{option: 3})
    assert refused.value.fix.startswith(fix)
    assert field.queue_sql("select count(*) from {x_jobs}") == [(0,)]


def test_each_kind_of_sweep_names_its_own_options_of_a_launch() -> None:
    """S-013, N-072: `confirm` is a purge's, `on_error` a backfill's."""
    archive = rs.export_rows("archive", ORDERS, "out")
    old = rs.purge("old", targets=list)
    for sweep, own in ((archive, "batch_rows"), (old, "batch_rows, confirm")):
        with pytest.raises(InvalidOption) as refused:
            sweep.launch(nonsense=1)  # type: ignore[call-arg]
        assert refused.value.fix.endswith(f"use one of force, delay, rate, {own}")
