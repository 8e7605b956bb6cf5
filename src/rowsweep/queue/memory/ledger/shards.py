"""What the jobs of one run share, in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import InvariantBroken
from rowsweep.queue.memory import jsonb
from rowsweep.queue.memory.ledger.moves import with_status
from rowsweep.queue.memory.state import locked, step_answer
from rowsweep.queue.memory.steps import write_step
from rowsweep.queue.records import WAITING_STATES
from rowsweep.queue.stores.ledger import MOST_SAMPLES, BatchClosed
from rowsweep.queue.stores.shards import ShardJob, shard_number
from rowsweep.queue.stores.steps import StepPut

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from uuid import UUID

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Claim, Job
    from rowsweep.queue.stores.ledger import Backfill, BatchClose
    from rowsweep.queue.stores.shards import ShardFigures


_UNDONE: Final = ("failed", "dead", "cancelled")


class MemoryShards:
    """Keep the shards' figures in their ledger row; the one lock stands for the locks of rows."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def put(self, claim: Claim, run_id: UUID, shards: Sequence[ShardFigures]) -> bool:
        """Write every shard's figures, under the claim of one of them."""
        row = self._state.ledger.get(run_id)
        if row is None or self._state.held(claim) is None:
            return False
        figures = jsonb.bind([shard.as_json() for shard in shards])
        self._state.ledger[run_id] = replace(row, shards=figures, updated_at=self._state.now())
        return True

    @locked
    def move(self, close: BatchClose) -> BatchClosed:
        """Fence, checkpoint and ledger together, or nothing."""
        state = self._state
        if close.shard is None:
            raise InvariantBroken("a shard's batch closes with its figures.", fix="BatchClose(shard=…)")
        job, step = state.held(close.claim), state.steps.get((close.run_id, close.step))
        is_expected = step is not None and jsonb.is_same(jsonb.read(step.output), close.expected)
        row = state.ledger.get(close.run_id)
        if job is not None and is_expected:
            put = StepPut(run_id=close.run_id, name=close.step, kind="checkpoint", status="done", output=close.value)
            write_step(state, put, state.now())
            state.write(replace(job, attempt=min(job.attempt, 1)))
            if row is not None and row.shards is not None:
                row = state.ledger[close.run_id] = self._moved(row, close.shard)
        return BatchClosed(
            open=True,
            held=job is not None,
            expected=job is not None and is_expected,
            wanted=row.wanted if row else None,
            options=jsonb.read(row.options) if row else None,
        )

    @locked
    def jobs(self, run_id: UUID, *, step: str) -> builtins.list[ShardJob]:
        """Answer the run's shards in order."""
        jobs = {shard_number(job.concurrency_key): job for job in self._state.jobs_of(run_id)}
        steps = [kept for (owner, name), kept in self._state.steps.items() if owner == run_id and _is_of(name, step)]
        found = []
        for kept in sorted(steps, key=lambda kept: shard_number(kept.name)):
            number = shard_number(kept.name)
            job = jobs.get(number)
            job_id, state = (None, None) if job is None else (job.id, job.state)
            found.append(ShardJob(number=number, job_id=job_id, state=state, checkpoint=step_answer(kept).output))
        return found

    @locked
    def hold(self, claim: Claim, job_id: UUID) -> bool | None:
        """Say whether the claim stands and the other job is there: the one lock holds every row."""
        if self._state.held(claim) is None:
            return False
        return True if job_id in self._state.jobs else None

    @locked
    def stop(self, claim: Claim, number: int) -> bool | None:
        """Cancel a shard's own job where the run is to stop."""
        state = self._state
        job = state.held(claim)
        row = None if job is None else state.ledger.get(job.run_id)
        if job is None or row is None:
            return False
        if row.wanted != "cancel":
            return None
        now, why = state.now(), _why(row)
        ended = replace(job, state="cancelled", claimed_by=None, visible_at=None, updated_at=now)
        state.write(replace(ended, last_error=why, last_error_code=None, stop_reason="cancelled"))
        if row.shards is not None:
            state.ledger[row.run_id] = replace(with_status(row, number, "cancelled"), updated_at=now)
        return True

    @locked
    def revive(self, claim: Claim) -> int:
        """Make the run's other jobs due again that ended without having to."""
        state = self._state
        job = state.held(claim)
        row = None if job is None else state.ledger.get(job.run_id)
        if row is None or row.shards is None or row.wanted == "cancel":
            return 0
        now, ended = state.now(), [each for each in state.jobs_of(row.run_id) if each.state in _UNDONE]
        for each in ended:
            cleared = replace(each, last_error=None, last_error_code=None, stop_reason=None)
            state.write(replace(cleared, state="ready", attempt=0, run_at=now, updated_at=now))
        return len(ended)

    @locked
    def ended(self, run_id: UUID) -> None:
        """Make due what waits for the end of a shard."""
        state, row = self._state, self._state.ledger.get(run_id)
        if row is None:
            return
        now, stops = state.now(), row.wanted == "cancel"
        for job in state.jobs_of(run_id):
            if _waits_for_others(job) or (stops and job.state in WAITING_STATES):
                state.write(replace(job, run_at=now, updated_at=now))

    def _moved(self, row: Backfill, shard: ShardFigures) -> Backfill:
        now = self._state.now()
        shards: list[dict[str, Any]] = jsonb.read(row.shards)
        before = float(shards[shard.number - 1].get("active_seconds") or 0)
        shards[shard.number - 1] = shard.as_json()
        gap = min(shard.active_seconds - before, (now - row.updated_at).total_seconds())
        active = round(row.active_seconds + max(gap, 0.0), 3)
        rows, written, batches = (sum(int(each[name]) for each in shards) for name in ("rows", "written", "batches"))
        samples = _sampled(jsonb.read(row.samples), active, rows)
        return replace(
            row,
            shards=jsonb.bind(shards),
            rows=rows,
            written=written,
            batches=batches,
            cursor=None,
            active_seconds=active,
            samples=jsonb.bind(samples),
            waiting_for=None,
            updated_at=now,
        )


def _is_of(name: str, step: str) -> bool:
    return name == step or name.startswith(f"{step}:s")


def _why(row: Backfill) -> str:
    failed = [number for number, shard in enumerate(jsonb.read(row.shards) or [], 1) if shard["status"] == "failed"]
    return f"shard {failed[0]} failed, so that the run stops" if failed else "the run was cancelled"


def _waits_for_others(job: Job) -> bool:
    return shard_number(job.concurrency_key) == 1 and job.state in ("suspended", "running")


def _sampled(samples: Any, active: float, rows: int) -> Any:
    if samples and samples[-1][0] > active - 1:
        return samples
    longer = [*samples, [active, rows]]
    return longer[::2] if len(longer) > MOST_SAMPLES else longer
