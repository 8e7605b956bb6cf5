"""Enqueue: what a request becomes, and when a live job stands for it instead."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rowsweep.jobs.values.json_form import json_form
from rowsweep.queue.memory import jsonb
from rowsweep.queue.records import FINISHED_STATES, LIVE_STATES
from tests.queue.world import World, fresh_id, is_near, new_job

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
)
KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)
VALUES = st.recursive(LEAVES, lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYS, part, max_size=3))


def test_a_job_without_an_instant_is_ready_now(world: World) -> None:
    """S-046, S-079: run-at is the database's now, the state `ready`, nothing claimed yet."""
    job = world.job(world.enqueue())
    assert job.state == "ready"
    assert is_near(job.run_at, world.hands.now())
    assert is_near(job.created_at, world.hands.now())
    assert (job.attempt, job.claims, job.claimed_by, job.visible_at, job.started_at) == (0, 0, None, None, None)


def test_every_column_of_a_request_is_kept(world: World) -> None:
    """S-046, S-077."""
    request = new_job(
        "mail",
        queue="slow",
        input={"to": ["a", "b"]},
        idempotency_key="k",
        max_attempts=7,
        priority=-3,
        tenant_id="acme",
        concurrency_key="mail:acme",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        enqueued_by="ann@shop",
    )
    (answer,) = world.jobs.enqueue([request])
    job = world.job(request.id)
    assert (answer.id, answer.run_id, answer.state, answer.deduplicated) == (request.id, request.run_id, "ready", False)
    kept = {
        name: getattr(job, name) for name in request.__slots__ if name not in {"run_at", "delay_seconds", "id_text"}
    }
    assert kept == {name: getattr(request, name) for name in kept}


def test_a_future_instant_makes_a_delayed_job(world: World) -> None:
    """D-17, S-101."""
    at = world.hands.now() + timedelta(hours=1)
    job = world.job(world.enqueue(run_at=at))
    assert (job.state, job.run_at) == ("delayed", at)
    assert world.claim().jobs == []


def test_a_delay_counts_from_the_database_s_now(world: World) -> None:
    """D-24: `delay` needs no clock of the caller's."""
    job = world.job(world.enqueue(delay_seconds=600.0))
    assert job.state == "delayed"
    assert is_near(job.run_at, world.hands.now() + timedelta(seconds=600))


def test_a_past_instant_is_due_now(world: World) -> None:
    """D-24."""
    job_id = world.enqueue(run_at=world.hands.now() - timedelta(days=1))
    assert world.job(job_id).state == "ready"
    assert world.take().id == job_id


@pytest.mark.parametrize("state", LIVE_STATES)
def test_a_second_job_with_a_live_key_is_answered_by_the_first(world: World, state: str) -> None:
    """S-047, S-048, S-050: in each live state the live job stands for the request, and no row is added."""
    standing = world.job(world.in_state(state, idempotency_key="k"))
    (answer,) = world.jobs.enqueue([new_job("mail", idempotency_key="k", input="another")])
    assert (answer.id, answer.run_id, answer.state) == (standing.id, standing.run_id, state)
    assert answer.deduplicated is True
    assert world.job(standing.id) == standing


@pytest.mark.parametrize("state", FINISHED_STATES)
def test_a_finished_job_lets_its_key_go(world: World, state: str) -> None:
    """S-048: a key is not a permanent once-only guarantee."""
    finished = world.in_state(state, idempotency_key="k")
    (answer,) = world.jobs.enqueue([new_job("mail", idempotency_key="k")])
    assert (answer.id != finished, answer.deduplicated, answer.state) == (True, False, "ready")
    assert world.job(finished).state == state


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ({"name": "mail2", "tenant_id": "acme"}, False),
        ({"name": "mail", "tenant_id": "umbrella"}, False),
        ({"name": "mail", "tenant_id": None}, False),
        ({"name": "mail", "tenant_id": "acme", "queue": "elsewhere"}, True),
    ],
)
def test_a_key_is_per_job_and_tenant(world: World, other: dict[str, Any], is_same: bool) -> None:
    """S-047: name and tenant make it, the queue does not."""
    world.enqueue("mail", tenant_id="acme", idempotency_key="k")
    (answer,) = world.jobs.enqueue([new_job(idempotency_key="k", **other)])
    assert answer.deduplicated is is_same


def test_no_tenant_and_the_empty_tenant_share_a_key(world: World) -> None:
    """S-047: the index is over `coalesce(tenant_id, '')`."""
    world.enqueue(idempotency_key="k")
    (answer,) = world.jobs.enqueue([new_job(idempotency_key="k", tenant_id="")])
    assert answer.deduplicated is True


def test_many_are_answered_in_order(world: World) -> None:
    """N-016: one answer per request, in its order, whatever the order of their keys."""
    standing = world.enqueue(idempotency_key="m")
    requests = [new_job("mail", idempotency_key=key) for key in ("z", "m", "a", "z")]
    answers = world.jobs.enqueue(requests)
    assert [answer.id for answer in answers] == [requests[0].id, standing, requests[2].id, requests[0].id]
    assert [answer.deduplicated for answer in answers] == [False, True, False, True]
    assert world.jobs.enqueue([]) == []


def test_many_are_inserted_all_or_none(world: World) -> None:
    """N-016: a request that cannot be inserted takes the others with it."""
    taken = world.enqueue()
    good = new_job()
    with pytest.raises(Exception, match=r"(?i)id"):
        world.jobs.enqueue([good, new_job(id=taken, idempotency_key="other")])
    assert world.inspection.get(good.id) is None


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        ({"bb": 1, "a": 2, "é": 3, "ab": 4}, {"a": 2, "ab": 4, "bb": 1, "é": 3}),
        ([1, 1.0, -0.0, True, 1e16, 1.5e300, 5e-324, 0.1], None),
        ({"": "", "quote": "\"'\\ %s %(x)s {}", "line": "a\nb\tc\u2028", "emoji": "👩‍🚀", "c1": "\x7f\x85"}, None),
        ([[], {}, [[]], "", 2**63, -(2**80)], None),
    ],
)
def test_a_payload_comes_back_as_jsonb_keeps_it(world: World, value: Any, kept: Any) -> None:
    """S-043, S-044, S-070: the JSON form, types and key order included, is the same on both drivers."""
    expected = jsonb.read(jsonb.bind(value)) if kept is None else kept
    assert repr(world.job(world.enqueue(input=value)).input) == repr(expected)


def test_numbers_come_back_as_numeric_writes_them() -> None:
    """S-044: what `jsonb` answers for floats, spelled out, so that the emulation is not its own proof."""
    numbers = [1.0, -0.0, 1e16, 1e-7, 2.5e-8]
    assert jsonb.bind(numbers) == "[1.0,0.0,10000000000000000,0.0000001,0.000000025]"
    assert [type(value) for value in jsonb.read(jsonb.bind(numbers))] == [float, float, int, float, float]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=VALUES)
def test_any_json_comes_back_the_same_from_both_drivers(world: World, value: Any) -> None:
    """S-044, S-070."""
    job_id = world.enqueue(input=json_form(value))
    assert repr(world.job(job_id).input) == repr(jsonb.read(jsonb.bind(value)))


def test_a_payload_kept_is_nobody_else_s_object(world: World) -> None:
    """S-044: changing what was given, or what was read, changes no row."""
    given_input = {"list": [1]}
    job_id = world.enqueue(input=given_input)
    given_input["list"].append(2)
    world.job(job_id).input["list"].append(3)
    assert world.job(job_id).input == {"list": [1]}


def test_a_rolled_back_transaction_leaves_no_job(world: World) -> None:
    """N-014: the job exists from the commit on, and never if it rolls back."""
    job_id = fresh_id()
    with pytest.raises(ZeroDivisionError), world.driver.transaction() as tx:  # noqa: PT012 - a transaction that the raise ends
        world.joined(tx).enqueue([new_job(id=job_id, idempotency_key="k")])
        assert tx.stores.inspection is not None
        assert tx.stores.inspection.get(job_id) is not None
        raise ZeroDivisionError
    assert world.inspection.get(job_id) is None
    assert world.enqueue(idempotency_key="k") != job_id


def test_a_committed_transaction_keeps_all_its_writes(world: World) -> None:
    """S-057."""
    with world.driver.transaction() as tx:
        first = tx.stores.jobs.enqueue([new_job()])[0].id
        second = world.joined(tx).enqueue([new_job()])[0].id
    assert {world.job(first).state, world.job(second).state} == {"ready"}
