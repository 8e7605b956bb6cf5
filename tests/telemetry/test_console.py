"""The commands' log lines: one event a line, safe for terminals and for parsers."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from rowsweep.errors import InvalidOption, UnknownJob
from rowsweep.telemetry.console import configure_logging
from rowsweep.telemetry.events import emit


@pytest.fixture(autouse=True)
def _logger_as_it_was() -> Iterator[None]:
    logger = logging.getLogger("rowsweep")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before
    logger.setLevel(before[1])


def lines(stream: io.StringIO) -> list[str]:
    """Answer the lines without their times."""
    return [line.partition(" ")[2] for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_of_keys_and_values() -> None:
    """N-112."""
    configure_logging(stream=(out := io.StringIO()))
    emit(
        "jobs.worker.started",
        worker_id=UUID(int=7),
        queues=("default", "slow"),
        concurrency=8,
        names=["send mail", "x"],
    )
    emit("jobs.run.finished", job="a b", outcome="done", duration_ms=12.3456789, resume_at=None)
    names = 'queues=default,slow concurrency=8 names=["send mail", "x"]'
    assert lines(out) == [
        f"info jobs.worker.started worker_id={UUID(int=7)} {names}",
        'info jobs.run.finished job="a b" outcome=done duration_ms=12.3457',
    ]


def test_the_line_starts_with_its_time_in_utc() -> None:
    handler = configure_logging(stream=io.StringIO())
    record = logging.LogRecord("rowsweep", logging.INFO, "f", 1, "jobs.wake.proven", (), None)
    record.created = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC).timestamp()
    assert handler.format(record) == "05:06:07 info jobs.wake.proven"


def test_no_value_can_break_the_line_or_steer_the_terminal() -> None:
    """N-104."""
    configure_logging(stream=(out := io.StringIO()))
    emit("sweeps.paused", sweep="a\nb\x1b[2J\x9b31m\u202e", run_id='say "x"', reason="")
    assert lines(out) == ['info sweeps.paused sweep="a\\nb\\u001b[2J\\x9b31m\\u202e" run_id="say \\"x\\"" reason=""']


def test_json_lines_are_valid_whatever_the_fields_hold() -> None:
    """N-112."""
    configure_logging(json=True, stream=(out := io.StringIO()))
    emit(
        "jobs.scheduler.dispatched",
        task="t",
        occurrence_at=datetime(2025, 1, 1, tzinfo=UTC),
        jobs={"n": float("nan"), "k": {1}},
        catch_up=timedelta(seconds=90),
        dropped=object,
    )
    line = json.loads(out.getvalue())
    assert datetime.fromisoformat(line.pop("logged_at")).tzinfo is not None
    assert line == {
        "level": "info",
        "event": "jobs.scheduler.dispatched",
        "task": "t",
        "occurrence_at": "2025-01-01T00:00:00+00:00",
        "jobs": {"n": "nan", "k": [1]},
        "catch_up": "1m30s",
        "dropped": "<class 'object'>",
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_neither_form_shows_a_password_in_field_message_or_traceback(as_json: bool) -> None:
    """N-109."""
    configure_logging(json=as_json, stream=(out := io.StringIO()))
    emit(
        "jobs.wake.lost",
        channel="postgresql://a:secret@h/s",
        error=UnknownJob("password=secret", fix="password=secret"),
    )
    try:
        raise OSError("postgresql://a:secret@h/s\x1b[1m")
    except OSError as error:
        logging.getLogger("rowsweep").error("at postgresql://a:secret@h/s", exc_info=error)
    assert "secret" not in out.getvalue()
    assert out.getvalue().count("***") >= 5
    assert "\x1b" not in out.getvalue()
    assert "Traceback" in out.getvalue()


def test_configuring_again_replaces_the_handler_and_the_level_is_screened() -> None:
    """D-37."""
    configure_logging(stream=(first := io.StringIO()))
    configure_logging(level="debug", stream=(second := io.StringIO()))
    emit("sweeps.batch", index=1)
    assert first.getvalue() == ""
    assert lines(second) == ["debug sweeps.batch index=1"]
    with pytest.raises(InvalidOption) as refused:
        configure_logging(level="warn")
    assert refused.value.fix == 'level="warning"'
