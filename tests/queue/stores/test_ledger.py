"""The ledger: opening a row, closing a batch under the fence, finishing, and reading."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rowsweep.errors import InvalidOption
from rowsweep.queue.memory import jsonb
from rowsweep.queue.records import claim_of
from rowsweep.queue.stores.ledger import Tuning
from rowsweep.queue.verdicts import Bury, Done, Park, Retry
from tests.queue.world import ERROR, World, batch_close, fresh_id, is_near, new_backfill, totals


def checkpoint(world: World, run_id: Any) -> Any:
    step = world.steps.get(run_id, "sweep:pages")
    return None if step is None else step.output


def test_a_row_opens_running_with_nothing_done(world: World) -> None:
    """S-198, D-2, D-3."""
    job = world.running("totals")
    asked = new_backfill(
        job.run_id, kind="export", app_version="1.2", input={"year": 2024}, options={"rate": "5/s"}, launched_by="ann"
    )
    row = world.ledger.start(asked)
    assert row == world.row(job.run_id)
    kept = {name: getattr(row, name) for name in asked.__slots__}
    assert kept == {name: getattr(asked, name) for name in asked.__slots__}
    assert (row.status, row.wanted, row.waiting_for) == ("running", "run", None)
    assert (row.rows, row.written, row.batches, row.cursor, row.active_seconds) == (0, 0, 0, None, 0.0)
    assert (row.samples, row.rejected_rows, row.shards) == ([], 0, None)
    assert (row.estimated_rows, row.estimate_source, row.finished_at) == (None, None, None)
    assert is_near(row.started_at, world.hands.now())
    assert (row.live, row.job_id, row.job_state, row.attempt, row.retry_at) == (True, job.id, "running", 1, None)


def test_a_row_that_is_there_is_taken_up(world: World) -> None:
    """N-070, N-071: new checksum and version, everything else as launch and earlier attempts left it."""
    job = world.sweep()
    world.ledger.progress(batch_close(job, totals=totals(7)))
    world.ledger.steer(job.run_id, "pause")
    before = world.row(job.run_id)
    world.hands.pass_time(5)
    row = world.ledger.start(new_backfill(job.run_id, checksum="c2", app_version="2.0", launched_by="bob"))
    assert (row.checksum, row.app_version) == ("c2", "2.0")
    same = ("rows", "batches", "cursor", "status", "wanted", "launched_by", "input")
    assert {name: getattr(row, name) for name in same} == {name: getattr(before, name) for name in same}


def test_a_batch_closes_with_checkpoint_and_ledger_together(world: World) -> None:
    """S-182, S-188, S-192, N-060: the fence landed, so both moved."""
    job = world.sweep()
    figures = totals(5, written=4, batches=1, cursor=["5", "é"], active_seconds=2.25, samples=[[2.25, 5]])
    closed = world.ledger.progress(batch_close(job, value={"index": 0}, totals=figures))
    assert (closed.open, closed.held, closed.expected, closed.wanted) == (True, True, True, "run")
    assert checkpoint(world, job.run_id) == {"index": 0}
    row = world.row(job.run_id)
    assert (row.rows, row.written, row.batches, row.cursor) == (5, 4, 1, ["5", "é"])
    assert (row.active_seconds, row.samples) == (2.25, [[2.25, 5]])


def test_a_batch_goes_on_from_the_checkpoint_it_started_from(world: World) -> None:
    """N-045, N-062: one moving step; the value it replaces is the one expected."""
    job = world.sweep()
    value: Any = None
    for index in range(3):
        following = {"index": index, "cursor": [str(index)], "rate": 1.0}
        closed = world.ledger.progress(batch_close(job, expected=value, value=following, totals=totals(index + 1)))
        assert (closed.held, closed.expected) == (True, True)
        value = following
    assert checkpoint(world, job.run_id) == value
    assert len(world.steps.list(job.run_id)) == 1
    assert world.row(job.run_id).rows == 3


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (None, {"index": 0}),
        ({"index": 0}, None),
        ({"index": 1}, {"index": 0}),
        ({"index": 1}, {"index": True}),
        ({"cursor": ["1"]}, {"cursor": [1]}),
    ],
)
def test_a_batch_that_started_elsewhere_does_not_close(world: World, stored: Any, expected: Any) -> None:
    """N-062: the same claim cannot commit one batch twice, and nothing is written."""
    job = world.sweep()
    if stored is not None:
        world.ledger.progress(batch_close(job, value=stored))
    before = world.row(job.run_id)
    closed = world.ledger.progress(batch_close(job, expected=expected, value={"index": 9}, totals=totals(99)))
    assert (closed.open, closed.held, closed.expected) == (True, True, False)
    assert checkpoint(world, job.run_id) == stored
    assert world.row(job.run_id) == before


def test_numbers_are_compared_by_value(world: World) -> None:
    """N-062: a checkpoint that was read and handed back is the same one, whatever `jsonb` made of its numbers."""
    job = world.sweep()
    world.ledger.progress(batch_close(job, value={"rows": 1e16, "plan": [1, 2.50]}))
    expected = {"plan": [1.0, 2.5], "rows": 10**16}
    assert world.ledger.progress(batch_close(job, expected=expected, value="next")).expected is True


@pytest.mark.parametrize("stale", [{"worker_id": "w2"}, {"claim": 2}])
def test_a_batch_of_a_lost_claim_does_not_close(world: World, stale: dict[str, Any]) -> None:
    """N-060, S-159: a worker that lost its lease writes neither checkpoint nor ledger."""
    job = world.sweep()
    before = world.row(job.run_id)
    closed = world.ledger.progress(batch_close(job, claim=replace(claim_of(job), **stale)))
    assert (closed.open, closed.held) == (True, False)
    assert checkpoint(world, job.run_id) is None
    assert world.row(job.run_id) == before


def test_a_batch_of_a_claim_taken_over_does_not_close(world: World) -> None:
    """S-102, N-060: by the same worker."""
    job = world.sweep()
    world.hands.pass_time(31)
    again = world.take("totals")
    assert world.ledger.progress(batch_close(job)).held is False
    assert world.ledger.progress(batch_close(again)).held is True


def test_a_close_that_is_rolled_back_left_nothing(world: World) -> None:
    """N-060: it is the last statement of the batch's transaction."""
    job = world.sweep()
    before = world.row(job.run_id)
    with pytest.raises(ZeroDivisionError), world.driver.transaction() as tx:  # noqa: PT012 - a transaction that the raise ends
        assert tx.stores.ledger is not None
        assert tx.stores.ledger.progress(batch_close(job)).held is True
        raise ZeroDivisionError
    assert checkpoint(world, job.run_id) is None
    assert world.row(job.run_id) == before


def test_a_close_without_totals_leaves_the_figures(world: World) -> None:
    """S-191: a batch without rows stores its cursor and writes no ledger progress."""
    job = world.sweep()
    before = world.row(job.run_id)
    closed = world.ledger.progress(batch_close(job, totals=None, value={"cursor": None}))
    assert (closed.held, closed.expected, closed.wanted) == (True, True, "run")
    assert checkpoint(world, job.run_id) == {"cursor": None}
    after = world.row(job.run_id)
    assert (after.rows, after.batches, after.cursor) == (before.rows, before.batches, before.cursor)


def test_samples_that_are_not_given_stay(world: World) -> None:
    """N-077."""
    job = world.sweep()
    world.ledger.progress(batch_close(job, totals=totals(1, samples=[[1.0, 1]])))
    world.ledger.progress(batch_close(job, expected="1", value="2", totals=totals(2)))
    assert (world.row(job.run_id).rows, world.row(job.run_id).samples) == (2, [[1.0, 1]])


def test_a_close_says_what_is_wanted_and_how_it_is_tuned(world: World) -> None:
    """N-079, N-122: no statement of its own."""
    job = world.running("totals")
    world.ledger.start(new_backfill(job.run_id, options={"batch_rows": 50}))
    world.ledger.steer(job.run_id, "pause")
    closed = world.ledger.progress(batch_close(job))
    assert (closed.held, closed.wanted, closed.options) == (True, "pause", {"batch_rows": 50})


def test_a_close_without_a_ledger_row_keeps_the_checkpoint(world: World) -> None:
    """S-201: the pass works, and nothing is wanted of it."""
    job = world.running("totals")
    closed = world.ledger.progress(batch_close(job, value={"index": 0}))
    assert (closed.held, closed.expected, closed.wanted, closed.options) == (True, True, None, None)
    assert checkpoint(world, job.run_id) == {"index": 0}
    assert world.ledger.get(job.run_id) is None


def test_a_sweep_that_advances_starts_counting_attempts_again(world: World) -> None:
    """N-017: a crash loop that advances is never buried; without an advance the attempts count on."""
    job = world.sweep(max_attempts=3)
    for _ in range(2):
        world.settle(job, Retry(delay_seconds=0, error=ERROR), sweep=True)
        job = world.take("totals")
    assert job.attempt == 3
    world.ledger.progress(batch_close(job, totals=None))
    assert world.job(job.id).attempt == 3
    world.ledger.progress(batch_close(job, expected="1", value="2"))
    assert world.job(job.id).attempt == 1
    world.settle(job, Retry(delay_seconds=0, error=ERROR), sweep=True)
    assert world.take("totals").attempt == 2


def test_the_code_that_goes_on_is_the_row_s_checksum(world: World) -> None:
    """N-071."""
    job = world.sweep()
    world.ledger.progress(batch_close(job, checksum="c9"))
    assert world.row(job.run_id).checksum == "c9"
    world.ledger.progress(batch_close(job, expected="1", value="2"))
    assert world.row(job.run_id).checksum == "c9"


def test_an_estimate_and_a_wait_are_noted(world: World) -> None:
    """D-3, D-6: the estimate stays until another is given; a batch ends the wait."""
    job = world.sweep()
    assert world.ledger.describe(claim_of(job), job.run_id, estimate=(1000, "plan"), waiting_for=None) is True
    assert world.ledger.describe(claim_of(job), job.run_id, estimate=None, waiting_for="replica lag 12 s") is True
    row = world.row(job.run_id)
    assert (row.estimated_rows, row.estimate_source, row.waiting_for) == (1000, "plan", "replica lag 12 s")
    assert world.ledger.describe(claim_of(job), job.run_id, estimate=(None, None), waiting_for="rate") is True
    assert world.row(job.run_id).estimated_rows is None
    world.ledger.progress(batch_close(job))
    assert world.row(job.run_id).waiting_for is None


def test_what_a_governor_did_adds_up_beside_the_other_options(world: World) -> None:
    """D-6: several passes account for one run; signals are those of the last; nothing is kept for a lost claim."""
    job = world.sweep()
    world.ledger.steer(job.run_id, Tuning(rate="5/s", by="ann"))
    claim = claim_of(job)

    def tell(**governed: Any) -> Any:
        assert world.ledger.describe(claim, job.run_id, estimate=None, waiting_for="x", governed=governed) is True
        options = world.row(job.run_id).options
        assert options["rate"] == "5/s"
        return options.pop("governor")

    assert tell(held={}, slowed={}) == {"held": {}, "slowed": {}, "signals": {}}
    lag = {"replica_lag": {"is": "hold", "says": 'a "replica"'}}
    assert tell(held={"replica_lag": 1.5}, signals=lag) == {"held": {"replica_lag": 1.5}, "slowed": {}, "signals": lag}
    told = tell(held={"replica_lag": 0.25, "vacuum": 2}, slowed={"vacuum": 0.125})
    assert told == {"held": {"replica_lag": 1.75, "vacuum": 2}, "slowed": {"vacuum": 0.125}, "signals": lag}
    assert tell(signals={})["signals"] == {}
    world.ledger.steer(job.run_id, Tuning(health={"vacuum": "off"}, by="ann"))
    options = world.row(job.run_id).options
    assert (options["health"], options["governor"]["held"]["vacuum"]) == ({"vacuum": "off"}, 2)
    stale = replace(claim, worker_id="thief")
    more = {"held": {"x": 1}}
    assert world.ledger.describe(stale, job.run_id, estimate=None, waiting_for=None, governed=more) is False
    assert "x" not in world.row(job.run_id).options["governor"]["held"]


def test_a_row_taken_up_again_has_the_rate_that_is_declared_now_and_its_own_options(world: World) -> None:
    """N-122, D-6: a deploy in between may have changed it, or removed it; what was asked for stays.

    Where an export writes is noted once its pass knows it, and stays too.
    """
    job = world.running("totals")

    def options(**given: Any) -> Any:
        return world.ledger.start(new_backfill(job.run_id, options=given or None)).options

    assert options(declared_rate="5/s", batch_rows=7) == {"declared_rate": "5/s", "batch_rows": 7}
    world.ledger.steer(job.run_id, Tuning(rate="9/s", by="ann"))
    taken_up = options(declared_rate="6/s", batch_rows=8)
    assert (taken_up["declared_rate"], taken_up["batch_rows"], taken_up["rate"]) == ("6/s", 7, "9/s")
    assert "declared_rate" not in options()
    assert options(destination="/out")["destination"] == "/out"
    later = options(declared_rate="6/s")
    assert (later["declared_rate"], later["destination"], later["rate"]) == ("6/s", "/out", "9/s")
    bare = world.running("bare")
    assert world.ledger.start(new_backfill(bare.run_id)).options is None
    assert world.ledger.start(new_backfill(bare.run_id)).options is None
    assert world.ledger.start(new_backfill(bare.run_id, options={"declared_rate": "1/s"})).options == {
        "declared_rate": "1/s"
    }


def test_a_row_says_how_long_ago_it_was_written(world: World) -> None:
    """N-074: by the database's clock, since a reader's own may be off."""
    job = world.sweep()
    world.ledger.progress(batch_close(job))
    assert world.row(job.run_id).quiet_seconds < 5
    world.hands.pass_time(60)
    (listed,) = world.ledger.list(run_ids=[job.run_id])
    for row in (world.row(job.run_id), listed):
        assert 60 <= row.quiet_seconds < 70


def test_finish_writes_the_exact_totals(world: World) -> None:
    """S-190, S-199: `done` is what "applied" reads."""
    job = world.sweep()
    world.ledger.describe(claim_of(job), job.run_id, estimate=None, waiting_for="rate")
    assert world.ledger.finish(claim_of(job), job.run_id, totals(42, batches=6)) is True
    row = world.row(job.run_id)
    assert (row.status, row.rows, row.batches, row.waiting_for) == ("done", 42, 6, None)
    assert is_near(row.finished_at, world.hands.now())


def test_finish_notes_what_is_to_be_said_of_late_rows(world: World) -> None:
    """N-057: beside what the run was asked for; nothing where there is nothing to say."""
    job = world.sweep()
    world.ledger.describe(claim_of(job), job.run_id, estimate=None, waiting_for=None, governed={"held": {"x": 1}})
    assert world.ledger.finish(claim_of(job), job.run_id, totals(42), late={"writers": 1, "unsure": None}) is True
    options = world.row(job.run_id).options
    assert (options["late"], options["governor"]["held"]) == ({"writers": 1, "unsure": None}, {"x": 1})


def test_a_finished_run_has_no_error_of_an_attempt_that_was_made_good(world: World) -> None:
    """D-36, N-033: shown while it is tried again; gone with the end that the next attempt reached, as on the job."""
    job = world.sweep()
    world.settle(job, Retry(delay_seconds=0, error=ERROR), sweep=True)
    assert world.row(job.run_id).last_error_code == ERROR.code
    again = world.take("totals")
    assert world.ledger.finish(claim_of(again), job.run_id, totals(42)) is True
    row = world.row(job.run_id)
    assert (row.status, row.last_error, row.last_error_code) == ("done", None, None)


def test_finish_again_changes_nothing(world: World) -> None:
    """S-190: a pass that lost the answer asks again."""
    job = world.sweep()
    world.ledger.finish(claim_of(job), job.run_id, totals(42))
    before = world.row(job.run_id)
    world.hands.pass_time(5)
    moved = world.row(job.run_id)
    assert world.ledger.finish(claim_of(job), job.run_id, totals(7)) is True
    assert world.row(job.run_id) == moved
    assert before.rows == 42


@pytest.mark.parametrize("stale", [{"worker_id": "w2"}, {"claim": 2}])
def test_a_lost_claim_neither_describes_nor_finishes(world: World, stale: dict[str, Any]) -> None:
    """S-159."""
    job = world.sweep()
    before = world.row(job.run_id)
    claim = replace(claim_of(job), **stale)
    assert world.ledger.describe(claim, job.run_id, estimate=(1, "count"), waiting_for="x") is False
    assert world.ledger.finish(claim, job.run_id, totals(1)) is False
    assert world.row(job.run_id) == before


def test_without_a_row_nothing_is_described_or_finished(world: World) -> None:
    """S-201."""
    job = world.running("totals")
    assert world.ledger.describe(claim_of(job), job.run_id, estimate=None, waiting_for=None) is False
    assert world.ledger.finish(claim_of(job), job.run_id, totals(1)) is False


def test_a_settle_does_not_undo_done(world: World) -> None:
    """D-36: a row that has ended moves no more, but by a requeue."""
    job = world.sweep()
    world.ledger.finish(claim_of(job), job.run_id, totals(3))
    world.settle(job, Bury(error=ERROR), sweep=True)
    row = world.row(job.run_id)
    assert (row.status, row.last_error) == ("done", None)


def test_a_row_is_live_while_a_lease_holds(world: World) -> None:
    """N-074: derived from all its jobs, never stored."""
    job = world.sweep()
    sibling = world.running("totals", run_id=job.run_id)
    world.settle(job, Done())
    assert world.row(job.run_id).live is True
    world.hands.pass_time(31)
    assert world.row(job.run_id).live is False
    assert world.job(sibling.id).state == "running"


def test_a_row_shows_its_first_job(world: World) -> None:
    """N-074: state, attempt, and when a failed attempt is tried again; a park is no retry."""
    job = world.sweep()
    world.running("totals", run_id=job.run_id)
    world.settle(job, Retry(delay_seconds=90, error=ERROR), sweep=True)
    row = world.row(job.run_id)
    assert (row.job_id, row.job_state, row.attempt, row.max_attempts) == (job.id, "ready", 1, 3)
    assert row.retry_at == world.job(job.id).run_at
    world.hands.pass_time(91)
    assert world.row(job.run_id).retry_at is None
    world.settle(world.take("totals"), Park(delay_seconds=90), sweep=True)
    assert world.row(job.run_id).retry_at is None


def test_rows_are_listed_newest_first(world: World) -> None:
    """S-200: with all that a single read answers."""
    run_ids = []
    for _ in range(3):
        run_ids.append(world.sweep().run_id)
        world.hands.pass_time(1)
    assert world.ledger.list() == [world.row(run_id) for run_id in reversed(run_ids)]
    assert [row.run_id for row in world.ledger.list(limit=2)] == run_ids[:0:-1]
    assert world.ledger.list(limit=0) == []


def test_rows_are_filtered(world: World) -> None:
    """S-200: by name, status, kind, the beginning of the run's id, and ids; an id without a row answers none."""
    job = world.sweep("totals")
    export = fresh_id()
    world.ledger.start(new_backfill(export, "archive", kind="export"))
    world.settle(job, Bury(error=ERROR), sweep=True)
    asked: list[tuple[dict[str, Any], list[Any]]] = [
        ({"name": "totals"}, [job.run_id]),
        ({"status": "failed"}, [job.run_id]),
        ({"kind": "export"}, [export]),
        ({"run_id_prefix": str(export)}, [export]),
        ({"run_id_prefix": str(export)[:13]}, [export, job.run_id]),
        ({"run_id_prefix": "%"}, []),
        ({"run_ids": [job.run_id, fresh_id(), export]}, [export, job.run_id]),
        ({"run_ids": [job.run_id], "status": "running"}, []),
        ({"run_ids": []}, []),
        ({"name": "totals", "kind": "export"}, []),
    ]
    for filters, expected in asked:
        assert [row.run_id for row in world.ledger.list(**filters)] == expected


@pytest.mark.parametrize("limit", [-1, True, 1.5, 2**63])
def test_a_limit_that_is_no_count_is_refused(world: World, limit: int) -> None:
    """S-200, S-355."""
    with pytest.raises(InvalidOption, match="limit"):
        world.ledger.list(limit=limit)


@pytest.mark.parametrize("value", [{"z": 1, "a": [1e16, -0.0]}, [], "text", 0])
def test_json_columns_come_back_as_jsonb_keeps_them(world: World, value: Any) -> None:
    """S-070."""
    job = world.running("totals")
    expected = repr(jsonb.read(jsonb.bind(value)))
    row = world.ledger.start(new_backfill(job.run_id, input=value, options=value))
    world.ledger.progress(batch_close(job, value=value, totals=totals(1, cursor=value, samples=value)))
    row = world.row(job.run_id)
    kept = (row.input, row.options, row.cursor, row.samples, checkpoint(world, job.run_id))
    assert {repr(part) for part in kept} == {expected}
