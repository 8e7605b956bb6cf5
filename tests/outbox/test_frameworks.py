"""Enqueues in the transactions of SQLAlchemy, Django and psycopg, in the queue's database and in another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import rowsweep as rs
from rowsweep.errors import InvalidOption, TransactionRequired
from tests.outbox.conftest import queued, staged

sqlalchemy = pytest.importorskip("sqlalchemy")
orm = pytest.importorskip("sqlalchemy.orm")
django = pytest.importorskip("django")


class Library(Protocol):
    """What a test needs of a library: its connection, a transaction and a savepoint of its own, and an insert."""

    tx: Any

    def atomic(self) -> AbstractContextManager[Any]: ...
    def savepoint(self) -> AbstractContextManager[Any]: ...
    def insert(self, number: int) -> None: ...


class Psycopg:
    def __init__(self, dsn: str) -> None:
        self.tx = psycopg.connect(dsn)

    def atomic(self) -> AbstractContextManager[Any]:
        return self.tx.transaction()

    savepoint = atomic

    def insert(self, number: int) -> None:
        self.tx.execute("insert into orders values (%s)", [number])

    def close(self) -> None:
        self.tx.close()


class Alchemy:
    def __init__(self, dsn: str) -> None:
        self.engine = engine_of(dsn)
        self.tx = self.engine.connect()

    def atomic(self) -> AbstractContextManager[Any]:
        begun: AbstractContextManager[Any] = self.tx.begin()
        return begun

    def savepoint(self) -> AbstractContextManager[Any]:
        begun: AbstractContextManager[Any] = self.tx.begin_nested()
        return begun

    def insert(self, number: int) -> None:
        self.tx.execute(sqlalchemy.text("insert into orders values (:n)"), {"n": number})

    def close(self) -> None:
        self.tx.close()
        self.engine.dispose()


class AlchemySession(Alchemy):
    def __init__(self, dsn: str) -> None:
        self.engine = engine_of(dsn)
        self.tx = orm.Session(self.engine)


class Django:
    """One connection that Django manages, under an alias of its own."""

    def __init__(self, dsn: str) -> None:
        from django.db import connections

        given = conninfo_to_dict(dsn)
        options = {key: given[key] for key in ("options", "sslmode") if key in given}
        connections.settings["shop"] = connections.settings["default"] | {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": given["dbname"],
            "USER": given.get("user", ""),
            "PASSWORD": given.get("password", ""),
            "HOST": given.get("host", ""),
            "PORT": str(given.get("port", "")),
            "OPTIONS": options,
        }
        self.tx = connections["shop"]

    def atomic(self) -> AbstractContextManager[Any]:
        from django.db import transaction

        made: AbstractContextManager[Any] = transaction.atomic(using="shop")
        return made

    savepoint = atomic

    def insert(self, number: int) -> None:
        with self.tx.cursor() as cursor:
            cursor.execute("insert into orders values (%s)", [number])

    def close(self) -> None:
        from django.db import connections

        self.tx.close()
        del connections["shop"]
        del connections.settings["shop"]


def engine_of(dsn: str) -> Any:
    """Answer an engine whose connections are made from the very DSN."""
    return sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))


# A session is a connection's holder: what it holds is proved by the others in every run.
PARAMS = ["psycopg", "sqlalchemy", "django", pytest.param("session", marks=pytest.mark.slow)]
LIBRARIES: dict[str, Any] = {"psycopg": Psycopg, "sqlalchemy": Alchemy, "session": AlchemySession, "django": Django}


@pytest.fixture(scope="session")
def _django() -> None:
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()


@contextmanager
def opened(name: str, dsn: str) -> Iterator[Library]:
    library: Any = LIBRARIES[name](dsn)
    try:
        yield library
    finally:
        library.close()


@pytest.fixture(params=PARAMS)
def library(request: pytest.FixtureRequest, dsn: str, queue_app: rs.App, _django: None) -> Iterator[Library]:
    """A library's connection to the queue's own database, where the application's table is too."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table orders (id bigint primary key)")
    with opened(request.param, dsn) as made:
        yield made


@pytest.fixture(params=PARAMS)
def elsewhere(request: pytest.FixtureRequest, shop_dsn: str, queue_app: rs.App, _django: None) -> Iterator[Library]:
    """A library's connection to another database, which has an outbox."""
    with opened(request.param, shop_dsn) as made:
        yield made


def orders(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute("select id from orders order by id")]


def test_a_job_commits_with_its_order(
    library: Library, queue_app: rs.App, job: rs.JobHandle[Any, Any], dsn: str
) -> None:
    """N-014: neither is there before the commit, both are after it; nothing is staged."""
    with library.atomic():
        library.insert(1)
        job.enqueue(1, tx=library.tx)
        assert (orders(dsn), queued(queue_app)) == ([], [])
    assert (orders(dsn), queued(queue_app), staged(dsn)) == ([1], [1], [])


def test_a_job_may_be_the_first_statement_of_its_transaction(
    library: Library, queue_app: rs.App, job: rs.JobHandle[Any, Any], dsn: str
) -> None:
    """N-014: also where the library begins only with its own first statement."""
    with library.atomic():
        job.enqueue(1, tx=library.tx)
        assert queued(queue_app) == []
        library.insert(1)
    assert (orders(dsn), queued(queue_app)) == ([1], [1])


def test_neither_is_there_after_a_rollback(
    library: Library, queue_app: rs.App, job: rs.JobHandle[Any, Any], dsn: str
) -> None:
    """N-014."""
    with pytest.raises(ZeroDivisionError), library.atomic():  # noqa: PT012 - a transaction that the raise ends
        library.insert(1)
        job.enqueue(1, tx=library.tx)
        raise ZeroDivisionError
    assert (orders(dsn), queued(queue_app)) == ([], [])


def test_a_savepoint_that_rolls_back_takes_its_job_along(
    library: Library, queue_app: rs.App, job: rs.JobHandle[Any, Any], dsn: str
) -> None:
    """N-014: the library's own savepoint; what is around it commits."""
    with library.atomic():
        job.enqueue(1, tx=library.tx)
        with pytest.raises(ZeroDivisionError), library.savepoint():  # noqa: PT012 - a transaction that the raise ends
            library.insert(2)
            job.enqueue(2, tx=library.tx)
            raise ZeroDivisionError
        library.insert(3)
        job.enqueue(3, tx=library.tx)
    assert (orders(dsn), queued(queue_app)) == ([3], [1, 3])


def test_a_job_is_staged_with_its_order_in_another_database(
    elsewhere: Library, queue_app: rs.App, job: rs.JobHandle[Any, Any], shop_dsn: str
) -> None:
    """S-356, N-014: told by the install id and not by a DSN; savepoints and rollbacks hold there too."""
    with elsewhere.atomic():
        elsewhere.insert(1)
        answer = job.enqueue(1, tx=elsewhere.tx, key="k")
        with pytest.raises(ZeroDivisionError), elsewhere.savepoint():  # noqa: PT012 - a transaction that the raise ends
            job.enqueue(2, tx=elsewhere.tx)
            raise ZeroDivisionError
        assert staged(shop_dsn) == []
    assert (answer.state, answer.deduplicated) == ("staged", False)
    with pytest.raises(ZeroDivisionError), elsewhere.atomic():  # noqa: PT012 - a transaction that the raise ends
        elsewhere.insert(3)
        job.enqueue(3, tx=elsewhere.tx)
        raise ZeroDivisionError
    assert (orders(shop_dsn), staged(shop_dsn), queued(queue_app)) == ([1], [1], [])


def test_a_library_s_own_transaction_can_be_ambient(
    library: Library, queue_app: rs.App, job: rs.JobHandle[Any, Any], dsn: str
) -> None:
    """N-015: `rs.transaction(connection)` begins and commits in the library's way; nested, it is a savepoint."""
    with rs.transaction(library.tx) as tx:
        assert tx is library.tx
        library.insert(1)
        job.enqueue(1)
        with pytest.raises(ZeroDivisionError), rs.transaction():  # noqa: PT012 - a transaction that the raise ends
            library.insert(2)
            job.enqueue(2)
            raise ZeroDivisionError
        assert queued(queue_app) == []
    assert (orders(dsn), queued(queue_app)) == ([1], [1])
    with pytest.raises(ZeroDivisionError), rs.transaction(library.tx):  # noqa: PT012 - a transaction that the raise ends
        library.insert(3)
        job.enqueue(3)
        raise ZeroDivisionError
    with library.atomic(), rs.transaction(library.tx):
        library.insert(4)
        job.enqueue(4)
    assert (orders(dsn), queued(queue_app)) == ([1, 4], [1, 4])


def test_an_ambient_transaction_of_another_database_stages(
    elsewhere: Library, queue_app: rs.App, job: rs.JobHandle[Any, Any], shop_dsn: str
) -> None:
    """N-015, S-356: what is ambient is looked at like what is given."""
    with rs.transaction(elsewhere.tx):
        elsewhere.insert(1)
        job.enqueue_many([1, 2])
    assert (orders(shop_dsn), staged(shop_dsn), queued(queue_app)) == ([1], [1, 2], [])


@pytest.mark.usefixtures("_django")
@pytest.mark.parametrize("name", ["autocommit", "django"])
def test_a_connection_that_commits_by_itself_is_refused(
    name: str, dsn: str, queue_app: rs.App, job: rs.JobHandle[Any, Any]
) -> None:
    """D-23: `X_OUTBOX_NO_TX`: Django outside `atomic`, SQLAlchemy's AUTOCOMMIT."""
    if name == "django":
        with opened("django", dsn) as library, pytest.raises(TransactionRequired):
            job.enqueue(1, tx=library.tx)
    else:
        engine = engine_of(dsn)
        committing = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        with committing as connection, pytest.raises(TransactionRequired):
            job.enqueue(1, tx=connection)
        engine.dispose()
    assert queued(queue_app) == []


def test_a_session_maker_s_and_a_scoped_session_s_sessions_are_looked_into(
    dsn: str, queue_app: rs.App, job: rs.JobHandle[Any, Any]
) -> None:
    """N-014."""
    engine = engine_of(dsn)
    scoped = orm.scoped_session(orm.sessionmaker(engine))
    with scoped.begin():
        job.enqueue(1, tx=scoped)
        assert queued(queue_app) == []
    with orm.sessionmaker(engine)() as session:
        job.enqueue(2, tx=session)
    assert queued(queue_app) == [1]
    scoped.remove()
    engine.dispose()


def test_another_kind_of_database_holds_nothing_to_join(queue_app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """N-014, D-37: SQLAlchemy over SQLite."""
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.begin() as connection, pytest.raises(InvalidOption, match="holds no psycopg 3 connection"):
        job.enqueue(1, tx=connection)
    engine.dispose()
    assert queued(queue_app) == []
