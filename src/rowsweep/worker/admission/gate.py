"""The gate of a claimed job: the limiter, then its slots; what is full sheds or refuses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rowsweep.worker.admission.busy import BusyCaps
from rowsweep.worker.admission.limiter import LimiterFull
from rowsweep.worker.admission.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowsweep.jobs.concurrency import Cap
    from rowsweep.jobs.handle import JobHandle
    from rowsweep.queue.records import Job
    from rowsweep.worker.admission.limiter import ConcurrencyLimiter, LimiterLease
    from rowsweep.worker.admission.slots import Held
    from rowsweep.worker.equipment import Equipment


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """What a run holds while it is in flight."""

    lease: LimiterLease | None = None
    held: list[Held] = field(default_factory=list)

    @property
    def holds_something(self) -> bool:
        """Whether anything is to be given back."""
        return self.lease is not None or bool(self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """A job may not run now: why, and the cap it is over, None where the limiter said so."""

    reason: str
    cap: Cap | None = None

    @property
    def refuses(self) -> bool:
        """Whether the job does not wait for what is full."""
        return self.cap is not None and self.cap.when_busy == "fail"


class Gate:
    """Ask for everything a claimed job needs to run; it gets all of it or nothing."""

    def __init__(self, equipment: Equipment) -> None:
        self.busy = BusyCaps(equipment.clock)
        self.slots = Slots(equipment, self.busy)
        self._limiter: ConcurrencyLimiter | None = equipment.options.limiter

    def is_open_to(self, handle: JobHandle[Any, Any]) -> bool:
        """Say whether its jobs need nothing to run."""
        return self._limiter is None and not handle.concurrency

    def ask(self, job: Job, handle: JobHandle[Any, Any], claimed_at: float) -> Permit | Full:
        """Answer a permit, or what is full; nothing is held then, nor after a failure."""
        lease = None
        if self._limiter is not None:
            got = self._limiter.acquire(queue=job.queue, tenant=job.tenant_id)
            if isinstance(got, LimiterFull):
                return Full(reason=got.reason)
            lease = got
        permit = Permit(lease=lease)
        try:
            full = self._take(job, handle, permit, claimed_at)
        except BaseException:
            self.abandon(permit)
            raise
        if full is None:
            return permit
        self.abandon(permit)
        reason = "concurrency" if full.key is None else "concurrency key"
        return Full(reason=reason, cap=full)

    def abandon(self, permit: Permit) -> None:
        """Give everything back for a run that never began."""
        self.slots.hand_back(permit.held)
        if permit.lease is not None:
            permit.lease.abandon()

    def end(self, permits: Sequence[Permit]) -> None:
        """Give everything back for runs that have ended: their slots in one statement, waited for."""
        self.slots.hand_back([held for permit in permits for held in permit.held])
        for permit in permits:
            if permit.lease is not None:
                permit.lease.release()

    def _take(self, job: Job, handle: JobHandle[Any, Any], permit: Permit, claimed_at: float) -> Cap | None:
        """Take the slots in their order; answer the first cap that is full."""
        for cap in handle.concurrency.caps(job.name, job.concurrency_key):
            held = None if self.busy.is_full(cap) else self.slots.take(job, cap, claimed_at)
            if held is None:
                return cap
            permit.held.append(held)
        return None
