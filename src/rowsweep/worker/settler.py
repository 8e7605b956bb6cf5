"""Settling: what is waiting goes out in one statement, each settlement with its own fence and its own answer."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rowsweep.errors import InvariantBroken
from rowsweep.jobs.attempts.failure import Failure
from rowsweep.queue.verdicts import Bury, Defer, Done, Drop, Refuse, Retry
from rowsweep.telemetry.events import emit
from rowsweep.timers import Looper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rowsweep.queue.verdicts import Settlement, Verdict
    from rowsweep.worker.equipment import Equipment
    from rowsweep.worker.flights import Flight

GROUP: Final = 1_000
LOCKED_SECONDS: Final = 0.5
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 3.0


Answer = tuple["Flight", "Settlement", bool]


class _Sending:
    # Of the class, and an instance's own once they are something else: one is made for every run.
    not_before = 0.0
    is_resent = False
    is_alone = False
    is_stripped = False

    def __init__(self, flight: Flight, settlement: Settlement) -> None:
        self.flight = flight
        self.settlement = settlement

    @property
    def is_mixable(self) -> bool:
        """Whether it may go out with settlements that are sent for the first time."""
        return not (self.is_resent or self.is_alone)


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
        self._waiting: deque[_Sending] = deque()
        # Sent before, or in the way of one of their own group: the settler's thread alone knows them.
        self._left: list[_Sending] = []
        self._pause = _FIRST_PAUSE
        self._hold_until = float("-inf")
        self._looper = Looper("settler", self._step, timers=equipment.timers, failed=self._failed)

    def start(self) -> None:
        """Start settling."""
        self._looper.start()

    def send(self, flight: Flight, settlement: Settlement) -> None:
        """Settle as soon as the statement under way has returned."""
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
        if not self._waiting and not self._left:
            return None
        due_at = now if self._waiting else min(sending.not_before for sending in self._left)
        return max(due_at - now, self._hold_until - now, 0.0)

    def _take(self, now: float) -> list[_Sending]:
        """Take what may go out together: one of each job and each ledger row, all sent before or none."""
        group: list[_Sending] = []
        taken: set[int] = set()
        waiting, (self._left, left) = self._waiting, ([], self._left)
        for sending in left:
            is_mixed = group and (sending.is_resent != group[0].is_resent or sending.is_alone or group[0].is_alone)
            is_early = is_mixed or sending.not_before > now or len(group) == GROUP
            if is_early or not _takes(sending, taken):
                self._left.append(sending)
            else:
                group.append(sending)
        while waiting and len(group) < GROUP and (not group or group[0].is_mixable):
            sending = waiting.popleft()
            (group if _takes(sending, taken) else self._left).append(sending)
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
        self._left.append(sending)

    def _failed(self, error: BaseException) -> float:
        emit("jobs.worker.tick-failed", worker_id=self._worker_id, error=error)
        return _FIRST_PAUSE


def _takes(sending: _Sending, taken: set[int]) -> bool:
    """Take a settlement's job, and its ledger row where it has one; False where one of its group has it."""
    job_id = sending.settlement.claim.job_id.int
    run_id = sending.flight.job.run_id.int if sending.settlement.sweep else job_id
    if job_id in taken or run_id in taken:
        return False
    taken.add(job_id)
    if run_id != job_id:
        taken.add(run_id)
    return True


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
