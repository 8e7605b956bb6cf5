"""What works in this process for its app: workers, and a scheduler and a relay where they are asked for."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from rowsweep.jobs.registry import registered_jobs

if TYPE_CHECKING:
    from rowsweep.app.app import App
    from rowsweep.outbox.relay import OutboxRelay
    from rowsweep.scheduler.scheduler import Scheduler
    from rowsweep.worker.worker import Worker

KERNEL_CONCURRENCY: Final = 4


class Agents:
    """One worker a queue, by its name, and at most one scheduler and one relay; all on daemon threads.

    A child after a fork has none: their threads stayed behind.
    """

    def __init__(self, app: App) -> None:
        self.workers: dict[str, Worker] = {}
        self._app = app
        self._pid = os.getpid()
        self._scheduler: Scheduler | None = None
        self._relay: OutboxRelay | None = None
        self._lock = threading.RLock()

    def work(self, *, scheduler: bool, relay: bool) -> None:
        """Start what is not running yet for the jobs that this process has declared; look for work at once."""
        with self._lock:
            self._forget_parent()
            if scheduler:
                self._scheduler = self._scheduler or self._app.scheduler()
                self._scheduler.start()
            if relay:
                self._relay = self._relay or self._app.relay()
                self._relay.start()
            for queue in {handle.options.queue for handle in registered_jobs()}:
                worker = self.workers.get(queue)
                if worker is None or worker.state in ("stopped", "draining"):
                    worker = self.workers[queue] = self._app.worker(queues=[queue], concurrency=KERNEL_CONCURRENCY)
                worker.start()
                worker.kick()

    def kick(self) -> None:
        """Have every worker look for work at once."""
        for worker in list(self.workers.values()):
            worker.kick()

    def stop(self, *, deadline_at: float | None) -> None:
        """Stop them all: who brings work first, the relay last."""
        with self._lock:
            self._forget_parent()
            workers, self.workers = list(self.workers.values()), {}
            scheduler, self._scheduler = self._scheduler, None
            relay, self._relay = self._relay, None
        if scheduler is not None:
            scheduler.stop("close", deadline_at=deadline_at)
        for worker in workers:
            worker.stop("close", deadline_at=deadline_at)
        if relay is not None:
            relay.stop("close", deadline_at=deadline_at)

    def _forget_parent(self) -> None:
        if self._pid != os.getpid():
            self._pid, self.workers, self._scheduler, self._relay = os.getpid(), {}, None, None
