"""`rowsweep jobs` over a real database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowsweep.jobs.registry import reset_jobs
from tests.cli.command_line import CommandLine, fill

UNKNOWN = "01998f0a-1b2c-7d3e-8f40-123456789abc"


@pytest.fixture
def job(rowsweep: CommandLine, dsn: str) -> str:
    """The id of the job of a launched sweep."""
    fill(dsn, 10)
    rowsweep("sweeps", "launch", "totals")
    (job,) = rowsweep("jobs", "ls", "--json").json
    return str(job["id"])


def test_jobs_are_listed_and_filtered(rowsweep: CommandLine, job: str) -> None:
    """S-403."""
    assert [found["id"] for found in rowsweep("jobs", "ls", "--name", "totals", "--state", "ready", "--json").json] == [
        job
    ]
    assert rowsweep("jobs", "ls", "--state", "running", "--json").json == []
    assert rowsweep("jobs", "ls", "--queue", "other").out == "No such job.\n"
    assert job in rowsweep("jobs", "ls", "--limit", "200").out


def test_a_job_is_shown_with_its_steps(rowsweep: CommandLine, job: str) -> None:
    """S-403."""
    assert rowsweep("run", "totals").code == 0
    shown = rowsweep("jobs", "show", job, "--steps", "--json").json
    assert shown["state"] == "done"
    assert [step["name"] for step in shown["steps"]][:2] == ["sweep:setup", "sweep:pages"]
    text = rowsweep("jobs", "show", job, "--steps").out
    assert "step sweep:pages" in text


def test_a_job_is_cancelled_requeued_and_removed(rowsweep: CommandLine, job: str) -> None:
    """S-393, S-394, S-395, N-101."""
    assert rowsweep("jobs", "cancel", job, "--reason", "wrong", "--json").json["state"] == "cancelled"
    assert rowsweep("sweeps", "show", "totals", "--json").json["status"] == "cancelled"
    refused = rowsweep("jobs", "cancel", job, "--json")
    assert (refused.code, json.loads(refused.err)["code"]) == (1, "X_JOB_NOT_CANCELLABLE")
    assert rowsweep("jobs", "requeue", job).out == f"totals {job}: ready\n"
    refused = rowsweep("jobs", "requeue", job, "--json")
    assert json.loads(refused.err)["code"] == "X_JOB_NOT_REQUEUEABLE"
    rowsweep("jobs", "cancel", job)
    assert rowsweep("jobs", "rm", job).code == 0
    assert rowsweep("jobs", "ls", "--json").json == []


def test_a_job_is_requeued_from_a_step(rowsweep: CommandLine, job: str) -> None:
    """D-40, S-163: that step and the later ones run again; a step it does not have is refused with those it has."""
    assert rowsweep("run", "totals").code == 0
    refused = rowsweep("jobs", "requeue", job, "--from-step", "sweep:page", "--json")
    assert (refused.code, json.loads(refused.err)["code"]) == (1, "X_OPTION_INVALID")
    assert "sweep:pages" in json.loads(refused.err)["cause"]
    assert rowsweep("jobs", "requeue", job, "--from-step", "sweep:pages").out == f"totals {job}: ready\n"
    shown = rowsweep("jobs", "show", job, "--steps", "--json").json
    assert [step["name"] for step in shown["steps"]] == ["sweep:setup"]


def test_an_unknown_job_is_refused(rowsweep: CommandLine) -> None:
    """S-394, S-395, S-398, S-401."""
    refusals = dict.fromkeys(("show", "requeue", "rm"), "X_JOB_NOT_FOUND")
    refusals |= {"cancel": "X_JOB_NOT_CANCELLABLE", "promote": "X_JOB_NOT_PROMOTABLE"}
    for verb, code in refusals.items():
        refused = rowsweep("jobs", verb, UNKNOWN, "--json")
        assert (refused.code, json.loads(refused.err)["code"]) == (1, code)


def test_dead_letters_are_listed(rowsweep: CommandLine, dsn: str) -> None:
    fill(dsn, 10)
    assert rowsweep("run", "broken").code == 1
    (dead,) = rowsweep("jobs", "dead", "--json").json
    assert (dead["name"], dead["state"]) == ("broken", "dead")
    assert "\x1b" not in rowsweep("jobs", "dead").out


def test_names_that_nobody_declares_stand_out(rowsweep: CommandLine, job: str) -> None:
    names = rowsweep("jobs", "names", "--json").json
    assert [entry["name"] for entry in names["declared"]] == [
        "broken", "mail", "outside", "rowsweep-retention", "totals",
    ]  # fmt: skip
    assert names["undeclared"] == []
    reset_jobs()
    (Path.cwd() / "backfills" / "app.py").write_text("")
    names = rowsweep("jobs", "names", "--json").json
    assert [entry["name"] for entry in names["declared"]] == ["rowsweep-retention"]
    assert names["undeclared"] == [{"queue": "default", "name": "totals", "waiting": 1}]
