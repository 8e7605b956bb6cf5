"""Run what is queued in the test's own process: one job, or all that is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rowsweep.app.connecting import current
from rowsweep.errors import InvariantBroken, TimedOut
from rowsweep.queue.records import FINISHED_STATES
from rowsweep.spelling import spelled
from rowsweep.testing.interrupt import has_interrupted

if TYPE_CHECKING:
    from rowsweep.app.app import App
    from rowsweep.jobs.handle import JobHandle
    from rowsweep.worker.run.execution import Execution
    from rowsweep.worker.worker import Worker

MOST_EXECUTIONS: Final = 10_000


@spelled
def drain(app: App | None = None, *, most: int = MOST_EXECUTIONS) -> list[Execution]:
    """Run every job that is due and declared here, and what these enqueue, until nothing is; answer what each came to.

    Runs on this thread's time: when it answers, every run has settled. What is due later stays (move a `FakeClock` and
    drain again), and so does everything behind an interruption of `interrupt_after`. Raises InvariantBroken after
    `most` executions: a job that enqueues itself never ends.
    """
    connected = app or current()
    worker = connected.worker(queues=_queues(), drain_on_shutdown=False)
    done: list[Execution] = []
    try:
        while len(done) < most:
            executions = worker.tick()
            done += executions
            if not executions or has_interrupted():
                return done
    finally:
        worker.stop()
    raise InvariantBroken(
        f"drain() ran {most:,} executions and more is due: does a job enqueue itself?",
        fix="drain(most=…) where that many are meant",
    )


@spelled
def run_inline(job: JobHandle[Any, Any], value: Any = None, *, app: App | None = None) -> Any:
    """Enqueue one job, run it to its end in this process, and answer the JSON form of what its body returned.

    It goes the way of every job: validated, claimed, run under its tenant with its steps, settled. Raises what the body
    raised, at its first failed attempt, and TimedOut where it waits for a moment or an event that has not come.
    """
    connected = app or current()
    enqueued = job.enqueue(value)
    worker = connected.worker(queues=[job.options.queue], names=[job.name], drain_on_shutdown=False)
    try:
        _run(worker, enqueued.id)
    finally:
        worker.stop()
    found = connected.operate.get(enqueued.id)
    if found is not None and found.state not in FINISHED_STATES:
        raise TimedOut(
            f"{job.name!r} is {found.state} until {found.run_at} and does not go on by itself.",
            fix="move the FakeClock or publish the event, then drain()",
            meta={"job_id": str(enqueued.id)},
        )
    return None if found is None else found.result


def _run(worker: Worker, job_id: Any) -> None:
    while executions := worker.tick():
        for execution in executions:
            if execution.job_id == job_id and execution.failure is not None:
                raise execution.failure
        if has_interrupted():
            return


def _queues() -> list[str]:
    from rowsweep.jobs.registry import registered_jobs

    return sorted({handle.options.queue for handle in registered_jobs()} | {"default"})
