"""The options of one enqueue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidOption
from rowsweep.jobs import ambient
from rowsweep.jobs.request import Bulk, NewJob

LATER = datetime(2030, 1, 1, tzinfo=UTC)


def asked(
    job: rs.JobHandle[Any, Any], value: Any = None, options: rs.EnqueueOptions | None = None, **given: Any
) -> NewJob:
    """Answer the request that an enqueue makes."""
    made: list[NewJob] = []

    class Recorder:
        actor: str | None = None

        def enqueue(self, requests: Any, *, tx: Any = None, outbox: bool = False) -> list[rs.EnqueueResult]:
            made.extend(requests)
            return [
                rs.EnqueueResult(id=each.id, run_id=each.run_id, state="ready", deduplicated=False) for each in requests
            ]

    ambient.use_enqueuer(Recorder())
    try:
        job.enqueue(value, options, **given)
    finally:
        ambient.use_enqueuer(None)
    return made[0]


@pytest.fixture
def job() -> rs.JobHandle[Any, Any]:
    return rs.job("send", lambda _ctx, _value: None, tenant="none", input=int, queue="mail", priority=3)


def test_a_request_takes_the_declaration_s_defaults(job: rs.JobHandle[Any, Any]) -> None:
    """S-046, D-9: ids are fresh UUIDv7, run-at is left to the database, attempts are fixed now."""
    request = asked(job, 5)
    assert (request.name, request.queue, request.priority, request.input) == ("send", "mail", 3, 5)
    assert (request.run_at, request.delay_seconds, request.tenant_id, request.max_attempts) == (None, None, None, 5)
    assert {request.id.version, request.run_id.version} == {7}
    assert request.id != request.run_id


def test_a_bulk_makes_what_is_read_and_again_with_the_same_ids() -> None:
    """N-016, S-011: in the order of their positions, whichever is read first."""
    made: list[int] = []

    def request(at: int, job_id: ambient.FreshId, run_id: ambient.FreshId) -> NewJob:
        made.append(at)
        return NewJob(
            id=ambient.standard_id(job_id),
            run_id=ambient.standard_id(run_id),
            name="send",
            queue="mail",
            input=at,
            idempotency_key="k",
            max_attempts=1,
        )

    bulk = Bulk(5, request)
    assert (len(bulk), made) == (5, [])
    assert [job.input for job in bulk[1:3]] == made == [1, 2]
    assert (bulk[-1].input, bulk[2:2], bulk[9:]) == (4, [], [])
    assert list(bulk) == [bulk[at] for at in range(5)] == bulk[:]
    ids = [each for job in bulk for each in (job.id, job.run_id)]
    assert ids == sorted(set(ids))
    for outside in (5, -6):
        with pytest.raises(IndexError):
            bulk[outside]


def test_ids_sort_by_when_they_were_made() -> None:
    """S-011."""
    made = [ambient.new_id() for _ in range(1000)]
    assert made == sorted(made)
    assert len(set(made)) == 1000


def test_options_of_the_call_win(job: rs.JobHandle[Any, Any]) -> None:
    """D-24."""
    request = asked(job, 5, queue="fast", priority=-1000, run_at=LATER, tenant="acme", key="k")
    assert (request.queue, request.priority, request.run_at, request.tenant_id) == ("fast", -1000, LATER, "acme")
    assert request.idempotency_key == "k"
    assert asked(job, 5, delay="1m30s").delay_seconds == 90.0
    assert asked(job, 5, delay=timedelta(0)).delay_seconds == 0.0
    assert asked(job, 5, priority=0).priority == 0


def test_an_options_object_and_keywords_go_together(job: rs.JobHandle[Any, Any]) -> None:
    """S-045: keywords win over the object, and none of both is lost."""
    request = asked(job, 5, rs.EnqueueOptions(key="k", queue="fast", delay="5s"), queue="slow")
    assert (request.idempotency_key, request.queue, request.delay_seconds) == ("k", "slow", 5.0)
    with pytest.raises(InvalidOption, match="exclude each other"):
        asked(job, 5, rs.EnqueueOptions(delay="5s"), run_at=LATER)


def test_no_key_means_a_fresh_one_each_time(job: rs.JobHandle[Any, Any]) -> None:
    """S-051, D-24: there is no null key."""
    keys = {asked(job, 5).idempotency_key for _ in range(3)}
    assert len(keys) == 3
    assert all(keys)


def test_a_key_may_be_a_function_on_the_job_and_on_the_call() -> None:
    """D-24."""
    job = rs.job("keyed", lambda _ctx, _value: None, tenant="none", input=int, key=lambda value: f"order-{value}")
    assert asked(job, "7").idempotency_key == "order-7"
    assert asked(job, 7, key=lambda value: f"other-{value}").idempotency_key == "other-7"
    assert asked(job, 7, key="plain").idempotency_key == "plain"


@pytest.mark.parametrize("answer", ["", "k" * 201, None, 5, "\x00"])
def test_a_key_function_that_answers_no_key_is_refused(answer: Any) -> None:
    """D-24."""
    job = rs.job("keyed", lambda _ctx, _value: None, tenant="none", input=int, key=lambda _value: answer)
    with pytest.raises(InvalidOption, match="key must be text of 1 to 200 characters"):
        asked(job, 7)


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"key": ""}, "key"),
        ({"key": "k" * 201}, "key"),
        ({"key": 5}, "key"),
        ({"key": "\ud800"}, "key"),
        ({"priority": 1001}, "priority"),
        ({"priority": True}, "priority"),
        ({"queue": ""}, "queue"),
        ({"queue": "*outbox"}, "queue"),
        ({"queue": "q" * 201}, "queue"),
        ({"delay": 5}, "delay"),
        ({"delay": "-5s"}, "delay"),
        ({"delay": timedelta(seconds=-1)}, "delay"),
        ({"run_at": datetime(2030, 1, 1)}, "run_at"),  # noqa: DTZ001 - refused for being naive
        ({"run_at": "tomorrow"}, "run_at"),
        ({"kee": "k"}, "kee"),
        ({"outbox": "yes"}, "outbox"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_its_name(
    job: rs.JobHandle[Any, Any], given: dict[str, Any], option: str
) -> None:
    """D-24, D-25, D-35, D-37, N-003."""
    with pytest.raises(InvalidOption) as refused:
        asked(job, 5, **given)
    assert refused.value.meta["option"] == option


def test_a_misspelt_option_is_answered_with_the_near_miss(job: rs.JobHandle[Any, Any]) -> None:
    """D-37."""
    with pytest.raises(InvalidOption) as refused:
        asked(job, 5, prioriti=1)
    assert "'priority'" in refused.value.fix


def test_options_that_are_no_options_are_refused(job: rs.JobHandle[Any, Any]) -> None:
    """D-37: such as a second input given by mistake."""
    with pytest.raises(InvalidOption, match="must be EnqueueOptions"):
        asked(job, 5, {"key": "k"})  # type: ignore[arg-type]


def test_nothing_is_enqueued_before_a_connect(job: rs.JobHandle[Any, Any]) -> None:
    """D-37, S-061."""
    with pytest.raises(rs.RowsweepError) as refused:
        job.enqueue(5)
    assert refused.value.code == "X_DRIVER_UNAVAILABLE"
    assert "MemoryDriver()" in refused.value.fix
