"""`rowsweep jobs ls`, `dead`, `stats`, `workers`, `names`: pages, filters and counts over a real database."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from rowsweep.cli.commands.jobs.flags import read_instant
from rowsweep.clock import SystemClock
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.records import ClaimOptions, claim_of
from rowsweep.queue.verdicts import Bury, Settlement
from tests.cli.command_line import CommandLine
from tests.queue.world import ERROR, new_job, worker_info


def test_pages_are_walked_by_the_cursors_in_the_documents(rowsweep: CommandLine, driver: PostgresDriver) -> None:
    """S-388, N-106: forth and back, in JSON; a full page says on stderr how to get the next."""
    ids = [str(answer.id) for answer in driver.stores().jobs.enqueue([new_job() for _ in range(5)])][::-1]
    first = rowsweep("jobs", "ls", "--limit", "2", "--json").json
    second = rowsweep("jobs", "ls", "--limit", "2", "--after", first[-1]["cursor"], "--json").json
    assert [job["id"] for job in first + second] == ids[:4]
    back = rowsweep("jobs", "ls", "--limit", "2", "--before", second[0]["cursor"], "--json").json
    assert back == first
    page = rowsweep("jobs", "ls", "--limit", "2")
    assert f"--after {first[-1]['cursor']}" in page.err
    assert rowsweep("jobs", "ls", "--limit", "9").err == ""


def test_a_job_s_progress_is_shown_as_a_bar(rowsweep: CommandLine, driver: PostgresDriver) -> None:
    """D-18: in the document as it is stored."""
    (answer,) = driver.stores().jobs.enqueue([new_job()])
    options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w", limit=1)
    (job,) = driver.stores().jobs.claim(options).jobs
    said = {"current": 1, "total": 4, "message": "resizing"}
    assert driver.stores().jobs.record_progress(claim_of(job), said)
    assert "█████░░░░░░░░░░░░░░░ 25 % · 1 of 4 · resizing" in rowsweep("jobs", "show", str(answer.id)).out
    assert rowsweep("jobs", "show", str(answer.id), "--json").json["progress"] == said


def test_a_page_that_cannot_be_is_refused(rowsweep: CommandLine) -> None:
    """S-391, N-106."""
    for line in ("--limit 201", "--after x", "--before x", "--after x --before x"):
        refused = rowsweep("jobs", "ls", *line.split(), "--json")
        assert (refused.code, json.loads(refused.err)["code"], refused.out) == (1, "X_JOB_PAGE_INVALID", "")


def test_jobs_are_found_by_id_and_by_when_they_were_made(rowsweep: CommandLine, driver: PostgresDriver) -> None:
    """S-389, D-40."""
    (wanted, other) = (answer.id for answer in driver.stores().jobs.enqueue([new_job(), new_job()]))
    assert [job["id"] for job in rowsweep("jobs", "ls", "--id-prefix", str(other), "--json").json] == [str(other)]
    assert len(rowsweep("jobs", "ls", "--from", "1h", "--to", "2099-01-01", "--json").json) == 2
    assert rowsweep("jobs", "ls", "--to", "1h", "--json").json == []
    assert wanted != other
    assert rowsweep("jobs", "ls", "--from", "yesterday").code == 2
    assert json.loads(rowsweep("jobs", "ls", "--id-prefix", "x", "--json").err)["code"] == "X_OPTION_INVALID"


def test_an_instant_is_utc_unless_it_says_otherwise() -> None:
    """D-40."""
    assert read_instant("2026-03-01T04:30", flag="--from") == datetime(2026, 3, 1, 4, 30, tzinfo=UTC)
    assert read_instant("2026-03-01T04:30+02:00", flag="--from") == datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
    ago = read_instant("90m", flag="--from")
    assert ago is not None
    assert timedelta(minutes=89) < SystemClock().now() - ago < timedelta(minutes=91)
    assert read_instant(None, flag="--from") is None


def test_a_waiting_job_without_a_worker_is_marked(rowsweep: CommandLine, driver: PostgresDriver) -> None:
    """DESIGN §4: `jobs ls` says that nobody declares it; a live worker on another queue is none for it."""
    driver.stores().jobs.enqueue([new_job("mail"), new_job("mail", queue="slow")])
    workers = driver.stores().workers
    assert workers is not None
    workers.look(queues=["default"], names=["mail"], announce=worker_info("w1"))
    found = rowsweep("jobs", "ls", "--json").json
    assert {job["queue"]: job["has_worker"] for job in found} == {"default": True, "slow": False}
    assert rowsweep("jobs", "ls").out.count("ready, no worker has it") == 1


def test_queues_are_counted_and_workers_listed(rowsweep: CommandLine, driver: PostgresDriver) -> None:
    """N-111, D-21, S-090."""
    stores = driver.stores()
    assert rowsweep("jobs", "stats").out == "No job is in any queue.\n"
    stores.jobs.enqueue([new_job(), new_job(), new_job(delay_seconds=60)])
    (job,) = stores.jobs.claim(ClaimOptions(queues=["default"], names=["mail"], worker_id="w1", limit=1)).jobs
    stores.jobs.settle([Settlement(claim=claim_of(job), verdict=Bury(error=ERROR))])
    (queue,) = rowsweep("jobs", "stats", "--json").json
    assert (queue["queue"], queue["ready"], queue["delayed"], queue["dead"], queue["due"]) == ("default", 1, 1, 1, 1)
    assert "default" in rowsweep("jobs", "stats").out
    assert "ValueError: no" in rowsweep("jobs", "dead").out
    assert rowsweep("jobs", "workers", "--json").json == []
    assert stores.workers is not None
    stores.workers.look(queues=["default"], names=["mail"], announce=worker_info("w1"))
    (worker,) = rowsweep("jobs", "workers", "--json").json
    assert (worker["id"], worker["queues"], worker["in_flight"]) == ("w1", ["default"], 2)
    assert "box:42" in rowsweep("jobs", "workers").out
    for what in ("workers", "stats"):
        assert len(rowsweep("jobs", what, "--json", "--limit", "1").json) == 1
        assert rowsweep("jobs", what, "--json", "--limit", "0").json == []
    assert rowsweep("jobs", "names", "--json", "--limit", "0").json == {"declared": [], "undeclared": []}
