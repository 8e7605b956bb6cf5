"""What the doctor says of what it is shown, and of a queue that is really unwell."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from rowsweep.clock import SystemClock
from rowsweep.errors import DriverUnavailable
from rowsweep.operate.health import purges, server, upkeep, work
from rowsweep.operate.health.examine import examine, unreachable
from rowsweep.operate.health.finding import Finding, ago
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.stores.health import Kept, ServerFacts, TableFacts
from rowsweep.queue.stores.holds import Pause
from rowsweep.queue.stores.outbox import Backlog
from rowsweep.queue.stores.schedules import Leadership
from rowsweep.sweeps.snapshot import Snapshot
from rowsweep.telemetry.instruments import Depth
from rowsweep.testing.clock import FakeClock
from tests.cli.test_main import parse
from tests.queue.world import worker_info
from tests.show.snapshots import snapshot

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
FACTS = ServerFacts(
    now=NOW, version="18.1", is_standby=False, connections=10, max_connections=100, role="app", role_limit=None,
    oldest_transaction_seconds=0.0, oldest_transaction_pid=None,
)  # fmt: skip
YOUNG = Kept(done_seconds=None, dead_seconds=None)
EMPTY = Backlog(pending=0, oldest_pending_seconds=None, dead=0)
QUIET = Depth(queue="default", ready=0, dead=0, oldest_ready_seconds=0.0)
DAY = 86_400.0


def depth(**changes: Any) -> Depth:
    return replace(QUIET, **changes)


def retention(**old: Any) -> Finding:
    return upkeep.look_at_retention(replace(YOUNG, **old), None, NOW)


def outbox(**changes: Any) -> Finding:
    return upkeep.look_at_outbox(replace(EMPTY, **changes))


def lease(expires_in: float) -> Leadership:
    return Leadership(
        name="scheduler", holder="box:7:a", acquired_at=NOW - timedelta(hours=3),
        expires_at=NOW + timedelta(seconds=expires_in),
    )  # fmt: skip


def bloated(dead: int, live: int) -> list[TableFacts]:
    return [TableFacts(table="x_jobs", live_rows=live, dead_rows=dead, vacuumed_at=None)]


def pause(**changes: Any) -> Pause:
    given: dict[str, Any] = {"queue": "mail", "name": None, "paused_by": "ann@box", "reason": "deploy"}
    return Pause(paused_at=NOW, **(given | changes))


def refused(hour: int, **changes: Any) -> Snapshot:
    given: dict[str, Any] = {
        "name": "retention", "kind": "purge", "status": "failed", "last_error_code": "X_PURGE_IMPLAUSIBLE",
        "last_error": "X_PURGE_IMPLAUSIBLE: too much. Fix: rowsweep run retention --confirm 0.41",
        "updated_at": NOW.replace(hour=hour),
    }  # fmt: skip
    return snapshot(**(given | changes))


SHOWN: list[tuple[Finding, str, str]] = [
    (server.look_at_server(FACTS, "db"), "ok", "PostgreSQL 18.1 at db"),
    (server.look_at_server(replace(FACTS, is_standby=True), "db"), "fail", "standby: it takes no writes"),
    (server.look_at_room(FACTS), "ok", "10 of 100 in use"),
    (server.look_at_room(replace(FACTS, connections=95)), "warn", "95 of 100 are in use"),
    (server.look_at_room(replace(FACTS, role_limit=3)), "fail", "the role app may hold 3; a worker needs 4"),
    (server.look_at_room(replace(FACTS, role_limit=20)), "ok", "10 of 100"),
    (server.look_at_clock(FACTS, NOW + timedelta(seconds=4.9)), "ok", "+4.9 s"),
    (server.look_at_clock(FACTS, NOW - timedelta(seconds=0.01)), "ok", "+0.0 s"),
    (server.look_at_clock(FACTS, NOW + timedelta(seconds=5.1)), "warn", "5.1 s ahead of the database's"),
    (server.look_at_clock(FACTS, NOW - timedelta(minutes=2)), "warn", "120.0 s behind the database's"),
    (server.look_at_tables(bloated(9_999, 1), FACTS), "ok", "no dead rows"),
    (server.look_at_tables(bloated(50_000, 60_000), FACTS), "ok", "no dead rows"),
    (server.look_at_tables(bloated(50_000, 10), FACTS), "warn", "x_jobs has 50,000 dead rows beside 10"),
    (
        server.look_at_tables([], replace(FACTS, oldest_transaction_seconds=7_200.0, oldest_transaction_pid=42)),
        "warn",
        "pid 42 has had a transaction open for 2 h",
    ),
    (work.look_at_workers([worker_info("w")], []), "ok", "1 alive, 2 runs in flight"),
    (work.look_at_workers([worker_info("w", in_flight=1)], []), "ok", "1 alive, 1 run in flight"),
    (work.look_at_workers([], [QUIET]), "warn", "no worker is alive"),
    (work.look_at_workers([], [depth(ready=4)]), "fail", "4 jobs are ready"),
    (work.look_at_undeclared([("q", "mail", 5)], [worker_info("w")]), "warn", "mail (5 on q)"),
    (work.look_at_undeclared([("q", "mail", 5)], []), "ok", "no live worker"),
    (work.look_at_undeclared([], [worker_info("w")]), "ok", "every waiting job"),
    (work.look_at_ready([depth(ready=3, oldest_ready_seconds=59.0)]), "ok", "3 ready"),
    (work.look_at_ready([QUIET, depth(queue="a", oldest_ready_seconds=300.0)]), "warn", "'a' has waited for 5 min"),
    (work.look_at_ready([depth(ready=9, oldest_ready_seconds=300.0, is_capped=True)]), "warn", "at least 9"),
    (work.look_at_ready([]), "ok", "0 ready"),
    (work.look_at_dead([QUIET]), "ok", "no dead letter"),
    (work.look_at_dead([depth(dead=1_200)]), "warn", "1,200 on default"),
    (work.look_at_pauses([]), "ok", "nothing is held"),
    (work.look_at_pauses([pause()]), "warn", "the queue 'mail' since 2025-06-01 12:00 UTC by ann@box (deploy)"),
    (work.look_at_pauses([pause(name="a", reason=None)]), "warn", "the job 'a' of the queue 'mail'"),
    (work.look_at_sweeps([snapshot(words="running")]), "ok", "1 at work, none stalled"),
    (work.look_at_sweeps([snapshot(waiting_for="replica 'r'")]), "ok", "; waiting: order-totals for replica 'r'"),
    (work.look_at_sweeps([snapshot(waiting_for="rate")]), "ok", "1 at work, none stalled"),
    (work.look_at_sweeps([snapshot(words="stalled")]), "fail", "held by no live worker"),
    (purges.look_at_purges([]), "ok", "none is refused"),
    (purges.look_at_purges([snapshot(), refused(3), refused(2)]), "warn", "(2 times, last at 2025-06-01 03:"),
    (purges.look_at_purges([refused(3), snapshot(name="retention", status="done"), refused(1)]), "warn", "(once, at"),
    (purges.look_at_purges([snapshot(name="retention", status="done"), refused(3)]), "ok", "none is refused"),
    (purges.look_at_purges([refused(3, last_error_code="X_TIMEOUT"), refused(2)]), "ok", "none is refused"),
    (upkeep.look_at_scheduler([lease(20)], NOW), "ok", "led by box:7:a, for 3 h"),
    (upkeep.look_at_scheduler([lease(-300)], NOW), "fail", "ran out 5 min ago"),
    (upkeep.look_at_scheduler([lease(-300), lease(20)], NOW), "ok", "led by box:7:a"),
    (upkeep.look_at_scheduler([], NOW), "warn", "no scheduler leads"),
    (upkeep.look_at_retention(YOUNG, None, NOW), "ok", "nothing is old enough"),
    (retention(done_seconds=7.2 * DAY), "warn", "7 d old (7 d are kept); a pass has never ended"),
    (retention(done_seconds=7.01 * DAY), "ok", "nothing"),
    (retention(dead_seconds=29 * DAY), "ok", "nothing"),
    (retention(dead_seconds=33 * DAY), "warn", "33 d old (30 d"),
    (upkeep.look_at_outbox(EMPTY), "ok", "empty"),
    (outbox(pending=7, oldest_pending_seconds=2.0), "ok", "7 waiting"),
    (outbox(pending=7, oldest_pending_seconds=600.0), "fail", "7 staged jobs wait"),
    (outbox(dead=2), "warn", "2 staged jobs could not"),
]  # fmt: skip


def test_a_name_in_a_fix_is_one_word_of_a_shell() -> None:
    """S-403, D-24: a queue's name may hold what a shell takes for more."""
    odd = "a b; ls"
    late, held = (
        work.look_at_ready([depth(queue=odd, oldest_ready_seconds=300.0)]),
        work.look_at_pauses([pause(queue=odd)]),
    )
    assert "--queue 'a b; ls'," in late.fix
    assert held.fix.startswith("rowsweep jobs resume --queue 'a b; ls';")


@pytest.mark.parametrize(("finding", "level", "says"), SHOWN)
def test_each_look_tells_well_from_unwell(finding: Finding, level: str, says: str) -> None:
    """N-105, S-219, S-357: each finding has a fix, and only what is well has none."""
    assert (finding.level, says in finding.says) == (level, True), finding
    assert bool(finding.fix) is (level != "ok")


def test_every_command_that_a_fix_names_can_be_typed() -> None:
    """S-403, S-432."""
    named = {found.strip() for finding, _, _ in SHOWN for found in re.findall(r"rowsweep [^,;:]+", finding.fix)}
    assert len(named) > 10
    for command in named:
        assert " ".join(parse(command)) in command


def test_a_pass_that_ended_lately_is_not_late() -> None:
    """N-105: what it left it will take with the next budget."""
    overdue = replace(YOUNG, done_seconds=9 * DAY)
    for minutes, level in ((30, "ok"), (200, "warn")):
        ended = snapshot(status="done", finished_at=NOW - timedelta(minutes=minutes))
        assert upkeep.look_at_retention(overdue, ended, NOW).level == level


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (200_000, "2 d")]
)
def test_ages_are_told_in_one_unit(seconds: float, text: str) -> None:
    assert ago(seconds) == text


def levels(driver: Any, clock: Any = None) -> dict[str, str]:
    return {finding.name: finding.level for finding in examine(driver, clock or SystemClock()).findings}


def test_a_queue_that_nobody_works_is_told(connected: PostgresDriver) -> None:
    """N-105, S-219: over a real server, wake included."""
    found = examine(connected, SystemClock())
    assert not found.is_well
    assert {finding.name: finding.level for finding in found.findings if finding.level != "ok"} == {
        "workers": "warn",
        "scheduler": "warn",
    }
    assert [finding.name for finding in found.findings] == [
        "connection", "schema", "connections", "clock", "wake", "workers", "undeclared", "ready", "dead", "pauses",
        "sweeps", "purges", "scheduler", "retention", "outbox", "tables",
    ]  # fmt: skip
    assert [finding.name for finding in found.troubles] == ["workers", "scheduler"]
    assert found.as_json()["is_well"] is False
    assert "warn  workers" in repr(found)


def test_a_queue_that_is_worked_is_well(connected: PostgresDriver) -> None:
    """N-105: a live worker and a leader are all it takes."""
    stores = connected.stores()
    assert stores.workers is not None
    assert stores.leader is not None
    stores.workers.look(queues=[], names=[], announce=worker_info("w1"))
    stores.leader.acquire("scheduler", "box:1:a", lease_seconds=30)
    found = examine(connected, SystemClock())
    assert found.is_well, found
    assert found.troubles == ()


def test_a_worker_that_hears_no_wake_is_told(connected: PostgresDriver) -> None:
    """N-105, D-21."""
    workers = connected.stores().workers
    assert workers is not None
    workers.look(queues=[], names=[], announce=worker_info("w1", wake=False))
    assert levels(connected)["wake"] == "warn"


def test_behind_a_pooler_the_wake_is_not_asked_for(dsn: str, connected: PostgresDriver) -> None:
    """N-105, S-382."""
    driver = PostgresDriver(dsn, pooler=True)
    try:
        assert levels(driver)["wake"] == "ok"
    finally:
        driver.close()


def test_a_clock_that_is_off_is_told(connected: PostgresDriver) -> None:
    """N-105."""
    assert levels(connected)["clock"] == "ok"
    assert levels(connected, FakeClock())["clock"] == "warn"


def test_a_database_without_tables_is_one_finding(dsn: str) -> None:
    """N-105, N-026: what cannot be asked is not guessed at."""
    driver = PostgresDriver(dsn)
    found = examine(driver, SystemClock())
    driver.close()
    assert [(finding.name, finding.level) for finding in found.findings] == [("connection", "ok"), ("schema", "fail")]
    assert found.findings[1].fix == "rowsweep schema install"


def test_a_server_that_is_gone_is_one_finding_and_shows_no_password() -> None:
    """N-105, N-109."""
    driver = PostgresDriver("postgresql://me:secret@127.0.0.1:1/shop")
    found = examine(driver, SystemClock())
    assert [(finding.name, finding.level) for finding in found.findings] == [("connection", "fail")]
    assert "secret" not in repr(found)
    refused = unreachable(DriverUnavailable("no wheel", fix="pip install it"), "here", SystemClock())
    assert [(finding.says, finding.fix) for finding in refused.findings] == [("no wheel", "pip install it")]


def test_what_may_not_be_read_spoils_only_its_own_look(
    connected: PostgresDriver, dsn: str, connection: psycopg.Connection[Any]
) -> None:
    """N-105: the other findings are still there."""
    connection.execute("drop table x_job_pauses")
    connection.execute("create view x_job_pauses as select 1 as queue")
    found = {finding.name: finding for finding in examine(connected, SystemClock()).findings}
    assert found["schema"].level == "fail"
    connection.execute("drop view x_job_pauses")
    connection.execute("create table x_job_pauses (queue text)")
    found = {finding.name: finding for finding in examine(connected, SystemClock()).findings}
    assert found["pauses"].level == "fail"
    assert found["pauses"].fix
    assert found["sweeps"].level == "ok"


def test_the_memory_driver_can_be_looked_at() -> None:
    """N-105."""
    assert levels(MemoryDriver())["workers"] == "warn"


def test_a_stalled_sweep_is_told(connected: PostgresDriver, connection: psycopg.Connection[Any]) -> None:
    """N-105: `running` in the ledger, and its job's lease has lapsed."""
    run_id = UUID(int=7)
    connection.execute(
        "insert into x_backfills (run_id, name, kind, checksum, environment, status, started_at, updated_at)"
        " values (%s, 'totals', 'backfill', 'c', 'test', 'running', now(), now())",
        [run_id],
    )
    found = {finding.name: finding for finding in examine(connected, SystemClock()).findings}
    assert found["sweeps"].level == "fail"
    assert str(run_id) in found["sweeps"].says


def test_the_application_s_own_outbox_is_looked_at(connected: PostgresDriver) -> None:
    """N-105, S-357: the one that the app was connected with, else the queue's."""
    elsewhere = MemoryDriver().stores().outbox
    assert elsewhere is not None
    elsewhere.backlog = lambda: Backlog(pending=3, oldest_pending_seconds=90.0, dead=0)  # type: ignore[method-assign]
    told = {finding.name: finding for finding in examine(connected, SystemClock(), elsewhere).findings}
    assert (told["outbox"].level, "3 staged jobs wait" in told["outbox"].says) == ("fail", True)
    assert levels(connected)["outbox"] == "ok"
