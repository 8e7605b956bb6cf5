"""One queue library of the queue's benchmark: `python -m benchmarks.peers.queues.NAME DSN VERB AMOUNT` prints JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any, ClassVar, Protocol

_GIVE_UP_SECONDS = 600.0


class Side(Protocol):
    """A library at its documented best setting; its body calls `ran`, nothing else."""

    finished: ClassVar[str]
    """Counts the jobs that are durably finished."""

    def __init__(self, dsn: str, tally: Tally) -> None: ...

    async def install(self) -> None:
        """Make its tables."""

    async def open(self) -> None:
        """Connect."""

    async def enqueue(self, amount: int) -> None:
        """Put so many jobs on the queue by its fastest documented call, or one."""

    async def start(self) -> None:
        """Start one worker in this process, and answer while it works."""


class Tally:
    """Count the bodies that ran, and say when the first and the last of them did."""

    def __init__(self) -> None:
        self.count = 0
        self.first_at = 0.0
        self.last_at = 0.0

    def ran(self) -> None:
        """Count one body."""
        self.last_at = time.perf_counter()
        if self.count == 0:
            self.first_at = self.last_at
        self.count += 1


class Starts(Tally):
    """Print when each body began, on the clock that all processes of a machine share."""

    def ran(self) -> None:
        """Count one body and print its line."""
        super().ran()
        print(json.dumps(self.last_at), flush=True)


def main(kind: type[Side]) -> None:
    """Do one verb, print its answer, and leave without waiting for what still runs."""
    answer = asyncio.run(_answer(kind, sys.argv[1], sys.argv[2], int(sys.argv[3])))
    print(json.dumps(answer), flush=True)
    os._exit(0)


async def _answer(kind: type[Side], dsn: str, verb: str, amount: int) -> Any:
    tally = Starts() if verb == "work" else Tally()
    side = kind(dsn, tally)
    if verb == "install":
        await side.install()
        return None
    await side.open()
    if verb == "enqueue":
        began = time.perf_counter()
        await side.enqueue(amount)
        answer: Any = time.perf_counter() - began
    elif verb == "drain":
        answer = await _drain(side, tally, dsn, amount)
    elif verb == "ask":
        await _enqueue_as_asked(side)
        answer = None
    else:
        await side.start()
        await asyncio.sleep(amount)
        answer = None
    # Printed here: a library may keep the loop from closing.
    print(json.dumps(answer), flush=True)
    os._exit(0)


async def _drain(side: Side, tally: Tally, dsn: str, amount: int) -> float:
    """Answer the seconds from the first body until every job is durably finished."""
    import psycopg

    connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    before = await _finished(connection, side)
    await side.start()
    give_up_at = time.perf_counter() + _GIVE_UP_SECONDS
    while tally.count < amount and time.perf_counter() < give_up_at:
        await asyncio.sleep(0.005)
    while (done := await _finished(connection, side) - before) < amount and time.perf_counter() < give_up_at:
        await asyncio.sleep(0.005)
    ended = time.perf_counter()
    assert done >= amount, f"{done} of {amount} jobs were finished"
    return ended - tally.first_at


async def _finished(connection: Any, side: Side) -> int:
    cursor = await connection.execute(side.finished)
    (count,) = await cursor.fetchone()
    return int(count)


async def _enqueue_as_asked(side: Side) -> None:
    """Put one job on the queue for each line that comes in, and print when that began."""
    while await asyncio.to_thread(sys.stdin.readline):
        began = time.perf_counter()
        await side.enqueue(1)
        print(json.dumps(began), flush=True)
