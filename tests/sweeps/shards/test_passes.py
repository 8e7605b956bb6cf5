"""A run of several shards: every row once, one row in the ledger, ended, stopped and steered as one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.errors import InvalidOption, RowsweepError, SweepCancelled, SweepFailed
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.registry import reset_jobs
from rowsweep.queue.records import FINISHED_STATES
from rowsweep.queue.stores.ledger import Tuning
from rowsweep.sweeps.run import Run
from rowsweep.sweeps.shards import amount, opening
from rowsweep.testing.inline import drain, run_inline
from rowsweep.testing.interrupt import interrupt_after
from tests.sweeps.field import Field, fields_of, until, wait_for

ROWS = 3_000


def table(field: Field, *, rows: int = ROWS) -> None:
    field.sql("create table things (k int primary key, n int not null default 0)")
    field.sql(f"insert into things select generate_series(1, {rows})")
    field.sql("analyze things")


def declare(form: str = "set", **given: Any) -> Any:
    """Declare a sweep that adds 1 to every row's counter, in one of the forms."""
    options: dict[str, Any] = {"rows": rs.Rows("things"), "batch_rows": 100, "adapt": False, "shards": 3} | given
    if form == "set":
        return rs.backfill("count-up", set={"n": "n + 1"}, **options)
    if form == "frame":

        def frame(batch: rs.Batch) -> pl.DataFrame:
            return batch.frame.select("k", pl.col("n") + 1)

        return rs.backfill("count-up", frame, **options)

    def count_up(batch: rs.Batch) -> None:
        batch.execute("update things set n = n + 1 where k = any(%s)", [[row["k"] for row in batch.rows]])

    return rs.backfill("count-up", count_up, atomic=form != "outside", **options)


def jobs_of(field: Field, run: Run) -> list[tuple[str, str, str | None]]:
    """Answer each job's key, state and last error, the first one first."""
    return field.queue_sql(
        "select idempotency_key, state, last_error from {x_jobs} where run_id = %s order by created_at, id",
        [run.run_id],
    )


def all_counted(field: Field, times: int = 1) -> bool:
    return field.sql("select n, count(*) from things group by n") == [(times, ROWS)]


@pytest.mark.parametrize("form", ["set", "frame", "free", "outside"])
def test_every_row_is_swept_once_by_some_shard(field: Field, form: str) -> None:
    """N-087, N-088: whatever does the work; one row, whose totals are the sums, and ranges proved to tile."""
    table(field)
    sweep = declare(form)
    run = sweep.launch()
    with field.working():
        totals = run.wait("30s")
    assert all_counted(field)
    assert (totals["rows"], totals["written"], totals["shards"]) == (
        ROWS,
        0 if form in ("free", "outside") else ROWS,
        3,
    )
    assert totals["ranges"] >= 3
    row = field.row(run)
    assert (row.status, row.rows, row.batches, row.cursor) == ("done", ROWS, totals["batches"], None)
    assert [shard["status"] for shard in row.shards] == ["done", "done", "done"]
    assert sum(shard["rows"] for shard in row.shards) == ROWS
    key = sweep.launch_key(None)
    assert [(name, state) for name, state, _ in jobs_of(field, run)] == [
        (key, "done"), (f"{key}:s02", "done"), (f"{key}:s03", "done"),
    ]  # fmt: skip
    names = {name for name in field.steps(run) if name.startswith("sweep:pages")}
    assert names == {"sweep:pages", "sweep:pages:s02", "sweep:pages:s03"}


def test_setup_checkpoints_and_siblings_come_in_one_transaction(field: Field, monkeypatch: Any) -> None:
    """N-087: where a sibling cannot be enqueued nothing of the setup stays."""
    table(field)
    run = declare().launch()
    monkeypatch.setattr(opening.Opening, "_sibling", lambda *_: 1 / 0)
    assert field.tick().outcome == "retried"
    assert field.steps(run) == {}
    assert len(jobs_of(field, run)) == 1
    assert field.row(run).shards is None
    monkeypatch.undo()
    assert field.finish(run)["rows"] == ROWS
    assert all_counted(field)


def test_the_first_job_parks_until_the_others_have_ended_and_then_finishes(field: Field) -> None:
    """N-088: its key is live for as long as the run is; each end makes it due."""
    table(field)
    sweep = declare()
    run = sweep.launch()
    assert field.tick().outcome == "suspended"
    assert 0.9 * ROWS / 3 < field.row(run).rows < 1.1 * ROWS / 3
    assert [state for _, state, _ in jobs_of(field, run)] == ["suspended", "ready", "ready"]
    assert sweep.launch().run_id == run.run_id
    worker = field.worker(concurrency=1)
    assert [execution.outcome for execution in worker.tick()] == ["completed"]
    assert field.row(run).status == "running"
    outcomes = [execution.outcome for _ in range(4) for execution in worker.tick()]
    assert outcomes == ["completed", "completed"]
    assert field.row(run).status == "done"
    assert all_counted(field)


def test_one_shard_is_an_ordinary_run(field: Field) -> None:
    """N-087: fewer distinct boundaries mean fewer shards."""
    table(field, rows=1)
    run = declare(shards=8).launch()
    assert field.tick().outcome == "completed"
    assert len(jobs_of(field, run)) == 1
    assert field.row(run).shards is None
    assert field.steps(run)["sweep:pages"].output == {
        "index": 0, "cursor": None, "rows": 1, "written": 1, "plan": None,
    }  # fmt: skip


def failing(times: Callable[[int], bool]) -> Any:
    """Declare a sweep whose handler fails where asked to."""

    @rs.backfill(
        "count-up",
        rows=rs.Rows("things"),
        batch_rows=100,
        adapt=False,
        shards=3,
        retry=Retry(attempts=1, base="0s", jitter=False),
    )
    def fail(batch: rs.Batch) -> pl.DataFrame:
        if times(batch.rows[0]["k"]):
            raise ValueError("no")
        return batch.frame.select("k", pl.col("n") + 1)

    return fail


def test_one_that_fails_stops_the_others_and_resume_takes_all_up_again(field: Field) -> None:
    """N-088, N-082: `failed` at once, the others cancelled with a reason that names the shard, and no row twice.

    The first may have taken over a part of the third's range before it began, and fail there as well.
    """
    table(field)
    fails = [True]
    sweep = failing(lambda key: fails[0] and key > 2_000)
    run = sweep.launch()
    with field.working(concurrency=1), pytest.raises(SweepFailed, match="ValueError: no"):
        run.wait("30s")
    with field.working(concurrency=1):
        until(lambda: all(state in FINISHED_STATES for _, state, _ in jobs_of(field, run)), "the others stopped")
    ends = [(state, reason or "") for _, state, reason in jobs_of(field, run)]
    row = field.row(run)
    failed = [n for n, shard in enumerate(row.shards or [], 1) if shard["status"] == "failed"]
    assert (row.status, row.wanted) == ("failed", "cancel")
    assert failed
    for number, (state, reason) in enumerate(ends, 1):
        assert state == "dead" if number in failed else state in ("cancelled", "done")
        assert state != "dead" or reason.startswith("ValueError: no")
        assert state != "cancelled" or reason == f"shard {failed[0]} failed, so that the run stops"
    fails[0] = False
    run.resume()
    with field.working():
        assert run.wait("30s")["rows"] == ROWS
    assert all_counted(field)


def test_requeueing_the_failed_job_alone_takes_the_others_up_with_it(field: Field) -> None:
    """D-36, N-082: the dead letter is what an operator finds; another may have failed before it heard of the first."""
    table(field)
    fails = [True]
    run = failing(lambda key: fails[0] and key > 2_000).launch()
    with field.working(concurrency=1):
        until(lambda: all(state in FINISHED_STATES for _, state, _ in jobs_of(field, run)), "the end of all")
        fails[0] = False
        (dead,), *_ = field.queue_sql("select id from {x_jobs} where state = 'dead'")
        steering = field.app.stores().steering
        assert steering is not None
        steering.requeue(dead)
        assert run.wait("30s")["rows"] == ROWS
    assert all_counted(field)


def test_a_shard_that_is_held_stops_too(field: Field) -> None:
    """N-088: a running one cancels itself, and its batch in flight rolls back."""
    table(field)
    inside, go = threading.Event(), threading.Event()

    @rs.backfill(
        "count-up", rows=rs.Rows("things"), batch_rows=100, adapt=False, shards=2, retry=Retry(attempts=1, base="0s")
    )
    def hold(batch: rs.Batch) -> pl.DataFrame:
        if batch.rows[0]["k"] > 1_500:
            wait_for(inside)
            raise ValueError("no")
        inside.set()
        assert batch.signal is not None
        go.wait(10)
        batch.signal.raise_if_aborted()
        return batch.frame.select("k", pl.col("n") + 1)

    run = hold.launch()
    with field.working(concurrency=2):
        until(lambda: field.row(run).status == "failed", "the failure")
        until(lambda: jobs_of(field, run)[0][1] == "cancelled", "the other one stopped")
        go.set()
    assert jobs_of(field, run)[0][2] == "shard 2 failed, so that the run stops"
    assert field.sql("select distinct n from things") == [(0,)]


def test_the_verbs_steer_all_jobs_at_once(field: Field) -> None:
    """N-079, N-080, N-081, N-122."""
    table(field)
    run = declare(rate="1/s").launch()
    with field.working():
        until(lambda: field.row(run).batches >= 3, "a batch of each")
        assert all(shard["batches"] == 1 for shard in field.row(run).shards)
        run.pause("lunch")
        until(lambda: {state for _, state, _ in jobs_of(field, run)} == {"suspended"}, "all parked")
        assert field.row(run).status == "paused"
        assert {shard.status for shard in run.snapshot().shards} == {"paused"}
        run.resume()
        until(lambda: {state for _, state, _ in jobs_of(field, run)} == {"running"}, "all at work")
        run.cancel("enough")
        with pytest.raises(SweepCancelled, match="enough"):
            run.wait("10s")
    assert {state for _, state, _ in jobs_of(field, run)} == {"cancelled"}
    assert {shard.status for shard in run.snapshot().shards} == {"cancelled"}
    run.resume()
    run.tune(rate="none")
    with field.working():
        assert run.wait("30s")["rows"] == ROWS
    assert all_counted(field)


def test_a_shard_does_not_wait_for_the_row_that_all_report_to(field: Field) -> None:
    """N-119: its batches commit while another transaction holds the row, and the next ones report for them."""
    table(field)
    began, go = threading.Event(), threading.Event()

    def hold(batch: rs.Batch) -> pl.DataFrame:
        if batch.rows[0]["k"] == 1:
            began.set()
            wait_for(go)
        return batch.frame.select("k", pl.col("n") + 1)

    run = rs.backfill("hold", hold, rows=rs.Rows("things"), batch_rows=100, adapt=False, shards=2).launch()
    with field.working(concurrency=1):
        wait_for(began)
        with field.other() as other, other.transaction():
            other.execute(f'select from "{field.queue}".x_backfills for update')
            go.set()
            until(lambda: field.steps(run)["sweep:pages"].output["index"] >= 3, "batches of the shard")
            assert field.row(run).rows == 0
        assert run.wait("30s")["rows"] == ROWS
    assert all_counted(field)


def test_shards_share_the_rate_evenly(field: Field) -> None:
    """D-6: each of three goes at a third of it."""
    table(field)
    run = declare(rate="1800/s").launch()
    with field.working():
        run.wait("30s")
    assert field.row(run).active_seconds >= 0.9 * (ROWS - 3 * 100) / 1_800
    assert all_counted(field)


def test_the_last_shard_has_no_end(field: Field) -> None:
    """N-089, N-056: rows behind the former end are swept too, unless `until="start"`."""
    table(field)
    run = declare().launch()
    field.tick()
    field.sql("insert into things select generate_series(3001, 3500)")
    assert field.finish(run)["rows"] == 3_500
    field.sql("delete from things where k > 3000")
    reset_jobs()
    bounded = declare(rows=rs.Rows("things", until="start")).launch(force=True)
    field.tick()
    field.sql("insert into things select generate_series(3001, 3500)")
    assert field.finish(bounded)["rows"] == ROWS


@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 4), (2, 5)])
def test_another_number_declared_meanwhile_changes_nothing_for_a_run(field: Field, before: int, after: int) -> None:
    """N-087: a run goes by the ranges that its setup fixed; no row is skipped or repeated."""
    table(field)
    run = declare(shards=before).launch()
    with field.working(concurrency=1):
        until(lambda: field.row(run).batches >= 2, "a beginning")
    reset_jobs()
    sweep = declare(shards=after)
    with field.working():
        assert run.wait("30s")["rows"] == ROWS
    assert all_counted(field)
    assert len(jobs_of(field, run)) == before
    assert sweep.describe()["shards"] == after


def test_a_second_run_over_the_same_input_waits(field: Field) -> None:
    """N-073: also while the first job is parked, and its slot free."""
    table(field)
    sweep = declare()
    run = sweep.launch()
    worker = field.worker(concurrency=1)
    assert [execution.outcome for execution in worker.tick()] == ["suspended"]
    sweep.enqueue()
    field.queue_sql("update {x_jobs} set priority = 9 where run_id <> %s", [run.run_id])
    assert [execution.outcome for execution in worker.tick()] == ["suspended"]
    assert field.queue_sql("select count(*) from {x_jobs} where run_id <> %s", [run.run_id]) == [(1,)]
    assert field.finish(run)["rows"] == ROWS
    assert all_counted(field)


def test_keys_of_a_run_that_is_still_stopping_are_waited_for(field: Field) -> None:
    """N-088: its shards have not ended; the new run's setup rolls back and is made again."""
    table(field)
    sweep = declare()
    first = sweep.launch()
    field.tick()
    field.queue_sql("update {x_backfills} set status = 'failed', wanted = 'cancel'")
    field.queue_sql("update {x_jobs} set state = 'dead' where state = 'suspended'")
    second = sweep.launch()
    field.queue_sql("update {x_jobs} set priority = 9 where run_id = %s", [second.run_id])
    worker = field.worker(concurrency=1)
    assert [execution.outcome for execution in worker.tick()] == ["suspended"]
    assert field.steps(second) == {}
    field.queue_sql("update {x_jobs} set run_at = now()")
    assert field.finish(second)["rows"] == ROWS
    assert {state for _, state, _ in jobs_of(field, first)[1:]} == {"cancelled"}


def test_a_run_whose_shard_was_removed_does_not_finish(field: Field) -> None:
    """N-087, N-088: its range is in nobody's checkpoint."""
    table(field)
    run = declare(retry=Retry(attempts=1)).launch()
    field.tick()
    ((gone,),) = field.queue_sql("select id from {x_jobs} where idempotency_key like '%%s03'")
    steering = field.app.stores().steering
    assert steering is not None
    assert steering.remove(gone) is True
    assert "sweep:pages:s03" not in field.steps(run)
    with pytest.raises(SweepFailed, match="one was removed"):
        field.finish(run)


def test_a_range_that_went_missing_is_found_out_at_the_end(field: Field) -> None:
    """N-087: `finish` asks the database whether the stored ranges tile."""
    table(field)
    run = declare(retry=Retry(attempts=1)).launch()
    field.tick()
    field.queue_sql(
        "update {x_job_steps} set output = jsonb_set(output, '{{range,0,0}}', '\"1500\"') "
        "where name = 'sweep:pages:s02'"
    )
    with pytest.raises(SweepFailed, match="do not tile"):
        field.finish(run)


def test_the_hook_hears_of_the_run_once(field: Field) -> None:
    """S-162: its end is the run's, not each shard's."""
    table(field)
    heard: list[Any] = []
    run = declare(on_settled=heard.append).launch()
    with field.working():
        run.wait("30s")
        until(lambda: heard, "the hook")
    assert [(settled.outcome, settled.result["rows"]) for settled in heard] == [("completed", ROWS)]


def test_another_database_is_swept_in_shards_too(field: Field, server_dsn: str) -> None:
    """D-1: with `source` its ranges are found there, and every batch is done at least once."""
    table(field)
    run = declare(source=field.dsn).launch()
    with field.working():
        assert run.wait("30s")["rows"] == ROWS
    assert field.one("select min(n) from things") >= 1


@pytest.mark.parametrize("given", [0, 65, "many", 2.5, True])
def test_an_impossible_number_is_refused(given: Any) -> None:
    """D-1: 1 to 64, or "auto"."""
    with pytest.raises(InvalidOption, match="shards"):
        declare(shards=given)


def test_a_purge_refuses_shards_by_name() -> None:
    """D-1, D-8: its targets are no range of one table's keys."""
    purged: Any = rs.purge
    with pytest.raises(RowsweepError, match="shards"):
        purged("other", targets=list, shards=2)


def test_auto_goes_by_workers_and_rows(field: Field, monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    """D-1: a shard a worker that declares the sweep, and as many rows to each as make it worth while."""
    caplog.set_level("INFO", logger="rowsweep")
    table(field)
    sweep = declare(shards="auto")
    monkeypatch.setattr(amount, "ROWS_A_SHARD", 1_000)
    with field.working(), field.working(), field.working(queues=["other"]), field.working(names=["nothing"]):
        until(lambda: len(field.app.stores().workers.live()) == 4, "all announced")  # type: ignore[union-attr]
        run = sweep.launch()
        assert run.wait("30s")["shards"] == 2
    (opened,) = fields_of(caplog.records, "sweeps.shards.opened")
    assert opened["shards"] == 2
    assert opened["reason"] == "auto: 2 live workers serve it, and it has about 3,000 rows"
    monkeypatch.setattr(amount, "ROWS_A_SHARD", 10_000)
    with field.working(), field.working():
        assert "shards" not in sweep.launch(force=True).wait("30s")


def test_tuning_reaches_every_shard(field: Field) -> None:
    """N-122."""
    table(field)
    run = declare(rate="1/s").launch()
    with field.working():
        until(lambda: all(shard["batches"] for shard in field.row(run).shards or [{"batches": 0}]), "a batch of each")
        field.app.stores().ledger.steer(run.run_id, Tuning(rate="none"))  # type: ignore[union-attr]
        assert run.wait("30s")["rows"] == ROWS


def test_rows_that_fail_by_themselves_are_set_aside_by_every_shard(field: Field) -> None:
    """N-084, N-088: one list for the run."""
    table(field)

    def divide(batch: rs.Batch) -> pl.DataFrame:
        if any(row["k"] % 1_000 == 7 for row in batch.rows):
            error = ValueError("no")
            error.retry = "terminal"  # type: ignore[attr-defined]
            raise error
        return batch.frame.select("k", pl.col("n") + 1)

    sweep = rs.backfill(
        "aside", divide, rows=rs.Rows("things"), batch_rows=100, adapt=False, shards=3, on_error="set-aside"
    )
    run = sweep.launch()
    with field.working():
        totals = run.wait("60s")
    assert (totals["rows"], totals["rejected"]) == (ROWS - 3, 3)
    assert sorted(key for (key,) in run.rejected().select("key").rows()) == ["1007", "2007", "7"]
    assert field.sql("select n, count(*) from things group by n order by n") == [(0, 3), (1, ROWS - 3)]
    assert run.retry_rejected().run_id != run.run_id


def test_the_first_looks_again_for_all_once_the_others_have_ended(field: Field) -> None:
    """N-057, N-088: what a transaction left behind any shard is swept by one second look, of the whole run."""
    table(field)
    field.sql("delete from things where k in (5, 1500, 2500)")
    rows = rs.Rows("things", where="n = 0")
    sweep = rs.backfill("late", rows=rows, set={"n": "1"}, batch_rows=100, adapt=False, shards=3)
    with field.other() as writer, field.working():
        writer.execute("begin; insert into things values (5, 0), (1500, 0), (2500, 0)")
        run = sweep.launch()
        until(lambda: "open transaction" in (field.row(run).waiting_for or ""), "the wait")
        assert [state for _, state, _ in jobs_of(field, run)] == ["running", "done", "done"]
        writer.execute("commit")
        totals = run.wait("60s")
    assert (totals["rows"], totals["remaining"], totals["late"]["rows"]) == (ROWS, 0, 3)
    assert all_counted(field)
    assert sum(shard["rows"] for shard in field.row(run).shards) == ROWS - 3


@pytest.mark.parametrize("is_used_up", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_second_look_asks_every_shard_whether_it_used_its_condition_up(field: Field, is_used_up: bool) -> None:
    """N-057: one batch of one shard that left a row which matches still is enough to need a snapshot of the end."""
    table(field)
    field.sql("delete from things where k = 5")

    def mark(batch: rs.Batch) -> pl.DataFrame:
        stays = pl.col("k") == (0 if is_used_up else ROWS - 10)
        return batch.frame.select("k", n=pl.when(stays).then(0).otherwise(1))

    rows = rs.Rows("things", where="n = 0")
    sweep = rs.backfill("late", mark, rows=rows, batch_rows=100, adapt=False, shards=3)
    with field.other() as writer, field.working():
        writer.execute("begin; insert into things values (5, 0)")
        run = sweep.launch()
        until(lambda: "open transaction" in (field.row(run).waiting_for or ""), "the wait")
        writer.execute("commit")
        totals = run.wait("60s")
    assert totals["late"] == {"rows": 1, "writers": 0, "unsure": 0, "proved": is_used_up}
    assert totals["remaining"] == (0 if is_used_up else 1)


def test_pages_ahead_go_by_the_shard_s_own_range(field: Field) -> None:
    """N-087: an executor computes ahead within it, also where its end moves."""
    table(field)
    with ThreadPoolExecutor(2) as executor:
        sweep = rs.backfill(
            "ahead", plus_one, rows=rs.Rows("things"), batch_rows=100, adapt=False, shards=3, executor=executor, ahead=4
        )
        run = sweep.launch()
        with field.working():
            assert run.wait("60s")["rows"] == ROWS
    assert all_counted(field)


def plus_one(batch: rs.Batch) -> pl.DataFrame:
    """Add one to each row."""
    return batch.frame.select("k", pl.col("n") + 1)


def test_a_test_can_run_and_interrupt_shards_in_its_own_process(field: Field) -> None:
    """N-116: cut off behind any number of batches, the effects are those of one undisturbed pass."""
    table(field)
    run = declare().launch()
    with interrupt_after(7) as interruption:
        drain(field.app)
    assert interruption.happened
    assert 0 < field.row(run).rows < ROWS
    drain(field.app)
    assert field.row(run).status == "done"
    assert all_counted(field)
    assert run_inline(declare_again(), app=field.app)["rows"] == ROWS


def declare_again() -> Any:
    """Declare another sweep of the kind."""
    return rs.backfill("again", rows=rs.Rows("things"), set={"n": "n + 1"}, batch_rows=100, adapt=False, shards=3)
