"""Enqueue through the connected app, over memory and over Postgres, alone and inside transactions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

import rowsweep as rs
from rowsweep.errors import InvalidInput, InvalidOption, TransactionRequired
from rowsweep.queue.records import JobFilter
from tests.places import dsn_in, own_database


@pytest.fixture
def job() -> rs.JobHandle[Any, Any]:
    return rs.job("send", lambda _ctx, _value: None, tenant="none", input=int)


def rows(app: rs.App) -> list[Any]:
    """Answer the values of the queue's jobs, sorted."""
    inspection = app.stores().inspection
    assert inspection is not None
    return sorted(row.input for row in inspection.list(JobFilter(), limit=200))


def row_of(app: rs.App, job_id: UUID) -> Any:
    inspection = app.stores().inspection
    assert inspection is not None
    return inspection.get(job_id)


def test_enqueue_answers_the_job_and_stores_the_form(app: rs.App) -> None:
    """S-045, S-043, S-054: straight to the driver, and nothing but `connect()` is needed."""
    job = rs.job("post", lambda _ctx, _value: None, tenant="none", input=datetime)
    answer = job.enqueue(datetime(2024, 1, 1, tzinfo=UTC))
    assert (answer.state, answer.deduplicated) == ("ready", False)
    row = row_of(app, answer.id)
    assert (row.name, row.run_id, row.input, row.attempt) == ("post", answer.run_id, "2024-01-01T00:00:00Z", 0)


def test_a_live_key_is_answered_by_its_job(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """S-050."""
    first = job.enqueue(1, key="k")
    second = job.enqueue(2, key="k")
    assert (second.id, second.run_id, second.deduplicated) == (first.id, first.run_id, True)
    assert rows(app) == [1]


def test_a_delay_and_an_instant_make_a_delayed_job(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """D-24: a past instant is due now."""
    assert job.enqueue(1, delay="1h").state == "delayed"
    assert job.enqueue(1, run_at=datetime.now(UTC) + timedelta(hours=1)).state == "delayed"
    assert job.enqueue(1, run_at=datetime(2001, 1, 1, tzinfo=UTC)).state == "ready"


@pytest.mark.parametrize(
    "given", [{"delay": "99999999d"}, {"run_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))}], ids=str
)
def test_a_job_is_due_in_a_year_that_can_be_told(
    app: rs.App, job: rs.JobHandle[Any, Any], given: dict[str, Any]
) -> None:
    """D-37, S-085: Postgres keeps later ones, and no list that they are in could be read."""
    with pytest.raises(InvalidOption):
        job.enqueue(1, **given)
    assert app.operate.list() == []


def test_many_are_answered_in_order(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """N-016: over more than one statement of 1,000, with the same options for all."""
    answers = job.enqueue_many(list(range(2_500)), queue="bulk", priority=7)
    assert len({answer.id for answer in answers}) == 2_500
    for at in (0, 999, 1_000, 2_499):
        row = row_of(app, answers[at].id)
        assert (row.input, row.queue, row.priority) == (at, "bulk", 7)
    assert job.enqueue_many([]) == []


def test_one_bad_input_of_many_inserts_none(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """N-016, S-041: and it says which."""
    with pytest.raises(InvalidInput) as refused:
        job.enqueue_many([1, 2, "x", 4])
    assert refused.value.meta == {"job": "send", "path": "$", "index": 2}
    assert rows(app) == []


def test_each_of_many_has_what_the_declaration_makes_of_its_input(app: rs.App) -> None:
    """N-016, D-24, S-046: key, tenant and the cap's key, each asked of each input."""
    job = rs.job(
        "send",
        lambda _ctx, _value: None,
        input=int,
        key=lambda value: f"key-{value % 2}",
        tenant=lambda value: f"shop-{value % 3}",
        concurrency=rs.Keyed(lambda value: f"cap-{value}"),
    )
    answers = job.enqueue_many(list(range(7)))
    assert [answer.deduplicated for answer in answers] == [False] * 6 + [True]
    kept = [row_of(app, answer.id) for answer in answers[:6]]
    assert [(row.idempotency_key, row.tenant_id, row.concurrency_key) for row in kept] == [
        (f"key-{at % 2}", f"shop-{at % 3}", f"cap-{at}") for at in range(6)
    ]
    (answer,) = job.enqueue_many([0], tenant="mine", key="other")
    row = row_of(app, answer.id)
    assert (row.idempotency_key, row.tenant_id, row.concurrency_key) == ("other", "mine", "cap-0")


def test_one_bad_key_of_many_inserts_none(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """N-016: an application's functions are asked of all inputs before the first goes on the queue."""
    with pytest.raises(ZeroDivisionError):
        job.enqueue_many(list(range(1_500)), key=lambda value: str(1 // (1_400 - value)))
    assert rows(app) == []


def test_many_with_one_key_are_one_job(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """N-016, S-050."""
    answers = job.enqueue_many([1, 2, 3], key="k")
    assert [answer.deduplicated for answer in answers] == [False, True, True]
    assert len({answer.id for answer in answers}) == 1
    assert rows(app) == [1]


def test_an_ambient_transaction_is_joined_and_leaves_nothing_when_it_rolls_back(
    app: rs.App, job: rs.JobHandle[Any, Any]
) -> None:
    """N-015, N-014."""
    with rs.transaction():
        job.enqueue(1)
    with pytest.raises(ZeroDivisionError), rs.transaction():  # noqa: PT012 - a transaction that the raise ends
        job.enqueue(2)
        job.enqueue_many([3, 4])
        raise ZeroDivisionError
    job.enqueue(5)
    assert rows(app) == [1, 5]


def test_a_nested_transaction_is_a_savepoint(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """N-015: the inner one undoes its own alone, the outer one undoes both."""
    with rs.transaction():
        job.enqueue(1)
        with pytest.raises(ZeroDivisionError), rs.transaction():  # noqa: PT012 - a transaction that the raise ends
            job.enqueue(2)
            raise ZeroDivisionError
        with rs.transaction():
            job.enqueue(3)
    assert rows(app) == [1, 3]
    with pytest.raises(ZeroDivisionError), rs.transaction():  # noqa: PT012 - a transaction that the raise ends
        with rs.transaction():
            job.enqueue(4)
        raise ZeroDivisionError
    assert rows(app) == [1, 3]


def test_a_transaction_is_ambient_for_its_own_thread_only(postgres_app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """N-015: a context variable, so another thread's enqueue commits by itself."""
    with pytest.raises(ZeroDivisionError), rs.transaction():  # noqa: PT012 - a transaction that the raise ends
        job.enqueue(1)
        other = threading.Thread(target=job.enqueue, args=(2,))
        other.start()
        other.join(10)
        raise ZeroDivisionError
    assert rows(postgres_app) == [2]


def test_the_ambient_transaction_is_the_application_s_too(
    postgres_app: rs.App, job: rs.JobHandle[Any, Any], connection: psycopg.Connection
) -> None:
    """N-015: its rows and the job commit together."""
    connection.execute("create table orders (id int)")
    with rs.transaction() as tx:
        tx.execute("insert into orders values (1)")
        job.enqueue(1)
        assert connection.execute("select count(*) from orders").fetchone() == (0,)
        assert rows(postgres_app) == []
    assert connection.execute("select count(*) from orders").fetchone() == (1,)
    assert rows(postgres_app) == [1]


@pytest.fixture(params=[False, True], ids=["transactions", "autocommit"])
def caller(request: pytest.FixtureRequest, dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the application's own, with settings of its own."""
    with closing(psycopg.connect(dsn, autocommit=request.param, row_factory=dict_row)) as connection:
        connection.execute("set timezone = 'Asia/Kolkata'; set datestyle = 'German'")
        if not request.param:
            connection.commit()
        yield connection


def test_a_job_exists_from_the_caller_s_commit_on(
    postgres_app: rs.App, job: rs.JobHandle[Any, Any], caller: psycopg.Connection[Any]
) -> None:
    """N-014, S-005: in both modes, inside the caller's transaction and with the caller's settings."""
    with caller.transaction():
        answer = job.enqueue(1, tx=caller, run_at=datetime(2001, 1, 1, tzinfo=UTC))
        assert rows(postgres_app) == []
    assert rows(postgres_app) == [1]
    assert row_of(postgres_app, answer.id).run_at == datetime(2001, 1, 1, tzinfo=UTC)
    assert caller.row_factory is dict_row


def test_a_caller_s_rollback_undoes_it(
    postgres_app: rs.App, job: rs.JobHandle[Any, Any], caller: psycopg.Connection[Any]
) -> None:
    """N-014."""
    with pytest.raises(ZeroDivisionError), caller.transaction():  # noqa: PT012 - a transaction that the raise ends
        job.enqueue(1, tx=caller, key="k")
        raise ZeroDivisionError
    assert rows(postgres_app) == []
    assert not job.enqueue(2, key="k").deduplicated


def test_a_savepoint_s_rollback_undoes_it_alone(
    postgres_app: rs.App, job: rs.JobHandle[Any, Any], caller: psycopg.Connection[Any]
) -> None:
    """N-014."""
    with caller.transaction():
        job.enqueue(1, tx=caller)
        with pytest.raises(ZeroDivisionError), caller.transaction():  # noqa: PT012 - a transaction that the raise ends
            job.enqueue(2, tx=caller)
            raise ZeroDivisionError
        job.enqueue(3, tx=caller)
    assert rows(postgres_app) == [1, 3]


def test_without_a_transaction_of_the_caller_s_the_mode_decides(
    postgres_app: rs.App, job: rs.JobHandle[Any, Any], caller: psycopg.Connection[Any]
) -> None:
    """D-23, S-359: the enqueue opens one that the caller commits; in autocommit mode it is refused."""
    if caller.autocommit:
        with pytest.raises(TransactionRequired, match="autocommit") as refused:
            job.enqueue(1, tx=caller)
        assert "with rs.transaction(connection):" in refused.value.fix
        assert rows(postgres_app) == []
        return
    job.enqueue_many(list(range(1_001)), tx=caller)
    assert postgres_app.stores().jobs.stats() == []
    caller.commit()
    assert [depth.ready for depth in postgres_app.stores().jobs.stats()] == [1_001]


def test_a_given_connection_goes_before_the_ambient_transaction(
    postgres_app: rs.App, job: rs.JobHandle[Any, Any], caller: psycopg.Connection[Any]
) -> None:
    """N-014, N-015."""
    with pytest.raises(ZeroDivisionError), rs.transaction():  # noqa: PT012 - a transaction that the raise ends
        with caller.transaction():
            job.enqueue(1, tx=caller)
        raise ZeroDivisionError
    assert rows(postgres_app) == [1]


def test_a_deduplicated_enqueue_leaves_the_caller_s_transaction_usable(
    postgres_app: rs.App, job: rs.JobHandle[Any, Any], caller: psycopg.Connection[Any]
) -> None:
    """N-014, S-049: a conflict is no error in the caller's transaction."""
    job.enqueue(1, key="k")
    with caller.transaction():
        assert job.enqueue(2, key="k", tx=caller).deduplicated
        caller.execute("create table made (id int)")
    assert caller.execute("select count(*) as n from made").fetchone() == {"n": 0}


class Holder:
    """A connection of SQLAlchemy's shape: `.connection` is a proxy that holds the driver's."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = type("Proxy", (), {"driver_connection": connection})()


class Wrapper:
    """A connection of Django's shape: `.connection` is psycopg's own."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection


@pytest.mark.parametrize("shape", [Holder, Wrapper])
def test_a_connection_of_a_framework_is_looked_into(
    postgres_app: rs.App, job: rs.JobHandle[Any, Any], caller: psycopg.Connection[Any], shape: Any
) -> None:
    """N-014."""
    with caller.transaction():
        job.enqueue(1, tx=shape(caller))
        assert rows(postgres_app) == []
    assert rows(postgres_app) == [1]


def test_what_holds_no_connection_is_refused(postgres_app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """N-014, D-37."""
    with pytest.raises(InvalidOption, match="holds no psycopg 3 connection"):
        job.enqueue(1, tx=object())
    assert rows(postgres_app) == []


def test_a_connection_to_another_database_is_refused(
    postgres_app: rs.App, job: rs.JobHandle[Any, Any], server_dsn: str, schema: str
) -> None:
    """N-014: also where that database has the same tables in the same schema."""
    with own_database(server_dsn) as other:
        there = dsn_in(other, schema)
        with psycopg.connect(there, autocommit=True) as connection:
            connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        copy = rs.PostgresDriver(there)
        copy.install()
        copy.close()
        with psycopg.connect(there) as connection, pytest.raises(InvalidOption, match="another database"):
            job.enqueue(1, tx=connection)
    assert rows(postgres_app) == []


def test_a_request_whose_key_was_set_afterwards_is_deduplicated(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """S-047: only a job under its own fresh id goes in without a look for a live one, alone or among others."""
    fresh = job.request(1, rs.EnqueueOptions())
    keyed = [replace(job.request(value, rs.EnqueueOptions()), idempotency_key="k") for value in (2, 3)]
    assert fresh.idempotency_key == str(fresh.id)
    assert [request.is_unkeyed for request in (fresh, *keyed)] == [True, False, False]
    answers = app.enqueue([fresh, *keyed])
    assert [answer.deduplicated for answer in answers] == [False, False, True]
    assert rows(app) == [1, 2]
