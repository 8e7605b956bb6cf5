"""The LISTEN session of a worker process."""

from __future__ import annotations

import contextlib
import selectors
import socket
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import ExecStatus

from rowsweep.queue.postgres.connections import configure, connect_once
from rowsweep.queue.postgres.translate import own_errors, unreachable
from rowsweep.queue.wake import CHANNEL

if TYPE_CHECKING:
    from psycopg import Notify


class PostgresWake:
    """Hear the channel over a session of its own, outside the pools."""

    def __init__(self, connection: psycopg.Connection[Any], place: str) -> None:
        self._connection = connection
        self._place = place
        self._words: list[str] = []
        self._is_asking = False
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._bell, selectors.EVENT_READ)
        self._ready.register(connection.fileno(), selectors.EVENT_READ)
        connection.add_notify_handler(self._take)

    @classmethod
    def opened(cls, dsn: str, place: str) -> PostgresWake:
        """Open a session that listens; it may idle for as long as it likes, whatever the role's settings say."""
        connection = connect_once(dsn, place)
        try:
            with own_errors(place):
                configure(connection, control=True, pooler=False)
                connection.execute("set idle_session_timeout = 0")
                connection.execute(f"listen {CHANNEL}")
        except BaseException:
            connection.close()
            raise
        return cls(connection, place)

    def hear(self, seconds: float | None) -> list[str]:
        """Wait for words without a statement, and answer them in their order."""
        if not self._words:
            self._wait(seconds)
        self._read()
        words, self._words = self._words, []
        return words

    def say(self, word: str) -> None:
        """Send a word on the channel, and wait for no answer: a session that nothing comes back on would keep it.

        The answer is read while hearing. Raises DriverUnavailable, also where the word before has none yet.
        """
        self._read()
        if self._is_asking:
            raise unreachable(self._place, "the session does not answer")
        pgconn = self._connection.pgconn
        with own_errors(self._place):
            pgconn.send_query_params(b"select pg_notify($1, $2)", [CHANNEL.encode(), word.encode()])
            self._is_asking = True
            pgconn.flush()

    def interrupt(self) -> None:
        """Ring the bell that a waiting `hear` looks at too."""
        with contextlib.suppress(OSError):  # closed meanwhile, or so many rings that one more says nothing
            self._rope.send(b"!")

    def close(self) -> None:
        """End the session."""
        self._ready.close()
        self._connection.close()
        self._bell.close()
        self._rope.close()

    def _wait(self, seconds: float | None) -> None:
        if self._connection.closed:
            raise unreachable(self._place, "the connection was closed")
        ready = self._ready.select(None if seconds is None else max(seconds, 0.0))
        if any(key.fileobj is self._bell for key, _ in ready):
            self._bell.recv(4096)

    def _read(self) -> None:
        try:
            self._connection.pgconn.consume_input()
        except psycopg.Error as error:
            raise unreachable(self._place, error) from error
        self._read_answer()
        while (notification := self._connection.pgconn.notifies()) is not None:
            self._words.append(notification.extra.decode())

    def _read_answer(self) -> None:
        pgconn = self._connection.pgconn
        while self._is_asking and not pgconn.is_busy():
            answer = pgconn.get_result()
            if answer is None:
                self._is_asking = False
            elif answer.status == ExecStatus.FATAL_ERROR:
                with own_errors(self._place):
                    raise psycopg.errors.error_from_result(answer)

    def _take(self, notification: Notify) -> None:
        """Keep what arrives in the answer to LISTEN."""
        self._words.append(notification.payload)
