"""Fleet slots of the runs in flight: taken, renewed and handed back, and the refusal where a driver keeps none."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rowsweep.jobs.concurrency import slot_lost, unenforceable
from rowsweep.queue.records import claim_of
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    from rowsweep.errors import SlotLost
    from rowsweep.jobs.concurrency import Cap
    from rowsweep.jobs.handle import JobHandle
    from rowsweep.queue.contract import Driver
    from rowsweep.queue.records import Job
    from rowsweep.queue.stores.holds import Slot, SlotStore
    from rowsweep.worker.admission.busy import BusyCaps
    from rowsweep.worker.equipment import Equipment

_AGAIN_SECONDS: Final = 0.5
_LEAST_SECONDS: Final = 0.001
_SHOWN: Final = 20


def refuse_unenforceable(driver: Driver, handles: Iterable[JobHandle[Any, Any]]) -> None:
    """Refuse to work jobs that declare concurrency over a driver without slots; raises ConcurrencyUnenforceable."""
    names = [handle.name for handle in handles if handle.concurrency]
    if names and driver.control().slots is None:
        raise unenforceable(driver.name, names)


@dataclass(slots=True, eq=False)
class Held:
    """One slot of one run; `renewed_at` is the monotonic reading before the last statement that landed for it."""

    slot: Slot
    cap: Cap
    renewed_at: float
    renew_at: float
    on_lost: Callable[[SlotLost], object] | None = None
    is_open: bool = True

    @property
    def job_id(self) -> UUID:
        """The job it is held for."""
        return self.slot.claim.job_id


class Slots:
    """Hold the slots of a worker's runs, a list for each job, and renew them all in one statement a round.

    A slot is held, not owned: a whole TTL without a renewal that landed ends it here, before another may have it.
    """

    def __init__(self, equipment: Equipment, busy: BusyCaps) -> None:
        options = equipment.options
        self._worker_id = equipment.worker_id
        self._driver = equipment.driver
        self._clock = equipment.clock
        self._busy = busy
        self._ttl = options.visibility_seconds
        self._every = options.renew_seconds
        self._again = min(_AGAIN_SECONDS, self._every / 2)
        self._lock = threading.Lock()
        self._held: dict[UUID, list[Held]] = {}

    def take(self, job: Job, cap: Cap, claimed_at: float) -> Held | None:
        """Take one slot for a claimed job, None where the cap is full.

        It lasts no longer than the claim's own lease: who takes over a job that lapsed finds its slot expired too.
        """
        ttl = max(claimed_at + self._ttl - self._clock.monotonic(), _LEAST_SECONDS)
        slot = self._store([cap]).acquire(cap.lease_key, limit=cap.limit, ttl_seconds=ttl, claim=claim_of(job))
        if slot is None:
            self._busy.full(cap)
            return None
        held = Held(slot, cap, renewed_at=claimed_at, renew_at=claimed_at + self._every)
        self._busy.took(cap)
        with self._lock:
            self._held.setdefault(job.id, []).append(held)
        return held

    def start_renewal(self, job_id: UUID, on_lost: Callable[[SlotLost], object]) -> Callable[[], None]:
        """Have a job's slots renewed, and call back once for each that is lost; answers what stops it."""
        with self._lock:
            mine = [held for held in self._held.get(job_id, []) if held.on_lost is None]
        for held in mine:
            held.on_lost = on_lost
        return lambda: self.stop(mine)

    def stop(self, slots: Sequence[Held]) -> None:
        """Renew these slots no more and report no loss of them: their run has lost its claim, or has ended."""
        with self._lock:
            for held in slots:
                held.is_open = False

    def hand_back(self, slots: Sequence[Held]) -> None:
        """Give slots back and wait for it; one that was given back, or cannot be, ends by its TTL."""
        mine = [held for held in slots if self._forget(held)]
        if not mine:
            return
        try:
            self._store([held.cap for held in mine]).release([held.slot for held in mine])
        except Exception as error:  # noqa: BLE001 - a run has ended whether or not its slot could be given back
            self._warn(mine, error)
        for held in mine:
            self._busy.gave(held.cap)

    def renew(self, stamp: float) -> float | None:
        """Renew what falls due by the stamp, report what had lapsed by it, and answer when to be called next."""
        self._give_up_lapsed(stamp)
        open_slots = self._open()
        if any(held.renew_at <= stamp for held in open_slots):
            self._renew([held for held in open_slots if held.renew_at <= stamp + self._every / 2], stamp)
        instants = [at for held in self._open() for at in (held.renew_at, held.renewed_at + self._ttl)]
        return min(instants, default=None)

    def _renew(self, due: list[Held], stamp: float) -> None:
        try:
            answers = self._store([held.cap for held in due]).renew([held.slot for held in due], ttl_seconds=self._ttl)
        except Exception as error:  # noqa: BLE001 - a failed renewal only warns; the TTL decides
            self._warn(due, error)
            for held in due:
                held.renew_at = stamp + self._again
            return
        now = self._clock.monotonic()
        for held, answer in zip(due, answers, strict=True):
            if answer is False:
                self._lose(held, "it expired or another run has it")
            elif now < held.renewed_at + self._ttl:
                held.renewed_at, held.renew_at = stamp, stamp + self._every

    def _give_up_lapsed(self, now: float) -> None:
        for held in self._open():
            if now >= held.renewed_at + self._ttl:
                self._lose(held, f"no renewal landed within {self._ttl:g} s")

    def _lose(self, held: Held, why: str) -> None:
        """Stop renewing a slot and report it once; a run that has ended is nobody's loss."""
        with self._lock:
            is_open, held.is_open = held.is_open, False
        if not is_open:
            return
        reason = slot_lost(held.cap.name, held.job_id, held.cap.lease_key, held.slot.slot, why)
        emit(
            "jobs.worker.slot-lost",
            worker_id=self._worker_id,
            job=held.cap.name,
            job_id=str(held.job_id),
            lease_key=held.cap.lease_key,
            slot=held.slot.slot,
            error=reason,
        )
        if held.on_lost is not None:
            held.on_lost(reason)

    def _open(self) -> list[Held]:
        with self._lock:
            return [held for mine in self._held.values() for held in mine if held.is_open]

    def _forget(self, held: Held) -> bool:
        with self._lock:
            held.is_open = False
            mine = self._held.get(held.job_id, [])
            if held not in mine:
                return False
            mine.remove(held)
            if not mine:
                del self._held[held.job_id]
            return True

    def _store(self, caps: Sequence[Cap]) -> SlotStore:
        store = self._driver.control().slots
        if store is None:
            raise unenforceable(self._driver.name, sorted({cap.name for cap in caps}))
        return store

    def _warn(self, slots: list[Held], error: Exception) -> None:
        job_ids = [str(held.job_id) for held in slots[:_SHOWN]]
        emit("jobs.heartbeat.failed", worker_id=self._worker_id, claims=len(slots), job_ids=job_ids, error=error)
