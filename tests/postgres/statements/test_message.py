"""Several statements in one message: whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rowsweep.queue.postgres.connections import SweepConnection
from tests.acceptance.wire import CHUNK, Wire, _Pair

SYNC = b"S\x00\x00\x00\x04"


class Heard(Wire):
    """A wire that keeps what the client said, as it came."""

    def __init__(self, dsn: str) -> None:
        self.said: list[bytes] = []
        super().__init__(dsn)

    def _to_server(self, pair: _Pair) -> None:
        with pair:
            while said := pair.client.recv(CHUNK):
                self.said.append(said)
                pair.server.sendall(said)


@pytest.fixture
def wire(dsn: str) -> Iterator[Heard]:
    """A wire to a schema of the test's own."""
    made = Heard(dsn)
    yield made
    made.close()


@pytest.fixture
def connection(wire: Heard) -> Iterator[SweepConnection]:
    """A connection through it, in autocommit mode."""
    with SweepConnection.connect(wire.dsn, autocommit=True) as made:
        made.execute("create table t (n int primary key)")
        wire.said.clear()
        yield made


def executed(connection: SweepConnection, *texts: str) -> list[psycopg.Cursor[Any]]:
    """Execute statements in one message; a text with a placeholder cannot be, as it is given no values."""
    with connection.message():
        return [connection.execute(text, {} if "%(" in text else None, prepare=True) for text in texts]


def test_its_statements_travel_in_one_piece_with_their_sync(connection: SweepConnection, wire: Heard) -> None:
    """N-060: a process that is stopped leaves no session that waits for the rest, with its locks, for ever."""
    for n in (1, 2):
        wire.said.clear()
        cursors = executed(
            connection, "begin", f"insert into t values ({n})", "commit and chain", "select count(*) from t", "commit"
        )
        (said,) = [each for each in wire.said if SYNC in each]
        assert wire.said[0] == said
        assert said.index(SYNC) > said.rindex(b"E\x00\x00\x00\x09")
        assert cursors[3].fetchone() == (n,)
        assert [cursor.statusmessage for cursor in cursors[2:5:2]] == ["COMMIT", "COMMIT"]


def test_a_block_that_raises_sends_nothing(connection: SweepConnection, wire: Heard) -> None:
    """N-060: and the connection is as it was."""
    with pytest.raises(psycopg.ProgrammingError):
        executed(connection, "insert into t values (1)", "select %(no)s")
    assert wire.said == []
    assert connection.execute("select count(*) from t").fetchone() == (0,)


def test_what_is_behind_a_failing_statement_does_not_run(connection: SweepConnection) -> None:
    """N-060: the commit behind a closing statement that may not land is never reached."""
    connection.execute("begin")
    with pytest.raises(psycopg.errors.DivisionByZero):
        executed(connection, "insert into t values (1)", "select 1 / (n - 1) from t", "commit and chain")
    connection.execute("rollback")
    assert connection.execute("select count(*) from t").fetchone() == (0,)
