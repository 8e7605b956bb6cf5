"""The demo's table: made anew each time, and asked at the end what became of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import InvalidOption

if TYPE_CHECKING:
    from rowsweep.queue.contract import Driver

TABLE: Final = "orders"
_MARK: Final = "made by rowsweep demo"
_ROWS_AT_A_TIME: Final = 100_000

_CREATE: Final = """
create table orders (
    id bigint generated always as identity,
    created_at timestamptz not null,
    customer text not null,
    price numeric(10, 2) not null,
    qty integer not null,
    total numeric,
    band text,
    writes integer not null default 0
) with (fillfactor = 70)
"""
_FILL: Final = """
insert into orders (created_at, customer, price, qty)
select timestamptz '2024-01-01' + n * interval '17 seconds',
       'customer-' || n %% 9973,
       (n * 7919 %% 25000 + 99) / 100.0,
       n %% 7 + 1
from generate_series(%(first)s::bigint, %(last)s) as n
"""
PROOF: Final = """\
select count(*) as rows,
       count(*) filter (where writes = 1) as written_once,
       count(*) filter (where total is distinct from price * qty) as wrong,
       sum(total) as total
from orders"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What the table itself says: how many rows, how many were written exactly once, how many are wrong."""

    rows: int
    written_once: int
    wrong: int
    total: str

    def holds_for(self, rows: int) -> bool:
        """Say whether there are this many rows, each written exactly once with the right value."""
        return self.rows == self.written_once == rows and not self.wrong


def refuse_foreign(driver: Driver) -> None:
    """Refuse a database where a table `orders` is not the demo's, before anything is changed there."""
    with driver.sweep_connection() as connection:
        _refuse_foreign(connection)


def make_orders(driver: Driver, rows: int, made: Callable[[int], None]) -> None:
    """Make the table anew with this many rows, telling `made` how many there are as it goes.

    Raises InvalidOption where a table of that name is not the demo's.
    """
    with driver.sweep_connection() as connection:
        _refuse_foreign(connection)
        with connection.transaction():
            connection.execute("set local client_min_messages = warning")
            connection.execute("drop table if exists orders")
            connection.execute(_CREATE)
            connection.execute(f"comment on table orders is '{_MARK}'")
            for first in range(1, rows + 1, _ROWS_AT_A_TIME):
                last = min(first + _ROWS_AT_A_TIME - 1, rows)
                connection.execute(_FILL, {"first": first, "last": last})
                made(last)
            connection.execute("alter table orders add primary key (id)")
        connection.execute("analyze orders")


def prove(driver: Driver) -> Proof:
    """Ask the table what became of it, in plain SQL."""
    with driver.sweep_connection() as connection:
        rows, once, wrong, total = connection.execute(PROOF).fetchone()
    return Proof(rows=rows, written_once=once, wrong=wrong, total=str(total))


def _refuse_foreign(connection: Any) -> None:
    exists, mark = connection.execute(
        "select to_regclass('orders') is not null, obj_description(to_regclass('orders'), 'pg_class')"
    ).fetchone()
    if exists and mark != _MARK:
        raise InvalidOption(
            "this database has a table orders that is not the demo's, and the demo would replace it.",
            fix="run the demo in another folder: mkdir demo && cd demo && rowsweep demo",
            meta={"table": TABLE},
        )
