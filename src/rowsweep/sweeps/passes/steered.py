"""What every pass of a sweep does around its batches: stop where somebody asks for it, wait, keep its pace, report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from rowsweep.clock import real_monotonic
from rowsweep.errors import (
    Aborted,
    Draining,
    DriverUnavailable,
    Interrupted,
    InvariantBroken,
    TimedOut,
)
from rowsweep.queue.stores.ledger import NewBackfill
from rowsweep.sweeps.batch.connection import BatchConnection
from rowsweep.sweeps.batch.patience import NO_ROOM
from rowsweep.sweeps.batch.sizing import BatchSize
from rowsweep.sweeps.launches.launch import new_row
from rowsweep.sweeps.passes.pacing import NO_RATE, Pacer
from rowsweep.sweeps.passes.progress import Progress
from rowsweep.telemetry.events import emit, is_logged
from rowsweep.telemetry.instruments import record_batch

if TYPE_CHECKING:
    from rowsweep.options import Rate
    from rowsweep.queue.stores.ledger import Backfill, LedgerStore, Wanted
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.handle import Sweep

PAUSED_SECONDS: Final = 3600.0
_SHOWN_WAIT_SECONDS: Final = 1.0
_SLICE_SECONDS: Final = 0.25


class Place(Protocol):
    """Where a pass stands."""

    @property
    def index(self) -> int:
        """The index of the last finished batch."""


class Done(Protocol):
    """A committed batch."""

    @property
    def at(self) -> Place:
        """Where the pass stands behind it."""


class SteeredPass(ABC):
    """Stop where somebody asks for it, and wait without holding anything.

    `_step` names the moving step that its batches are fenced by, `_at` is the position it holds.
    """

    _at: Any
    _stored: bool
    _size: BatchSize
    _progress: Progress
    _held: BatchConnection
    _pacer: Pacer

    def __init__(self, sweep: Sweep[Any], ctx: RunCtx, step: str) -> None:
        self._sweep = sweep
        self._ctx = ctx
        self._step = step
        self._options: Mapping[str, Any] = {}
        self._waiting_for: str | None = None
        self._restarts = ctx.record.attempt > 1
        self._is_paused = False

    @abstractmethod
    def _release(self) -> None:
        """Give every connection back."""

    def _rows_done(self) -> int:
        return int(self._at.rows)

    @abstractmethod
    def _read_back(self, stored: Any) -> Any:
        """Read a position back as it is stored, None where none is."""

    def _new_row(self, known: Backfill | None) -> NewBackfill:
        return new_row(self._sweep, self._ctx.record, None if known is None else known.options)

    def _committed(self, done: Done, rows: int, milliseconds: float) -> None:
        self._waiting_for = None
        if self._restarts:
            self._restarts, self._ctx.runner.has_restarted = False, True
        record_batch(self._sweep.name, rows=rows, seconds=milliseconds / 1000)
        if not is_logged("sweeps.batch"):
            return
        emit(
            "sweeps.batch",
            sweep=self._sweep.name,
            run_id=str(self._ctx.run_id),
            index=done.at.index,
            rows=rows,
            duration_ms=round(milliseconds, 1),
            batch_rows=self._size.rows,
        )

    def _closes_begun(self, wanted: Wanted | None) -> bool:
        """Stop here where somebody asked for it; answer whether a batch that is done but for its close comes first.

        A pause and a drain wait for such a batch: one round trip saves its work. None is begun behind it.
        """
        signal, begun = self._ctx.signal, self._held.begun
        self._is_paused = wanted == "pause"
        is_done = begun is not None and begun.is_done and begun.at is self._at and begun.limit == self._size.rows
        if is_done and (self._is_paused or (signal.draining and wanted != "cancel")) and not signal.aborted:
            return True
        self._steer(wanted)
        return False

    def _steer(self, wanted: Wanted | None) -> None:
        """Stop here where somebody asked for it: no batch is in flight."""
        signal, sweep = self._ctx.signal, self._sweep
        signal.raise_if_aborted()
        if wanted == "cancel":
            raise Interrupted(Aborted(f"{sweep.name!r} was cancelled.", fix="run.resume()"))
        if wanted == "pause":
            emit("sweeps.paused", sweep=sweep.name, run_id=str(self._ctx.run_id), reason="asked")
            self._release()
            self._ctx.suspend("pause", PAUSED_SECONDS)
        if signal.draining:
            raise Interrupted(
                Draining(f"{sweep.name!r} stops behind batch {self._at.index}: the process drains.", fix="none needed")
            )

    def _wait(self, seconds: float, why: str, *, until_tuned: bool = False) -> None:
        """Wait without holding a connection; ends at once on abort, drain, pause or cancel, which are then obeyed.

        With `until_tuned` it ends as well once somebody changed the run's options.
        """
        if seconds <= 0:
            return
        self._release()
        until = real_monotonic() + seconds
        if why != self._waiting_for and (seconds >= _SHOWN_WAIT_SECONDS or self._waiting_for is not None):
            self._show_waiting(why)  # where the server is away this takes a second, which is part of the wait
        while (left := until - real_monotonic()) > 0:
            if self._heed_latest() and until_tuned:
                return
            self._ctx.signal.wait(min(left, _SLICE_SECONDS))
        self._heed_latest()

    def _goes_on(self) -> bool:
        """Whether the next batch is to be expected at once, with as many rows as this one."""
        is_stopping = self._is_paused or self._ctx.signal.draining
        return self._size.is_settled and self._pacer.limit is None and not is_stopping

    def _pace(self) -> None:
        """Wait until the rate lets the next batch start."""
        while (seconds := self._pacer.wait_seconds()) > 0:
            self._wait(seconds, "rate", until_tuned=True)
        self._pacer.begin()

    def _heed_latest(self) -> bool:
        """Obey what was last heard of the ledger; answer whether options changed."""
        asked = self._ctx.asked()
        self._steer(None if asked is None else asked.wanted)
        return asked is not None and self._tune(asked.options)

    def _tune(self, options: Mapping[str, Any] | None) -> bool:
        """Go on at the rate and the batch size that somebody asked for meanwhile; answer whether any did."""
        was = self._options
        if options is None or _tuned_at(options) <= _tuned_at(was):
            return False
        self._options = options
        if options.get("batch_rows") != was.get("batch_rows"):
            self._size.restart_at(self._batch_rows())
        self._pacer.change(self._rate())
        return True

    def _show_waiting(self, why: str | None, governed: Mapping[str, Any] | None = None) -> None:
        claim, run_id = self._ctx.claim, self._ctx.run_id
        ledger = self._ctx.driver.control().ledger if why == NO_ROOM else None  # bodies have all others
        try:
            (ledger or self._ledger()).describe(claim, run_id, estimate=None, waiting_for=why, governed=governed)
        except (DriverUnavailable, TimedOut):
            return  # it is said by the next wait; what keeps the pass from working is in the log
        self._waiting_for = why

    def _batch_rows(self) -> int:
        return int(self._options.get("batch_rows") or self._sweep.spec.batch_rows)

    def _rate(self) -> str | Rate | None:
        """The rate that this run goes by: its own, else the declaration's."""
        limit = self._options.get("rate") or self._sweep.spec.rate
        return None if limit == NO_RATE else limit

    def _ledger(self) -> LedgerStore:
        ledger = self._ctx.driver.stores().ledger
        if ledger is None:
            raise InvariantBroken(
                f"The driver {self._ctx.driver.name!r} keeps no ledger, which sweeps report to.",
                fix="rs.connect() with the Postgres driver",
            )
        return ledger


def _tuned_at(options: Mapping[str, Any]) -> str:
    tuned = options.get("tuned")
    return str(tuned["at"]) if isinstance(tuned, dict) else ""
