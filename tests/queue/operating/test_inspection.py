"""Reading jobs: one, a filtered list, the dead letters, and what nobody declares."""

from __future__ import annotations

from typing import Any

import pytest

from rowsweep.errors import InvalidOption
from rowsweep.queue.records import JobFilter
from rowsweep.queue.verdicts import Bury
from tests.queue.world import ERROR, World, fresh_id, ids_of, new_job, worker_info


def test_an_unknown_id_is_none(world: World) -> None:
    """S-401."""
    assert world.inspection.get(fresh_id()) is None


def test_jobs_are_listed_newest_first(world: World) -> None:
    """S-388, S-069: by `(created_at, id)`."""
    job_ids = [world.enqueue() for _ in range(3)]
    world.hands.pass_time(5)
    job_ids.append(world.enqueue(priority=9))
    assert ids_of(world.inspection.list(JobFilter())) == job_ids[::-1]


def test_rows_of_one_instant_are_listed_by_id(world: World) -> None:
    """S-388."""
    with world.driver.transaction() as tx:
        answers = tx.stores.jobs.enqueue([new_job() for _ in range(3)])
    assert ids_of(world.inspection.list(JobFilter())) == [answer.id for answer in answers][::-1]


def test_a_filter_is_met_in_all_its_parts(world: World) -> None:
    """S-389."""
    run_id = fresh_id()
    wanted = world.enqueue("a", queue="q", tenant_id="acme", run_id=run_id)
    others: list[dict[str, Any]] = [
        {"name": "b", "queue": "q", "tenant_id": "acme"},
        {"name": "a", "queue": "p", "tenant_id": "acme"},
        {"name": "a", "queue": "q", "tenant_id": "umbrella"},
        {"name": "a", "queue": "q"},
        {"name": "a", "queue": "q", "tenant_id": "acme", "delay_seconds": 60},
    ]
    for other in others:
        world.enqueue(**other)
    where = JobFilter(queue="q", name="a", state="ready", tenant_id="acme")
    assert ids_of(world.inspection.list(where)) == [wanted]
    assert ids_of(world.inspection.list(JobFilter(run_id=run_id))) == [wanted]
    assert len(world.inspection.list(JobFilter(tenant_id="acme"))) == 4
    assert len(world.inspection.list(JobFilter(state="delayed"))) == 1
    assert world.inspection.list(JobFilter(name="c")) == []


def test_a_list_takes_no_more_than_its_limit(world: World) -> None:
    """S-355, S-390, D-26: a count with minimum zero, 100 by default."""
    job_ids = [answer.id for answer in world.jobs.enqueue([new_job() for _ in range(103)])]
    assert ids_of(world.inspection.list(JobFilter(), limit=2)) == job_ids[:-3:-1]
    assert world.inspection.list(JobFilter(), limit=0) == []
    assert len(world.inspection.list(JobFilter())) == 100


@pytest.mark.parametrize("limit", [-1, True, 1.5, 2**63])
def test_a_limit_that_is_no_count_is_refused(world: World, limit: int) -> None:
    """S-355, D-35."""
    with pytest.raises(InvalidOption, match="limit"):
        world.inspection.list(JobFilter(), limit=limit)
    with pytest.raises(InvalidOption, match="limit"):
        world.inspection.dead_letters(limit=limit)


def test_dead_letters_are_listed_by_when_they_died(world: World) -> None:
    """S-090, S-135, S-136, S-063: newest first, a list, and only the dead ones."""
    first, second = world.running(), world.running()
    for job in (second, first):
        world.settle(job, Bury(error=ERROR))
        world.hands.pass_time(1)
    for state in ("running", "done", "failed", "cancelled", "ready"):
        world.in_state(state)
    letters = world.inspection.dead_letters()
    assert isinstance(letters, list)
    assert ids_of(letters) == [first.id, second.id]
    assert ids_of(world.inspection.dead_letters(limit=1)) == [first.id]


def test_rows_that_nobody_declares_are_named(world: World) -> None:
    """N-030: waiting rows, by queue and name, that neither the asker nor a live worker declares."""
    for name, queue in (("gone", "b"), ("gone", "a"), ("gone", "a"), ("mine", "a"), ("theirs", "a")):
        world.enqueue(name, queue=queue)
    world.enqueue("gone", queue="a", delay_seconds=60)
    world.running("busy")
    world.workers.look(queues=["a"], names=["theirs"], announce=worker_info("w1", names=["theirs"]))
    assert world.inspection.undeclared(["mine"]) == [("a", "gone", 3), ("b", "gone", 1)]
    world.hands.pass_time(120)
    assert ("a", "theirs", 1) in world.inspection.undeclared(["mine"])
