"""Settling: what is waiting goes out in one statement, each settlement with its own fence and its own answer."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rowsweep.errors import InvariantBroken
from rowsweep.jobs.failure import Failure
from rowsweep.queue.verdicts import Bury, Defer, Done, Drop, Refuse, Retry
from rowsweep.telemetry.events import emit
from rowsweep.timers import Looper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rowsweep.queue.verdicts import Settlement, Verdict
    from rowsweep.worker.equipment import Equipment
    from rowsweep.worker.flights import Flight

GROUP: Final = 500
LOCKED_SECONDS: Final = 0.5
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 3.0


Answer = tuple["Flight", "Settlement", bool]


@dataclass(slots=True)
class _Sending:
    flight: Flight
    settlement: Settlement
    not_before: float = 0.0
    is_resent: bool = False
    is_alone: bool = False
    is_stripped: bool = False


class Settler:
    """Send settlements on one thread over the driver's control connections, until each is answered.

    `answered` is called with each statement's answers, one a settlement, with whether it landed: never, where the
    worker stops before the database answers. Its lease lapses then.
    """

    def __init__(self, equipment: Equipment, answered: Callable[[Sequence[Answer]], None]) -> None:
        self._worker_id = equipment.worker_id
        self._driver = equipment.driver
        self._clock = equipment.clock
        self._answered = answered
        self._lock = threading.Lock()
        self._waiting: list[_Sending] = []
        self._pause = _FIRST_PAUSE
        self._hold_until = float("-inf")
        self._looper = Looper("settler", self._step, timers=equipment.timers, failed=self._failed)

    def start(self) -> None:
        """Start settling."""
        self._looper.start()

    def send(self, flight: Flight, settlement: Settlement) -> None:
        """Settle as soon as the statement under way has returned."""
        with self._lock:
            self._waiting.append(_Sending(flight, settlement))
        self._looper.start()
        self._looper.poke()

    def stop(self, timeout: float | None) -> bool:
        """End after the statement under way; answer whether that was within the seconds."""
        return self._looper.stop(timeout)

    def _step(self) -> float | None:
        now = self._clock.monotonic()
        if now < self._hold_until:
            return self._hold_until - now
        group = self._take(now)
        if group:
            self._send(group)
        with self._lock:
            instants = [max(sending.not_before, self._hold_until) for sending in self._waiting]
        return max(min(instants) - now, 0.0) if instants else None

    def _take(self, now: float) -> list[_Sending]:
        """Take what may go out together: one of each job and each ledger row, all sent before or none."""
        group: list[_Sending] = []
        left: list[_Sending] = []
        taken: set[int] = set()
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for sending in waiting:
            job_id, run_id = sending.settlement.claim.job_id.int, sending.flight.job.run_id.int
            is_mixed = group and (sending.is_resent != group[0].is_resent or sending.is_alone or group[0].is_alone)
            is_early = is_mixed or sending.not_before > now or len(group) == GROUP
            if is_early or job_id in taken or run_id in taken:
                left.append(sending)
            else:
                taken.add(job_id)
                taken.add(run_id)
                group.append(sending)
        if left:
            with self._lock:
                self._waiting[:0] = left
        return group

    def _send(self, group: list[_Sending]) -> None:
        try:
            answers = self._driver.control().jobs.settle(
                [sending.settlement for sending in group], resent=group[0].is_resent
            )
        except Exception as error:  # noqa: BLE001 - told apart below; none of these settlements may be dropped
            self._refused(group, error)
            return
        self._pause = _FIRST_PAUSE
        landed = []
        for sending, answer in zip(group, answers, strict=True):
            if answer is None:
                self._again(sending, LOCKED_SECONDS)
            else:
                landed.append((sending.flight, sending.settlement, answer))
        self._answered(landed)

    def _refused(self, group: list[_Sending], error: Exception) -> None:
        emit("jobs.worker.tick-failed", worker_id=self._worker_id, error=error)
        if not _is_about_data(error):
            for sending in group:
                sending.is_resent = True
                self._again(sending, 0.0)
            self._hold_until = self._clock.monotonic() + self._pause * (0.5 + random.random() / 2)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        elif len(group) > 1:
            for sending in group:
                sending.is_alone = True
                self._again(sending, 0.0)
        elif not group[0].is_stripped:
            _strip(group[0])
            self._again(group[0], 0.0)
        else:
            self._answered([(group[0].flight, group[0].settlement, False)])

    def _again(self, sending: _Sending, seconds: float) -> None:
        sending.not_before = self._clock.monotonic() + seconds
        with self._lock:
            self._waiting.append(sending)

    def _failed(self, error: Exception) -> float:
        emit("jobs.worker.tick-failed", worker_id=self._worker_id, error=error)
        return _FIRST_PAUSE


def _is_about_data(error: Exception) -> bool:
    """Say whether a value was refused, so that sending it again cannot help; anything else may pass by itself."""
    if isinstance(error, (InvariantBroken, TypeError, ValueError)):
        return True
    sqlstate = getattr(error, "sqlstate", None)
    return isinstance(sqlstate, str) and sqlstate[:2] in {"22", "23"}


def _strip(sending: _Sending) -> None:
    """Leave out what the database does not take: the verdict itself must land."""
    settlement = sending.settlement
    sending.settlement = replace(settlement, progress=None, verdict=_stripped(settlement.verdict))
    sending.is_stripped = True


def _stripped(verdict: Verdict) -> Verdict:
    match verdict:
        case Done():
            return Done()
        case Retry() | Defer() | Bury() | Drop() | Refuse():
            kept = Failure(text="(the database refused the error's text)", stop_reason=verdict.error.stop_reason)
            return replace(verdict, error=kept)
        case _:
            return verdict
