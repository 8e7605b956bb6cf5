"""Lease keeping: one statement renews every claim of the worker, and a window without one ends its run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rowsweep.errors import LeaseLost
from rowsweep.telemetry.events import emit
from rowsweep.telemetry.instruments import record_lease_lost
from rowsweep.timers import Looper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowsweep.worker.admission.slots import Slots
    from rowsweep.worker.equipment import Equipment
    from rowsweep.worker.flights import Flight

_AGAIN_SECONDS: Final = 0.5
_SHOWN: Final = 20


class Keeper:
    """Renew the claims in flight, and their slots, on one thread over the driver's control connections.

    A claim's window is measured on this process's monotonic clock from before the last statement that landed for it,
    so it never ends later here than the visibility does in the database.
    """

    def __init__(self, equipment: Equipment, slots: Slots) -> None:
        options = equipment.options
        self._worker_id = equipment.worker_id
        self._driver = equipment.driver
        self._clock = equipment.clock
        self._flights = equipment.flights
        self._slots = slots
        self._every = options.renew_seconds
        self._window = options.visibility_seconds
        self._again = min(_AGAIN_SECONDS, self._every / 2)
        self._looper = Looper("keeper", self._step, timers=equipment.timers, failed=self._raised)

    def start(self) -> None:
        """Start keeping."""
        self._looper.start()

    def stop(self, timeout: float | None) -> bool:
        """End after the statement under way; answer whether that was within the seconds."""
        return self._looper.stop(timeout)

    def admit(self, flights: Sequence[Flight]) -> None:
        """Arm the first renewal of claims that were just made."""
        for flight in flights:
            flight.renew_at = flight.claimed_at + self._every

    def report_loss(self, flight: Flight, reason: LeaseLost) -> None:
        """Log and count that a claim was lost under a run."""
        job = flight.job
        record_lease_lost(job.queue)
        emit(
            "jobs.lease.lost",
            worker_id=self._worker_id,
            queue=job.queue,
            job=job.name,
            job_id=str(job.id),
            claim=flight.claim.claim,
            held_seconds=round(self._clock.monotonic() - flight.claimed_at, 3),
            error=reason,
        )

    def _step(self) -> float:
        # One reading for both: where a lease and its slot lapse together, the lease is the loss that is reported.
        stamp = self._clock.monotonic()
        self._give_up_lapsed(stamp)
        # Slots first: none outlasts the lease of its job, and both windows are measured from one stamp.
        slots_at = self._slots.renew(stamp)
        held = self._held()
        if any(flight.renew_at <= stamp for flight in held):
            # What falls due soon rides along, so that the claims of a worker come to one statement a round.
            self._renew([flight for flight in held if flight.renew_at <= stamp + self._every / 2], stamp)
            self._give_up_lapsed(self._clock.monotonic())
        return self._next_in(slots_at)

    def _renew(self, flights: list[Flight], stamp: float) -> None:
        try:
            answers = self._driver.control().jobs.renew(
                [flight.claim for flight in flights], visibility_seconds=self._window
            )
        except Exception as error:  # noqa: BLE001 - a failed renewal only warns; the window decides
            self._warn(flights, error)
            for flight in flights:
                flight.renew_at = stamp + self._again
            return
        now = self._clock.monotonic()
        for flight, held in zip(flights, answers, strict=True):
            self._take_answer(flight, held, stamp, now)

    def _take_answer(self, flight: Flight, held: bool | None, stamp: float, now: float) -> None:
        if held is False:
            self.lose(flight, "the fence refused its renewal")
        elif held and now < flight.renewed_at + self._window:
            flight.renewed_at = stamp
            flight.renew_at = stamp + self._every
        else:
            # Locked by another transaction, or landed too late to count: the window runs on.
            flight.renew_at = stamp + self._again

    def _give_up_lapsed(self, now: float) -> None:
        for flight in self._held():
            if now >= flight.renewed_at + self._window:
                self.lose(flight, f"no renewal landed within {self._window:g} s")

    def lose(self, flight: Flight, why: str) -> None:
        """Revoke the claim and report it once; a run whose end was decided is the settle's own business."""
        job = flight.job
        reason = LeaseLost(
            f"The worker lost its claim of job {job.id} ({job.name}): {why}; where nobody has ended it, the queue "
            "delivers it again.",
            fix=f"rowsweep jobs show {job.id}",
            meta={"job_id": str(job.id), "worker_id": self._worker_id, "claim": flight.claim.claim},
        )
        if flight.revoke(reason):
            if flight.permit is not None:
                self._slots.stop(flight.permit.held)
            self.report_loss(flight, reason)
        else:
            flight.renew_at = float("inf")

    def _held(self) -> list[Flight]:
        return [flight for flight in self._flights.all() if flight.revoked is None and flight.renew_at != float("inf")]

    def _next_in(self, slots_at: float | None) -> float:
        """Answer when to look again: half a round at the latest, so that a new claim need not wake the keeper."""
        now = self._clock.monotonic()
        instants = [at for flight in self._held() for at in (flight.renew_at, flight.renewed_at + self._window)]
        if slots_at is not None:
            instants.append(slots_at)
        return max(min([now + self._every / 2, *instants]) - now, 0.001)

    def _warn(self, flights: list[Flight], error: Exception) -> None:
        emit(
            "jobs.heartbeat.failed",
            worker_id=self._worker_id,
            claims=len(flights),
            job_ids=[str(flight.job.id) for flight in flights[:_SHOWN]],
            error=error,
        )

    def _raised(self, error: BaseException) -> float:
        held = self._held()[:_SHOWN]
        job_ids = [str(flight.job.id) for flight in held]
        emit("jobs.renewal.raised", worker_id=self._worker_id, job_ids=job_ids, error=error)
        return self._again
