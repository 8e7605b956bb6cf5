"""The end of a worker: stop claiming, let runs end, cut off what does not, hand back what is still held."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from rowsweep.clock import real_monotonic, real_seconds_until
from rowsweep.errors import Draining
from rowsweep.lifecycle import wait_all_by
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from rowsweep.worker.crew import Crew

GRACE_SECONDS: Final = 1.0
_SUGGESTED_BUDGET: Final = "600s"


class Drain:
    """Drain one crew. `begin` and `arm` wait for nothing; `finish` waits until the deadline, or as long as it takes."""

    def __init__(self, crew: Crew, *, margin_seconds: float) -> None:
        self._crew = crew
        self._margin = margin_seconds
        self._reason = ""
        self._lock = threading.Lock()
        self._armed = threading.Event()
        self._drained = threading.Event()
        self._deadline_at: float | None = None

    def prepare(self) -> None:
        """Start the cut-off's thread before it is needed: an interpreter that is exiting starts none."""
        threading.Thread(target=self._cut_off, name="rowsweep-cut-off", daemon=True).start()

    def begin(self, reason: str) -> None:
        """Claim nothing more and tell every run that it may stop early; aborts nothing."""
        crew = self._crew
        self._reason = reason
        crew.claims.close()
        crew.drain_signal.set_draining()
        emit("jobs.worker.draining", worker_id=crew.id, reason=reason, in_flight=len(crew.flights))

    def arm(self, deadline_at: float | None) -> None:
        """Arm the cut-off for a deadline, the first one that is given."""
        with self._lock:
            if deadline_at is not None and self._deadline_at is None:
                self._deadline_at = deadline_at
                self._armed.set()

    def finish(self, deadline_at: float | None) -> None:
        """Wait for the pass under way and then for what is in flight; say so where the deadline came first."""
        crew = self._crew
        passed = crew.claims.wait_pass(real_seconds_until(deadline_at))
        is_settled = passed and wait_all_by([flight.settled for flight in crew.flights.all()], deadline_at)
        # A job that a claim buried has no flight, only a hook that is to be told.
        is_settled = is_settled and wait_all_by(crew.hooks.pending(), deadline_at)
        self._drained.set()
        self._armed.set()
        if not is_settled:
            emit(
                "jobs.worker.drain-abandoned",
                worker_id=crew.id,
                reason=self._reason,
                in_flight=len(crew.flights),
                fix=f'rs.configure_lifecycle(deadline="{_SUGGESTED_BUDGET}"), and a longer grace period of the '
                "orchestrator",
            )

    def _cut_off(self) -> None:
        """Abort what still runs at the margin; after the grace hand its claims back, as nothing can end a thread."""
        self._armed.wait()
        deadline_at = self._deadline_at
        if deadline_at is None or self._drained.wait(real_seconds_until(deadline_at - self._margin)):
            return
        self._crew.drain_signal.abort(_draining(self._reason))
        grace = min(GRACE_SECONDS, self._margin / 2)
        if not wait_all_by([flight.settled for flight in self._crew.flights.all()], real_monotonic() + grace):
            for flight in self._crew.flights.all():
                self._crew.give_back(flight)


def _draining(reason: str) -> Draining:
    return Draining(
        f"The worker is draining ({reason}) and its budget is used up; the job is handed back uncounted.",
        fix=f'rs.configure_lifecycle(deadline="{_SUGGESTED_BUDGET}") where jobs take longer',
    )
