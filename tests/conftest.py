"""What every test may ask for: a real Postgres, a fresh schema in it, and a server of one's own."""

from __future__ import annotations

import logging
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from rowsweep import embedded
from tests.threads import none_left

settings.register_profile("rowsweep", deadline=None, print_blob=True)
settings.load_profile("rowsweep")

# A shell lets what it starts in the background ignore Ctrl-C, and the processes under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

UNSAFE_BUT_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    """Fail the test that leaves a thread of the package running; those of fixtures that were there before may stay."""
    with none_left():
        yield


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Take back what a command run in this process set up for its log lines: its stream is gone with its test."""
    logger = logging.getLogger("rowsweep")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's own database and environment out of every test, and out of the processes it starts."""
    for name in list(os.environ):
        if name in {"DATABASE_URL", "ROWSWEEP_ENV"} or name.startswith("PG"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def server_dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The DSN of the server under test: `$ROWSWEEP_TEST_DSN`, else an embedded one for this session."""
    given = os.environ.get("ROWSWEEP_TEST_DSN")
    if given:
        yield given
        return
    server = embedded.start(tmp_path_factory.mktemp("server"), settings=UNSAFE_BUT_FAST)
    yield server.dsn
    server.leave()


@pytest.fixture
def schema(server_dsn: str) -> Iterator[str]:
    """The name of a fresh schema, dropped afterwards with all that is in it."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
    yield name
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        _release(connection, name)
        connection.execute("set client_min_messages = warning")
        connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(name)))


def _release(connection: psycopg.Connection, schema: str) -> None:
    """End the sessions that still hold a table of the schema, such as those of a killed process."""
    connection.execute(
        """select pg_terminate_backend(pid, 5000)
           from (select distinct l.pid
                 from pg_locks l
                 join pg_class c on c.oid = l.relation
                 join pg_namespace n on n.oid = c.relnamespace
                 where n.nspname = %s and l.pid <> pg_backend_pid()
                   and l.database = (select oid from pg_database where datname = current_database())) holders""",
        [schema],
    )


@pytest.fixture
def dsn(server_dsn: str, schema: str) -> str:
    """A DSN whose connections, in this process and in others, live in a fresh schema."""
    options = str(conninfo_to_dict(server_dsn).get("options") or "")
    return make_conninfo(server_dsn, options=f"{options} -csearch_path={schema}".strip())


@pytest.fixture
def schema_dsn(dsn: str) -> str:
    """Another name of `dsn`, for tests that use `server_dsn` beside it."""
    return dsn


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection]:
    """An autocommit connection in the fresh schema."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def private_server(tmp_path: Path) -> Iterator[embedded.EmbeddedServer]:
    """A server of the test's own, to stop, kill and restart; always the embedded one."""
    server = embedded.start(tmp_path / "private", settings=UNSAFE_BUT_FAST)
    yield server
    server.leave()
