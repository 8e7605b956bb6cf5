"""Fleet slots on Postgres: a row for each slot in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.stores.holds import Slot, SlotHolder, holder_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.records import Claim

_SQL = load(__name__)


class PostgresSlots:
    """Keep slots in `x_job_leases`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def acquire(self, key: str, *, limit: int, ttl_seconds: float, claim: Claim) -> Slot | None:
        """Take a free or expired slot; asked again where it chose one that another got first."""
        if limit <= 0:
            return None
        values = {
            "key": key,
            "limit": limit,
            "ttl": float(ttl_seconds),
            "holder": holder_of(claim),
            "job_id": claim.job_id,
        }
        while True:
            seen, chosen, slot = self._session.rows(_SQL["acquire"], values)[0]
            if slot is not None:
                return Slot(lease_key=key, slot=slot, claim=claim)
            if not (seen and chosen):
                return None

    def renew(self, slots: Sequence[Slot], *, ttl_seconds: float) -> list[bool]:
        """Extend slots from the database's now in one statement, one answer each."""
        if not slots:
            return []
        rows = self._session.rows(_SQL["renew"], {**_values(slots), "ttl": float(ttl_seconds)})
        return [row[1] for row in rows]

    def release(self, slots: Sequence[Slot]) -> list[bool]:
        """Delete the rows that are still these holders', in one statement, one answer each."""
        if not slots:
            return []
        return [row[1] for row in self._session.rows(_SQL["release"], _values(slots))]

    def holders(self, key: str) -> list[SlotHolder]:
        """Answer who holds the key's slots, by slot."""
        rows = self._session.rows(_SQL["holders"], {"key": key})
        return [SlotHolder(slot=row[0], holder=row[1], job_id=row[2], expires_at=row[3]) for row in rows]


def _values(slots: Sequence[Slot]) -> dict[str, object]:
    return {
        "lease_key": [slot.lease_key for slot in slots],
        "slot": [slot.slot for slot in slots],
        "holder": [slot.holder for slot in slots],
    }
