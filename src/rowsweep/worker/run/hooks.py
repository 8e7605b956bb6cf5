"""`on_settled`: told of each job that ended for good, on threads of its own, once that is stored."""

from __future__ import annotations

import contextlib
import inspect
import threading
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import OnSettledFailed
from rowsweep.jobs import ambient
from rowsweep.jobs.ambient import Surroundings
from rowsweep.jobs.attempts.failure import headline
from rowsweep.jobs.attempts.settled import ON_SETTLED_ATTEMPTS, ON_SETTLED_PAUSES, Hook, Settled, SettledOutcome
from rowsweep.queue.verdicts import Bury, Done, Drop, Refuse
from rowsweep.signals import RunSignal
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.jobs.handle import JobHandle
    from rowsweep.queue.records import Job
    from rowsweep.queue.verdicts import Verdict
    from rowsweep.worker.equipment import Equipment
    from rowsweep.worker.run.loop import LoopThread

BEHIND: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Announcement:
    """One ending to tell a job's hook of; `told` is set once it was, or every try has failed."""

    hook: Hook
    handle: JobHandle[Any, Any]
    job: Job
    outcome: SettledOutcome
    result: Any = None
    error: str | None = None
    code: str | None = None
    told: threading.Event = field(default_factory=threading.Event)


def announcement_of(handle: JobHandle[Any, Any], job: Job, verdict: Verdict, result: Any) -> Announcement | None:
    """Answer what a job's hook is told of a verdict that landed: None without a hook, or where the job goes on."""
    hook = handle.options.on_settled
    if hook is None:
        return None
    match verdict:
        case Done():
            return Announcement(hook=hook, handle=handle, job=job, outcome="completed", result=result)
        case Bury() | Drop() | Refuse():
            outcome, error = _OUTCOMES[type(verdict)], verdict.error
            return Announcement(hook=hook, handle=handle, job=job, outcome=outcome, error=error.text, code=error.code)
        case _:
            return None


def announcement_of_buried(handle: JobHandle[Any, Any], job: Job) -> Announcement | None:
    """Answer what a job's hook is told where a claim buried it: nothing was raised, so there is no code."""
    hook = handle.options.on_settled
    if hook is None:
        return None
    outcome: SettledOutcome = "dead-lettered" if job.state == "dead" else "dropped"
    return Announcement(hook=hook, handle=handle, job=job, outcome=outcome, error=job.last_error)


class Hooks:
    """Tell hooks of endings, on as many threads as there are runs, so that a slow one delays no settle or lease.

    A worker whose hooks are more than `BEHIND` endings behind claims nothing more until they have caught up.
    """

    def __init__(self, equipment: Equipment, loop: LoopThread, caught_up: Callable[[], None]) -> None:
        options = equipment.options
        self._worker_id = equipment.worker_id
        self._drain_signal = equipment.drain_signal
        self._loop = loop
        self._caught_up = caught_up
        self._size = sum(options.concurrency_of(queue) for queue in options.queues)
        self._lock = threading.Lock()
        self._waiting: SimpleQueue[tuple[Announcement, Callable[[], None]] | None] = SimpleQueue()
        self._pending: set[Announcement] = set()
        self._threads = 0

    def prepare(self) -> None:
        """Have one thread before it is needed: an interpreter that is exiting starts none."""
        with contextlib.suppress(RuntimeError):  # none can be started: `tell` does without
            self._start_thread(at_most=1)

    def tell(self, announcement: Announcement, then: Callable[[], None]) -> None:
        """Tell a hook of an ending as soon as a thread is free, then call `then`, whatever came of it."""
        with self._lock:
            self._pending.add(announcement)
        self._waiting.put((announcement, then))
        try:
            self._start_thread(at_most=min(self._size, len(self._pending)))
        except RuntimeError:  # no thread can be started: those there are have to do
            if self._threads == 0:
                self._serve_waiting()

    def is_behind(self) -> bool:
        """Say whether so many endings wait that no more should come."""
        return len(self._pending) > BEHIND

    def pending(self) -> list[threading.Event]:
        """Answer what is set once each ending that waits was told."""
        with self._lock:
            return [announcement.told for announcement in self._pending]

    def close(self) -> None:
        """Let each thread end once nothing waits any more."""
        for _ in range(self._threads):
            self._waiting.put(None)

    def _start_thread(self, *, at_most: int) -> None:
        with self._lock:
            if self._threads >= at_most:
                return
            threading.Thread(target=self._serve, name="rowsweep-hooks", daemon=True).start()
            self._threads += 1

    def _serve(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            self._work(*waiting)
            del waiting  # a thread that waits holds nothing of the last ending

    def _serve_waiting(self) -> None:
        while not self._waiting.empty() and (waiting := self._waiting.get()) is not None:
            self._work(*waiting)

    def _work(self, announcement: Announcement, then: Callable[[], None]) -> None:
        try:
            self._try(announcement)
        finally:
            then()
            was_behind = self.is_behind()
            with self._lock:
                self._pending.discard(announcement)
            announcement.told.set()
            if was_behind and not self.is_behind():
                self._caught_up()

    def _try(self, announcement: Announcement) -> None:
        """Try up to three times; what the last try raised is reported, and never raised."""
        value, tenant = _input_of(announcement)
        settled = _settled(announcement, value)
        raised: BaseException | None = None
        for pause in (None, *ON_SETTLED_PAUSES):
            if pause is not None:
                self._drain_signal.wait(pause)
            try:
                self._call(announcement, settled, tenant)
            except BaseException as error:  # noqa: BLE001 - whatever a hook raises changes no outcome and ends no thread
                raised = error
            else:
                return
        emit(
            "jobs.on_settled.failed",
            job=announcement.job.name,
            job_id=str(announcement.job.id),
            outcome=announcement.outcome,
            tries=ON_SETTLED_ATTEMPTS,
            error=_failed(announcement, raised),
        )

    def _call(self, announcement: Announcement, settled: Settled[Any, Any], tenant: str | None) -> None:
        job = announcement.job
        with ambient.inside_run(Surroundings(job.name, job.id, tenant, self._worker_id)):
            answer = announcement.hook(settled)
            if inspect.isawaitable(answer):
                self._loop.run(answer, RunSignal())


_OUTCOMES: Final[dict[type, SettledOutcome]] = {Bury: "dead-lettered", Drop: "dropped", Refuse: "refused"}


def _input_of(announcement: Announcement) -> tuple[Any, str | None]:
    """Answer the input as the body gets it and the body's tenant; None and nobody's where there is none to be had."""
    options = announcement.handle.options
    try:
        value = options.input.parse(announcement.job.input)
    except BaseException:  # noqa: BLE001 - the hook is told all the same, of an input that no longer parses
        return None, None
    try:
        return value, announcement.handle.tenant_for(value)
    except BaseException:  # noqa: BLE001 - a resolver is application code; without its answer the hook acts for nobody
        return value, None


def _settled(announcement: Announcement, value: Any) -> Settled[Any, Any]:
    job = announcement.job
    return Settled(
        outcome=announcement.outcome,
        job=job.name,
        job_id=job.id,
        run_id=job.run_id,
        attempt=job.attempt,
        input=value,
        result=announcement.result,
        error=announcement.error,
        code=announcement.code,
    )


def _failed(announcement: Announcement, raised: BaseException | None) -> OnSettledFailed:
    job = announcement.job
    what = "" if raised is None else f": {headline(raised):.500}"
    failed = OnSettledFailed(
        f"The on_settled hook of job {job.id} ({job.name}) failed {ON_SETTLED_ATTEMPTS} times{what}.",
        fix=f"correct {getattr(announcement.hook, '__qualname__', 'the hook')}; the job is {announcement.outcome} "
        "all the same",
        meta={"job_id": str(job.id), "outcome": announcement.outcome},
    )
    failed.__cause__ = raised
    return failed
