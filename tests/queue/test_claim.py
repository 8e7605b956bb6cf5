"""Claim: which rows a pass takes, in which order, and what it buries."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from rowsweep.errors import InvalidOption, NoQueuesNamed
from rowsweep.queue.records import LEASE_LAPSED_FINAL_ATTEMPT, Claim, ClaimOptions, claim_of
from rowsweep.queue.verdicts import Bury, GiveBack, Park, Retry
from tests.queue.conftest import empty_world
from tests.queue.world import ERROR, World, fresh_id, ids_of, is_near, new_job


@pytest.fixture(params=["memory", "postgres", "postgres-few"])
def world(request: pytest.FixtureRequest) -> World:
    """The driver under test, holding no rows; over Postgres also by the claim of few rows."""
    kind, _, few = request.param.partition("-")
    return replace(empty_world(kind, request), few=bool(few))


def test_a_claimed_job_runs_under_its_worker(world: World) -> None:
    """S-091, S-100, N-032: state, lease, attempt, claim number and start are stamped, and answered."""
    job_id = world.enqueue(input={"a": 1})
    job = world.take(worker="w7", visibility_seconds=90.0)
    assert job == world.job(job_id)
    assert (job.state, job.claimed_by, job.attempt, job.claims) == ("running", "w7", 1, 1)
    assert is_near(job.visible_at, world.hands.now() + timedelta(seconds=90))
    assert is_near(job.started_at, world.hands.now())
    assert claim_of(job) == Claim(job_id=job_id, worker_id="w7", claim=1)


def test_a_running_job_is_not_claimed_again(world: World) -> None:
    """S-091."""
    world.running()
    assert world.claim().jobs == []


def test_the_order_is_priority_then_run_at_then_id(world: World) -> None:
    """D-16."""
    now = world.hands.now()
    low, high = fresh_id(), fresh_id()
    at = [now - timedelta(seconds=seconds) for seconds in (10, 20)]
    world.jobs.enqueue(
        [
            new_job(id=high, run_at=at[0]),
            new_job(id=low, run_at=at[0]),
            last := new_job(priority=-1, run_at=at[1]),
            older := new_job(run_at=at[1]),
            first := new_job(priority=5, run_at=now - timedelta(seconds=1)),
        ]
    )
    assert ids_of(world.claim().jobs) == [first.id, older.id, low, high, last.id]


def test_the_order_holds_across_names(world: World) -> None:
    """D-16, N-031: names are one order, not one after the other."""
    expected = [world.enqueue(name) for name in ("b", "a", "c", "a", "b")]
    urgent = world.enqueue("c", priority=1)
    assert ids_of(world.claim("a", "b", "c").jobs) == [urgent, *expected]


def test_the_order_decides_who_is_left_when_the_limit_is_short(world: World) -> None:
    """D-16: an urgent row goes before older ones, of its own name and of another."""
    older = [world.enqueue(name) for name in ("a", "b", "a", "b")]
    urgent = [world.enqueue(name, priority=priority) for name, priority in (("b", 5), ("a", 7))]
    assert ids_of(world.claim("a", "b", limit=1).jobs) == urgent[1:]
    assert ids_of(world.claim("a", "b", limit=3).jobs) == [urgent[0], *older[:2]]


def test_a_pass_takes_no_more_than_its_limit(world: World) -> None:
    """D-16."""
    job_ids = [world.enqueue() for _ in range(5)]
    assert ids_of(world.claim(limit=2).jobs) == job_ids[:2]
    assert ids_of(world.claim(limit=2).jobs) == job_ids[2:4]
    assert ids_of(world.claim(limit=2).jobs) == job_ids[4:]


def test_a_limit_of_zero_claims_and_buries_nothing(world: World) -> None:
    """D-35, S-066."""
    exhausted = world.running(max_attempts=1)
    world.hands.pass_time(60)
    world.enqueue()
    claimed = world.claim(limit=0)
    assert (claimed.jobs, claimed.buried) == ([], [])
    assert world.job(exhausted.id).state == "running"


@pytest.mark.parametrize("limit", [-1, 1.5, True, float("nan"), 2**63])
def test_a_limit_that_is_no_count_is_refused(world: World, limit: int) -> None:
    """S-066, S-355, D-35."""
    with pytest.raises(InvalidOption, match="limit"):
        world.claim(limit=limit)


@pytest.mark.parametrize("queues", [[], ["default", "slow"]])
def test_a_claim_names_exactly_one_queue(world: World, queues: list[str]) -> None:
    """S-064, S-065: refused out of the call itself, with the driver's name."""
    options = ClaimOptions(queues=queues, names=["mail"], worker_id="w1", limit=1)
    with pytest.raises(NoQueuesNamed) as refusal:
        world.jobs.claim(options)
    assert refusal.value.meta["driver"] == world.driver.name


def test_another_queue_is_left_alone(world: World) -> None:
    """S-065."""
    slow = world.enqueue(queue="slow")
    assert world.claim().jobs == []
    assert ids_of(world.claim(queue="slow").jobs) == [slow]


def test_names_nobody_here_declares_stay_ready_and_hold_up_nothing(world: World) -> None:
    """N-030."""
    other = world.enqueue("unknown", priority=9)
    mine = world.enqueue("mail")
    assert ids_of(world.claim(limit=1).jobs) == [mine]
    assert world.job(other).state == "ready"
    assert ids_of(world.claim("unknown").jobs) == [other]


def test_a_claim_without_names_takes_nothing(world: World) -> None:
    """N-030."""
    world.enqueue()
    options = ClaimOptions(queues=["default"], names=[], worker_id="w1", limit=5)
    assert world.jobs.claim(options).jobs == []


def test_a_job_waits_for_its_time(world: World) -> None:
    """S-101, D-17: nothing promotes; the claim takes it once `run_at` has passed."""
    job_id = world.enqueue(delay_seconds=100)
    assert world.claim().jobs == []
    world.hands.pass_time(101)
    assert world.job(job_id).state == "delayed"
    assert ids_of(world.claim().jobs) == [job_id]


def test_delayed_suspended_and_backing_off_rows_are_one_order(world: World) -> None:
    """D-17."""
    backing_off, parked = world.running(), world.running()
    world.settle(backing_off, Retry(delay_seconds=30, error=ERROR))
    world.settle(parked, Park(delay_seconds=10))
    delayed = world.enqueue(delay_seconds=20)
    world.hands.pass_time(60)
    ready = world.enqueue()
    assert ids_of(world.claim().jobs) == [parked.id, delayed, backing_off.id, ready]


def test_a_pass_answers_when_the_next_row_falls_due(world: World) -> None:
    """N-032: the nearest future instant of that queue and those names, whatever the row waits for."""
    assert world.claim().next_run_at is None
    world.enqueue(delay_seconds=10, queue="slow")
    world.enqueue("unknown", delay_seconds=20)
    parked = world.running()
    world.settle(parked, Park(delay_seconds=300))
    assert world.claim().next_run_at == world.job(parked.id).run_at
    sooner = world.job(world.enqueue(delay_seconds=200))
    world.enqueue()
    assert world.claim().next_run_at == sooner.run_at


def test_a_lapsed_row_is_taken_over(world: World) -> None:
    """S-092, S-102: another worker gets it under a new claim number and the old claim fits nothing."""
    before = world.running()
    assert world.claim(worker="w2").jobs == []
    world.hands.pass_time(31)
    after = world.take(worker="w2")
    assert (after.id, after.attempt, after.claims, after.claimed_by) == (before.id, 2, 2, "w2")
    assert is_near(after.visible_at, world.hands.now() + timedelta(seconds=30))
    assert world.settle(before, GiveBack()) is False


def test_a_worker_that_takes_its_own_lapsed_job_has_another_claim(world: World) -> None:
    """S-102: the worker id alone does not tell the two runs apart."""
    before = world.running()
    world.hands.pass_time(31)
    after = world.take()
    assert claim_of(after) != claim_of(before)
    assert world.settle(before, GiveBack()) is False
    assert world.settle(after, GiveBack()) is True


def test_lapsed_rows_are_looked_for_only_when_asked(world: World) -> None:
    """N-031: once a second and queue, which the worker says."""
    job = world.running()
    world.hands.pass_time(31)
    assert world.claim(lapsed=False).jobs == []
    assert ids_of(world.claim().jobs) == [job.id]


def test_lapsed_rows_go_first(world: World) -> None:
    """N-031."""
    lapsed = world.running(priority=-5)
    world.hands.pass_time(31)
    waiting = world.enqueue(priority=5)
    assert ids_of(world.claim(limit=1).jobs) == [lapsed.id]
    assert ids_of(world.claim(limit=1).jobs) == [waiting]


def test_a_lapsed_row_nobody_here_declares_is_neither_taken_nor_buried(world: World) -> None:
    """N-030."""
    job = world.running("other", max_attempts=1)
    world.hands.pass_time(31)
    claimed = world.claim("mail")
    assert (claimed.jobs, claimed.buried) == ([], [])
    assert world.job(job.id).state == "running"


def test_a_lease_that_lapses_on_the_final_attempt_is_buried(world: World) -> None:
    """S-093, S-138, S-068: dead, with the constant text and no code, never handed out."""
    job = world.running(max_attempts=1)
    world.hands.pass_time(31)
    claimed = world.claim()
    assert claimed.jobs == []
    (buried,) = claimed.buried
    assert buried == world.job(job.id)
    assert (buried.state, buried.attempt, buried.claimed_by, buried.visible_at) == ("dead", 1, None, None)
    assert (buried.last_error, buried.last_error_code) == (LEASE_LAPSED_FINAL_ATTEMPT, None)
    assert buried.stop_reason == "lapsed"
    assert is_near(buried.updated_at, world.hands.now())


def test_a_buried_row_is_reported_once(world: World) -> None:
    """S-097."""
    world.running(max_attempts=1)
    world.hands.pass_time(31)
    assert [len(world.claim().buried) for _ in range(2)] == [1, 0]


def test_a_job_declared_without_a_dead_letter_is_buried_failed(world: World) -> None:
    """S-096: the claim names those jobs, for the row has no policy."""
    dropped, dead = world.running("drop", max_attempts=1), world.running("mail", max_attempts=1)
    world.hands.pass_time(31)
    buried = {job.id: job.state for job in world.claim("mail", "drop", drop_exhausted=["drop"]).buried}
    assert buried == {dropped.id: "failed", dead.id: "dead"}


def test_a_body_that_kills_its_process_is_dead_after_its_attempts(world: World) -> None:
    """S-094."""
    job_id = world.enqueue(max_attempts=3)
    for attempt in (1, 2, 3):
        assert world.take(worker=f"w{attempt}").attempt == attempt
        world.hands.pass_time(31)
    assert ids_of(world.claim().buried) == [job_id]
    assert (world.job(job_id).state, world.job(job_id).claims) == ("dead", 3)


def test_claim_numbers_are_never_reset(world: World) -> None:
    """S-078: not by a retry, a hand-back, nor a requeue."""
    job = world.running()
    world.settle(job, Retry(delay_seconds=0, error=ERROR))
    job = world.take()
    world.settle(job, GiveBack())
    job = world.take()
    world.settle(job, Bury(error=ERROR))
    world.steering.requeue(job.id)
    job = world.take()
    assert (job.claims, job.attempt) == (4, 1)


def test_two_claimers_at_once_never_share_a_job(world: World) -> None:
    """S-091: SKIP LOCKED, or one lock; each job is handed out exactly once."""
    expected = {world.enqueue() for _ in range(120)}
    taken: list[list[UUID]] = [[] for _ in range(4)]
    start = threading.Barrier(len(taken))
    failures: list[BaseException] = []

    def claim_until_empty(at: int) -> None:
        try:
            start.wait(timeout=30)
            misses = 0
            while misses < 2:
                jobs = world.claim(worker=f"w{at}", limit=7).jobs
                assert len(jobs) <= 7
                taken[at].extend(ids_of(jobs))
                misses = 0 if jobs else misses + 1
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=claim_until_empty, args=(at,), daemon=True) for at in range(len(taken))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    every = [job_id for ids in taken for job_id in ids]
    assert len(every) == len(set(every))
    assert set(every) == expected


def test_rows_of_a_name_whose_cap_is_full_are_left_out(world: World) -> None:
    """N-021: a plain cap by its name; what lies behind is taken, and nothing of it shortens the next wait."""
    world.enqueue("capped")
    world.enqueue("capped", delay_seconds=5)
    free = world.enqueue("mail")
    passed = world.claim("capped", "mail", busy=[("capped", None)])
    assert ids_of(passed.jobs) == [free]
    assert passed.next_run_at is None
    assert len(world.claim("capped", "mail").jobs) == 1


def test_rows_of_a_key_whose_cap_is_full_are_left_out(world: World) -> None:
    """N-021: a keyed one by name and key; the same key of another name is another cap."""
    for _ in range(3):
        world.enqueue("mail", concurrency_key="a")
    other = world.enqueue("mail", concurrency_key="b")
    keyless = world.enqueue("mail")
    another = world.enqueue("post", concurrency_key="a")
    passed = world.claim("mail", "post", busy=[("mail", "a")])
    assert sorted(ids_of(passed.jobs)) == sorted([other, keyless, another])
    assert len(world.claim("mail", "post").jobs) == 3


def test_a_pass_takes_no_more_of_a_name_than_there_is_room_for(world: World) -> None:
    """S-348, N-021: the rest is left where it stands, for whoever has room."""
    ids = [world.enqueue("capped") for _ in range(5)]
    free = [world.enqueue("mail") for _ in range(3)]
    passed = world.claim("capped", "mail", rooms={"capped": 2})
    assert ids_of(passed.jobs) == [*ids[:2], *free]
    assert ids_of(world.claim("capped", rooms={"capped": 2}, worker="w2").jobs) == ids[2:4]


def test_a_pass_takes_no_more_of_a_key_than_there_is_room_for(world: World) -> None:
    """S-348: one tenant's backlog does not fill a pass, and rows without a key are bounded by nothing."""
    ids = [world.enqueue("mail", concurrency_key=key) for key in ("a", "a", "b", "a", "b", "c")]
    free = [world.enqueue("mail") for _ in range(2)]
    passed = world.claim("mail", key_rooms={"mail": 1})
    assert ids_of(passed.jobs) == [ids[0], ids[2], ids[5], *free]
    assert world.job(ids[1]).state == "ready"


def test_a_lapsed_row_under_a_full_cap_is_buried_but_not_taken_again(world: World) -> None:
    """N-021, S-093: what can never run again need not wait for room."""
    spent = world.running("capped", max_attempts=1)
    keyed = world.running("mail", concurrency_key="a")
    plain = world.running("capped")
    world.hands.pass_time(31)
    passed = world.claim("capped", "mail", busy=[("capped", None), ("mail", "a")])
    assert (ids_of(passed.jobs), ids_of(passed.buried)) == ([], [spent.id])
    assert sorted(ids_of(world.claim("capped", "mail").jobs)) == sorted([keyed.id, plain.id])


def test_a_claim_whose_answer_is_lost_costs_an_attempt_and_a_window(world: World) -> None:
    """N-126: the server committed and nobody heard of it; the job is delivered again once its window has passed."""
    job_id = world.enqueue(max_attempts=2)
    world.claim(visibility_seconds=30.0)
    world.hands.pass_time(29)
    assert world.claim().jobs == []
    world.hands.pass_time(2)
    again = world.take()
    assert (again.id, again.attempt, again.claims) == (job_id, 2, 2)


def test_a_lost_answer_buries_a_job_of_one_attempt_unrun(world: World) -> None:
    """N-126: as the documentation's guarantees say."""
    job_id = world.enqueue(max_attempts=1)
    world.claim(visibility_seconds=30.0)
    world.hands.pass_time(31)
    passed = world.claim()
    assert (passed.jobs, ids_of(passed.buried)) == ([], [job_id])
    assert world.job(job_id).state == "dead"
