"""Errors on their way back from an executor: with the type, message, causes and traceback that they had there."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import Any, Final

from rowsweep.jobs.attempts.failure import attribute_of
from rowsweep.sweeps.blame import place_of
from rowsweep.sweeps.executors.orders import dumps

_MOST_CAUSES: Final = 5
_LONGEST_TRACE: Final = 20_000
_CLASSIFYING: Final = ("retry", "retry_after_seconds", "code")


class RemoteTraceback(Exception):
    """The traceback that an error had where it was raised; shown as the error's cause."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An error by its name and text, for where its own class is missing or cannot be pickled."""

    module: str
    name: str
    text: str
    notes: tuple[str, ...]
    marks: dict[str, Any]

    @classmethod
    def of(cls, error: BaseException) -> Told:
        """Note what an error says, whatever reading it raises."""
        notes = attribute_of(error, "__notes__")
        marks = {name: attribute_of(error, name) for name in _CLASSIFYING}
        return cls(
            module=type(error).__module__,
            name=type(error).__qualname__,
            text=_text_of(error),
            notes=tuple(note for note in notes if isinstance(note, str)) if isinstance(notes, list) else (),
            marks={name: value for name, value in marks.items() if isinstance(value, (str, int, float))},
        )

    def made(self) -> Exception:
        """Make an error of that name that says so."""
        error: Exception = type(self.name, (RuntimeError,), {"__module__": self.module, **self.marks})(self.text)
        for note in self.notes:
            error.add_note(note)
        return error


@dataclass(frozen=True, slots=True, kw_only=True)
class SentError:
    """An error and its causes, each pickled where that can be, and what was told of it where not."""

    chain: tuple[tuple[bytes | None, Told], ...]
    trace: str
    place: str | None

    @classmethod
    def of(cls, error: BaseException) -> SentError:
        """Take an error as it was raised here."""
        chain: list[tuple[bytes | None, Told]] = []
        behind: BaseException | None = error
        while behind is not None and len(chain) < _MOST_CAUSES:
            chain.append((_pickled(behind), Told.of(behind)))
            behind = behind.__cause__
        trace = "".join(traceback.format_exception(error))
        return cls(chain=tuple(chain), trace=trace[-_LONGEST_TRACE:], place=place_of(error))

    def restored(self) -> BaseException:
        """Answer the error to be raised here, with its causes, and behind them the traceback it had."""
        errors = [_restored(data) or told.made() for data, told in self.chain]
        for error, cause in zip(errors, [*errors[1:], RemoteTraceback(self.trace)], strict=True):
            error.__cause__ = cause
        if self.place is not None:
            errors[0].add_note(f"in the executor, at {self.place}")
        return errors[0]


def _pickled(error: BaseException) -> bytes | None:
    """Pickle an error where it comes back as what it was: one with an odd constructor does not."""
    try:
        data = dumps(error)
        back = pickle.loads(data)  # noqa: S301 - what this process has just made
        return data if type(back) is type(error) and str(back) == str(error) else None
    except Exception:  # noqa: BLE001 - an application's error may do anything when it is pickled
        return None


def _restored(data: bytes | None) -> BaseException | None:
    try:
        error = None if data is None else pickle.loads(data)  # noqa: S301 - from the executor that was declared
    except Exception:  # noqa: BLE001 - its class may be missing here, or refuse to be made
        return None
    return error if isinstance(error, BaseException) else None


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - as above
        return f"<{type(error).__name__} without a text>"
