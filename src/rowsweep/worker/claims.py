"""The claim loop: an idle worker looks in one statement over all its queues, and claims what it found due."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rowsweep.jobs.registry import find_job, registered_jobs
from rowsweep.queue.records import ClaimOptions
from rowsweep.queue.waking.shared import Subscription
from rowsweep.telemetry.events import emit
from rowsweep.telemetry.instruments import record_job
from rowsweep.timers import Looper
from rowsweep.worker.claiming.heads import Heads
from rowsweep.worker.claiming.pace import Pace
from rowsweep.worker.claiming.samples import Samples
from rowsweep.worker.polls import EventPolls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from rowsweep.jobs.handle import JobHandle
    from rowsweep.jobs.values.json_form import Json
    from rowsweep.queue.records import Job
    from rowsweep.queue.stores.workers import Look, WorkerInfo
    from rowsweep.worker.admission.busy import BusyCaps
    from rowsweep.worker.equipment import Equipment
    from rowsweep.worker.flights import Flight
    from rowsweep.worker.run.pool import RunPool

_LAPSED_SECONDS: Final = 1.0
_LAPSED_WOKEN_SECONDS: Final = 15.0

Handles = dict[str, "JobHandle[Any, Any]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What the claim loop does with what it finds: `admit` a job, `hand_back` one it may no longer run, then `fly`.

    `busy` says which caps are full, so that their rows are left where they stand; `buried` is told of each row that a
    claim ended because its worker went away on the last attempt.
    """

    admit: Callable[[Job, JobHandle[Any, Any], float], Flight | None]
    fly: Callable[[], None]
    hand_back: Callable[[Job, JobHandle[Any, Any], float], None]
    announcement: Callable[[list[str]], WorkerInfo]
    busy: BusyCaps
    buried: Callable[[Job, JobHandle[Any, Any]], None]


class Claims:
    """Claim for free runs of each queue, one queue a pass.

    A queue whose last pass came back full, where a run just ended, or that a commit elsewhere woke, is claimed
    directly; otherwise the loop looks, at an interval that doubles from the floor to the ceiling while nothing is
    found. A look also announces the worker, polls for events and carries the wake's proof.
    """

    def __init__(self, equipment: Equipment, pools: Mapping[str, RunPool], admission: Admission) -> None:
        options = equipment.options
        self._worker_id = equipment.worker_id
        self._driver = equipment.driver
        self._clock = equipment.clock
        self._options = options
        self._pools = pools
        self._admission = admission
        self._round = threading.Lock()
        self._is_open = True
        self._hot: set[str] = set()
        self._lapsed_at: dict[str, float] = {}
        self._announced_at: float | None = None
        self._trusts = 0
        self._woken: set[str] = set()
        self._polls = EventPolls(equipment.clock)
        self._heads = Heads(equipment.clock)
        self._samples = Samples(equipment)
        self._wake = Subscription(equipment.driver, self)
        self._pace = Pace(options, equipment.clock, lambda: self._wake.is_proven)
        self._looper = Looper("claims", self._step, timers=equipment.timers, failed=self._failed)

    def start(self) -> None:
        """Start claiming, and hearing of commits made elsewhere."""
        self._looper.start()
        self._wake.start()

    @property
    def is_awake(self) -> bool:
        """Say whether commits made elsewhere are being heard."""
        return self._wake.is_proven

    def wake(self, queue: str) -> None:
        """Claim from a queue at once that a commit elsewhere put something into."""
        if queue in self._pools:
            self._woken.add(queue)
            self._looper.poke()

    def trust(self, *, is_proven: bool) -> None:  # noqa: ARG002 - either way what was missed meanwhile is looked for
        """Look at every queue once the wake is proven, and poll again where it no longer is; either is announced."""
        self._trusts += 1
        self._announced_at = None
        self._pace.restart()
        self._looper.poke()

    def kick(self, *queues: str) -> None:
        """Claim from these queues at once, from all where none is named."""
        self._hot.update(queues or self._pools)
        self._looper.poke()

    def room_again(self, queues: set[str]) -> None:
        """Claim from these queues at once, from their heads: rows under a cap that was full may be taken now."""
        for queue in queues:
            self._heads.forget(queue)
        self.kick(*queues)

    def look_within(self, seconds: float) -> None:
        """Look again within the seconds: what the pass under way handed back falls due then."""
        self._pace.look_within(seconds)

    def close(self) -> None:
        """Claim nothing more; what a pass under way still brings is handed back."""
        self._is_open = False

    def wait_pass(self, timeout: float | None) -> bool:
        """Wait for the pass under way; answer whether it ended within the seconds."""
        if not self._round.acquire(timeout=-1 if timeout is None else timeout):
            return False
        self._round.release()
        return True

    def stop(self, timeout: float | None) -> bool:
        """End after the pass under way; answer whether that was within the seconds."""
        self.close()
        self._wake.stop()
        return self._looper.stop(timeout)

    def tick(self) -> list[Flight]:
        """Make one pass over every queue in the caller's thread; answer what it started."""
        handles = _declared(self._options.names)
        with self._round:
            queues = [queue for queue in self._pools if self._pools[queue].free and self._is_open and handles]
            begun = [flight for queue in queues for flight in self._claim(queue, handles, None, lapsed=True)[0]]
            self._admission.fly()
            return begun

    def _step(self) -> float | None:
        with self._round:
            handles = _declared(self._options.names)
            if not self._is_open:
                self._announce_only(handles)
                return self._announce_in()
            hot = {queue for queue in [*self._hot, *self._woken] if self._pools[queue].wants}
            if hot:
                self._pace.restart()
            if hot and handles and self._announce_in() > 0:
                return self._pass(hot, handles, due_in=None, seen=False)
            return self._look(handles)

    def _look(self, handles: Handles) -> float:
        free = [queue for queue in self._pools if self._pools[queue].wants]
        announces = self._announce_in() <= 0
        if not announces and not (free and handles):
            return self._announce_in() if handles else min(self._announce_in(), self._options.poll_seconds)
        seen = self._ask(free or list(self._pools), handles)
        if seen is None:
            return self._pass(set(free), handles, due_in=None, seen=False) if handles else self._options.poll_seconds
        due = {queue for queue in free if queue in seen.due_queues or queue in self._hot or queue in self._woken}
        return self._pass(due, handles, due_in=seen.next_run_in_seconds, seen=True)

    def _ask(self, queues: list[str], handles: Handles) -> Look | None:
        workers = self._driver.control().workers
        if workers is None:
            self._announced_at = self._clock.monotonic()
            return None
        trusts = self._trusts
        announce = self._admission.announcement(sorted(handles)) if self._announce_in() <= 0 else None
        poll, proof = self._polls.take_due(handles), self._wake.due_proof()
        ask = partial(workers.look, queues=queues, names=sorted(handles), announce=announce, poll=poll, proof=proof)
        seen = self._samples.carried_by(lambda sample: ask(sample=sample), announces=announce is not None)
        if announce is not None:
            self._announced(trusts)
        if proof is not None:
            self._wake.proof_sent(proof)
        self._lapsed_at.update(dict.fromkeys(queues, self._clock.monotonic()))
        return seen

    def _pass(self, queues: set[str], handles: Handles, *, due_in: float | None, seen: bool) -> float:
        found = 0
        for queue in [queue for queue in self._pools if queue in queues]:
            # A commit elsewhere says nothing of leases: a wake alone does not wait for a look at them.
            every = _LAPSED_SECONDS if queue in self._hot else _LAPSED_WOKEN_SECONDS
            self._hot.discard(queue)
            self._woken.discard(queue)
            lapsed = seen or self._is_lapsed_due(queue, every)
            began = None if seen else self._heads.starts(queue)
            started, next_run_at = self._claim(queue, handles, began, lapsed=lapsed)
            found += len(started)
            if not seen and next_run_at is not None:
                # This process's clock may be off, which costs one look: that one answers in the database's seconds.
                due_in = _soonest(due_in, (next_run_at - self._clock.now()).total_seconds())
        # An announcement or a poll that falls due in between rides on the next look, however little later that is.
        rides = (self._options.announce_seconds, self._polls.shortest_seconds)
        wait = self._pace.next_in(due_in, *rides, self._admission.busy.ends_in(), self._heads.due_in(), found=found > 0)
        # Last: a run waits for the interpreter's lock behind what is still done here.
        self._admission.fly()
        return 0.0 if any(self._pools[queue].wants for queue in list(self._hot)) else wait

    def _claim(
        self, queue: str, handles: Handles, began: Json, *, lapsed: bool
    ) -> tuple[list[Flight], datetime | None]:
        self._admission.fly()
        limit = self._pools[queue].free
        room = self._admission.busy.room(handles.values())
        stamp = self._clock.monotonic()
        if lapsed:
            self._lapsed_at[queue] = stamp
        options = ClaimOptions(
            queues=[queue],
            names=sorted(handles),
            worker_id=self._worker_id,
            limit=limit,
            visibility_seconds=self._options.visibility_seconds,
            drop_exhausted=[name for name, handle in handles.items() if not handle.retry.dead_letter],
            busy=room.busy,
            rooms=room.rooms,
            key_rooms=room.key_rooms,
            starts=began,
            lapsed=lapsed,
            few=not room.is_capped and self._heads.has_few(queue),
        )
        passed = self._driver.control().jobs.claim(options)
        self._heads.passed(queue, options, passed, began_at=stamp)
        for job in passed.buried:
            _report_exhausted(job)
            self._admission.buried(job, find_job(job.name) or handles[job.name])
        if len(passed.jobs) >= limit or any(_is_keyed(job, handles) for job in passed.jobs):
            # What there is behind rows of a key that has no more room is reached by another pass.
            self._hot.add(queue)
        return self._begin(passed.jobs, handles, stamp), passed.next_run_at

    def _begin(self, jobs: Sequence[Job], handles: Handles, stamp: float) -> list[Flight]:
        """Admit what a claim brought; a job whose slots could not be asked for is left to its visibility timeout."""
        begun = []
        # A declaration made again while the claim was under way may be what its job was enqueued by.
        current = {name: find_job(name) or handles[name] for name in {job.name for job in jobs}}
        for job in jobs:
            try:
                if not self._is_open:
                    self._admission.hand_back(job, current[job.name], stamp)
                elif flight := self._admission.admit(job, current[job.name], stamp):
                    begun.append(flight)
            except Exception as error:  # noqa: BLE001 - the other jobs of the pass are this worker's already
                emit("jobs.worker.tick-failed", worker_id=self._worker_id, queue=job.queue, error=error)
        return begun

    def _is_lapsed_due(self, queue: str, every: float) -> bool:
        return self._clock.monotonic() - self._lapsed_at.get(queue, float("-inf")) >= every

    def _announce_in(self) -> float:
        """Answer the seconds until the next announcement, 0 when it is due."""
        if self._announced_at is None:
            return 0.0
        return max(self._announced_at + self._options.announce_seconds - self._clock.monotonic(), 0.0)

    def _announce_only(self, handles: Handles) -> None:
        workers, trusts = self._driver.control().workers, self._trusts
        if workers is not None and self._announce_in() <= 0:
            workers.look(queues=[], names=[], announce=self._admission.announcement(sorted(handles)))
        if self._announce_in() <= 0:
            self._announced(trusts)

    def _announced(self, trusts: int) -> None:
        """Note an announcement, unless the wake was proven or lost while it was on its way: then the next is due."""
        self._announced_at = self._clock.monotonic()
        if trusts != self._trusts:
            self._announced_at = None

    def _failed(self, error: BaseException) -> float:
        """Re-arm at the floor; what a failed pass was about to claim is seen again by the next look."""
        emit("jobs.worker.tick-failed", worker_id=self._worker_id, error=error)
        return self._pace.restart()


def _declared(only: Sequence[str] | None) -> Handles:
    """Answer what this process has declared and this worker is for."""
    return {handle.name: handle for handle in registered_jobs() if only is None or handle.name in only}


def _is_keyed(job: Job, handles: Handles) -> bool:
    return job.concurrency_key is not None and handles[job.name].concurrency.keyed is not None


def _soonest(known: float | None, other: float) -> float:
    return other if known is None else min(known, other)


def _report_exhausted(job: Job) -> None:
    record_job(job.queue, "dead" if job.state == "dead" else "dropped", job=job.name)
    emit(
        "jobs.claim.exhausted",
        queue=job.queue,
        job=job.name,
        job_id=str(job.id),
        attempt=job.attempt,
        state=job.state,
        error=job.last_error,
    )
