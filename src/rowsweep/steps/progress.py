"""How far one execution says it is: the last value wins, and no more than one a second is written."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Final

from rowsweep.jobs.values.json_form import safe_json
from rowsweep.options import finite, invalid_option
from rowsweep.telemetry.text import storable_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.clock import Clock
    from rowsweep.jobs.values.json_form import Json

MAX_MESSAGE: Final = 500


class Progress:
    """Hold the last value that a body reported, until it is stored; belongs to one execution.

    Safe from any thread. `wanted` is called when there is something to write again.
    """

    def __init__(self, clock: Clock, *, every_seconds: float, wanted: Callable[[], None]) -> None:
        self._clock = clock
        self._every = every_seconds
        self._wanted = wanted
        self._lock = threading.Lock()
        self._value: Json = None
        self._reported = 0
        self._taken = 0
        self._stored = 0
        self._not_before = float("-inf")

    def report(self, current: float, total: float | None = None, message: str | None = None) -> None:
        """Take a value; it is written at once, or when a second has passed since the last."""
        value = _form(current, total, message)
        with self._lock:
            is_waiting = self._reported > self._taken
            self._value = value
            self._reported += 1
        if not is_waiting:
            self._wanted()

    def due_in(self) -> float | None:
        """Answer the seconds until there is something to write, None where there is nothing."""
        with self._lock:
            if self._reported == self._taken:
                return None
            return max(self._not_before - self._clock.monotonic(), 0.0)

    def take(self) -> tuple[int, Json]:
        """Answer the last value, to be written now, with its number."""
        with self._lock:
            self._taken = self._reported
            self._not_before = self._clock.monotonic() + self._every
            return self._taken, self._value

    def written(self, number: int, *, stored: bool) -> None:
        """Say what became of a value that was taken; one that was not stored is due again."""
        with self._lock:
            if stored:
                self._stored = max(self._stored, number)
            elif self._taken == number:
                self._taken = self._stored

    def left(self) -> Json:
        """Answer the last value unless it is known to be stored, None then: it rides in the settling statement."""
        with self._lock:
            return None if self._reported == self._stored else self._value


def _form(current: float, total: float | None, message: str | None) -> Json:
    if message is not None and not isinstance(message, str):
        raise invalid_option("message", "text", message, f'"{type(message).__name__}"')
    amounts = {"current": _amount(current, "current"), "total": None if total is None else _amount(total, "total")}
    return safe_json({**amounts, "message": None if message is None else storable_text(message, MAX_MESSAGE)})


def _amount(value: object, option: str) -> float:
    """Screen a number of at least zero; one that is not finite is kept as its text, never raised."""
    if isinstance(value, float) and (math.isnan(value) or value == math.inf):
        return value
    number = finite(value, option=option, minimum=0)
    return int(number) if number.is_integer() else number
