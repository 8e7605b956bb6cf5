"""How a failed attempt is written down: one renderer for the row and the log."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from rowsweep.jobs.json_form import safe_text
from rowsweep.telemetry.redact import redact_text

MAX_TEXT: Final = 8_000
_FRAMES: Final = 6
_OWN: Final = PurePath(__file__).parent.parent.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a row keeps of an error: text (≤ 8,000 characters, safe for Postgres), code, and why it stopped."""

    text: str
    code: str | None = None
    stop_reason: str | None = None


def failure_for_row(error: BaseException, *, stop_reason: str | None = None) -> Failure:
    """Render an error as `Class: message`, its notes and its last application frames; survives whatever was raised."""
    notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()) if isinstance(note, str))
    text = safe_text(redact_text(f"{headline(error)}{notes}{_frames(error)}"), MAX_TEXT)
    return Failure(text=text, code=code_of(error), stop_reason=stop_reason)


def headline(error: BaseException) -> str:
    """Answer `Class: message` on as many lines as the message has, also where `str()` of the error raises."""
    name = type(error).__name__
    try:
        message = str(error)
    except BaseException as broken:  # noqa: BLE001 - a __str__ is application code and may raise anything
        message = f"(its message could not be rendered: {type(broken).__name__})"
    return safe_text(f"{name}: {message}" if message else name, MAX_TEXT)


def code_of(error: BaseException) -> str | None:
    """Answer the error's stable code where it carries one."""
    code = getattr(error, "code", None)
    return code if isinstance(code, str) and code.startswith("X_") else None


def _frames(error: BaseException) -> str:
    """Show the innermost frames of the application; the package's own are noise to its users."""
    try:
        stack = traceback.extract_tb(error.__traceback__)
    except Exception:  # noqa: BLE001 - a broken traceback must not hide the error
        return ""
    theirs = [frame for frame in stack if f"/{_OWN}/" not in frame.filename.replace("\\", "/")]
    shown = theirs[-_FRAMES:]
    return "".join(f"\n  {frame.filename}:{frame.lineno} in {frame.name}" for frame in shown)
