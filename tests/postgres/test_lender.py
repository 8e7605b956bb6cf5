"""Lending a pool's connections: what is kept at hand, and that nobody waits for it."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from rowsweep.clock import real_monotonic
from rowsweep.errors import DriverUnavailable
from rowsweep.queue.postgres import lender as lending
from rowsweep.queue.postgres.connections import SweepConnection, check_open
from rowsweep.queue.postgres.lender import Lender

WITHIN = 30.0
Make = Callable[..., Lender]


@pytest.fixture
def make(dsn: str) -> Iterator[Make]:
    """Make lenders of pools of so many connections."""
    made = []

    def lender(size: int, *, keep: int = 2, wait_seconds: float = WITHIN) -> Lender:
        pool = ConnectionPool(
            dsn,
            connection_class=SweepConnection,
            kwargs={"autocommit": True},
            check=check_open,
            min_size=0,
            max_size=size,
            open=True,
        )
        made.append(
            Lender(pool, wait_seconds=wait_seconds, place="there", refuse_unreachable=lambda **_: None, keep=keep)
        )
        return made[-1]

    yield lender
    for each in made:
        each.close()


@pytest.fixture
def turns_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks the pool gets what is handed to it, or waits for as long as a test may take."""
    monkeypatch.setattr(lending, "TURN_SECONDS", 2 * WITHIN)


def wait_for_a_waiter(lender: Lender) -> None:
    """Wait until somebody waits for the pool."""
    deadline_at = real_monotonic() + WITHIN
    while lender._pool.get_stats().get("requests_waiting") != 1:
        assert real_monotonic() < deadline_at, "nobody waited"


def given_and_taken(lender: Lender, connection: SweepConnection) -> SweepConnection:
    """Give one back and take one."""
    lender.give(connection, is_fit=True)
    return lender.take()


def test_what_was_given_back_last_is_lent_next_without_asking_the_pool(make: Make) -> None:
    """N-040: loops of the package have connections of their own; no more than so many are kept."""
    lender = make(4)
    taken = [lender.take() for _ in range(4)]
    for connection in taken:
        lender.give(connection, is_fit=True)
    asked = lender._pool.get_stats()["requests_num"]
    again = [lender.take() for _ in range(2)]
    assert again == taken[1::-1]
    assert lender._pool.get_stats()["requests_num"] == asked
    assert lender.take() in taken[2:]
    assert lender._pool.get_stats()["requests_num"] == asked + 1


@pytest.mark.usefixtures("turns_are_long")
def test_what_is_given_back_while_somebody_waits_goes_to_them(make: Make) -> None:
    """N-040: what is kept counts as lent with the pool, whose waiters would not get it."""
    lender = make(1)
    held = lender.take()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lender.take)
        wait_for_a_waiter(lender)
        lender.give(held, is_fit=True)
        assert waiting.result(WITHIN) is held


@pytest.mark.usefixtures("turns_are_long")
def test_a_connection_has_one_borrower_and_nobody_waits_for_a_kept_one(make: Make) -> None:
    """N-040: whatever way eight borrowers of two connections come in between each other."""
    lender, lent, lock = make(2), set[int](), threading.Lock()

    def borrow() -> int:
        for turn in range(300):
            connection = lender.take()
            with lock:
                assert id(connection) not in lent
                lent.add(id(connection))
            if turn % 7 == 0:
                connection.execute("select 1")
            with lock:
                lent.remove(id(connection))
            lender.give(connection, is_fit=turn % 50 != 49)
        return turn

    with ThreadPoolExecutor(8) as threads:
        borrowers = [threads.submit(borrow) for _ in range(8)]
        assert [each.result(WITHIN) for each in borrowers] == [299] * 8


def test_a_kept_connection_that_the_server_ended_is_not_lent(make: Make, dsn: str) -> None:
    """N-024: as after a restart; another one is made in its place."""
    lender = make(1)
    connection = lender.take()
    pid = connection.info.backend_pid
    lender.give(connection, is_fit=True)
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 10000)", [pid])
    again = lender.take()
    assert again.info.backend_pid != pid
    assert again.execute("select 1").fetchone() == (1,)


def test_what_was_kept_for_a_minute_goes_back_to_the_pool(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-040: which says how old a connection may get."""
    lender, now = make(1), 1_000.0
    monkeypatch.setattr(lending, "real_monotonic", lambda: now)
    connection = given_and_taken(lender, lender.take())
    now += 61.0
    lender.give(connection, is_fit=True)
    assert lender._pool.get_stats()["pool_available"] == 1
    assert lender.take().taken_at == now


def test_one_that_is_not_fit_is_closed_and_another_made(make: Make) -> None:
    """S-061: left in a transaction, it is lent to nobody."""
    lender = make(1)
    connection = lender.take()
    lender.give(connection, is_fit=False)
    assert connection.closed
    assert lender.take() is not connection


def test_a_closed_lender_has_closed_what_it_kept_and_closes_what_comes_back(make: Make) -> None:
    """S-061: nothing is left open behind `driver.close()`."""
    lender = make(2)
    kept, lent = lender.take(), lender.take()
    lender.give(kept, is_fit=True)
    lender.close()
    assert kept.closed
    lender.give(lent, is_fit=True)
    assert lent.closed
    with pytest.raises(DriverUnavailable, match="its connections were closed"):
        lender.take()


def test_all_in_use_is_said_once_the_wait_is_over(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-061: with how many there are."""
    monkeypatch.setattr(lending, "TURN_SECONDS", 0.01)
    lender = make(1, wait_seconds=0.01)
    lender.take()
    with pytest.raises(DriverUnavailable, match="all 1 connections"):
        lender.take()


def test_a_process_may_have_many_files_open(make: Make) -> None:
    """S-061: `select()` takes none above the 1,024th, and a worker beside a web server has more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("this user may open too few files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        lender = make(1)
        connection = lender.take()
        assert connection.fileno() > 1024
        assert given_and_taken(lender, connection) is connection
    finally:
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
