"""The pass: one run of a sweep, from its gate to its end, resumable at every batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from rowsweep.clock import SystemClock, real_monotonic
from rowsweep.errors import (
    Aborted,
    Draining,
    DriverUnavailable,
    Interrupted,
    InvariantBroken,
    LeaseLost,
    RowsweepError,
)
from rowsweep.queue.records import NewBackfill
from rowsweep.sweeps import gate
from rowsweep.sweeps.batch.connection import BatchConnection, CommitUnknown
from rowsweep.sweeps.batch.pages import PageFinder
from rowsweep.sweeps.batch.patience import Patience, database_error, is_lost_connection, is_passing, name_of
from rowsweep.sweeps.batch.sizing import BatchSize
from rowsweep.sweeps.batch.work import (
    AtomicWork,
    BatchDone,
    CheckpointMoved,
    Closer,
    HandlerCall,
    OutsideWork,
    PageWork,
    SetWork,
)
from rowsweep.sweeps.keyset.statements import cursor_values
from rowsweep.sweeps.ledger import Progress
from rowsweep.sweeps.pacing import Pacer
from rowsweep.sweeps.position import FINISH_STEP, PAGES_STEP, SETUP_STEP, as_checkpoint
from rowsweep.sweeps.run import host
from rowsweep.sweeps.setup import Setup, check_source, count_rows, set_up, settings_for
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from rowsweep.queue.contract import LedgerStore
    from rowsweep.queue.records import Backfill, Wanted
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.declare import Sweep

PAUSED_SECONDS: Final = 3600.0
_SHOWN_WAIT_SECONDS: Final = 1.0
_SLICE_SECONDS: Final = 0.25


class Pass:
    """Carry one run of a sweep on from wherever it stands.

    A crash at any moment costs at most the batch in flight, which rolled back; the next attempt reads one checkpoint
    and goes on behind it.
    """

    def __init__(self, sweep: Sweep[Any], ctx: RunCtx, value: Any) -> None:
        self._sweep = sweep
        self._ctx = ctx
        self._input = value
        self._held = BatchConnection(
            ctx.driver,
            ctx.signal,
            settings_for(sweep.spec, ctx.actor.tenant, cross_tenant=sweep.crosses_tenants),
            runs_handlers=sweep.spec.handler is not None,
        )
        self._patience = Patience()
        self._options: Mapping[str, Any] = {}
        self._waiting_for: str | None = None
        self._planned_full = False
        self._restarts = ctx.record.attempt > 1

    def run(self) -> dict[str, Any]:
        """Sweep to the end and answer the totals.

        Raises Suspend for a pause, Interrupted for a drain, a cancel or an abort, and what the gate, the setup or a
        batch refused.
        """
        try:
            row = self._open()
            self._work = self._work_for(self._setup)
            self._sweep_pages(row)
            return self._finish()
        finally:
            self._held.release()

    # -- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> Backfill:
        """Ask the gate, fix the setup, and take up the ledger row."""
        ctx, sweep = self._ctx, self._sweep
        ledger = self._ledger()
        known = ledger.get(ctx.run_id)
        self._options = (known.options if known is not None else None) or {}
        gate.ask(sweep.asked(ctx.record.input, ctx.run_id), ledger, force=bool(self._options.get("force")))
        self._setup = Setup.from_json(ctx.step.run(SETUP_STEP, self._set_up))
        check_source(sweep.name, self._setup, sweep.spec)
        row = ledger.start(self._new_row(known))
        self._options = row.options or {}
        if known is not None and known.checksum != row.checksum and known.batches:
            emit("sweeps.code-changed", sweep=sweep.name, run_id=str(ctx.run_id), checksum=row.checksum)
        estimate = (self._setup.estimate, self._setup.estimate_source)
        ledger.describe(ctx.claim, ctx.run_id, estimate=estimate, waiting_for=None)
        emit("sweeps.started", sweep=sweep.name, run_id=str(ctx.run_id), kind=sweep.kind)
        self._progress = Progress(row)
        return row

    def _set_up(self) -> Any:
        with self._held.transaction():
            return set_up(self._held.connection, self._sweep.spec).as_json()

    def _new_row(self, known: Backfill | None) -> NewBackfill:
        sweep, ctx = self._sweep, self._ctx
        return NewBackfill(
            run_id=ctx.run_id,
            name=sweep.name,
            kind=sweep.sweep_kind,
            checksum=sweep.checksum,
            environment=gate.environment(),
            app_version=host().app_version,
            input=ctx.record.input,
            options=None if known is None else known.options,
            launched_by=ctx.record.enqueued_by,
        )

    def _work_for(self, setup: Setup) -> PageWork:
        spec, ctx = self._sweep.spec, self._ctx
        finder = self._finder = PageFinder(self._held, setup.statements(spec), setup.params or {}, setup.upper)
        closer = Closer(ctx=ctx, held=self._held, totals=self._progress.totals, restarts=lambda: self._restarts)
        if spec.assignments is not None:
            return SetWork(finder=finder, closer=closer, assignments=spec.assignments)
        assert spec.handler is not None  # noqa: S101 - the declaration has one or the other
        call = HandlerCall(
            finder=finder,
            handler=self._guarded(spec.handler),
            columns=self._sweep.read_columns(setup.table),
            run_id=str(ctx.run_id),
            ctx=ctx,
            input=self._input,
        )
        return AtomicWork(call=call, closer=closer) if spec.atomic else OutsideWork(call=call, closer=closer)

    def _guarded(self, handler: Any) -> Any:
        def call(batch: Any) -> Any:
            try:
                return handler(batch)
            except Exception as error:
                _declare_terminal(error)
                raise

        return call

    # -- pages --------------------------------------------------------------------------------------------------

    def _sweep_pages(self, row: Backfill) -> None:
        self._at = as_checkpoint(self._ctx.step.checkpoint(PAGES_STEP).get(), PAGES_STEP)
        self._stored = self._at.index >= 0 or self._at.cursor is not None or self._at.plan is not None or self._at.ended
        if self._setup.is_over_nothing:
            self._at = self._at.finished()
        self._size = BatchSize(self._batch_rows(), adapt=self._sweep.spec.adapt)
        pacer = self._pacer()
        wanted: Wanted | None = row.wanted
        while not self._at.ended:
            self._steer(wanted)
            if pacer is not None:
                self._wait(pacer.wait_seconds(), "rate")
                pacer.begin()
            done, milliseconds = self._next_batch()
            swept = done.at.rows - self._at.rows
            if done.at.index > self._at.index:
                self._committed(done, swept, milliseconds)
            self._at, self._stored = done.at, True
            wanted = done.closed.wanted
            if pacer is not None:
                pacer.done(swept)

    def _next_batch(self) -> tuple[BatchDone, float]:
        """Do the next page, smaller and smaller where the moment is bad, until it is committed."""
        while True:
            started = real_monotonic()
            try:
                done = self._work.next(self._at, self._size.rows, stored=self._stored)
            except Exception as error:  # noqa: BLE001 - sorted there, and raised again unless it passes
                self._recover(error)
            else:
                milliseconds = (real_monotonic() - started) * 1000
                self._patience.succeeded()
                if done.at.plan is None:
                    self._size.completed(is_full=done.is_full or self._planned_full, duration_ms=milliseconds)
                self._planned_full = done.at.plan is not None and done.is_full
                return done, milliseconds

    def _recover(self, error: Exception) -> None:
        """Wait and shrink after an error of the moment, reading back where the pass stands; raise any other."""
        if self._ctx.signal.aborted:
            raise Interrupted(self._ctx.signal.reason) from error
        unknown = isinstance(error, (CommitUnknown, CheckpointMoved))
        if not unknown and not is_passing(error):
            _declare_terminal(error)
            self._finder.blame(error, self._at)
            raise error
        lost = unknown or is_lost_connection(error)
        rows = self._size.rows
        pause = self._patience.pause_seconds(rows=rows, lost=lost)
        if pause is None:
            self._finder.blame(error, self._at)
            raise error
        self._size.halve()
        behind = database_error(error)
        emit(
            "sweeps.batch.shrunk",
            error=error,
            sweep=self._sweep.name,
            run_id=str(self._ctx.run_id),
            index=self._at.index + 1,
            batch_rows=self._size.rows,
            sqlstate=None if behind is None else behind.sqlstate,
        )
        self._wait(pause, name_of(error))
        if lost:
            self._resynchronise()

    def _resynchronise(self) -> None:
        """Learn from the database where the pass stands: a commit may have landed although its answer was lost.

        Locking the job row waits for the former session, which holds it until its commit is decided.
        """
        while True:
            try:
                self._held.release()
                with self._held.transaction():
                    stores = self._held.stores
                    if not stores.steps.guard(self._ctx.claim):
                        raise LeaseLost(
                            f"The claim of {self._sweep.name!r} was lost while its connection was.",
                            fix=f"rowsweep jobs show {self._ctx.job_id}",
                        )
                    step = stores.steps.get(self._ctx.run_id, PAGES_STEP)
            except Exception as error:
                if self._ctx.signal.aborted:
                    raise Interrupted(self._ctx.signal.reason) from error
                if isinstance(error, LeaseLost) or not (is_passing(error) or isinstance(error, CommitUnknown)):
                    raise
                pause = self._patience.pause_seconds(rows=self._size.rows, lost=True)
                if pause is None:
                    raise
                self._wait(pause, "lost connection")
            else:
                self._at = as_checkpoint(None if step is None else step.output, PAGES_STEP)
                self._stored = step is not None
                return

    def _committed(self, done: BatchDone, rows: int, milliseconds: float) -> None:
        self._waiting_for = None
        if self._restarts:
            self._restarts, self._ctx.runner.has_restarted = False, True
        emit(
            "sweeps.batch",
            sweep=self._sweep.name,
            run_id=str(self._ctx.run_id),
            index=done.at.index,
            rows=rows,
            duration_ms=round(milliseconds, 1),
            batch_rows=self._size.rows,
        )

    # -- steering -----------------------------------------------------------------------------------------------

    def _steer(self, wanted: Wanted | None) -> None:
        """Stop here where somebody asked for it: no batch is in flight."""
        signal, sweep = self._ctx.signal, self._sweep
        signal.raise_if_aborted()
        if wanted == "cancel":
            raise Interrupted(Aborted(f"{sweep.name!r} was cancelled.", fix="run.resume()"))
        if wanted == "pause":
            emit("sweeps.paused", sweep=sweep.name, run_id=str(self._ctx.run_id), reason="asked")
            self._held.release()
            self._ctx.suspend("pause", PAUSED_SECONDS)
        if signal.draining:
            raise Interrupted(
                Draining(f"{sweep.name!r} stops behind batch {self._at.index}: the process drains.", fix="none needed")
            )

    def _wait(self, seconds: float, why: str) -> None:
        """Wait without holding a connection; ends at once on abort, drain, pause or cancel, which are then obeyed."""
        if seconds <= 0:
            return
        self._held.release()
        if seconds >= _SHOWN_WAIT_SECONDS and why != self._waiting_for:
            self._show_waiting(why)
        until = real_monotonic() + seconds
        while (left := until - real_monotonic()) > 0:
            self._steer(self._ctx.wanted())
            self._ctx.signal.wait(min(left, _SLICE_SECONDS))
        self._steer(self._ctx.wanted())

    def _show_waiting(self, why: str) -> None:
        try:
            self._ledger().describe(self._ctx.claim, self._ctx.run_id, estimate=None, waiting_for=why)
        except DriverUnavailable:
            return
        self._waiting_for = why

    # -- the end ------------------------------------------------------------------------------------------------

    def _finish(self) -> dict[str, Any]:
        totals: dict[str, Any] = self._ctx.step.run(FINISH_STEP, self._finish_ledger)
        emit(
            "sweeps.finished",
            sweep=self._sweep.name,
            run_id=str(self._ctx.run_id),
            rows=self._at.rows,
            written=self._at.written,
            batches=self._at.batches,
            active_seconds=round(self._progress.active_seconds, 3),
        )
        return totals

    def _finish_ledger(self) -> dict[str, Any]:
        at = self._at
        remaining = self._remaining()
        held = self._ledger().finish(self._ctx.claim, self._ctx.run_id, self._progress.totals(at, final=True))
        if not held:
            raise LeaseLost(
                f"The claim of {self._sweep.name!r} was lost before its end was recorded.",
                fix=f"rowsweep jobs show {self._ctx.job_id}",
            )
        return {
            "rows": at.rows, "written": at.written, "batches": at.batches, "rejected": 0, "remaining": remaining,
        }  # fmt: skip

    def _remaining(self) -> int | None:
        """Count the rows that still match, where that is cheap: late commits, and rows a handler left as they were."""
        setup, spec = self._setup, self._sweep.spec
        if spec.rows.where is None or setup.estimate_source != "count":
            return None
        if setup.is_over_nothing:
            return 0
        values = {**(setup.params or {}), **cursor_values("u", setup.upper)}
        with self._held.transaction():
            return count_rows(self._held.connection, setup.statements(spec), values)

    # -- options ------------------------------------------------------------------------------------------------

    def _batch_rows(self) -> int:
        return int(self._options.get("batch_rows") or self._sweep.spec.batch_rows)

    def _pacer(self) -> Pacer | None:
        limit = self._options.get("rate") or self._sweep.spec.rate
        return None if limit is None else Pacer(limit, SystemClock())

    def _ledger(self) -> LedgerStore:
        ledger = self._ctx.driver.stores().ledger
        if ledger is None:
            raise InvariantBroken(
                f"The driver {self._ctx.driver.name!r} keeps no ledger, which sweeps report to.",
                fix="rs.connect() with the Postgres driver",
            )
        return ledger


def _declare_terminal(error: Exception) -> None:
    """Mark SQL that is wrong in itself (SQLSTATE class 42): trying again changes nothing."""
    behind = database_error(error)
    wrong = behind is not None and (behind.sqlstate or "").startswith("42")
    if wrong and not isinstance(error, RowsweepError):
        error.retry = "terminal"  # type: ignore[attr-defined]
