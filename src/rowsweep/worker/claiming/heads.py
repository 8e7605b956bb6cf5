"""Where in a queue a claim pass begins: at its head once a second, in between behind what was passed over there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rowsweep.clock import Clock
    from rowsweep.jobs.values.json_form import Json
    from rowsweep.queue.records import ClaimOptions, ClaimPass

HEAD_SECONDS: Final = 1.0
SLOW_SECONDS: Final = 0.005


@dataclass(slots=True)
class _Known:
    """When the last pass began at the head, where the next may begin, and whether the last one began behind it."""

    head_at: float
    starts: Json
    is_behind: bool = False


class Heads:
    """Remember for each queue where its passes stand.

    Rows under full caps, and dead ones that an old snapshot keeps, are walked once a second, not by every pass. A queue
    of few live rows is begun at its head each time, unless it was slow to read twice running: then there are dead rows.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._many_until: dict[str, float] = {}
        self._slow: set[str] = set()

    def has_few(self, queue: str) -> bool:
        """Say whether a pass may take the queue for one of few live rows."""
        return self._clock.monotonic() >= self._many_until.get(queue, float("-inf"))

    def starts(self, queue: str) -> Json:
        """Answer where a pass may begin, None for the head."""
        known = self._known.get(queue)
        return None if known is None or self._clock.monotonic() - known.head_at >= HEAD_SECONDS else known.starts

    def passed(self, queue: str, asked: ClaimOptions, answer: ClaimPass, *, began_at: float) -> None:
        """Note a pass: where and when it began, and where it says that the next may begin."""
        known = self._known.get(queue)
        if asked.starts is None or answer.few or known is None:
            self._known[queue] = _Known(began_at, answer.starts)
        else:
            known.starts, known.is_behind = answer.starts, True
        if asked.few:
            self._note_few(queue, answer)

    def _note_few(self, queue: str, answer: ClaimPass) -> None:
        is_slow, was_slow = answer.read_seconds > SLOW_SECONDS, queue in self._slow
        (self._slow.add if is_slow else self._slow.discard)(queue)
        if not answer.few or (is_slow and was_slow):
            self._many_until[queue] = self._clock.monotonic() + HEAD_SECONDS

    def forget(self, queue: str) -> None:
        """Begin at the head next: a row passed over may be taken now."""
        self._known.pop(queue, None)

    def due_in(self) -> float | None:
        """Answer the seconds until a queue whose last pass began behind its head must be looked at again."""
        now = self._clock.monotonic()
        behind = [known.head_at + HEAD_SECONDS - now for known in list(self._known.values()) if known.is_behind]
        return max(min(behind), 0.0) if behind else None
