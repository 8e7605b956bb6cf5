"""Jobs on Postgres: enqueue, claim, settle, renew, progress, stats."""

from __future__ import annotations

import zlib
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from rowsweep.jobs.request import EnqueueResult
from rowsweep.jobs.values.json_form import json_text
from rowsweep.options import row_count
from rowsweep.queue.postgres.statements.arrays import Longs, Texts, Uuids
from rowsweep.queue.postgres.statements.session import PooledSession
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.postgres.stores.enqueue import enqueue
from rowsweep.queue.postgres.stores.settle import settle_values
from rowsweep.queue.records import LEASE_LAPSED_FINAL_ATTEMPT, ClaimPass, QueueStats
from rowsweep.queue.refusals import one_queue

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from psycopg.rows import TupleRow

    from rowsweep.jobs.request import NewJob
    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.records import Claim, ClaimOptions, Job
    from rowsweep.queue.verdicts import Settlement

FEW: Final = 64
SHARDS: Final = 8
_SQL = load(__name__)
_STATS: Final = tuple(field.name for field in fields(QueueStats))


class PostgresJobs:
    """Keep jobs in `x_jobs`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def enqueue(self, jobs: Sequence[NewJob]) -> list[EnqueueResult]:
        """Insert the jobs, 1,000 in a statement, all or none; a live job with the key of one answers for it."""
        return enqueue(self._session, jobs)

    def claim(self, options: ClaimOptions) -> ClaimPass:
        """Claim from the one queue named; lapsed rows go first, in a statement of their own."""
        queue = one_queue(options, driver="postgres")
        limit = row_count(options.limit)
        if limit == 0:
            return ClaimPass(jobs=[])
        taken, buried = self._claim_lapsed(options, queue, limit) if options.lapsed else ([], [])
        if len(taken) >= limit:
            return ClaimPass(jobs=taken, buried=buried)
        free = limit - len(taken)
        few = self._claim_few(options, queue, free) if options.few else None
        if few is not None:
            return replace(few, jobs=taken + few.jobs, buried=buried) if taken or buried else few
        rows = self._session.rows(
            _SQL["claim"],
            {
                "queue": queue,
                "names": list(options.names),
                **_rooms(options),
                "starts": json_text(options.starts or []),
                "worker": options.worker_id,
                "visibility": float(options.visibility_seconds),
                "limit": free,
                # Workers that meet at the head of the queue find rows behind those the others hold.
                "scan": 2 * free + 32,
            },
        )
        claimed = _claimed(rows)
        starts = next((row[-2] for row in rows if row[-2] is not None), None)
        next_run_at = records.next_instant(rows[0][-1])
        return ClaimPass(jobs=taken + claimed, buried=buried, next_run_at=next_run_at, starts=starts)

    def settle(self, settlements: Sequence[Settlement], *, resent: bool = False) -> list[bool | None]:
        """End claims in one statement, one answer each."""
        if not settlements:
            return []
        shard = shard_of(settlements[0].claim.worker_id)
        values = {**settle_values(settlements), "shard": shard, "resent": resent}
        return [row[1] for row in self._session.rows(_SQL["settle"], values)]

    def renew(self, claims: Sequence[Claim], *, visibility_seconds: float) -> list[bool | None]:
        """Extend claims from the database's now in one statement, one answer each."""
        if not claims:
            return []
        values = {
            "id": Uuids([claim.job_id for claim in claims]),
            "worker": [claim.worker_id for claim in claims],
            "claim": Longs([claim.claim for claim in claims]),
            "visibility": float(visibility_seconds),
        }
        return [row[1] for row in self._session.rows(_SQL["renew"], values)]

    def record_progress(self, claim: Claim, progress: Any) -> bool:
        """Store a run's progress under its claim."""
        values = {**claim_values(claim), "progress": json_text(progress)}
        return bool(self._session.rows(_SQL["record_progress"], values))

    def stats(self) -> list[QueueStats]:
        """Count rows by queue and state, queues by name."""
        return [QueueStats(**dict(zip(_STATS, row, strict=True))) for row in self._session.rows(_SQL["stats"], {})]

    def _claim_few(self, options: ClaimOptions, queue: str, limit: int) -> ClaimPass | None:
        """Claim where few rows are live; None, and nothing claimed, where there may be more."""
        rows = self._session.rows(
            _SQL["claim_few"],
            {
                "queue": queue,
                "names": Texts(options.names),
                "worker": options.worker_id,
                "visibility": float(options.visibility_seconds),
                "limit": limit,
                "few": FEW,
            },
        )
        is_whole, next_run_at, seconds = rows[0][-3:]
        if not is_whole:
            return None
        claimed = sorted(_claimed(rows), key=_claim_order)
        return ClaimPass(jobs=claimed, next_run_at=records.next_instant(next_run_at), few=True, read_seconds=seconds)

    def _claim_lapsed(self, options: ClaimOptions, queue: str, limit: int) -> tuple[list[Job], list[Job]]:
        rows = self._session.rows(
            _SQL["claim_lapsed"],
            {
                "queue": queue,
                "names": list(options.names),
                "drop_exhausted": list(options.drop_exhausted),
                "busy_names": [name for name, key in options.busy if key is None],
                "busy_keys": _busy_keys(options),
                "worker": options.worker_id,
                "visibility": float(options.visibility_seconds),
                "limit": limit,
                "alone": isinstance(self._session, PooledSession),
                "error": LEASE_LAPSED_FINAL_ATTEMPT,
                "shard": shard_of(options.worker_id),
            },
        )
        found = [records.job(row) for row in rows]
        taken = [job for job in found if job.state == "running"]
        taken.sort(key=_claim_order)
        return taken, [job for job in found if job.state != "running"]


def _claimed(rows: Sequence[TupleRow]) -> list[Job]:
    """Answer the jobs of a claim's rows; one that stands for no job says only what the pass came to."""
    return [records.job(row) for row in rows if row[0] is not None]


def _claim_order(job: Job) -> tuple[int, datetime, UUID]:
    return -job.priority, job.run_at, job.id


def claim_values(claim: Claim) -> dict[str, object]:
    """Answer a claim as the values of a fenced statement."""
    return {"job_id": claim.job_id, "worker": claim.worker_id, "claim": claim.claim}


def shard_of(worker_id: str) -> int:
    """Answer which of the counter rows a worker's counts go into; it only keeps settlers off one row."""
    return zlib.crc32(worker_id.encode("utf-8", "surrogatepass")) % SHARDS


def _rooms(options: ClaimOptions) -> dict[str, object]:
    """Answer how many rows of each name the pass may take, none of one whose cap is full."""
    full = {name: 0 for name, key in options.busy if key is None}
    rooms = {**options.rooms, **full}
    return {
        "rooms": [rooms.get(name) for name in options.names],
        "key_rooms": [options.key_rooms.get(name) for name in options.names],
        "busy_keys": _busy_keys(options),
    }


def _busy_keys(options: ClaimOptions) -> list[str]:
    return [f"{name}:{key}" for name, key in options.busy if key is not None]
