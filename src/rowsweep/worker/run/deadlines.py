"""Deadlines of runs and steps: the signal is aborted first; what goes on after its grace is left behind."""

from __future__ import annotations

import sys
import threading
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rowsweep.errors import JobTimedOut, TimedOut
from rowsweep.telemetry.events import emit
from rowsweep.timers import Looper

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from rowsweep.errors import RowsweepError
    from rowsweep.signals import RunSignal
    from rowsweep.worker.equipment import Equipment
    from rowsweep.worker.flights import Flight

GRACE_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 0.5
_FRAMES: Final = 6
_LENGTH: Final = "timeout_seconds"


@dataclass(slots=True, eq=False)
class _Deadline:
    flight: Flight
    at: float
    late: RowsweepError
    is_fired: bool = False


class Deadlines:
    """Watch the deadlines of the runs in flight on one thread that starts with the first of them.

    `leave_behind` is called with a run that still goes on after its grace, and with the error that says why.
    """

    def __init__(self, equipment: Equipment, leave_behind: Callable[[Flight, RowsweepError], None]) -> None:
        self._worker_id = equipment.worker_id
        self._clock = equipment.clock
        self._leave_behind = leave_behind
        self._lock = threading.Lock()
        self._armed: set[_Deadline] = set()
        self._looks_at = float("inf")
        self._looper = Looper("deadlines", self._step, timers=equipment.timers, failed=self._failed)

    def arm(self, flight: Flight, seconds: float, late: RowsweepError) -> Callable[[], None]:
        """Abort the run with this error after the seconds; answer what takes the deadline away in time."""
        deadline = _Deadline(flight, self._clock.monotonic() + seconds, late)
        with self._lock:
            self._armed.add(deadline)
            is_next = deadline.at < self._looks_at
        if is_next:
            self._looper.start()
            self._looper.poke()
        return lambda: self._disarm(deadline)

    def stop(self, timeout: float | None) -> bool:
        """End watching; answer whether that was within the seconds."""
        return self._looper.stop(timeout)

    def _disarm(self, deadline: _Deadline) -> None:
        """Forget a deadline that was kept. One that was not stays: its body may go on in another step."""
        with self._lock:
            if not deadline.is_fired:
                self._armed.discard(deadline)

    def _step(self) -> float | None:
        now = self._clock.monotonic()
        with self._lock:
            self._armed = {deadline for deadline in self._armed if not deadline.flight.is_ended}
            due = [deadline for deadline in self._armed if deadline.at <= now]
            left_behind = [deadline for deadline in due if deadline.is_fired]
            self._armed.difference_update(left_behind)
            for deadline in due:
                deadline.is_fired, deadline.at = True, now + GRACE_SECONDS
            self._looks_at = min((deadline.at for deadline in self._armed), default=float("inf"))
        for deadline in due:
            if deadline in left_behind:
                self._leave_behind(deadline.flight, deadline.late)
            else:
                deadline.flight.signal.abort(deadline.late)
        return None if self._looks_at == float("inf") else max(self._looks_at - self._clock.monotonic(), 0.0)

    def _failed(self, error: BaseException) -> float:
        emit("jobs.worker.tick-failed", worker_id=self._worker_id, error=error)
        return _AGAIN_SECONDS


def job_is_late(flight: Flight, timeout: timedelta) -> JobTimedOut:
    """Answer that a run passed its job's deadline."""
    job, seconds = flight.job, timeout.total_seconds()
    return JobTimedOut(
        f"The run of {job.name!r} ({job.id}) took longer than its timeout of {seconds:g} s.",
        fix=f'timeout="{max(round(2 * seconds), 1)}s" on the job where it may take longer',
        meta={"job_id": str(job.id), _LENGTH: seconds},
    )


def overdue(signal: RunSignal) -> RowsweepError | None:
    """Answer the deadline that ended this run, None where none did."""
    reason = signal.reason
    return reason if isinstance(reason, (JobTimedOut, TimedOut)) and _LENGTH in reason.meta else None


def timeout_seconds_of(late: RowsweepError) -> float:
    """Answer how long what was late was given."""
    seconds = late.meta[_LENGTH]
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0


def note_place(late: RowsweepError, thread_id: int | None) -> None:
    """Note on the error where the thread of what is late is right now."""
    frame = sys._current_frames().get(thread_id) if thread_id is not None else None
    if frame is not None:
        late.add_note("Its body is still at:")
        for entry in traceback.extract_stack(frame)[-_FRAMES:]:
            late.add_note(f"{entry.filename}:{entry.lineno} in {entry.name}")
