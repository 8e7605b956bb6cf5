"""What the jobs of one run share, on Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.errors import DivisionByZero

from rowsweep.errors import InvariantBroken
from rowsweep.jobs.values.json_form import json_text
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores.jobs import claim_values
from rowsweep.queue.stores.ledger import MOST_SAMPLES, BatchClosed
from rowsweep.queue.stores.shards import ShardJob

if TYPE_CHECKING:
    import builtins
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from psycopg.rows import TupleRow

    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.records import Claim
    from rowsweep.queue.stores.ledger import BatchClose, Behind
    from rowsweep.queue.stores.shards import ShardFigures

_SQL = load(__name__)


class PostgresShards:
    """Keep the shards' figures in their ledger row, and lock their jobs' rows."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, claim: Claim, run_id: UUID, shards: Sequence[ShardFigures]) -> bool:
        """Write every shard's figures, under the claim of one of them."""
        figures = json_text([shard.as_json() for shard in shards])
        return bool(self._session.rows(_SQL["put"], {**claim_values(claim), "run_id": run_id, "shards": figures}))

    def move(self, close: BatchClose) -> BatchClosed:
        """Fence and checkpoint, or nothing; the ledger where it is free."""
        shard = close.shard
        if shard is None:
            raise InvariantBroken("a shard's batch closes with its figures.", fix="BatchClose(shard=…)")
        values = {
            **claim_values(close.claim),
            "run_id": close.run_id,
            "step": close.step,
            "expected": json_text(close.expected),
            "value": json_text(close.value),
            "marker": close.marker,
            "place": str(shard.number - 1),
            "shard": json_text(shard.as_json()),
            "active_seconds": float(shard.active_seconds),
            "most_samples": MOST_SAMPLES,
            "has_more": close.behind is not None,
        }
        try:
            is_open, held, expected, wanted, options, reported, _ = self._sent(values, close.behind)[0]
        except DivisionByZero:
            return BatchClosed(open=True, held=False, expected=False, wanted=None)
        return BatchClosed(
            open=is_open, held=held, expected=expected, wanted=wanted, options=options, reported=reported
        )

    def _sent(self, values: Mapping[str, object], behind: Behind | None) -> list[TupleRow]:
        if behind is None:
            return self._session.rows(_SQL["move"], values)
        return self._session.rows_before(_SQL["move"], values, behind)

    def jobs(self, run_id: UUID, *, step: str) -> builtins.list[ShardJob]:
        """Answer the run's shards in order."""
        rows = self._session.rows(_SQL["jobs"], {"run_id": run_id, "step": step})
        return [ShardJob(number=row[0], job_id=row[1], state=row[2], checkpoint=row[3]) for row in rows]

    def hold(self, claim: Claim, job_id: UUID) -> bool | None:
        """Lock the claim's row, then the other's if it is free."""
        is_held, is_free = self._session.rows(_SQL["hold"], {**claim_values(claim), "other": job_id})[0]
        return (True if is_free else None) if is_held else False

    def stop(self, claim: Claim, number: int) -> bool | None:
        """Cancel a shard's own job where the run is to stop."""
        values = {**claim_values(claim), "place": str(number - 1)}
        is_held, is_stopped = self._session.rows(_SQL["stop"], values)[0]
        return (True if is_stopped else None) if is_held else False

    def revive(self, claim: Claim) -> int:
        """Make the run's other jobs due again that ended without having to."""
        return len(self._session.rows(_SQL["revive"], claim_values(claim)))

    def ended(self, run_id: UUID) -> None:
        """Make due what waits for the end of a shard."""
        self._session.rows(_SQL["ended"], {"run_id": run_id})
