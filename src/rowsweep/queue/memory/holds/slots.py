"""Fleet slots in memory: of one process, since no other sees them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rowsweep.queue.memory.state import locked
from rowsweep.queue.stores.holds import Slot, SlotHolder, holder_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Claim


class MemorySlots:
    """Keep the slots in use in a dict; a key is forgotten with its last slot."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def acquire(self, key: str, *, limit: int, ttl_seconds: float, claim: Claim) -> Slot | None:
        """Take a free slot; one whose holder let it expire is taken together with its claim."""
        now, rows = self._state.now(), self._state.slots
        holder = holder_of(claim)
        own = [slot for slot in range(limit) if (row := rows.get((key, slot))) and row.holder == holder]
        unused = (slot for slot in range(limit) if (key, slot) not in rows)
        expired = (slot for slot in range(limit) if (row := rows.get((key, slot))) and row.expires_at <= now)
        slot = next((slot for slots in (own, unused, expired) for slot in slots), None)
        if slot is None:
            return None
        former = rows.get((key, slot))
        if former is not None and former.holder != holder:
            self._fence(former)
        expires_at = now + timedelta(seconds=ttl_seconds)
        rows[key, slot] = SlotHolder(slot=slot, holder=holder, job_id=claim.job_id, expires_at=expires_at)
        return Slot(lease_key=key, slot=slot, claim=claim)

    @locked
    def renew(self, slots: Sequence[Slot], *, ttl_seconds: float) -> list[bool]:
        """Extend slots from the clock's now, one answer each."""
        expires_at = self._state.now() + timedelta(seconds=ttl_seconds)
        return [
            self._renew(
                slot, SlotHolder(slot=slot.slot, holder=slot.holder, job_id=slot.claim.job_id, expires_at=expires_at)
            )
            for slot in slots
        ]

    @locked
    def release(self, slots: Sequence[Slot]) -> list[bool]:
        """Give slots back, one answer each."""
        return [self._release(slot) for slot in slots]

    @locked
    def holders(self, key: str) -> list[SlotHolder]:
        """Answer who holds the key's slots, by slot."""
        now = self._state.now()
        mine = [row for (lease_key, _), row in self._state.slots.items() if lease_key == key]
        return sorted((row for row in mine if row.expires_at > now), key=lambda row: row.slot)

    def _renew(self, slot: Slot, renewed: SlotHolder) -> bool:
        row = self._state.slots.get((slot.lease_key, slot.slot))
        if row is None or row.holder != slot.holder or row.expires_at <= self._state.now():
            return False
        self._state.slots[slot.lease_key, slot.slot] = renewed
        return True

    def _release(self, slot: Slot) -> bool:
        row = self._state.slots.get((slot.lease_key, slot.slot))
        if row is None or row.holder != slot.holder:
            return False
        del self._state.slots[slot.lease_key, slot.slot]
        return True

    def _fence(self, former: SlotHolder) -> None:
        """End a claim that still stands, so that its body writes nothing beside the new holder's."""
        state, now = self._state, self._state.now()
        job = state.jobs.get(former.job_id)
        if job is None or f"{job.claimed_by}:{job.id}:{job.claims}" != former.holder:
            return
        lapsed_at = now if job.visible_at is None else min(job.visible_at, now)
        state.write(replace(job, claims=job.claims + 1, visible_at=lapsed_at))
