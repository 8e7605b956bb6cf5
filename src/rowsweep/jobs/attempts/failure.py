"""How a failed attempt is written down: one renderer for the row and the log."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rowsweep.telemetry.text import MAX_TEXT, error_text, storable_text

if TYPE_CHECKING:
    from collections.abc import Iterator

_TAIL: Final = MAX_TEXT // 2
_LINE: Final = 500
_FRAMES: Final = 6
_MEMBERS: Final = 5
_OWN: Final = f"{Path(__file__).parents[2]}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a row keeps of an error: text (≤ 8,000 characters, safe for Postgres), code, and why it stopped."""

    text: str
    code: str | None = None
    stop_reason: str | None = None


def failure_for_row(error: BaseException, *, stop_reason: str | None = None) -> Failure:
    """Render an error as `Class: message`, then its notes, a group's members and its last application frames.

    Survives whatever was raised; a long message leaves room for the frames.
    """
    tail = "".join(f"\n  {storable_text(line, _LINE)}" for line in (*_notes(error), *_members(error), *_frames(error)))
    tail = tail if len(tail) <= _TAIL else tail[-_TAIL:]
    return Failure(
        text=f"{error_text(error, MAX_TEXT - len(tail))}{tail}", code=code_of(error), stop_reason=stop_reason
    )


def headline(error: BaseException) -> str:
    """Answer `Class: message` on as many lines as the message has, also where `str()` of the error raises."""
    return error_text(error)


def code_of(error: BaseException) -> str | None:
    """Answer the error's stable code where it carries one."""
    code = attribute_of(error, "code")
    return code if isinstance(code, str) and code.startswith("X_") else None


def attribute_of(error: BaseException, name: str) -> Any:
    """Answer an attribute that an error may carry, None where it has none or reading it raises."""
    try:
        return getattr(error, name, None)
    except BaseException:  # noqa: BLE001 - a property of an application's error may raise anything
        return None


def _notes(error: BaseException) -> Iterator[str]:
    notes = attribute_of(error, "__notes__")
    yield from (note for note in (notes if isinstance(notes, list) else []) if isinstance(note, str))


def _members(error: BaseException) -> Iterator[str]:
    """Show the first errors of a group: its own message says only how many there are."""
    if isinstance(error, BaseExceptionGroup):
        yield from (f"with {error_text(member, _LINE)}" for member in error.exceptions[:_MEMBERS])


def _frames(error: BaseException) -> Iterator[str]:
    """Show the innermost frames of the application; the package's own are noise to its users."""
    stack = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in stack if not frame.filename.startswith(_OWN)]
    yield from (f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in theirs[-_FRAMES:])
