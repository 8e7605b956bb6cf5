"""What one pass looks at before each batch: the shared reading, its own batch times, and the declared functions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from rowsweep.clock import real_monotonic
from rowsweep.sweeps.health.batch_times import BatchTimes
from rowsweep.sweeps.health.choice import name_of
from rowsweep.sweeps.health.kinds import Own
from rowsweep.sweeps.health.signals import HealthCheck, Signal, Verdict, seeing
from rowsweep.telemetry.text import error_text, storable_text

if TYPE_CHECKING:
    from rowsweep.sweeps.health.reading import Reading
    from rowsweep.sweeps.health.sampler import Sampler

_ASK_SECONDS: Final = 1.0
_LONGEST_WORDS: Final = 300
_GRAVITY: Final = ("hold", "slow", "unknown", "ok")


class Watch:
    """Judge the declared signals by each new reading, and ask the declared functions at most once a second."""

    def __init__(
        self, checks: Sequence[HealthCheck], sampler: Sampler | None, tables: frozenset[tuple[str, str]]
    ) -> None:
        self._signals = [check for check in checks if isinstance(check, Signal)]
        self._functions = [check for check in checks if not isinstance(check, Signal)]
        self._sampler = sampler
        self._tables = tables
        self._asked_at: float | None = None
        self._said: list[Verdict] = []
        self._judged: list[Verdict] = []
        self._reading: Reading | None = None
        self.times = BatchTimes()

    @property
    def is_due(self) -> bool:
        """Whether the functions are to be asked again."""
        return bool(self._functions) and self._is_old

    @property
    def _is_old(self) -> bool:
        return self._asked_at is None or real_monotonic() - self._asked_at >= _ASK_SECONDS

    def look(self, *, asks: bool = True) -> list[Verdict]:
        """Answer what each signal and function says, the gravest first, in the order they were declared.

        Unless it `asks`, the functions are answered for by what they said last.
        """
        own = Own(tables=self._tables, times_as_long=self.times.times_as_long)
        reading = None if self._sampler is None else self._sampler.latest()
        is_new, is_due = reading is not self._reading, asks and self._is_old
        if is_new or is_due:
            self._reading = reading
            if reading is not None:
                self._judged = [signal.judge(reading, own) for signal in self._signals]
        if self._functions and is_due:
            with nullcontext() if reading is None else seeing(reading, own):
                self._said = [_answer_of(function) for function in self._functions]
        if is_due:
            self._asked_at = real_monotonic()
        return sorted([*self._judged, *self._said], key=lambda verdict: _GRAVITY.index(verdict.level))


def _answer_of(function: HealthCheck) -> Verdict:
    """Ask an application's function; what is neither None nor a text, and what it raises, is a reason to wait."""
    name = name_of(function)
    try:
        answer: object = function()
    except Exception as error:  # noqa: BLE001 - application code: whatever it raises, nobody knows that all is well
        return Verdict(name, "hold", f"the health function {name}, which raised {error_text(error, _LONGEST_WORDS)}")
    if answer is None:
        return Verdict(name, "ok", "")
    if isinstance(answer, str) and answer.strip():
        return Verdict(name, "hold", storable_text(answer, _LONGEST_WORDS))
    return Verdict(name, "hold", f"the health function {name}, which answered {answer!r:.80} instead of a reason")
