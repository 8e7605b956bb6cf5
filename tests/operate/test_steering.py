"""What an operator moves: the verbs, their refusals and their codes, the same over both drivers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from rowsweep.errors import (
    CancelUnsupported,
    DuplicateJob,
    InvalidOption,
    JobNotFound,
    NotCancellable,
    NotImplementedByDriver,
    NotPromotable,
    NotRemovable,
    NotRequeueable,
)
from rowsweep.operate.operator import Operator
from rowsweep.operate.steering import cancel_job
from rowsweep.operate.views import JobView
from rowsweep.queue.records import FINISHED_STATES, LIVE_STATES
from rowsweep.queue.selection import BulkResult
from tests.operate.bare import Bare
from tests.queue.world import World, fresh_id


def test_a_live_job_is_cancelled_with_a_reason(operate: Operator, world: World) -> None:
    """S-395: the reason is kept without passwords, and cut."""
    job_id = world.enqueue()
    job = operate.cancel(str(job_id), reason="postgresql://ann:secret@host/db is down " + "x" * 2_000)
    assert isinstance(job, JobView)
    assert (job.id, job.state, job.stop_reason) == (str(job_id), "cancelled", "cancelled")
    assert job.last_error is not None
    assert "secret" not in job.last_error
    assert len(job.last_error) <= 1_000


@pytest.mark.parametrize("state", [*FINISHED_STATES, None])
def test_a_job_that_is_not_live_is_not_cancelled_and_never_in_silence(
    operate: Operator, world: World, state: str | None
) -> None:
    """S-395: finished, already cancelled, or unknown."""
    job_id = fresh_id() if state is None else world.in_state(state)
    with pytest.raises(NotCancellable, match=state or "no live job") as refused:
        operate.cancel(job_id)
    assert (refused.value.code, refused.value.fix) == ("X_JOB_NOT_CANCELLABLE", "rowsweep jobs ls --json")
    assert refused.value.meta == {"job_id": str(job_id), "state": state}


def test_single_verbs_answer_the_job_and_refuse_by_code(operate: Operator, world: World) -> None:
    """S-393, S-394, S-398."""
    dead, delayed, running = world.in_state("dead"), world.in_state("delayed"), world.running()
    assert operate.requeue(dead).state == "ready"
    assert operate.promote(str(delayed)).state == "ready"
    refusals: list[tuple[Callable[[], object], type[Exception]]] = [
        (lambda: operate.requeue(dead), NotRequeueable),
        (lambda: operate.requeue(fresh_id()), JobNotFound),
        (lambda: operate.promote(delayed), NotPromotable),
        (lambda: operate.promote(fresh_id()), NotPromotable),
        (lambda: operate.remove(running.id), NotRemovable),
        (lambda: operate.requeue("7"), InvalidOption),
    ]
    for refused, error in refusals:
        with pytest.raises(error):
            refused()
    held = world.in_state("cancelled", idempotency_key="k")
    world.enqueue(idempotency_key="k")
    with pytest.raises(DuplicateJob):
        operate.requeue(held)
    assert operate.remove(str(dead)) is True
    assert operate.remove(dead) is False


def test_sets_are_dead_letters_waiting_rows_or_what_is_named(operate: Operator, world: World) -> None:
    """S-396, S-397, S-398: nothing is removed that was not named."""
    for state in ("dead", "done", "delayed"):
        world.in_state(state)
    assert operate.requeue_many(limit=0) == BulkResult(affected=0, remaining=1)
    assert operate.requeue_many(state=None, limit=0) == BulkResult(affected=0, remaining=2)
    assert operate.requeue_many(name="other").affected == 0
    assert operate.promote_many(queue="default") == BulkResult(affected=1, remaining=0)
    with pytest.raises(InvalidOption, match="filter"):
        operate.remove_many()
    assert operate.remove_many(state="done") == BulkResult(affected=1, remaining=0)
    assert operate.remove_many(name="mail") == BulkResult(affected=2, remaining=0)


@pytest.mark.parametrize(
    ("verb", "states", "error"),
    [
        ("requeue_many", LIVE_STATES, NotRequeueable),
        ("remove_many", ["running"], NotRemovable),
        ("promote_many", [*FINISHED_STATES, "running", "suspended"], NotPromotable),
    ],
)
def test_a_set_that_a_verb_does_not_take_is_refused(
    operate: Operator, verb: str, states: list[str], error: type[Exception]
) -> None:
    """S-394, S-397, S-398."""
    for state in states:
        with pytest.raises(error, match=state):
            getattr(operate, verb)(state=state)
    with pytest.raises(InvalidOption, match="state"):
        getattr(operate, verb)(state="deed")


def test_a_pause_names_who_paused_and_is_taken_away_by_its_pair(operate: Operator, world: World) -> None:
    """D-19, S-402: idempotent both."""
    job_id = world.enqueue()
    first = operate.pause(queue="default", name="mail", reason="the shop is closed")
    assert (first.queue, first.name, first.paused_by, first.reason) == ("default", "mail", "ann", "the shop is closed")
    assert operate.pause(queue="default", name="mail", reason="other") == first
    assert operate.pauses() == [first]
    assert world.claim().jobs == []
    assert operate.resume(queue="default") is False
    assert operate.resume(queue="default", name="mail") is True
    assert operate.resume(queue="default", name="mail") is False
    assert world.take().id == job_id
    with pytest.raises(InvalidOption):
        operate.pause()


@pytest.mark.parametrize("text", ["ma\0il", "\ud800", 5, ["mail"]])
def test_what_names_nothing_is_refused_and_never_sent(operate: Operator, text: Any) -> None:
    """S-394, D-19: no error of an encoder or a server reaches whoever asks; the same over both drivers."""
    refused: list[Callable[[], Any]] = [
        lambda: operate.requeue_many(name=text),
        lambda: operate.promote_many(queue=text),
        lambda: operate.remove_many(tenant_id=text),
        lambda: operate.list(name=text),
        lambda: operate.counters(name=text),
        lambda: operate.pause(name=text),
        lambda: operate.resume(queue=text),
        lambda: operate.requeue(fresh_id(), from_step=text),
    ]
    for call in refused:
        with pytest.raises(InvalidOption, match="must be text"):
            call()


def test_a_pause_that_could_not_be_taken_away_is_refused(operate: Operator) -> None:
    """D-19, S-402: no job's queue is that long, and its workers could not be told of it."""
    with pytest.raises(InvalidOption, match="at most 200"):
        operate.pause(queue="q" * 10_000)
    reason: Any = 5
    with pytest.raises(InvalidOption, match="reason"):
        operate.pause(queue="default", reason=reason)
    assert operate.pauses() == []


def test_a_pause_of_nobody_in_particular_names_user_and_host(world: World) -> None:
    """D-19."""
    pause = Operator(world.driver).pause(name="mail")
    assert "@" in str(pause.paused_by)


@pytest.mark.parametrize(
    "move",
    [
        lambda operate, job_id: operate.requeue(job_id),
        lambda operate, job_id: operate.promote(job_id),
        lambda operate, job_id: operate.remove(job_id),
        lambda operate, _: operate.requeue_many(),
        lambda operate, _: operate.promote_many(),
        lambda operate, _: operate.remove_many(name="mail"),
        lambda operate, _: operate.pause(queue="q"),
        lambda operate, _: operate.resume(queue="q"),
        lambda operate, _: operate.counters(),
    ],
)
def test_a_driver_that_cannot_refuses_by_name(world: World, move: Callable[[Operator, UUID], Any]) -> None:
    """S-400, S-057."""
    with pytest.raises(NotImplementedByDriver, match=world.driver.name):
        move(Operator(Bare(world)), fresh_id())


def test_a_driver_without_cancel_is_not_cancellable(world: World) -> None:
    """S-395, S-430: the same code."""
    with pytest.raises(CancelUnsupported) as refused:
        cancel_job(Bare(world), fresh_id())
    assert refused.value.code == "X_JOB_NOT_CANCELLABLE"
