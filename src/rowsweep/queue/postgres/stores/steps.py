"""Steps on Postgres, every write fenced on the claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.errors import LeaseLost
from rowsweep.jobs.values.json_form import json_text
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.postgres.stores.jobs import claim_values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.records import Claim
    from rowsweep.queue.stores.events import StepWait
    from rowsweep.queue.stores.steps import Recorded, Step, StepPut, StepSleep

_SQL = load(__name__)


class PostgresSteps:
    """Keep a run's steps in `x_job_steps`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, run_id: UUID, name: str) -> Step | None:
        """Answer one step."""
        rows = self._session.rows(_SQL["get"], {"run_id": run_id, "name": name})
        return records.step(rows[0]) if rows else None

    def list(self, run_id: UUID, *, kinds: Sequence[str] | None = None) -> list[Step]:
        """Answer a run's steps by `started_at`, then name."""
        chosen = None if kinds is None else list(kinds)
        rows = self._session.rows(_SQL["list"], {"run_id": run_id, "kinds": chosen})
        return [records.step(row) for row in rows]

    def recorded(self, run_id: UUID) -> dict[str, Recorded]:
        """Answer a run's steps by name, as a replay needs them."""
        return records.recorded(run_id, self._session.rows(_SQL["recorded"], {"run_id": run_id}))

    def put(self, step: StepPut, claim: Claim) -> Step:
        """Write a step and lock the job row, or raise LeaseLost with nothing written."""
        values = {
            "run_id": step.run_id,
            "name": step.name,
            "kind": step.kind,
            "status": step.status,
            "output": None if step.output is None else json_text(step.output),
            "error": step.error,
        }
        return self._fenced("put", values, claim)

    def sleep(self, step: StepSleep, claim: Claim) -> Step:
        """Store the sleep's instant, once, and say whether it has passed."""
        values = {"run_id": step.run_id, "name": step.name, "seconds": float(step.seconds)}
        return self._fenced("sleep", values, claim)

    def wait(self, step: StepWait, claim: Claim) -> Step:
        """Store what the wait is for, once, and say whether it has come."""
        values = {
            "run_id": step.run_id,
            "name": step.name,
            "event": step.event,
            "key": step.key,
            "timeout": None if step.timeout_seconds is None else float(step.timeout_seconds),
            "since": step.since,
        }
        return self._fenced("wait", values, claim)

    def delete(self, run_id: UUID, name: str) -> bool:
        """Remove one step."""
        return bool(self._session.rows(_SQL["delete"], {"run_id": run_id, "name": name}))

    def guard(self, claim: Claim) -> bool:
        """Lock the job row until the transaction ends and say whether it still stands under this claim."""
        return bool(self._session.rows(_SQL["guard"], claim_values(claim)))

    def _fenced(self, statement: str, values: dict[str, object], claim: Claim) -> Step:
        rows = self._session.rows(_SQL[statement], {**claim_values(claim), **values})
        if not rows:
            raise lease_lost(claim)
        return records.step(rows[0])


def lease_lost(claim: Claim) -> LeaseLost:
    """Answer that a claim is no longer its worker's."""
    return LeaseLost(
        f"claim {claim.claim} of job {claim.job_id} is no longer held by worker {claim.worker_id}.",
        fix=f"rowsweep jobs show {claim.job_id}",
        meta={"job_id": str(claim.job_id), "worker_id": claim.worker_id, "claim": claim.claim},
    )
