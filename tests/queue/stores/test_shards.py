"""What the jobs of one run share: figures in one row, moved without waiting; locks, stopping, and waking the first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from rowsweep.queue.records import Job, claim_of
from rowsweep.queue.stores.shards import ShardFigures, shard_number, shard_suffix
from rowsweep.queue.stores.steps import StepPut
from rowsweep.queue.verdicts import Bury, Done, Park
from tests.queue.world import ERROR, World, batch_close

STEP = "sweep:pages"


def shards_of(world: World, amount: int = 3) -> list[Job]:
    """Make a run of several jobs, each claimed, with its checkpoint and its figures."""
    first = world.sweep(concurrency_key="d")
    jobs = [first]
    for number in range(2, amount + 1):
        suffix = shard_suffix(number)
        jobs.append(world.running("totals", run_id=first.run_id, concurrency_key=f"d{suffix}"))
    for number in range(1, amount + 1):
        put = StepPut(
            run_id=first.run_id, name=STEP + shard_suffix(number), kind="checkpoint", status="done", output=number
        )
        world.steps.put(put, claim_of(first))
    figures = [ShardFigures(number=number, status="waiting") for number in range(1, amount + 1)]
    assert world.shards.put(claim_of(first), first.run_id, figures) is True
    return jobs


def moved(world: World, job: Job, *, rows: int, **changes: Any) -> Any:
    """Close a batch of a shard."""
    number = shard_number(job.concurrency_key)
    figures: dict[str, Any] = {
        "status": "running",
        "rows": rows,
        "written": rows - 1,
        "batches": 1,
        "active_seconds": 1.0,
    }
    given = {"expected": number, "value": {"n": number, "rows": rows}, "totals": None} | changes
    shard = ShardFigures(number=number, **figures)
    return world.shards.move(batch_close(job, step=STEP + shard_suffix(number), shard=shard, **given))


def status_of(world: World, run_id: UUID) -> list[str]:
    return [shard["status"] for shard in world.row(run_id).shards]


def test_the_names_of_shards_end_in_their_numbers() -> None:
    """N-087: the first has none, so that it is the run's one job where there are no others."""
    assert [shard_suffix(number) for number in (1, 2, 64)] == ["", ":s02", ":s64"]
    assert [shard_number(key) for key in (None, "d", "d:s02", "sweep:pages:s64")] == [1, 1, 2, 64]


def test_totals_are_the_sums_over_the_shards(world: World) -> None:
    """N-088, N-119: each reports absolute figures; reported twice they count once."""
    first, second, third = shards_of(world)
    assert moved(world, first, rows=10).expected is True
    assert moved(world, third, rows=5).expected is True
    again = moved(world, third, rows=8, expected={"n": 3, "rows": 5})
    assert (again.open, again.held, again.expected, again.wanted) == (True, True, True, "run")
    row = world.row(first.run_id)
    assert (row.rows, row.written, row.batches, row.cursor) == (18, 16, 2, None)
    assert [shard["rows"] for shard in row.shards] == [10, 0, 8]
    assert [shard["status"] for shard in row.shards] == ["running", "waiting", "running"]
    assert row.samples[-1][1] in (10, 15, 18)
    assert world.job(second.id).attempt == 1


def test_time_at_work_counts_once_for_shards_side_by_side(world: World) -> None:
    """D-6, N-076: two shards of a second each that began together were at work for one second, not two."""
    first, second = shards_of(world, 2)
    world.hands.pass_time(1.0)
    moved(world, first, rows=1)
    moved(world, second, rows=1)
    together = world.row(first.run_id).active_seconds
    assert 1.0 <= together < 1.9, "one second, and the moment between the two reports"
    world.hands.pass_time(3600)
    moved(world, first, rows=2, expected={"n": 1, "rows": 1})
    assert world.row(first.run_id).active_seconds == together


def test_a_shard_that_another_claim_or_checkpoint_replaced_writes_nothing(world: World) -> None:
    """N-060, N-062."""
    first, second = shards_of(world, 2)
    before = world.row(first.run_id)
    assert moved(world, second, rows=5, expected="elsewhere").expected is False
    lost = moved(world, second, rows=5, claim=replace(claim_of(second), claim=7))
    assert (lost.held, lost.expected) == (False, False)
    assert world.row(first.run_id) == before


def test_a_batch_of_a_shard_counts_its_attempts_anew(world: World) -> None:
    """N-017: progress since the last failure."""
    second = shards_of(world, 2)[1]
    world.hands.edit(second.id, attempt=5)
    moved(world, second, rows=5)
    assert world.job(second.id).attempt == 1


def test_shards_are_listed_by_their_checkpoints_with_their_jobs(world: World) -> None:
    """N-088: also one whose job is gone."""
    first, second, third = shards_of(world)
    world.settle(second, Done())
    assert world.steering.cancel(third.id) is not None
    listed = world.shards.jobs(first.run_id, step=STEP)
    assert [(shard.number, shard.job_id, shard.state) for shard in listed] == [
        (1, first.id, "running"), (2, second.id, "done"), (3, third.id, "cancelled"),
    ]  # fmt: skip
    assert [shard.checkpoint for shard in listed] == [1, 2, 3]


def test_removing_one_job_of_several_removes_its_own_steps_only(world: World) -> None:
    """N-087: the others' steps, and the setup that all go by, stay until the last is removed."""
    first, second, third = shards_of(world)
    world.settle(second, Done())
    world.settle(third, Done())
    assert world.steering.remove(second.id) is True
    assert [step.name for step in world.steps.list(first.run_id)] == [STEP, f"{STEP}:s03"]
    world.settle(first, Done())
    assert world.steering.remove(first.id) is True
    assert [step.name for step in world.steps.list(first.run_id)] == [STEP, f"{STEP}:s03"]
    assert world.steering.remove_many(_all_done()).affected == 1
    assert world.steps.list(first.run_id) == []


def _all_done() -> Any:
    from rowsweep.queue.selection import JobSet

    return JobSet(state="done")


def test_holding_asks_for_the_own_claim(world: World) -> None:
    """N-087: ranges change hands under the locks of both jobs' rows."""
    first, second = shards_of(world, 2)
    with world.driver.transaction() as opened:
        assert opened.stores.shards is not None
        assert opened.stores.shards.hold(claim_of(first), second.id) is True
        assert opened.stores.shards.hold(replace(claim_of(first), claim=9), second.id) is False
        assert opened.stores.shards.hold(claim_of(first), UUID(int=7)) is None


@pytest.mark.parametrize("which", [0, 1])
def test_one_that_fails_for_good_fails_the_run_and_stops_the_others(world: World, which: int) -> None:
    """N-088: its settle sets what is wanted; each other one cancels itself, and its reason names the shard."""
    jobs = shards_of(world)
    failing, others = jobs[which], [job for job in jobs if job is not jobs[which]]
    assert world.settle(failing, Bury(error=ERROR), sweep=True) is True
    row = world.row(failing.run_id)
    assert (row.status, row.wanted, row.last_error) == ("failed", "cancel", ERROR.text)
    assert status_of(world, failing.run_id)[which] == "failed"
    for job in others:
        assert world.shards.stop(claim_of(job), shard_number(job.concurrency_key)) is True
        stopped = world.job(job.id)
        assert (stopped.state, stopped.stop_reason) == ("cancelled", "cancelled")
        assert stopped.last_error == f"shard {which + 1} failed, so that the run stops"
    assert sorted(status_of(world, failing.run_id)) == ["cancelled", "cancelled", "failed"]
    assert world.row(failing.run_id).status == "failed"


def test_one_buried_by_a_claim_stops_the_others_too(world: World) -> None:
    """S-093, N-088: its worker went away on its last attempt."""
    first, second = shards_of(world, 2)
    world.hands.edit(second.id, attempt=3, visible_at=world.hands.now().replace(year=2020))
    (buried,) = world.claim("totals", lapsed=True).buried
    assert buried.id == second.id
    row = world.row(first.run_id)
    assert (row.status, row.wanted, status_of(world, first.run_id)) == ("failed", "cancel", ["waiting", "failed"])


def test_nobody_is_stopped_who_is_not_to(world: World) -> None:
    """N-088: a resume may have come in between; a claim that is gone stops nothing."""
    first, second = shards_of(world, 2)
    assert world.shards.stop(claim_of(second), 2) is None
    assert world.shards.stop(replace(claim_of(second), claim=9), 2) is False
    assert world.job(second.id).state == "running"
    assert status_of(world, first.run_id) == ["waiting", "waiting"]


def test_resuming_takes_every_unfinished_shard_up_again(world: World) -> None:
    """N-082, N-088: failed, stopped, and those that wait and had not heard; a done one stays done."""
    first, second, third = shards_of(world)
    world.settle(second, Done())
    world.settle(first, Park(delay_seconds=600))
    world.settle(third, Bury(error=ERROR), sweep=True)
    row = world.ledger.steer(first.run_id, "run")
    assert (row.status, row.wanted, row.last_error) == ("running", "run", None)
    assert status_of(world, first.run_id) == ["waiting", "waiting", "running"]
    states = {job.id: (job.state, job.attempt) for job in map(world.job, (first.id, second.id, third.id))}
    assert states == {first.id: ("ready", 0), second.id: ("done", 1), third.id: ("ready", 0)}
    assert [job.id for job in world.claim("totals").jobs] == [first.id, third.id]


def test_one_that_was_requeued_by_itself_takes_the_others_up(world: World) -> None:
    """N-082, D-36: `jobs requeue` of a dead shard; what is done stays done, and nothing is revived that is to stop."""
    first, second, third = shards_of(world)
    world.settle(first, Done())
    world.settle(third, Bury(error=ERROR), sweep=True)
    assert world.shards.revive(claim_of(second)) == 0
    assert world.shards.stop(claim_of(second), 2) is True
    world.steering.requeue(third.id)
    again = world.take("totals")
    assert again.id == third.id
    assert world.shards.revive(claim_of(third)) == 0
    assert world.shards.revive(claim_of(again)) == 1
    revived = world.job(second.id)
    assert (revived.state, revived.attempt, revived.last_error) == ("ready", 0, None)
    assert world.job(first.id).state == "done"


def test_the_first_job_is_due_once_another_has_ended(world: World) -> None:
    """N-088: parked, or on its way there."""
    first, second, third = shards_of(world)
    world.settle(first, Park(delay_seconds=60))
    assert world.claim("totals").jobs == []
    world.settle(second, Done())
    world.shards.ended(first.run_id)
    again = world.take("totals")
    assert again.id == first.id
    world.settle(third, Done())
    world.shards.ended(first.run_id)
    world.settle(again, Park(delay_seconds=60))
    assert world.take("totals").id == first.id


def test_those_that_wait_hear_of_a_failure_at_once(world: World) -> None:
    """N-088: a shard parked or backing off is due, to cancel itself; in a run that goes on only the first is."""
    first, second, third = shards_of(world)
    world.settle(second, Park(delay_seconds=3600))
    world.shards.ended(first.run_id)
    assert world.claim("totals").jobs == []
    world.settle(third, Bury(error=ERROR), sweep=True)
    world.shards.ended(first.run_id)
    assert world.take("totals").id == second.id


def test_a_retrying_shard_is_told_of_by_the_row(world: World) -> None:
    """N-074: "retrying at …" where no job of the run is held and one waits for its next try."""
    from rowsweep.queue.verdicts import Retry

    first, second = shards_of(world, 2)
    world.settle(first, Park(delay_seconds=60))
    world.settle(second, Retry(delay_seconds=30, error=ERROR), sweep=True)
    row = world.row(first.run_id)
    assert (row.live, row.job_state, row.attempt) == (False, "suspended", 1)
    assert row.retry_at == world.job(second.id).run_at
