"""Orders and their jobs over two databases, with everything killed: as many jobs as orders, each inserted once."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from rowsweep.queue.postgres.install import install
from rowsweep.queue.postgres.outbox.install import install_outbox
from tests.acceptance.harness import Process, Site, until
from tests.acceptance.jobs import relaying
from tests.places import own_database

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

SCRIPT = str(Path(relaying.__file__))
KILLS, SECONDS = 30, 30.0
RELAYS, SHOPS = 3, 2
_said = logging.getLogger("storm")

# Each job is finished as it arrives, so that no key of a live one hides a second insertion: only its id can.
WITNESS = """
create table inserted (number bigint generated always as identity, id uuid not null);
create function finish() returns trigger language plpgsql as $$
begin
  insert into inserted (id) values (new.id);
  new.state := 'done';
  return new;
end $$;
create trigger finish before insert on x_jobs for each row execute function finish();
"""


@pytest.fixture
def shop_dsn(server_dsn: str) -> Iterator[str]:
    """The application's database: its orders, and an outbox alone."""
    with own_database(server_dsn) as dsn:
        install_outbox(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create table orders (id text primary key)")
        yield dsn


class Storm:
    """Shops and relays that are killed and started again."""

    def __init__(self, site: Site, shop_dsn: str) -> None:
        self.site = site
        self.shop_dsn = shop_dsn
        self.shops: list[Process] = []
        self.relays: list[Process] = []
        self.numbers = iter(range(1, 1_000_000))

    def start_shop(self) -> Process:
        name = f"shop{next(self.numbers)}"
        return self.site.start(name, [SCRIPT, "shop", name, self.site.dsn, self.shop_dsn])

    def start_relay(self) -> Process:
        name = f"relay{next(self.numbers)}"
        return self.site.start(name, [SCRIPT, "relay", self.site.dsn, self.shop_dsn])

    def begin(self) -> None:
        self.shops = [self.start_shop() for _ in range(SHOPS)]
        self.relays = [self.start_relay() for _ in range(RELAYS)]

    def kill_one(self, *, is_relay: bool) -> None:
        """Kill a process and start another; now and then a relay is stopped past its lease instead, and wakes again."""
        crew, start = (self.relays, self.start_relay) if is_relay else (self.shops, self.start_shop)
        victim = random.choice(crew)
        if is_relay and random.random() < 0.3:
            victim.stop()
            time.sleep(1.5)
            victim.wake()
            return
        victim.kill()
        crew[crew.index(victim)] = start()

    def pending(self) -> int:
        with psycopg.connect(self.shop_dsn) as connection:
            found = connection.execute("select count(*) from x_outbox where published_at is null").fetchone()
        assert found is not None
        return int(found[0])


def test_as_many_jobs_as_committed_orders_whatever_is_killed(
    dsn: str, shop_dsn: str, sites: Callable[[str], Site]
) -> None:
    """N-014, D-22, S-361: nothing before the commit, everything after it, and each row published once."""
    seed = random.randrange(2**32)
    _said.warning("seed %d", seed)
    random.seed(seed)
    install(dsn)
    site = sites(dsn)
    site.connection.execute(WITNESS)
    storm = Storm(site, shop_dsn)
    storm.begin()
    until(lambda: site.one("select count(*) as n from x_jobs")["n"] > 20, site.shown)
    for number in range(KILLS):
        time.sleep(random.uniform(0, 2 * SECONDS / KILLS))
        storm.kill_one(is_relay=number % 3 != 0)
    for shop in storm.shops:
        shop.kill()
    until(lambda: storm.pending() == 0, site.shown, seconds=90)

    with psycopg.connect(shop_dsn) as connection:
        orders = {row[0] for row in connection.execute("select id from orders")}
        (staged,) = connection.execute("select count(*) from x_outbox").fetchall()
        failed = connection.execute("select attempts, last_error from x_outbox where attempts > 0").fetchall()
    jobs = [row["input"] for row in site.connection.execute("select input from x_jobs")]
    inserted = site.one("select count(*) as rows, count(distinct id) as ids from inserted")
    again = sum(process.out.count("again") for process in site.processes)
    _said.warning("%d orders, %d found again by their ids, %d processes", len(orders), again, len(site.processes))
    assert len(orders) > 500
    assert sorted(jobs) == sorted(orders)
    assert failed == []
    assert staged == (len(orders),)
    assert (inserted["rows"], inserted["ids"]) == (len(orders), len(orders))
    assert again > 0
