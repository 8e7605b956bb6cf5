"""What becomes of claims whose ends the database has answered: reported, their slots given back, their hooks told."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rowsweep.errors import LeaseLost
from rowsweep.queue.stores.shards import shard_number
from rowsweep.queue.verdicts import Bury, Done, Drop, Refuse
from rowsweep.telemetry.events import emit, is_logged
from rowsweep.telemetry.instruments import is_metered, record_job
from rowsweep.worker.run.hooks import announcement_of, announcement_of_buried

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rowsweep.jobs.handle import JobHandle
    from rowsweep.queue.records import Job
    from rowsweep.queue.verdicts import Settlement
    from rowsweep.worker.admission.gate import Gate
    from rowsweep.worker.equipment import Equipment
    from rowsweep.worker.flights import Flight
    from rowsweep.worker.run.hooks import Announcement, Hooks
    from rowsweep.worker.settler import Answer


class Ends:
    """Finish flights in this order: slots given back, the end reported, its hook told, no longer in flight.

    `room_again` is told of queues where a cap may have room now.
    """

    def __init__(self, equipment: Equipment, gate: Gate, hooks: Hooks, room_again: Callable[[set[str]], None]) -> None:
        self._worker_id = equipment.worker_id
        self._driver = equipment.driver
        self._lifecycle = equipment.lifecycle
        self._flights = equipment.flights
        self._tally = equipment.tally
        self._gate = gate
        self._hooks = hooks
        self._room_again = room_again

    def answered(self, answers: Sequence[Answer]) -> None:
        """Take a settling statement's answers: a miss leaves its run interrupted, and no hook hears of it."""
        announcements: dict[Flight, Announcement] = {}
        for flight, settlement, landed in answers:
            if not landed:
                self._missed(flight, settlement)
                continue
            if not flight.handle.is_followed:
                continue
            if isinstance(settlement.verdict, (Done, Bury, Drop, Refuse)):
                self._shard_ended(flight.job, flight.handle)
            if _is_one_shard_done(flight, settlement):
                continue
            if told := announcement_of(flight.handle, flight.job, settlement.verdict, flight.result):
                announcements[flight] = told
        self.finish([flight for flight, _, _ in answers], announcements)

    def finish(self, flights: Sequence[Flight], announcements: Mapping[Flight, Announcement] | None = None) -> None:
        """Let flights go: their ends are known to the database, or are none of this worker's business any more.

        Their slots are given back before they are no longer in flight, so that no driver is closed under a release;
        those whose hook is told of their end are in flight until it was.
        """
        permits = [flight.permit for flight in flights if flight.permit is not None]
        if permits:
            self._gate.end(permits)
        _report(flights)
        self._tally.add([flight.execution.outcome for flight in flights if flight.execution is not None])
        gone = []
        for flight in flights:
            flight.renew_at = float("inf")
            flight.signal.dispose()
            told = announcements.get(flight) if announcements else None
            if told is None:
                gone.append(flight)
            else:
                self._hooks.tell(told, partial(self._let_go, [flight]))
        self._let_go(gone)
        if permits and (freed := {flight.job.queue for flight in flights if flight.permit and flight.permit.held}):
            self._room_again(freed)

    def _let_go(self, flights: Sequence[Flight]) -> None:
        self._lifecycle.work_ended(self._flights.remove(flights))
        for flight in flights:
            flight.let_go()

    def buried(self, job: Job, handle: JobHandle[Any, Any]) -> None:
        """Tell the hook of a job that the claim ended, as work of the process."""
        self._shard_ended(job, handle)
        told = announcement_of_buried(handle, job)
        if told is not None:
            self._hooks.tell(told, self._lifecycle.begin_work())

    def _shard_ended(self, job: Job, handle: JobHandle[Any, Any]) -> None:
        """Wake what waits for the end of one of a run's several jobs; it looks again by itself where this is lost."""
        shards = self._driver.control().shards
        if shards is None or not handle.has_ledger or not (handle.has_shards or shard_number(job.concurrency_key) > 1):
            return
        try:
            shards.ended(job.run_id)
        except Exception as error:  # noqa: BLE001 - the settlement itself has landed
            emit("jobs.worker.tick-failed", worker_id=self._worker_id, error=error)

    def _missed(self, flight: Flight, settlement: Settlement) -> None:
        emit(
            "jobs.settle.unowned",
            worker_id=self._worker_id,
            job=flight.job.name,
            job_id=str(flight.job.id),
            claim=flight.claim.claim,
            verdict=type(settlement.verdict).__name__,
        )
        if flight.execution is not None:
            flight.execution = replace(flight.execution, outcome="interrupted", error=_unowned(flight))


def _is_one_shard_done(flight: Flight, settlement: Settlement) -> bool:
    """Say whether only a part of a run is done: its hook hears of the whole."""
    is_part = flight.handle.has_ledger and shard_number(flight.job.concurrency_key) > 1
    return is_part and isinstance(settlement.verdict, Done)


def _report(flights: Sequence[Flight]) -> None:
    logged = is_logged("jobs.run.finished")
    if not logged and not is_metered():
        return
    for flight in flights:
        execution = flight.execution
        if execution is None:
            continue
        record_job(flight.job.queue, execution.label, job=execution.job, seconds=execution.duration_ms / 1000)
        if logged:
            emit(
                "jobs.run.finished",
                queue=flight.job.queue,
                job=execution.job,
                job_id=str(execution.job_id),
                run_id=str(flight.job.run_id),
                attempt=execution.attempt,
                outcome=execution.outcome,
                duration_ms=execution.duration_ms,
                resume_at=execution.resume_at,
            )


def _unowned(flight: Flight) -> LeaseLost:
    return LeaseLost(
        f"The claim of job {flight.job.id} ({flight.job.name}) was gone when its run ended; its result was not kept.",
        fix=f"rowsweep jobs show {flight.job.id}",
        meta={"job_id": str(flight.job.id), "claim": flight.claim.claim},
    )
