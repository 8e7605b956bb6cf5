"""What an operator reads: frozen, plain and JSON-safe, the same over both drivers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from rowsweep.errors import InvalidOption, NotImplementedByDriver
from rowsweep.operate import views
from rowsweep.operate.operator import Operator
from rowsweep.queue.records import JOB_STATES, Job, JobFilter, QueueStats, claim_of
from tests.operate.bare import Bare
from tests.queue.world import World, fresh_id, step_put, worker_info


def test_a_job_is_seen_as_its_row_is(operate: Operator, world: World) -> None:
    """S-015, S-401: ids as text, and its cursor beside the columns."""
    job = world.running(input={"a": [1, None]}, tenant_id="acme")
    view = operate.get(job.id)
    assert view is not None
    assert operate.get(str(job.id)) == view
    assert (view.id, view.run_id, view.input, view.state) == (str(job.id), str(job.run_id), {"a": [1, None]}, "running")
    assert [field.name for field in fields(views.JobView)] == [*(field.name for field in fields(Job)), "cursor"]
    assert operate.get(fresh_id()) is None


def test_every_view_is_frozen_and_json_safe(operate: Operator, world: World) -> None:
    """S-015: `json.dumps` takes what `as_json()` answers, instants as ISO 8601 with their offset."""
    job = world.running(input={"price": 1.5})
    world.steps.put(step_put(job, output=float("1e300")), claim_of(job))
    world.enqueue("nobody")
    world.in_state("dead")
    world.workers.look(queues=["default"], names=["mail"], announce=worker_info("w1"))
    world.pauses.pause(queue="default", reason="r")
    seen: list[views.View] = [
        *operate.list(),
        *operate.steps(job.run_id),
        *operate.dead_letters(),
        *operate.stats(),
        *operate.workers(),
        *operate.pauses(),
        *operate.undeclared([]),
    ]
    assert {type(view).__name__ for view in seen} == {
        "JobView", "StepView", "QueueView", "WorkerView", "PauseView", "UndeclaredView",
    }  # fmt: skip
    for view in seen:
        document = json.loads(json.dumps(view.as_json(), allow_nan=False))
        assert set(document) == {field.name for field in fields(view)}
        instants = [value for name, value in document.items() if name.endswith("_at") and value is not None]
        assert all(datetime.fromisoformat(value).tzinfo for value in instants)
        with pytest.raises(FrozenInstanceError):
            setattr(view, fields(view)[0].name, "other")


def test_what_a_job_holds_beyond_json_is_shown_all_the_same() -> None:
    """S-015: a driver of another's making may answer such values."""
    columns: dict[str, Any] = dict.fromkeys(field.name for field in fields(Job))
    columns |= {"created_at": datetime(2026, 1, 1, tzinfo=UTC), "id": UUID(int=7), "result": float("nan")}
    view = views.job_view(Job(**columns))
    assert view.as_json()["result"] == "NaN"


def test_stats_workers_and_pauses_say_what_the_stores_do(operate: Operator, world: World) -> None:
    """S-422, D-21, S-402."""
    for state in sorted(JOB_STATES, key="ready".__eq__):
        world.in_state(state)
    (queue,) = operate.stats()
    (counted,) = world.jobs.stats()
    assert [field.name for field in fields(views.QueueView)] == [field.name for field in fields(QueueStats)]
    assert {state: getattr(queue, state) for state in JOB_STATES} == dict.fromkeys(JOB_STATES, 1)
    assert queue.due == counted.due
    world.workers.look(queues=["default"], names=["mail"], announce=worker_info("w1", queues=["a", "b"], in_flight=3))
    (worker,) = operate.workers()
    assert (worker.id, worker.queues, worker.names, worker.in_flight) == ("w1", ("a", "b"), ("mail",), 3)
    world.pauses.pause(name="mail", reason="slow", by="bob")
    (pause,) = operate.pauses()
    assert (pause.queue, pause.name, pause.reason, pause.paused_by) == (None, "mail", "slow", "bob")


def test_a_filter_is_given_as_an_object_as_keywords_or_both(operate: Operator, world: World) -> None:
    """S-389: keywords win."""
    a, b = world.enqueue("a"), world.enqueue("b")
    assert [job.id for job in operate.list(JobFilter(name="a"))] == [str(a)]
    assert [job.id for job in operate.list(name="b")] == [str(b)]
    assert [job.id for job in operate.list(JobFilter(name="a", queue="default"), name="b")] == [str(b)]
    assert [job.id for job in operate.list(run_id=str(world.job(a).run_id))] == [str(a)]


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"state": "deed"}, "state"),
        ({"stat": "dead"}, "Did you mean 'state'"),
        ({"created_from": datetime(2026, 1, 1)}, "created_from"),  # noqa: DTZ001
        ({"created_to": "2026-01-01"}, "created_to"),
        ({"id_prefix": "xyz"}, "id_prefix"),
        ({"run_id": "7"}, "run_id"),
    ],
)
def test_a_filter_that_cannot_be_is_refused(operate: Operator, given: dict[str, Any], option: str) -> None:
    """S-389, S-012."""
    with pytest.raises(InvalidOption, match=option):
        operate.list(**given)


@pytest.mark.parametrize(
    "read",
    [
        lambda operate: operate.list(),
        lambda operate: operate.list(limit=0),
        lambda operate: operate.get(fresh_id()),
        lambda operate: operate.dead_letters(),
        lambda operate: operate.undeclared([]),
        lambda operate: operate.workers(),
        lambda operate: operate.pauses(),
    ],
)
def test_a_driver_that_cannot_say_refuses_by_name(world: World, read: Callable[[Operator], Any]) -> None:
    """S-400, S-057: a third party's driver may have nothing but jobs and steps."""
    with pytest.raises(NotImplementedByDriver, match=world.driver.name):
        read(Operator(Bare(world)))
