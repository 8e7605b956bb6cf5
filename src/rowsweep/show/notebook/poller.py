"""Ask the ledger for all open views of a process at once, at most twice a second."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from rowsweep.clock import real_monotonic
from rowsweep.errors import RowsweepError
from rowsweep.signals import RunSignal
from rowsweep.sweeps.snapshot import Snapshot, snapshot_of

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import Backfill

BEAT_SECONDS: Final = 0.5
_IDLE_BEATS: Final = 4
_MOST_BEATS: Final = 16


class Watcher(Protocol):
    """An open view of a run."""

    @property
    def run_id(self) -> UUID:
        """The run it shows."""

    def show(self, snapshot: Snapshot) -> None:
        """Show how the run stands."""

    def say(self, words: str) -> None:
        """Say why it cannot be shown at the moment, or for good."""


class Poller:
    """Keep every open view up to date by one statement a beat, on one thread that ends with the last of them.

    A beat is half a second while a run works and two seconds while all of them are paused; a database that cannot be
    reached is asked less and less often, down to every eight seconds.
    """

    def __init__(
        self, read: Callable[[Sequence[UUID]], Sequence[Backfill]], *, beat_seconds: float = BEAT_SECONDS
    ) -> None:
        self._read = read
        self._beat_seconds = beat_seconds
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._watchers: list[Watcher] = []
        self._last: dict[UUID, Snapshot] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def watch(self, watcher: Watcher) -> None:
        """Keep this view up to date until its run ends or it is forgotten."""
        with self._lock:
            if self._is_closed:
                return
            if watcher not in self._watchers:
                self._watchers.append(watcher)
            if self._thread is None:
                self._thread = threading.Thread(target=self._poll, name="rowsweep-views", daemon=True)
                self._thread.start()
        self._wake.set()

    def forget(self, watcher: Watcher) -> None:
        """Ask no longer for this view."""
        with self._lock:
            if watcher in self._watchers:
                self._watchers.remove(watcher)
        self._wake.set()

    def tell(self, row: Backfill) -> None:
        """Show a row that was read for another reason at once: it has just been steered, or has ended."""
        with self._lock:
            watchers = [watcher for watcher in self._watchers if watcher.run_id == row.run_id]
        for watcher in watchers:
            self._tell(watcher, snapshot_of(row, self._last.get(row.run_id)))

    def close(self, words: str) -> None:
        """Ask no longer for any view; each says why."""
        with self._lock:
            self._is_closed = True
            watchers, self._watchers = self._watchers, []
        self._wake.set()
        for watcher in watchers:
            watcher.say(words)

    @property
    def is_asking(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None

    def _poll(self) -> None:
        beat = self._beat_seconds
        while watchers := self._there():
            began = real_monotonic()
            beat = self._beat(watchers, beat)
            self._wake.wait(beat)
            self._wake.clear()
            # A new view ends a long wait, and still nothing is asked more than twice a second.
            RunSignal().wait(max(began + self._beat_seconds - real_monotonic(), 0.0))

    def _there(self) -> list[Watcher]:
        with self._lock:
            if not self._watchers:
                self._thread = None
                self._last.clear()
            return list(self._watchers)

    def _beat(self, watchers: Sequence[Watcher], beat: float) -> float:
        """Ask once and tell every view; answer how long to wait before the next time."""
        try:
            rows = self._read(list({watcher.run_id for watcher in watchers}))
        except RowsweepError as error:
            for watcher in watchers:
                watcher.say(f"The ledger does not answer, trying again: {error.cause}")
            return min(2 * beat, _MOST_BEATS * self._beat_seconds)
        self._last = {row.run_id: snapshot_of(row, self._last.get(row.run_id)) for row in rows}
        for watcher in watchers:
            self._tell(watcher, self._last.get(watcher.run_id))
        works = any(snapshot.status == "running" for snapshot in self._last.values())
        return self._beat_seconds * (1 if works else _IDLE_BEATS)

    def _tell(self, watcher: Watcher, snapshot: Snapshot | None) -> None:
        """Show one view its run; what goes wrong in it is warned about, closes that view and leaves the others be."""
        try:
            if snapshot is None:
                watcher.say("The ledger has no row of this run any more.")
            else:
                watcher.show(snapshot)
        except Exception as error:  # noqa: BLE001 - a broken view must not keep the others from being shown
            warnings.warn(f"rowsweep closed a view that cannot be shown: {error!r}", RuntimeWarning, stacklevel=2)
            snapshot = None
        if snapshot is None or not snapshot.is_open:
            self.forget(watcher)
