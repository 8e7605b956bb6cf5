"""`rowsweep outbox`, `relay` and `schema … --outbox-only`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import rowsweep as rs
from tests.cli.command_line import CommandLine, wait_until, write_app
from tests.places import own_database

OUTBOX_JOB = """
from __future__ import annotations

import rowsweep as rs

send = rs.job("send", lambda _ctx, _value: None, tenant="none", input=int)
"""


@pytest.fixture
def job() -> rs.JobHandle[int, None]:
    return rs.job("send", lambda _ctx, _value: None, tenant="none", input=int)


def stage(rowsweep: CommandLine, job: rs.JobHandle[int, None], *values: int) -> list[str]:
    """Stage a job of each value in the queue's own database; answer the ids."""
    app = rs.connect(rowsweep.dsn, work=False)
    with rs.transaction():
        answers = [str(job.enqueue(value, outbox=True).id) for value in values]
    app.close()
    return answers


def bury(rowsweep: CommandLine, row: str) -> None:
    with psycopg.connect(rowsweep.dsn, autocommit=True) as connection:
        connection.execute(
            "update x_outbox set dead_at = now(), attempts = 20, last_error = %s where id = %s",
            ["ValueError: \x1b[31mno\nline", row],
        )


def test_staged_jobs_are_listed(rowsweep: CommandLine, job: rs.JobHandle[int, None]) -> None:
    """D-40: what waits; `--dead` and `--all` beside it; a terminal's control characters stay text."""
    assert "Nothing is staged." in rowsweep("outbox", "ls").out
    first, second, third = stage(rowsweep, job, 1, 2, 3)
    bury(rowsweep, second)
    with psycopg.connect(rowsweep.dsn, autocommit=True) as connection:
        connection.execute("update x_outbox set published_at = now() where id = %s", [third])
    assert [row["id"] for row in rowsweep("outbox", "ls", "--json").json] == [first]
    (dead,) = rowsweep("outbox", "ls", "--dead", "--json").json
    assert (dead["id"], dead["status"], dead["attempts"], dead["input"]) == (second, "dead", 20, 2)
    shown = rowsweep("outbox", "ls", "--all").out
    assert [first in shown, second in shown, third in shown] == [True] * 3
    assert "\x1b" not in shown
    assert "published" in shown
    assert rowsweep("outbox", "ls", "--limit", "0", "--json").json == []


def test_dead_rows_are_retried_by_id_or_all(rowsweep: CommandLine, job: rs.JobHandle[int, None]) -> None:
    """D-40, D-22."""
    rows = stage(rowsweep, job, 1, 2, 3)
    for row in rows:
        bury(rowsweep, row)
    assert rowsweep("outbox", "retry", rows[0]).out == "1 staged job due again\n"
    assert rowsweep("outbox", "retry", "--all", "--json").json == {"retried": rows[1:]}
    assert len(rowsweep("outbox", "ls", "--json").json) == 3
    unknown = rowsweep("outbox", "retry", "01998f0a-1b2c-7d3e-8f40-123456789abc")
    assert (unknown.code, "rowsweep outbox ls --all" in unknown.err) == (1, True)
    assert rowsweep("outbox", "retry").code == 2
    assert rowsweep("outbox", "retry", rows[0], "--all").code == 2


@pytest.fixture
def shop_dsn(server_dsn: str) -> Iterator[str]:
    """A database of its own with nothing in it."""
    with own_database(server_dsn) as dsn:
        yield dsn


def test_an_outbox_alone_is_installed_printed_and_looked_for(
    rowsweep: CommandLine, shop_dsn: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-40, S-072: `--outbox-only`; without a database to name it is wrong usage."""
    shop = CommandLine(shop_dsn, capsys)
    assert "create table if not exists x_outbox" in shop("schema", "print", "--outbox-only").out
    due = shop("schema", "status", "--outbox-only")
    assert (due.code, "rowsweep schema install --outbox-only" in due.out) == (1, True)
    assert shop("schema", "install", "--outbox-only").code == 0
    again = shop("schema", "install", "--outbox-only", "--json")
    assert (again.code, again.json["is_installed"], again.json["has_queue"]) == (0, True, False)
    assert shop("schema", "status", "--outbox-only").code == 0
    assert rowsweep("schema", "status", "--outbox-only", "--json").json["has_queue"] is True


def test_a_relay_s_process_publishes_from_another_database_and_drains(
    rowsweep: CommandLine, shop_dsn: str, capsys: pytest.CaptureFixture[str], job: rs.JobHandle[int, None], folder: Path
) -> None:
    """D-40, N-004, N-108: `rowsweep relay --outbox-dsn`; a folder that does not import is none of its business."""
    write_app(folder, "raise ValueError('none of the relay business')")
    assert CommandLine(shop_dsn, capsys)("schema", "install", "--outbox-only").code == 0
    app = rs.connect(rowsweep.dsn, work=False, outbox=shop_dsn)
    with rowsweep.process("relay", "--outbox-dsn", shop_dsn, "--json") as relay, psycopg.connect(shop_dsn) as shop:
        with shop.transaction():
            job.enqueue_many([1, 2, 3], tx=shop)
        wait_until(lambda: [queue.ready for queue in app.stores().jobs.stats()] == [3])
        listed = rowsweep("outbox", "ls", "--all", "--json", "--outbox-dsn", shop_dsn).json
        assert [row["status"] for row in listed] == ["published"] * 3
        relay.send_signal(signal.SIGTERM)
        assert relay.wait(60) == 0
    app.close()


@pytest.mark.slow
def test_up_publishes_what_is_staged(rowsweep: CommandLine, job: rs.JobHandle[int, None], folder: Path) -> None:
    """D-40: worker, scheduler and relay in one process."""
    write_app(folder, OUTBOX_JOB)
    with rowsweep.process("up", "--json"):
        stage(rowsweep, job, 1, 2)
        app = rs.connect(rowsweep.dsn, work=False)
        wait_until(lambda: [queue.done for queue in app.stores().jobs.stats() if queue.queue == "default"] == [2])
        app.close()


def test_doctor_looks_at_the_outbox_of_another_database(
    rowsweep: CommandLine, shop_dsn: str, capsys: pytest.CaptureFixture[str], job: rs.JobHandle[int, None]
) -> None:
    """S-357: rows that nobody has published for a minute, and a database without the table."""
    missing = finding(rowsweep, shop_dsn)
    assert (missing["level"], "has no x_outbox" in missing["says"]) == ("fail", True)
    assert CommandLine(shop_dsn, capsys)("schema", "install", "--outbox-only").code == 0
    assert finding(rowsweep, shop_dsn)["level"] == "ok"
    app = rs.connect(rowsweep.dsn, work=False, outbox=shop_dsn)
    with psycopg.connect(shop_dsn) as shop:
        job.enqueue(1, tx=shop)
        shop.execute("update x_outbox set created_at = now() - interval '2 minutes'")
    app.close()
    late = finding(rowsweep, shop_dsn)
    assert (late["level"], "no relay publishes them" in late["says"]) == ("fail", True)
    assert "rowsweep relay" in late["fix"]


def finding(rowsweep: CommandLine, shop_dsn: str) -> dict[str, str]:
    """Answer what the doctor says of the outbox."""
    findings = rowsweep("doctor", "--json", "--outbox-dsn", shop_dsn).json["findings"]
    return next(one for one in findings if one["name"] == "outbox")
