"""The claims a worker holds: one flight for each, from its claim until its settle was answered."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from rowsweep.queue.records import claim_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rowsweep.errors import RowsweepError
    from rowsweep.jobs.handle import JobHandle
    from rowsweep.queue.records import Job
    from rowsweep.queue.stores.ledger import Asked
    from rowsweep.signals import RunSignal
    from rowsweep.steps.progress import Progress
    from rowsweep.steps.runner import StepRunner
    from rowsweep.worker.admission.gate import Permit
    from rowsweep.worker.run.execution import Execution


class Latch:
    """Be waited for until it is set, once: an event at a fraction of its cost."""

    __slots__ = ("_held", "_is_set")

    def __init__(self) -> None:
        self._held = threading.Lock()
        self._held.acquire()
        self._is_set = False

    def set(self) -> None:
        """Let everyone go on that waits; only its owner's thread sets it."""
        if not self._is_set:
            self._is_set = True
            self._held.release()

    def is_set(self) -> bool:
        """Say whether it was set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to the seconds; answer whether it was set."""
        is_free = self._held.acquire(timeout=-1 if timeout is None else timeout)
        if is_free:
            self._held.release()
        return is_free


class Flight:
    """One claimed job of this process; its handle is the one it was claimed under, whatever is declared later.

    `renewed_at` is the monotonic reading before the last statement that landed for its claim; `permit` is what it
    holds of limiter and caps; `result` is what its body returned, kept for a hook alone; `progress` is what it
    says of how far it is, made by `new_progress` when it first does; `runner` has its steps while it runs, made when
    it first asks for them.
    """

    # Of the class, and an instance's own once they are something else: one is made for every run.
    asked: Asked | None = None
    revoked: RowsweepError | None = None
    execution: Execution | None = None
    result: Any = None
    progress: Progress | None = None
    new_progress: Callable[[], Progress] | None = None
    permit: Permit | None = None
    runner: StepRunner | None = None
    started_at = 0.0
    _is_over = False
    _is_ended = False
    _is_gone = False
    _settled: Latch | None = None

    def __init__(
        self,
        job: Job,
        handle: JobHandle[Any, Any],
        signal: RunSignal,
        *,
        claimed_at: float,
        services: Any = None,
        lock: threading.Lock | None = None,
    ) -> None:
        self.job = job
        self.handle = handle
        self.claim = claim_of(job)
        self.signal = signal
        self.services = services
        self.claimed_at = claimed_at
        self.renewed_at = claimed_at
        self.renew_at = claimed_at
        self._lock = lock or threading.Lock()

    @property
    def settled(self) -> Latch:
        """Answer what is set once the flight was let go."""
        with self._lock:
            if self._settled is None:
                self._settled = Latch()
                if self._is_gone:
                    self._settled.set()
            return self._settled

    def let_go(self) -> None:
        """Let everyone go on that waits for its end."""
        # Set before it is asked for, as `settled` makes it before it asks: one of the two sees the other.
        self._is_gone = True
        if self._settled is not None:
            with self._lock:
                self._settled.set()

    def reporter(self) -> Progress | None:
        """Answer what its progress is reported to; one for the whole run."""
        with self._lock:
            if self.progress is None and self.new_progress is not None:
                self.progress = self.new_progress()
            return self.progress

    def steps(self, new_runner: Callable[[Flight], StepRunner]) -> StepRunner:
        """Answer what runs its steps; one for the whole run, made so."""
        with self._lock:
            if self.runner is None:
                self.runner = new_runner(self)
                if self._is_over:
                    self.runner.end()
            return self.runner

    def end_steps(self) -> None:
        """Say that its body is over: whatever that still does, it writes nothing more."""
        # Set before the runner is asked for, as `steps` makes that before it asks: one of the two sees the other.
        self._is_over = True
        if self.runner is not None:
            self.runner.end()

    @property
    def is_ended(self) -> bool:
        """Say whether the run's end was decided, so that nobody need keep or stop it."""
        return self._is_ended

    def end(self) -> bool:
        """Decide the run's end, once; only who is answered True settles it."""
        with self._lock:
            is_first = not self._is_ended
            self._is_ended = True
            return is_first

    def revoke(self, reason: RowsweepError) -> bool:
        """Say that the claim is gone and abort the run; False where it ended before."""
        with self._lock:
            if self._is_ended or self.revoked is not None:
                return False
            self.revoked = reason
        self.signal.abort(reason)
        return True


class Flights:
    """Everything in flight; `lock` is what its flights share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._lock = threading.Lock()
        self._flights: dict[Flight, None] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def add(self, flights: Iterable[Flight]) -> None:
        """Take claims in."""
        with self._lock:
            self._flights.update(dict.fromkeys(flights))

    def remove(self, flights: Iterable[Flight]) -> int:
        """Let claims go whose ends were answered; answer how many were here."""
        with self._lock:
            before = len(self._flights)
            for flight in flights:
                self._flights.pop(flight, None)
            return before - len(self._flights)

    def all(self) -> list[Flight]:
        """Answer them as they are now."""
        with self._lock:
            return list(self._flights)
