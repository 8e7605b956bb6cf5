"""Settle: what each verdict leaves behind, under which fence, and what the ledger row does with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rowsweep.jobs.attempts.failure import Failure
from rowsweep.queue.records import Claim, claim_of
from rowsweep.queue.verdicts import (
    Bury,
    Defer,
    Done,
    Drop,
    GiveBack,
    Park,
    Refuse,
    Retry,
    Settlement,
    Shed,
    Verdict,
    settled_state,
)
from tests.queue.world import ERROR, World, fresh_id, is_near

VERDICTS: list[tuple[Verdict, str, bool, float | None, bool]] = [
    (Done(result={"sent": 2}), "done", True, None, False),
    (Retry(delay_seconds=40, error=ERROR), "ready", True, 40, True),
    (Defer(delay_seconds=50, error=ERROR), "ready", False, 50, True),
    (Park(delay_seconds=60), "suspended", False, 60, False),
    (Shed(delay_seconds=5, reason="full"), "ready", False, 5, False),
    (GiveBack(), "ready", False, 0, False),
    (Bury(error=ERROR), "dead", True, None, True),
    (Drop(error=ERROR), "failed", True, None, True),
    (Refuse(error=ERROR), "failed", True, None, True),
]
BY_VERDICT = pytest.mark.parametrize(
    ("verdict", "state", "counted", "delay", "writes_error"), VERDICTS, ids=[type(v[0]).__name__ for v in VERDICTS]
)
EACH_VERDICT = pytest.mark.parametrize("verdict", [v[0] for v in VERDICTS], ids=[type(v[0]).__name__ for v in VERDICTS])


@BY_VERDICT
def test_a_verdict_leaves_what_its_table_says(
    world: World, verdict: Verdict, state: str, counted: bool, delay: float | None, writes_error: bool
) -> None:
    """N-033, S-067, S-107, S-109, S-111, S-113…S-116: state, attempt, run-at and error; the claim is released."""
    before = world.running()
    assert world.settle(before, verdict) is True
    job = world.job(before.id)
    assert job.state == state == settled_state(verdict)
    assert (job.claimed_by, job.visible_at, job.claims) == (None, None, 1)
    assert job.attempt == (1 if counted else 0)
    expected = before.run_at if delay is None else world.hands.now() + timedelta(seconds=delay)
    assert is_near(job.run_at, expected)
    wrote = (ERROR.text, ERROR.code, ERROR.stop_reason) if writes_error else (None, None, None)
    assert (job.last_error, job.last_error_code, job.stop_reason) == wrote
    assert is_near(job.updated_at, world.hands.now())


@EACH_VERDICT
def test_only_an_error_or_a_success_changes_the_last_error(world: World, verdict: Verdict) -> None:
    """N-033, S-111, S-114: `Done` clears it, a verdict with an error sets it, the others leave it."""
    job = world.running()
    world.settle(job, Retry(delay_seconds=0, error=Failure(text="the first", code="X_ABORTED")))
    world.settle(world.take(), verdict)
    kept = world.job(job.id)
    if isinstance(verdict, Done):
        assert (kept.last_error, kept.last_error_code) == (None, None)
    elif isinstance(verdict, Retry | Defer | Bury | Drop | Refuse):
        assert (kept.last_error, kept.last_error_code) == (ERROR.text, ERROR.code)
    else:
        assert (kept.last_error, kept.last_error_code) == ("the first", "X_ABORTED")


@EACH_VERDICT
def test_an_attempt_given_back_never_goes_below_zero(world: World, verdict: Verdict) -> None:
    """S-069, S-111."""
    job = world.running()
    world.hands.edit(job.id, attempt=0)
    assert world.settle(job, verdict) is True
    assert world.job(job.id).attempt == 0


def test_a_result_is_kept(world: World) -> None:
    """N-013, S-070."""
    job = world.running()
    world.settle(job, Done(result={"rows": [1, 2.5, None, "é"]}))
    assert world.job(job.id).result == {"rows": [1, 2.5, None, "é"]}


def test_a_park_waits_for_its_instant(world: World) -> None:
    """N-033: `run_at` becomes `wake_at`, to the microsecond."""
    wake_at = world.hands.now().replace(microsecond=123456) + timedelta(hours=2)
    job = world.running()
    world.settle(job, Park(wake_at=wake_at))
    assert world.job(job.id).run_at == wake_at


def test_progress_rides_along(world: World) -> None:
    """S-408: the last value is stored by the settle; none leaves the row's own."""
    job = world.running()
    world.jobs.record_progress(claim_of(job), {"current": 1})
    world.settle(job, GiveBack())
    assert world.job(job.id).progress == {"current": 1}
    world.settle(world.take(), Done(), progress={"current": 2})
    assert world.job(job.id).progress == {"current": 2}


@EACH_VERDICT
@pytest.mark.parametrize(
    "changes", [{"worker_id": "w2"}, {"claim": 2}, {"claim": 0}], ids=["worker", "claim-ahead", "claim-behind"]
)
def test_another_claim_settles_nothing(world: World, verdict: Verdict, changes: dict[str, Any]) -> None:
    """S-102, S-104, S-108: worker id and claim number must both fit; a miss is answered, never raised."""
    job = world.running()
    claim = replace(claim_of(job), **changes)
    assert world.settle(claim, verdict) is False
    assert world.job(job.id) == job


@EACH_VERDICT
def test_a_claim_ends_once(world: World, verdict: Verdict) -> None:
    """S-107, S-108."""
    job = world.running()
    assert world.settle(job, verdict) is True
    settled = world.job(job.id)
    assert world.settle(job, Done(result="again")) is False
    assert world.job(job.id) == settled


def test_an_unknown_job_settles_nothing(world: World) -> None:
    """S-108."""
    assert world.settle(Claim(job_id=fresh_id(), worker_id="w1", claim=1), Done()) is False


def test_a_cancelled_job_settles_nothing(world: World) -> None:
    """S-118, S-119."""
    job = world.running()
    world.steering.cancel(job.id)
    assert world.settle(job, Done()) is False
    assert world.job(job.id).state == "cancelled"


def test_a_lapsed_claim_that_nobody_took_still_settles(world: World) -> None:
    """S-102: the fence is the claim, not the deadline; nobody else ran it."""
    job = world.running()
    world.hands.pass_time(3600)
    assert world.settle(job, Done()) is True


def test_a_group_is_answered_one_by_one(world: World) -> None:
    """N-034: each keeps its own fence, verdict, progress and answer; one that misses changes nothing for the others."""
    jobs = [world.running() for _ in VERDICTS]
    missing = Claim(job_id=jobs[0].id, worker_id="w9", claim=1)
    verdicts = [verdict for verdict, *_ in VERDICTS]
    group = [
        Settlement(claim=claim_of(job), verdict=verdict, progress={"at": at}, duration_ms=at)
        for at, (job, verdict) in enumerate(zip(jobs, verdicts, strict=True))
    ]
    group.insert(4, Settlement(claim=Claim(job_id=fresh_id(), worker_id="w1", claim=1), verdict=Done()))
    group.insert(0, Settlement(claim=Claim(job_id=fresh_id(), worker_id="w1", claim=1), verdict=Done()))
    answers = world.jobs.settle(list(reversed(group)))
    assert answers == [settlement.claim.job_id in {job.id for job in jobs} for settlement in reversed(group)]
    settled = [world.job(job.id) for job in jobs]
    assert [job.state for job in settled] == [state for _, state, *_ in VERDICTS]
    assert [job.progress for job in settled] == [{"at": at} for at in range(len(jobs))]
    assert world.settle(missing, Done()) is False
    assert world.jobs.settle([]) == []


@EACH_VERDICT
def test_a_settlement_sent_again_landed_the_first_time(world: World, verdict: Verdict) -> None:
    """N-036."""
    job = world.running()
    settlement = Settlement(claim=claim_of(job), verdict=verdict)
    assert world.jobs.settle([settlement], resent=True) == [True]
    settled = world.job(job.id)
    assert world.jobs.settle([settlement], resent=True) == [True]
    assert world.job(job.id) == settled


def test_a_settlement_sent_again_is_false_where_another_state_stands(world: World) -> None:
    """N-036: its own claim number, no holder, and the state it asks for."""
    job = world.running()
    world.steering.cancel(job.id)
    assert world.jobs.settle([Settlement(claim=claim_of(job), verdict=Done())], resent=True) == [False]


def test_a_settlement_sent_again_is_false_once_the_job_was_claimed_anew(world: World) -> None:
    """N-036."""
    job = world.running()
    settlement = Settlement(claim=claim_of(job), verdict=GiveBack())
    assert world.jobs.settle([settlement]) == [True]
    again = world.take()
    assert world.jobs.settle([settlement], resent=True) == [False]
    world.settle(again, GiveBack())
    assert world.jobs.settle([settlement], resent=True) == [False]


@pytest.mark.parametrize(
    ("verdict", "status", "error"),
    [
        (Retry(delay_seconds=1, error=ERROR), "running", ERROR.text),
        (Bury(error=ERROR), "failed", ERROR.text),
        (Drop(error=ERROR), "failed", ERROR.text),
        (Refuse(error=ERROR), "failed", ERROR.text),
        (GiveBack(), "running", None),
        (Shed(delay_seconds=1, reason="full"), "running", None),
        (Park(delay_seconds=60), "running", None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_ledger_row_moves_with_the_settle(world: World, verdict: Verdict, status: str, error: str | None) -> None:
    """D-36, D-3: for good is `failed`, a retry keeps `running` and shows its error, a hand-back changes nothing."""
    job = world.sweep()
    assert world.settle(job, verdict, sweep=True) is True
    row = world.row(job.run_id)
    assert (row.status, row.last_error) == (status, error)
    assert row.last_error_code == (ERROR.code if error else None)
    assert (row.finished_at is not None) is (status == "failed")


def test_a_settle_that_misses_moves_no_ledger_row(world: World) -> None:
    """D-36, N-034."""
    job = world.sweep()
    before = world.row(job.run_id)
    stale = Claim(job_id=job.id, worker_id="w1", claim=7)
    assert world.settle(stale, Bury(error=ERROR), sweep=True) is False
    assert world.row(job.run_id) == before


def test_a_park_for_a_pause_sets_paused(world: World) -> None:
    """D-36, N-080."""
    job = world.sweep()
    world.ledger.steer(job.run_id, "pause")
    assert world.settle(job, Park(delay_seconds=3600, pausing=True), sweep=True) is True
    row = world.row(job.run_id)
    assert (row.status, row.wanted, row.live, row.job_state) == ("paused", "pause", False, "suspended")
    assert world.claim("totals").jobs == []


def test_a_resume_in_between_makes_the_park_due_now(world: World) -> None:
    """N-080: the settling statement asks `wanted` once more."""
    job = world.sweep()
    world.ledger.steer(job.run_id, "pause")
    world.ledger.steer(job.run_id, "run")
    assert world.settle(job, Park(delay_seconds=3600, pausing=True), sweep=True) is True
    assert world.row(job.run_id).status == "running"
    assert world.take("totals").attempt == 1


def test_a_lapse_on_the_final_attempt_fails_the_ledger_row(world: World) -> None:
    """D-36: buried → `failed`."""
    job = world.sweep(max_attempts=1)
    world.hands.pass_time(31)
    world.claim("totals")
    row = world.row(job.run_id)
    assert (row.status, row.last_error) == ("failed", world.job(job.id).last_error)


def test_a_lapse_alone_changes_nothing_in_the_ledger(world: World) -> None:
    """D-36."""
    job = world.sweep()
    world.hands.pass_time(31)
    before = world.row(job.run_id)
    world.take("totals", worker="w2")
    assert world.row(job.run_id).status == before.status == "running"
