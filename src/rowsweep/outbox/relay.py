"""The relay: publishes what is staged in an outbox, on a daemon thread."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Literal

from rowsweep.clock import SystemClock, real_monotonic
from rowsweep.errors import TimedOut
from rowsweep.lifecycle import lifecycle as process_lifecycle
from rowsweep.lifecycle import wait_all_by
from rowsweep.outbox.options import RelayOptions
from rowsweep.outbox.pace import Pace
from rowsweep.outbox.passes import Relayed, RelayPass
from rowsweep.outbox.retention import PublishedRows
from rowsweep.queue.wake import OUTBOX
from rowsweep.queue.waking.shared import Subscription
from rowsweep.spelling import spelled
from rowsweep.teardown import Teardown
from rowsweep.telemetry.events import emit
from rowsweep.timers import Looper, RealTimers

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.clock import Clock
    from rowsweep.lifecycle import Lifecycle, Shutdown
    from rowsweep.queue.contract import Driver
    from rowsweep.queue.stores.outbox import OutboxPlace
    from rowsweep.timers import Timers

RelayState = Literal["idle", "running", "draining", "stopped"]
_SUGGESTED_BUDGET: Final = "60s"


@spelled
class OutboxRelay:
    """Publish staged jobs; several may run side by side, each row is one relay's at a time.

    `place` is the database whose outbox is emptied, by default the queue's own. Takes `RelayOptions` or its keywords.
    Driver and place stay the caller's to close.
    """

    def __init__(
        self,
        *,
        driver: Driver,
        place: OutboxPlace | None = None,
        options: RelayOptions | None = None,
        clock: Clock | None = None,
        timers: Timers | None = None,
        lifecycle: Lifecycle | None = None,
        **given: Any,
    ) -> None:
        self._options = options if options is not None and not given else RelayOptions(**given)
        self._clock = clock or SystemClock()
        self._timers = timers or RealTimers()
        self._lifecycle = lifecycle
        self._driver = driver
        self._place = place
        self._published_rows = PublishedRows(place, self._options, self._clock)
        self._begin()

    def _begin(self) -> None:
        """Begin with nothing under way, under an id of this process's own."""
        self._pid = os.getpid()
        self.id = f"relay-{socket.gethostname()}-{self._pid}-{uuid.uuid4().hex[:8]}"
        self._pass = RelayPass(self._driver, self._place, self.id, self._options)
        self._wake = Subscription(self._driver if self._place is None else self._place, self)
        self._pace = Pace(self._options, self._clock, lambda: self._wake.is_proven)
        self._lock = threading.RLock()
        self._state: RelayState = "idle"
        self._under_way: Future[Any] | None = None
        self._loop: Looper | None = None
        self._teardown = Teardown()
        self._removers: list[Callable[[], None]] = []

    @property
    def state(self) -> RelayState:
        """Answer `idle`, `running`, `draining` or `stopped`; in a forked child `idle`, whatever its parent does."""
        self._leave_to_parent()
        return self._state

    def start(self) -> None:
        """Start publishing; while it runs or drains, do nothing. Raises Draining while the process is stopped."""
        self._leave_to_parent()
        with self._lock:
            if self._state not in ("idle", "stopped"):
                return
            self._register()
            self._state = "running"
            self._loop = Looper("relay", self._step, timers=self._timers, failed=self._failed)
        self._wake.start()
        self._loop.start()

    def tick(self) -> Relayed:
        """Make one pass, or join the one under way; answer what it did, nothing while draining or stopped.

        Needs no start. Raises what ended the pass, such as DriverUnavailable.
        """
        self._leave_to_parent()
        with self._lock:
            if self._state not in ("idle", "running"):
                return Relayed()
            joined = self._under_way
            mine = self._under_way = joined or Future()
        if joined is None:
            self._make(mine)
        made: Relayed = mine.result()
        return made

    def stop(self, reason: str = "stop", *, deadline_at: float | None = None) -> None:
        """Poll no more and wait for the pass under way; at once where it was stopped.

        `deadline_at` is a reading of the real monotonic clock. Where it comes first the pass is abandoned: what it had
        claimed is taken up when its lease is over.
        """
        self._leave_to_parent()
        with self._lock:
            if self._state == "stopped" or (self._state == "idle" and self._under_way is None):
                self._state = "stopped"
                return
            self._state = "draining"
        self._teardown.run(lambda: self._tear_down(reason, deadline_at), deadline_at)

    def wake(self, queue: str) -> None:
        """Look at once where something was staged."""
        if queue == OUTBOX:
            self._poke()

    def trust(self, *, is_proven: bool) -> None:  # noqa: ARG002 - either way what was missed meanwhile is looked for
        """Look at once when the wake is proven, and poll again where it no longer is."""
        self._poke()

    def _leave_to_parent(self) -> None:
        """Begin anew in a forked child: the loop stayed behind, and what is claimed is the parent's."""
        if self._pid != os.getpid():
            self._begin()

    def _poke(self) -> None:
        loop = self._loop
        self._pace.restart()
        if loop is not None:
            loop.poke()

    def _make(self, made: Future[Relayed]) -> None:
        try:
            proof = self._wake.due_proof()
            done = self._pass.run(proof)
            if proof is not None:
                self._wake.proof_sent(proof)
        except BaseException as error:
            self._end_pass()
            made.set_exception(error)
            raise
        self._end_pass()
        made.set_result(done)

    def _end_pass(self) -> None:
        with self._lock:
            self._under_way = None

    def _step(self) -> float:
        if not self._pace.may_look():
            return self._pace.rest()
        done = self.tick()
        if len(done.claimed) == self._options.batch:
            return 0.0
        self._published_rows.remove()
        return self._pace.next_in(done.next_in_seconds, found=bool(done.claimed))

    def _failed(self, error: BaseException) -> float:
        emit("jobs.outbox.tick-failed", error=error)
        return self._pace.fail()

    def _register(self) -> None:
        if not self._options.drain_on_shutdown:
            return
        phases = self._lifecycle or process_lifecycle()
        self._removers = [phases.on("accept", "jobs.outbox.accept", self._accept)]
        self._removers.append(phases.on("close", "jobs.outbox", self._close))

    def _accept(self, shutdown: Shutdown) -> None:  # noqa: ARG002 - the reason shows with the process's other hooks
        with self._lock:
            if self._state != "stopped":
                self._state = "draining"

    def _close(self, shutdown: Shutdown) -> None:
        self.stop(shutdown.reason, deadline_at=shutdown.deadline_at)

    def _tear_down(self, reason: str, deadline_at: float | None) -> None:
        try:
            self._wake.stop()
            with self._lock:
                loop, under_way = self._loop, self._under_way
            if loop is not None:
                loop.stop(0)
            if not wait_all_by([under_way] if under_way is not None else [], deadline_at):
                emit("jobs.outbox.tick-failed", error=_abandoned(reason))
            elif loop is not None:
                # Behind a pass its thread may still remove what was published long ago.
                loop.stop(None if deadline_at is None else max(deadline_at - real_monotonic(), 0.0))
        finally:
            with self._lock:
                self._state = "stopped"
                removers, self._removers = self._removers, []
            for remove in removers:
                remove()


def _abandoned(reason: str) -> TimedOut:
    return TimedOut(
        f"The relay stopped ({reason}) before its pass was over; its rows are taken up when their lease is.",
        fix=f'rs.configure_lifecycle(deadline="{_SUGGESTED_BUDGET}"), and a longer grace period of the orchestrator',
    )
