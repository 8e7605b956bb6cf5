"""How a failed attempt is written down, whatever was raised."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rowsweep.errors import InvalidOption, UnknownJob
from rowsweep.jobs.attempts.failure import code_of, failure_for_row, headline
from rowsweep.jobs.registry import get_job
from rowsweep.options import duration
from rowsweep.telemetry.events import emit
from rowsweep.telemetry.text import error_text


class Rude(Exception):
    """An error that helps nobody."""

    code = property(lambda _self: 1 / 0)

    def __init__(self, raised: BaseException) -> None:
        self._raised = raised

    def __str__(self) -> str:
        raise self._raised


def raised(error: BaseException) -> BaseException:
    """Raise it from a function of this file, so that it has a frame of the application."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - whatever a body raises
        return caught


def test_a_row_keeps_class_message_and_the_last_frames() -> None:
    """S-132."""
    failure = failure_for_row(raised(ValueError("no such\nluck")))
    first, second, frame = failure.text.splitlines()
    assert [first, second] == ["ValueError: no such", "luck"]
    assert frame.startswith(f"  {__file__}:")
    assert frame.endswith(" in raised")
    assert (failure.code, failure.stop_reason) == (None, None)


def test_an_error_without_a_message_is_its_class() -> None:
    """S-132."""
    assert headline(KeyError()) == "KeyError"
    assert failure_for_row(ValueError()).text == "ValueError"


def test_code_and_stop_reason_ride_along() -> None:
    """S-131, S-013."""
    failure = failure_for_row(UnknownJob("There is none.", fix="rowsweep jobs names"), stop_reason="terminal")
    assert (failure.code, failure.stop_reason) == ("X_JOB_UNKNOWN", "terminal")
    assert failure.text == "UnknownJob: X_JOB_UNKNOWN: There is none. Fix: rowsweep jobs names"


@pytest.mark.parametrize("code", [404, "ENOENT", None, b"X_A"])
def test_a_code_of_somebody_else_s_is_none_of_ours(code: Any) -> None:
    """S-013: an HTTP status or an errno is no code of the table."""
    error = OSError("x")
    error.code = code  # type: ignore[attr-defined]
    assert code_of(error) is None


@pytest.mark.parametrize("inner", [ValueError("x"), SystemExit(), KeyboardInterrupt(), RecursionError()])
def test_an_error_whose_text_raises_is_still_written_down(inner: BaseException) -> None:
    """S-132."""
    failure = failure_for_row(raised(Rude(inner)))
    assert failure.text.startswith(f"Rude (its text raises {type(inner).__name__})\n  {__file__}:")
    assert failure.code is None


def test_row_and_log_share_one_renderer(caplog: pytest.LogCaptureFixture) -> None:
    """S-131, S-132."""
    error = ValueError("nul \x00 and \ud800, postgresql://ann:secret@shop/db")
    emit("jobs.attempt.failed", job="a", error=error)
    logged = caplog.records[0].__dict__["fields"]["error"]
    assert logged == headline(error) == error_text(error) == failure_for_row(error).text
    assert logged == "ValueError: nul \\x00 and \\ud800, postgresql://ann:***@shop/db"
    assert caplog.records[0].levelno == logging.WARNING


def test_a_megabyte_of_message_is_cut_and_leaves_room_for_the_frames() -> None:
    """S-132: at most 8,000 characters, in no time."""
    began = time.thread_time()
    text = failure_for_row(raised(ValueError("postgresql://" * 80_000))).text
    assert time.thread_time() - began < 1
    assert len(text) <= 8_000
    assert text.splitlines()[-1].endswith(" in raised")


@pytest.mark.parametrize("length", range(7_900, 8_010, 3))
def test_a_cut_never_leaves_a_password_s_beginning(length: int) -> None:
    """N-109, S-132: passwords are hidden first and the text is cut then."""
    text = failure_for_row(ValueError("x" * length + " postgresql://ann:hunter2hunter2@shop/db")).text
    assert "hunter" not in text


def test_passwords_are_hidden_in_message_notes_and_members() -> None:
    """N-109, S-132."""
    error = ExceptionGroup("postgresql://a:secret@h/d", [OSError("password=secret"), ValueError("plain")])
    error.add_note("connected to postgresql://a:secret@h/d")
    text = failure_for_row(error).text
    assert "secret" not in text
    assert "plain" in text


def test_notes_and_the_members_of_a_group_are_kept() -> None:
    """S-132: a group's own message says only how many there were."""
    error = ExceptionGroup("many", [ValueError("first"), ExceptionGroup("inner", [KeyError("deep")]), TypeError()])
    error.add_note("while sending\x00")
    assert failure_for_row(error).text.splitlines() == [
        "ExceptionGroup: many (3 sub-exceptions)",
        "  while sending\\x00",
        "  with ValueError: first",
        "  with ExceptionGroup: inner (1 sub-exception)",
        "  with TypeError",
    ]


@pytest.mark.parametrize("notes", [5, None, [5, "kept"], "text", ("a",)])
def test_notes_that_are_none_do_not_break_it(notes: Any) -> None:
    """S-132."""
    error = ValueError("x")
    error.__notes__ = notes
    assert failure_for_row(error).text.startswith("ValueError: x")


def test_frames_of_an_application_in_a_folder_of_our_name_are_kept() -> None:
    """S-132: only the package's own frames are noise."""
    source = compile("def act():\n    raise ValueError('x')\nact()", "/srv/rowsweep/app.py", "exec")
    with pytest.raises(ValueError, match="x") as caught:
        exec(source, {})
    assert "/srv/rowsweep/app.py:2 in act" in failure_for_row(caught.value).text


@pytest.mark.parametrize(
    ("refused", "act"),
    [(UnknownJob, lambda: get_job("none")), (InvalidOption, lambda: duration("soon", option="x"))],
    ids=["of the same room", "of another room"],
)
def test_the_package_s_own_frames_are_left_out(refused: type[Exception], act: Callable[[], object]) -> None:
    """S-132."""
    with pytest.raises(refused) as caught:
        act()
    assert [line.rpartition(" in ")[2] for line in failure_for_row(caught.value).text.splitlines()[1:]] == [
        "test_the_package_s_own_frames_are_left_out",
        "<lambda>",
    ]


def test_a_recursion_s_frames_do_not_fill_the_row() -> None:
    """S-132: the last six are kept."""

    def dig() -> None:
        dig()

    limit = sys.getrecursionlimit()
    with pytest.raises(RecursionError) as caught:
        dig()
    assert sys.getrecursionlimit() == limit
    assert failure_for_row(caught.value).text.count(" in dig") == 6


ERRORS = st.builds(ValueError, st.text(st.characters(exclude_categories=[])) | st.none() | st.binary())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(errors=st.lists(ERRORS, min_size=20, max_size=20), note=st.text(st.characters(exclude_categories=[])))
def test_postgres_keeps_whatever_text_comes_of_it(
    connection: psycopg.Connection, errors: list[Exception], note: str
) -> None:
    """N-012, S-132."""
    errors[0].add_note(note)
    texts = [failure_for_row(error).text for error in errors]
    row = connection.execute("select %s::text[]", [texts]).fetchone()
    assert row is not None
    assert row[0] == texts
