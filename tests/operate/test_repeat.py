"""Repeating a bulk verb until nothing is left."""

from __future__ import annotations

from rowsweep.operate.operator import Operator
from rowsweep.operate.repeat import PATIENCE, until_zero
from rowsweep.queue.selection import BulkResult
from rowsweep.queue.verdicts import Bury
from tests.queue.world import ERROR, World, new_job


def test_a_set_of_more_than_a_thousand_is_moved_in_calls(operate: Operator, world: World) -> None:
    """S-399: "until zero" terminates."""
    world.jobs.enqueue([new_job(delay_seconds=60) for _ in range(2_003)])
    results = list(until_zero(lambda limit: operate.promote_many(name="mail", limit=limit)))
    assert [(result.affected, result.remaining) for result in results] == [(1_000, 1_003), (1_000, 3), (3, 0)]
    assert list(until_zero(lambda limit: operate.promote_many(name="mail", limit=limit))) == []


def test_jobs_that_die_again_meanwhile_do_not_keep_it_going(operate: Operator, world: World) -> None:
    """S-399: each is requeued once, however quickly a fleet buries it again."""
    for _ in range(3):
        world.in_state("dead")
        world.hands.pass_time(1)

    def move(limit: int) -> BulkResult:
        result = operate.requeue_many(limit=min(limit, 1))
        for job in world.claim().jobs:
            world.settle(job, Bury(error=ERROR))
        return result

    assert [result.affected for result in until_zero(move)] == [1, 1, 1]
    assert [job.claims for job in operate.list(state="dead")] == [2, 2, 2]


def test_rows_that_others_have_locked_are_waited_for_and_then_left() -> None:
    """D-27: the last result says what remained."""
    pauses: list[float] = []
    first = [BulkResult(affected=3, remaining=2), BulkResult(affected=0, remaining=5)]
    results = list(
        until_zero(lambda _: first.pop() if first else BulkResult(affected=0, remaining=2), sleep=pauses.append)
    )
    assert [result.affected for result in results] == [3, *[0] * PATIENCE]
    assert results[-1].remaining == 2
    assert len(pauses) == PATIENCE


def test_what_others_moved_meanwhile_ends_it() -> None:
    """S-399."""
    answers = [BulkResult(affected=0, remaining=remaining) for remaining in (0, 5, 9)]
    assert len(list(until_zero(lambda _: answers.pop(), sleep=lambda _: None))) == 2
    assert answers == []
