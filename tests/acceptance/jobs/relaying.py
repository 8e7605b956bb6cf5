"""What the processes of the outbox's acceptance test run: a shop that takes orders, or a relay.

Called with `shop NAME` or `relay`, the queue's DSN and the shop's.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from typing import Any

import psycopg

import rowsweep as rs

SEND = rs.job("send", lambda _ctx, _value: None, tenant="none", input=str)


class Refused(Exception):
    """The shop changed its mind."""


def shop(name: str, queue_dsn: str, shop_dsn: str) -> None:
    """Take orders until killed: each with its job, some refused, some with an item that was refused."""
    app = rs.connect(queue_dsn, work=False, outbox=shop_dsn)
    with psycopg.connect(shop_dsn) as connection:
        number = 0
        while True:
            number += 1
            take(connection, f"{name}-{number}", number, app)


def take(connection: psycopg.Connection[Any], order: str, number: int, app: rs.App) -> None:
    """Take one order in one transaction."""
    try:
        with connection.transaction():
            if number % 3:
                insert(connection, order)
                SEND.enqueue(order, tx=connection)
            else:
                SEND.enqueue(order, tx=connection)
                insert(connection, order)
            try:
                with connection.transaction():
                    insert(connection, f"{order}-item")
                    SEND.enqueue(f"{order}-item", tx=connection)
                    if number % 5 == 0:
                        raise Refused
            except Refused:
                pass
            time.sleep(random.uniform(0, 0.01))
            if number % 7 == 0:
                raise Refused
    except Refused:
        pass


def insert(connection: psycopg.Connection[Any], order: str) -> None:
    connection.execute("insert into orders values (%s)", [order])


def relay(queue_dsn: str, shop_dsn: str) -> None:
    """Relay until killed, with a slow way back: what is inserted is marked up to a tenth of a second later."""
    app = rs.connect(queue_dsn, work=False, outbox=shop_dsn)
    place: Any = app.outbox
    publish, jobs = place.outbox.publish, app.driver.control().jobs

    def marked_late(*given: Any) -> Any:
        time.sleep(random.uniform(0, 0.1))
        return publish(*given)

    place.outbox.publish = marked_late
    made = app.relay(batch=10, lease="1s", poll="50ms", poll_with_wake="200ms")
    is_there = made._pass._is_there

    def told(row: Any) -> bool:
        found = is_there(row)
        if found:
            print("again", flush=True)  # noqa: T201 - the test counts them
        return found

    vars(made._pass)["_is_there"] = told
    assert jobs is app.driver.control().jobs
    made.start()
    threading.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "shop":
        shop(*sys.argv[2:])
    else:
        relay(*sys.argv[2:])
