"""What an operator's page of jobs costs on a million finished ones, and how fast a set of dead letters comes to life.

Pages are read as `app.operate` answers them: a statement, its rows, a frozen view of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import psycopg

from benchmarks.measure import Figure, interleave
from benchmarks.tables import ROUNDS, app, dsn
from rowsweep.operate.repeat import until_zero

FINISHED = 1_000_000
DEAD = 20_000
PAGES = 50

_BY_HAND = """
select * from x_jobs where (created_at, id) < (%s, %s) order by created_at desc, id desc limit 100"""
_UPDATE_BY_HAND = """
update x_jobs set state = 'ready', attempt = 0, run_at = now(), last_error = null, updated_at = now()
where id in (select id from x_jobs where state = 'dead' and name = 'letter' order by updated_at, id limit 1000
             for update skip locked)"""


def _fill(state: str, name: str, amount: int, age: str) -> None:
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute(
            """insert into x_jobs (id, name, queue, state, input, idempotency_key, run_id, max_attempts, claims, run_at,
                                   created_at, updated_at)
               select uuidv7(), %(name)s, 'default', %(state)s, '{"order": 1}', gen_random_uuid()::text,
                      gen_random_uuid(), 5, 1, now(), at, at
               from (select now() - %(age)s::interval + n * interval '10 ms' as at
                     from generate_series(1, %(amount)s) n) n""",
            {"name": name, "state": state, "amount": amount, "age": age},
        )


@cache
def history() -> tuple[str, Any, Any]:
    """Fill the queue's table, once; answer the cursor and the place of the job in the middle."""
    app()
    _fill("dead", "order", 40, "30 days")
    _fill("done", "order", FINISHED, "10 days")
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute("vacuum analyze x_jobs")
        connection.execute("checkpoint")
        place = connection.execute(
            "select created_at, id from x_jobs order by created_at offset %s limit 1", [FINISHED // 2]
        ).fetchone()
    assert place is not None
    (middle,) = app().operate.list(id_prefix=str(place[1]))
    return middle.cursor, *place


def _milliseconds(read: Callable[[], int], expected: int = 100) -> float:
    """Read the page often, and answer what one cost."""
    assert read() == expected
    began = time.perf_counter()
    for _ in range(PAGES):
        read()
    return (time.perf_counter() - began) * 1_000 / PAGES


def _figure(name: str, ours: Callable[[], float], reference: Callable[[], float], bar: float) -> Figure:
    medians = interleave(ours, reference, ROUNDS)
    return Figure(
        name=name, unit="ms/page", ours=medians.ours, reference=medians.reference, bar=bar, better="lower"
    )  # fmt: skip


def page() -> Figure:
    """Compare a page in the middle with the same seek by hand, whose rows stay tuples."""
    cursor, *place = history()
    with psycopg.connect(dsn(), autocommit=True) as connection:
        return _figure(
            "operate.page",
            lambda: _milliseconds(lambda: len(app().operate.list(after=cursor))),
            lambda: _milliseconds(lambda: len(connection.execute(_BY_HAND, place).fetchall())),
            bar=3.0,
        )


def deep() -> Figure:
    """Compare a page in the middle with the first one."""
    cursor, *_ = history()
    return _figure(
        "operate.page.deep",
        lambda: _milliseconds(lambda: len(app().operate.list(after=cursor))),
        lambda: _milliseconds(lambda: len(app().operate.list())),
        bar=1.5,
    )


def dead() -> Figure:
    """Compare the dead letters, which are the oldest jobs of all, with the first page of any."""
    history()
    return _figure(
        "operate.page.dead",
        lambda: _milliseconds(lambda: len(app().operate.list(state="dead")), 40),
        lambda: _milliseconds(lambda: len(app().operate.list())),
        bar=1.5,
    )


def requeue() -> Figure:
    """Compare requeueing dead letters until zero with a loop that asks for no key and counts nothing."""
    history()

    def ours() -> float:
        _letters()
        began = time.perf_counter()
        moved = sum(r.affected for r in until_zero(lambda n: app().operate.requeue_many(name="letter", limit=n)))
        assert moved == DEAD
        return DEAD / (time.perf_counter() - began)

    def reference() -> float:
        _letters()
        with psycopg.connect(dsn(), autocommit=True) as connection:
            began = time.perf_counter()
            while connection.execute(_UPDATE_BY_HAND).rowcount:
                pass
            return DEAD / (time.perf_counter() - began)

    medians = interleave(ours, reference, ROUNDS)
    return Figure(name="operate.requeue", unit="rows/s", ours=medians.ours, reference=medians.reference, bar=0.2)


def _letters() -> None:
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute("delete from x_jobs where name = 'letter'")
    _fill("dead", "letter", DEAD, "1 day")


FIGURES: dict[str, Callable[[], Figure]] = {
    "operate.page": page,
    "operate.page.deep": deep,
    "operate.page.dead": dead,
    "operate.requeue": requeue,
}
