"""`rowsweep jobs enqueue`, `promote`, `requeue`, `rm`, `pause`, `counters`: verbs over a real database and terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.records import ClaimOptions, claim_of
from rowsweep.queue.verdicts import Done, Settlement
from tests.cli.command_line import CommandLine, write_app
from tests.queue.world import new_job

LETTERS = """
import rowsweep as rs

@rs.job("letter", tenant=lambda order: f"t{order}", input=int, retry=rs.Retry(attempts=2))
def letter(ctx, order): ...
"""


def put(driver: PostgresDriver, dsn: str, amount: int, state: str = "dead", **changes: Any) -> list[str]:
    """Put jobs there that are in the state, behind the driver's back."""
    ids = [str(made.id) for made in driver.stores().jobs.enqueue([new_job(**changes) for _ in range(amount)])]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update x_jobs set state = %s where id = any(%s::uuid[])", [state, ids])
    return ids


def states(rowsweep: CommandLine) -> dict[str, str]:
    return {job["id"]: job["state"] for job in rowsweep("jobs", "ls", "--limit", "200", "--json").json}


def test_a_job_is_enqueued_by_hand(rowsweep: CommandLine, folder: Path) -> None:
    """D-40, S-006: its input is checked, its options are those of `enqueue()`."""
    write_app(folder, LETTERS, "letters")
    flags = ("--key", "k", "--delay", "10m", "--queue", "slow", "--priority", "7", "--tenant", "acme")
    made = rowsweep("jobs", "enqueue", "letter", "42", *flags, "--json").json
    assert (made["name"], made["state"], made["deduplicated"]) == ("letter", "delayed", False)
    shown = rowsweep("jobs", "show", made["id"], "--json").json
    assert (shown["input"], shown["queue"], shown["priority"], shown["tenant_id"]) == (42, "slow", 7, "acme")
    assert (shown["idempotency_key"], shown["max_attempts"]) == ("k", 2)
    again = rowsweep("jobs", "enqueue", "letter", "42", "--key", "k", "--tenant", "acme")
    assert again.out == f"letter {made['id']}: delayed, the live one with that key\n"
    at = rowsweep("jobs", "enqueue", "letter", "1", "--run-at", "2099-01-01T00:00", "--json").json
    assert rowsweep("jobs", "show", at["id"], "--json").json["run_at"] == "2099-01-01T00:00:00+00:00"


def test_a_job_that_cannot_be_is_not_enqueued(rowsweep: CommandLine, folder: Path) -> None:
    """N-106."""
    write_app(folder, LETTERS, "letters")
    refusals = {
        ("letters",): "X_JOB_UNKNOWN",
        ("letter", '"text"'): "X_JOB_INPUT_INVALID",
        ("letter", "1", "--priority", "2000"): "X_OPTION_INVALID",
        ("letter", "1", "--delay", "1m", "--run-at", "2099-01-01"): "X_OPTION_INVALID",
    }
    for arguments, code in refusals.items():
        refused = rowsweep("jobs", "enqueue", *arguments, "--json")
        assert (refused.code, json.loads(refused.err)["code"]) == (1, code)
    assert rowsweep("jobs", "enqueue", "letter", "not json").code == 2
    assert rowsweep("jobs", "enqueue", "letter", "--run-at", "2h").code == 2
    assert states(rowsweep) == {}


def test_one_job_is_promoted(rowsweep: CommandLine, driver: PostgresDriver) -> None:
    """S-398."""
    (made,) = driver.stores().jobs.enqueue([new_job(delay_seconds=60)])
    assert rowsweep("jobs", "promote", str(made.id)).out == f"mail {made.id}: ready\n"
    refused = rowsweep("jobs", "promote", str(made.id), "--json")
    assert (refused.code, json.loads(refused.err)["code"]) == (1, "X_JOB_NOT_PROMOTABLE")


def test_a_set_is_promoted_requeued_and_removed(rowsweep: CommandLine, driver: PostgresDriver, dsn: str) -> None:
    """S-396 to S-399, N-107: `--yes` where there is nobody to ask; promoting takes nothing away and asks nothing."""
    driver.stores().jobs.enqueue([new_job(delay_seconds=60), new_job("other", delay_seconds=60)])
    put(driver, dsn, 3)
    assert rowsweep("jobs", "promote", "--name", "mail", "--json").json == {"affected": 1, "remaining": 0}
    assert rowsweep("jobs", "requeue", "--name", "mail", "--yes").out == "3 requeued\n"
    assert rowsweep("jobs", "requeue", "--name", "mail", "--yes").out == "0 requeued\n"
    assert rowsweep("jobs", "rm", "--name", "other", "--yes", "--json").json == {"affected": 1, "remaining": 0}
    assert list(states(rowsweep).values()) == ["ready"] * 4


def test_a_requeue_of_a_set_is_of_dead_letters(rowsweep: CommandLine, driver: PostgresDriver, dsn: str) -> None:
    """S-396: what is done is done again only where that is said."""
    (dead,), (done,) = put(driver, dsn, 1), put(driver, dsn, 1, "done")
    assert rowsweep("jobs", "requeue", "--queue", "default", "--yes").out == "1 requeued\n"
    assert states(rowsweep) == {dead: "ready", done: "done"}
    assert rowsweep("jobs", "requeue", "--state", "done", "--yes").out == "1 requeued\n"


def test_a_thousand_at_once_and_with_all_until_zero(rowsweep: CommandLine, driver: PostgresDriver, dsn: str) -> None:
    """S-399, D-40."""
    put(driver, dsn, 2_100)
    first = rowsweep("jobs", "requeue", "--state", "dead", "--yes")
    assert first.out == "1,000 requeued, 1,100 left; add --all for the whole set\n"
    assert rowsweep("jobs", "requeue", "--state", "dead", "--all", "--yes").out == "1,100 requeued\n"
    removed = rowsweep("jobs", "rm", "--state", "ready", "--all", "--yes", "--json").json
    assert removed == {"affected": 2_100, "remaining": 0}


def test_neither_an_id_nor_a_set_or_both_is_wrong_usage(
    rowsweep: CommandLine, driver: PostgresDriver, dsn: str
) -> None:
    """N-106, N-107: an id that a script failed to fill in never means everything; without a terminal `--yes` is due."""
    (job_id,) = put(driver, dsn, 1)
    for line in (
        "requeue", "requeue --all --yes", "rm --yes", "promote", f"requeue {job_id} --state dead", f"rm {job_id} --all",
        "requeue --state dead --from-step s --yes", "rm --state deed --yes", "pause", "resume", "requeue --name mail",
        "rm --name mail",
    ):  # fmt: skip
        answer = rowsweep("jobs", *line.split())
        assert (answer.code, answer.out) == (2, ""), line
    assert "--yes" in answer.err
    assert states(rowsweep) == {job_id: "dead"}


def test_a_set_that_cannot_be_moved_is_refused(rowsweep: CommandLine) -> None:
    """S-394, S-397, S-398."""
    refusals = {
        ("requeue", "running"): "X_JOB_NOT_REQUEUEABLE",
        ("rm", "running"): "X_JOB_NOT_REMOVABLE",
        ("promote", "dead"): "X_JOB_NOT_PROMOTABLE",
    }
    for (verb, state), code in refusals.items():
        refused = rowsweep("jobs", verb, "--state", state, "--json")
        assert (refused.code, json.loads(refused.err)["code"]) == (1, code)


def ask(dsn: str, typed: str | None) -> tuple[int, str]:
    """Requeue the `mail` jobs on a terminal of one's own; type the answer, or (None) press Ctrl-C."""
    command = [sys.executable, "-m", "rowsweep.cli", "jobs", "requeue", "--name", "mail", "--dsn", dsn]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        shown = read_until(ours, b"[y/N]")
        if typed is None:
            process.send_signal(signal.SIGINT)
        else:
            os.write(ours, typed.encode())
        shown += read_until(ours, None)
        code = process.wait(60)
    os.close(ours)
    return code, shown.decode()


@pytest.mark.slow
def test_a_terminal_is_asked(rowsweep: CommandLine, driver: PostgresDriver, dsn: str) -> None:
    """N-107: how many of what; only a yes moves anything."""
    ids = put(driver, dsn, 2)
    code, shown = ask(dsn, "\n")
    assert code == 1
    assert "Requeue 2 jobs (state dead, name mail)?" in shown
    assert "Nothing was changed." in shown
    assert states(rowsweep) == dict.fromkeys(ids, "dead")
    code, shown = ask(dsn, "y\n")
    assert (code, "2 requeued" in shown) == (0, True)
    assert states(rowsweep) == dict.fromkeys(ids, "ready")


@pytest.mark.slow
def test_ctrl_c_at_the_question_changes_nothing(rowsweep: CommandLine, driver: PostgresDriver, dsn: str) -> None:
    """N-106, N-107."""
    ids = put(driver, dsn, 2)
    assert ask(dsn, None)[0] == 130
    assert ask(dsn, "n\n")[0] == 1
    assert states(rowsweep) == dict.fromkeys(ids, "dead")


def read_until(terminal: int, mark: bytes | None) -> bytes:
    """Read what a program writes on its terminal, up to a mark or to its end."""
    shown = b""
    while mark is None or mark not in shown:
        try:
            part = os.read(terminal, 1_024)
        except OSError:
            break
        if not part:
            break
        shown += part
    return shown


def test_a_queue_is_paused_and_resumed(rowsweep: CommandLine, driver: PostgresDriver) -> None:
    """D-19, S-402, D-40: both may be done twice."""
    assert rowsweep("jobs", "pauses").out == "Nothing is paused.\n"
    assert rowsweep("jobs", "pause", "--queue", "slow", "--reason", "disk full").out == "queue slow: paused\n"
    again = rowsweep("jobs", "pause", "--queue", "slow", "--reason", "another")
    assert again.out == "queue slow: was paused already; see rowsweep jobs pauses\n"
    assert again.code == 0
    rowsweep("jobs", "pause", "--queue", "slow", "--name", "mail")
    rowsweep("jobs", "pause", "--name", "mail")
    listed = rowsweep("jobs", "pauses", "--json").json
    assert [(pause["queue"], pause["name"]) for pause in listed] == [("slow", None), ("slow", "mail"), (None, "mail")]
    assert (listed[0]["reason"], "@" in listed[0]["paused_by"]) == ("disk full", True)
    assert "disk full" in rowsweep("jobs", "pauses").out
    assert rowsweep("jobs", "resume", "--queue", "slow").out == "queue slow: resumed\n"
    assert rowsweep("jobs", "resume", "--queue", "slow", "--json").json["was_paused"] is False
    assert rowsweep("jobs", "resume", "--name", "mail").out == "mail on every queue: resumed\n"
    assert rowsweep("jobs", "resume", "--queue", "slow", "--name", "mail").out == "mail on queue slow: resumed\n"
    assert rowsweep("jobs", "pauses", "--json").json == []


def test_counters_are_shown_by_tier(rowsweep: CommandLine, driver: PostgresDriver) -> None:
    """D-20, D-40."""
    jobs = driver.stores().jobs
    jobs.enqueue([new_job(), new_job("other")])
    claimed = jobs.claim(ClaimOptions(queues=["default"], names=["mail", "other"], worker_id="w1", limit=2)).jobs
    jobs.settle([Settlement(claim=claim_of(job), verdict=Done(), duration_ms=1_500) for job in claimed])
    for tier in ("minute", "hour", "day"):
        (bucket,) = rowsweep("jobs", "counters", "--name", "mail", "--since", "1h", "--tier", tier, "--json").json
        assert (bucket["tier"], bucket["completed"], bucket["run_ms"]) == (tier, 1, 1_500)
    shown = rowsweep("jobs", "counters").out
    assert "mail" in shown
    assert "1.5 s" in shown
    assert len(rowsweep("jobs", "counters", "--limit", "1", "--json").json) == 1
    assert rowsweep("jobs", "counters", "--since", "soon").code == 2
    assert rowsweep("jobs", "counters", "--name", "nobody").out == "No run has ended in that time.\n"


def test_ids_in_documents_are_text(rowsweep: CommandLine, driver: PostgresDriver, dsn: str) -> None:
    """S-015."""
    (job_id,) = put(driver, dsn, 1)
    assert rowsweep("jobs", "requeue", job_id, "--json").json["id"] == job_id
    assert rowsweep("jobs", "cancel", job_id, "--json").json["id"] == job_id
    assert rowsweep("jobs", "rm", job_id, "--json").json == {"id": job_id, "removed": True}
