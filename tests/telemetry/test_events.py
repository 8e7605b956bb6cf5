"""Events: the table is the one of the behaviour, and every event that the sources log is in it."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import rowsweep.errors
from rowsweep.errors import InvariantBroken, UnknownJob
from rowsweep.telemetry.events import ERROR_FIELDS, EVENTS, emit, error_fields

SOURCES = Path(rowsweep.errors.__file__).parent
TABLE = """
jobs.worker.started info worker_id, queues, concurrency, names
jobs.worker.stopped info worker_id, processed, interrupted
jobs.worker.draining info worker_id, reason, in_flight
jobs.worker.drain-abandoned warning worker_id, reason, in_flight, fix
jobs.worker.shed info worker_id, queue, job, job_id, reason, delay_seconds
jobs.worker.slot-lost error worker_id, job, job_id, lease_key, slot
jobs.worker.tick-failed error worker_id, queue
jobs.run.finished info queue, job, job_id, run_id, attempt, outcome, duration_ms, resume_at
jobs.attempt.failed warning job, job_id, attempt, max_attempts, stop_reason, resume_at
jobs.attempt.rate_limited info job, job_id, attempt, delay_seconds
jobs.heartbeat.failed warning worker_id, claims, job_ids
jobs.lease.lost error worker_id, queue, job, job_id, claim, held_seconds
jobs.renewal.raised error worker_id, job_ids
jobs.timeout.abandoned error worker_id, job, job_id, attempt, timeout_seconds
jobs.settle.unowned warning worker_id, job, job_id, claim, verdict
jobs.claim.exhausted error queue, job, job_id, attempt, state
jobs.on_settled.failed error job, job_id, outcome, tries
jobs.result.unstorable warning job, job_id, reason
jobs.wake.proven info channel
jobs.wake.lost warning channel
jobs.scheduler.started info tasks
jobs.scheduler.draining info reason, dispatching
jobs.scheduler.drain-abandoned warning reason, fix
jobs.scheduler.leadership-lost warning at
jobs.scheduler.dispatched info task, occurrence_at, jobs, catch_up, dropped
jobs.scheduler.tick-failed error task
jobs.outbox.tick-failed error
jobs.outbox.unpublishable error outbox_id, job, attempts
sweeps.started info sweep, run_id, kind
sweeps.finished info sweep, run_id, rows, written, batches, active_seconds
sweeps.batch debug sweep, run_id, index, rows, duration_ms, batch_rows
sweeps.batch.shrunk warning sweep, run_id, index, batch_rows, sqlstate
sweeps.row.set-aside warning sweep, run_id, key
sweeps.paused info sweep, run_id, reason
sweeps.resumed info sweep, run_id, reason
sweeps.cancelled info sweep, run_id, reason
sweeps.failed error sweep, run_id, rows
sweeps.code-changed warning sweep, run_id, checksum
"""
ROWS = [line.split(maxsplit=2) for line in TABLE.strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
def test_every_event_has_its_level_and_its_fields(row: list[str]) -> None:
    """D-31, S-424, S-425, S-426, S-427."""
    name, level, *fields = row
    event = EVENTS[name]
    assert logging.getLevelName(event.level) == level.upper()
    assert list(event.fields) == (fields[0].split(", ") if fields else [])


def test_the_name_is_the_message_and_the_fields_ride_on_the_record(caplog: pytest.LogCaptureFixture) -> None:
    """N-112."""
    with caplog.at_level(logging.INFO, logger="rowsweep"):
        emit("jobs.wake.proven", channel="x_jobs")
        emit("sweeps.batch", index=1)
    (record,) = caplog.records
    assert (record.name, record.getMessage(), record.levelno) == ("rowsweep", "jobs.wake.proven", logging.INFO)
    assert record.__dict__["fields"] == {"channel": "x_jobs"}
    assert record.funcName == "test_the_name_is_the_message_and_the_fields_ride_on_the_record"


def test_a_failed_attempt_is_an_error_when_it_is_final(caplog: pytest.LogCaptureFixture) -> None:
    """D-31, S-131."""
    emit("jobs.attempt.failed", job="a", stop_reason=None)
    emit("jobs.attempt.failed", job="a", stop_reason="attempts")
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR]


def test_an_error_adds_its_code_cause_and_fix(caplog: pytest.LogCaptureFixture) -> None:
    """D-31, S-012."""
    emit("jobs.worker.tick-failed", error=UnknownJob("There is none.", fix="rowsweep jobs names"), queue="q")
    fields = caplog.records[0].__dict__["fields"]
    assert {name: fields[name] for name in ERROR_FIELDS} == {
        "error": "UnknownJob: X_JOB_UNKNOWN: There is none. Fix: rowsweep jobs names",
        "code": "X_JOB_UNKNOWN",
        "cause": "There is none.",
        "fix": "rowsweep jobs names",
    }


def test_an_error_is_rendered_without_its_passwords_whatever_it_is() -> None:
    """S-132, N-109, S-138."""

    class Rude(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert error_fields(Rude()) == {"error": "Rude (its text raises SystemExit)"}
    assert error_fields(KeyError()) == {"error": "KeyError"}
    assert error_fields("LEASE_LAPSED_FINAL_ATTEMPT") == {"error": "LEASE_LAPSED_FINAL_ATTEMPT"}
    assert error_fields(OSError("postgresql://a:secret@h/s")) == {"error": "OSError: postgresql://a:***@h/s"}


@pytest.mark.parametrize(
    ("event", "field", "fix"),
    [("jobs.wake.proved", "channel", "Did you mean 'jobs.wake.proven'"), ("jobs.wake.proven", "chanel", "use channel")],
)
def test_an_event_or_field_outside_the_table_is_refused(event: str, field: str, fix: str) -> None:
    """D-31."""
    with pytest.raises(InvariantBroken) as refused:
        emit(event, **{field: "x"})
    assert refused.value.fix.startswith(fix)


def test_a_log_handler_that_raises_never_reaches_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    """N-112."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("exporter is down")

    logger, handler = logging.getLogger("rowsweep"), Broken()
    logger.addHandler(handler)
    try:
        emit("jobs.wake.lost", channel="x_jobs")
    finally:
        logger.removeHandler(handler)
    assert "exporter is down" in capsys.readouterr().err


def emit_calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(SOURCES.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if path.name == "events.py" or not any(
            isinstance(node, ast.ImportFrom) and node.module == "rowsweep.telemetry.events" for node in ast.walk(tree)
        ):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "emit":
                yield f"{path.relative_to(SOURCES)}:{node.lineno}", node


def event_names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.IfExp):
        return [*event_names(node.body), *event_names(node.orelse)]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def test_every_event_that_the_sources_emit_is_in_the_table_with_its_fields() -> None:
    """D-31: so that the refusal of an unknown event is met here and never in a running worker."""
    wrong = []
    for place, call in emit_calls():
        names = event_names(call.args[0])
        fields = {keyword.arg for keyword in call.keywords if keyword.arg} - {"error"}
        if not names:
            wrong.append(f"{place}: the event's name must be written out")
        wrong += [f"{place}: {name} is not in the table" for name in names if name not in EVENTS]
        known = [set(EVENTS[name].fields) for name in names if name in EVENTS]
        wrong += [f"{place}: {names[0]} has no field {sorted(fields - of)}" for of in known if fields - of]
    assert wrong == []
