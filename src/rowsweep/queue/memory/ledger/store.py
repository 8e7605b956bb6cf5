"""The ledger's rows in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rowsweep.options import row_count
from rowsweep.queue.memory import jsonb
from rowsweep.queue.memory.ledger.moves import governed_options
from rowsweep.queue.memory.ledger.steer import steer_run
from rowsweep.queue.memory.state import backfill_answer, locked
from rowsweep.queue.memory.steps import write_step
from rowsweep.queue.stores.ledger import Asked, Backfill, BatchClosed
from rowsweep.queue.stores.steps import StepPut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Claim, Job
    from rowsweep.queue.stores.ledger import (
        BackfillStatus,
        BatchClose,
        NewBackfill,
        SweepKind,
        SweepTotals,
        Tuning,
        Wanted,
    )


class MemoryLedger:
    """Keep ledger rows in a dict; what is derived from a run's jobs is worked out for each answer."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def start(self, row: NewBackfill) -> Backfill:
        """Open the row, or take up the one that is there with the new checksum, version and declarations."""
        state, now = self._state, self._state.now()
        there = state.ledger.get(row.run_id)
        if there is None:
            state.ledger[row.run_id] = _opened(row, now)
        else:
            state.ledger[row.run_id] = replace(
                there,
                checksum=row.checksum,
                app_version=row.app_version,
                options=_with_noted(there, row),
                updated_at=now,
            )
        return self._answer(state.ledger[row.run_id])

    @locked
    def progress(self, close: BatchClose) -> BatchClosed:
        """Fence, checkpoint and ledger together, or nothing."""
        job = self._state.held(close.claim)
        as_expected = self._is_expected(close)
        if job is not None and as_expected:
            self._close_batch(close, job)
            if close.behind is not None:
                close.behind.send()
        row = self._state.ledger.get(close.run_id)
        return BatchClosed(
            open=True,
            held=job is not None,
            expected=as_expected,
            wanted=row.wanted if row else None,
            options=jsonb.read(row.options) if row else None,
        )

    @locked
    def describe(
        self,
        claim: Claim,
        run_id: UUID,
        *,
        estimate: tuple[int | None, str | None] | None,
        waiting_for: str | None,
        governed: Mapping[str, Any] | None = None,
    ) -> bool:
        """Note the estimate, what the pass waits for and what its governor did, under the claim."""
        columns: dict[str, Any] = {"waiting_for": waiting_for}
        if estimate is not None:
            columns["estimated_rows"], columns["estimate_source"] = estimate
        row = self._state.ledger.get(run_id)
        if governed is not None and row is not None:
            columns["options"] = jsonb.bind(governed_options(jsonb.read(row.options), governed))
        return self._change(claim, run_id, columns)

    @locked
    def finish(self, claim: Claim, run_id: UUID, totals: SweepTotals, *, late: Mapping[str, Any] | None = None) -> bool:
        """Set `done` with the exact totals, under the claim."""
        row = self._state.ledger.get(run_id)
        if row is not None and row.status == "done":
            return self._state.held(claim) is not None
        finished: dict[str, Any] = {"status": "done", "waiting_for": None, "finished_at": self._state.now()}
        if late is not None and row is not None:
            finished["options"] = jsonb.bind({**(jsonb.read(row.options) or {}), "late": dict(late)})
        made_good = {"last_error": None, "last_error_code": None}
        return self._change(claim, run_id, {**_figures(totals), **finished, **made_good})

    @locked
    def get(self, run_id: UUID) -> Backfill | None:
        """Answer one row."""
        row = self._state.ledger.get(run_id)
        return None if row is None else self._answer(row)

    @locked
    def list(
        self,
        *,
        name: str | None = None,
        status: BackfillStatus | None = None,
        kind: SweepKind | None = None,
        run_id_prefix: str | None = None,
        run_ids: Sequence[UUID] | None = None,
        limit: int = 100,
    ) -> list[Backfill]:
        """Answer rows, newest first; with `run_ids` those of them that there are, in one statement."""
        row_count(limit)
        chosen = [
            row
            for row in self._state.ledger.values()
            if (name is None or row.name == name)
            and (status is None or row.status == status)
            and (kind is None or row.kind == kind)
            and str(row.run_id).startswith(run_id_prefix or "")
            and (run_ids is None or row.run_id in run_ids)
        ]
        chosen.sort(key=lambda row: (row.started_at, row.run_id), reverse=True)
        return [self._answer(row) for row in chosen[:limit]]

    @locked
    def steer(
        self, run_id: UUID, wanted: Wanted | Tuning, *, reason: str | None = None, by: str | None = None
    ) -> Backfill:
        """Pause, resume, cancel or tune a run."""
        return self._answer(steer_run(self._state, run_id, wanted, reason, by))

    @locked
    def wanted(self, run_ids: Sequence[UUID]) -> Mapping[UUID, Asked]:
        """Answer what is asked of each run that has a row."""
        rows = [self._state.ledger[run_id] for run_id in run_ids if run_id in self._state.ledger]
        return {row.run_id: Asked(wanted=row.wanted, options=jsonb.read(row.options)) for row in rows}

    def _is_expected(self, close: BatchClose) -> bool:
        """Compare with the checkpoint the batch started from; None expects that there is none."""
        step = self._state.steps.get((close.run_id, close.step))
        if step is None or close.expected is None:
            return step is None and close.expected is None
        return jsonb.is_same(jsonb.read(step.output), close.expected)

    def _close_batch(self, close: BatchClose, job: Job) -> None:
        state = self._state
        put = StepPut(run_id=close.run_id, name=close.step, kind="checkpoint", status="done", output=close.value)
        write_step(state, put, state.now())
        if close.totals is None:
            return
        if close.restarts:
            state.write(replace(job, attempt=min(job.attempt, 1)))
        columns = _figures(close.totals) | {"waiting_for": None}
        if close.checksum is not None:
            columns["checksum"] = close.checksum
        self._change(close.claim, close.run_id, columns)

    def _change(self, claim: Claim, run_id: UUID, columns: dict[str, Any]) -> bool:
        row = self._state.ledger.get(run_id)
        if row is None or self._state.held(claim) is None:
            return False
        self._state.ledger[run_id] = replace(row, updated_at=self._state.now(), **columns)
        return True

    def _answer(self, row: Backfill) -> Backfill:
        now, jobs = self._state.now(), self._state.jobs_of(row.run_id)
        first = jobs[0] if jobs else None
        retrying = [job for job in jobs if job.state == "ready" and job.run_at > now]
        attempt = first.attempt if first else None
        return replace(
            backfill_answer(row),
            live=any(job.visible_at is not None and job.visible_at > now for job in jobs),
            job_id=first.id if first else None,
            job_state=first.state if first else None,
            attempt=max((job.attempt for job in retrying), default=attempt),
            max_attempts=first.max_attempts if first else None,
            retry_at=min((job.run_at for job in retrying), default=None),
            quiet_seconds=max((now - row.updated_at).total_seconds(), 0.0),
        )


def _figures(totals: SweepTotals) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "rows": totals.rows,
        "written": totals.written,
        "batches": totals.batches,
        "cursor": jsonb.bind(totals.cursor),
        "active_seconds": totals.active_seconds,
    }
    return figures if totals.samples is None else figures | {"samples": jsonb.bind(totals.samples)}


def _with_noted(there: Backfill, row: NewBackfill) -> Any:
    kept: Any = jsonb.read(there.options)
    given = row.options if isinstance(row.options, dict) else {}
    noted = {name: given[name] for name in ("declared_rate", "destination") if given.get(name) is not None}
    if kept is not None:
        kept = {name: value for name, value in kept.items() if name != "declared_rate"}
    return jsonb.bind({**(kept or {}), **noted} if noted else kept)


def _opened(row: NewBackfill, now: datetime) -> Backfill:
    return Backfill(
        run_id=row.run_id,
        name=row.name,
        kind=row.kind,
        checksum=row.checksum,
        app_version=row.app_version,
        environment=row.environment,
        status="running",
        wanted="run",
        waiting_for=None,
        rows=0,
        written=0,
        batches=0,
        cursor=None,
        estimated_rows=None,
        estimate_source=None,
        active_seconds=0.0,
        samples="[]",
        shards=None,
        input=jsonb.bind(row.input),
        options=jsonb.bind(row.options),
        rejected_rows=0,
        launched_by=row.launched_by,
        last_error=None,
        last_error_code=None,
        started_at=now,
        updated_at=now,
        finished_at=None,
        live=False,
        job_id=None,
        job_state=None,
        attempt=None,
        retry_at=None,
        max_attempts=None,
    )
