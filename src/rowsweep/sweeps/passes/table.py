"""The pass: one run of a sweep, from its gate to its end, resumable at every batch."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from rowsweep.clock import SystemClock
from rowsweep.errors import (
    LeaseLost,
)
from rowsweep.sweeps.batch.closing import BatchDone
from rowsweep.sweeps.batch.connection import BatchConnection
from rowsweep.sweeps.batch.pages import PageFinder
from rowsweep.sweeps.batch.sizing import BatchSize
from rowsweep.sweeps.batch.work import PageWork
from rowsweep.sweeps.keyset.expressions import cursor_values
from rowsweep.sweeps.keyset.sameness import check_same
from rowsweep.sweeps.launches import gate
from rowsweep.sweeps.passes.heeding import HeedingPass
from rowsweep.sweeps.passes.pacing import Pacer
from rowsweep.sweeps.passes.position import FINISH_STEP, PAGES_STEP, SETUP_STEP, Position, as_checkpoint
from rowsweep.sweeps.passes.progress import Progress
from rowsweep.sweeps.run import host
from rowsweep.sweeps.setup import Setup, check_source, count_rows, set_up, settings_for
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import Backfill, Wanted
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.handle import TableSweep


class Pass(HeedingPass):
    """Carry one run of a sweep over a table's pages on from wherever it stands.

    A crash at any moment costs at most the batch in flight, which rolled back; the next attempt reads one checkpoint
    and goes on behind it.
    """

    _sweep: TableSweep[Any]
    _finder: PageFinder
    _work: PageWork

    def __init__(self, sweep: TableSweep[Any], ctx: RunCtx, value: Any) -> None:
        super().__init__(sweep, ctx, PAGES_STEP)
        self._input = value
        self._source = sweep.held_on(host(), ctx.signal, ctx.actor.tenant)
        self._held = self._source
        if sweep.spec.source is not None:
            settings = settings_for(sweep.spec, ctx.actor.tenant, cross_tenant=sweep.crosses_tenants)
            self._held = BatchConnection(ctx.driver, ctx.signal, settings)
        self._planned_full = False
        self._at = self._began_at = Position()

    def run(self) -> dict[str, Any]:
        """Sweep to the end and answer the totals.

        Raises Suspend for a pause, Interrupted for a drain, a cancel or an abort, and what the gate, the setup or a
        batch refused.
        """
        try:
            row = self._open()
            self._work = self._work_for(self._setup)
            self._sweep_pages(row)
            self._check_same()
            self._behind_pages()
            self._end_governing()
            return self._finish()
        except Exception as error:
            self._report_failure(error)
            raise
        finally:
            self._release()
            self._end_governing()

    def _open(self) -> Backfill:
        """Ask the gate, fix the setup, and take up the ledger row."""
        ctx, sweep = self._ctx, self._sweep
        ledger = self._ledger()
        known = ledger.get(ctx.run_id)
        self._options = (known.options if known is not None else None) or {}
        gate.ask(sweep.asked(ctx.record.input, ctx.run_id), ledger, force=self._is_forced())
        self._setup = self._take_up(self._stored_setup(known))
        check_source(sweep.name, self._setup, sweep.spec.rows)
        row = ledger.start(self._new_row(known))
        self._options = row.options or {}
        if known is not None and known.checksum != row.checksum and known.batches:
            emit("sweeps.code-changed", sweep=sweep.name, run_id=str(ctx.run_id), checksum=row.checksum)
        estimate = (self._setup.estimate, self._setup.estimate_source)
        ledger.describe(ctx.claim, ctx.run_id, estimate=estimate, waiting_for=None)
        emit("sweeps.started", sweep=sweep.name, run_id=str(ctx.run_id), kind=sweep.kind)
        self._progress = Progress(row)
        self._row = row
        return row

    def _is_forced(self) -> bool:
        """Whether the run goes on where the sweep is applied: it was asked to, or does rows that were left then."""
        return bool(self._options.get("force")) or gate.retried_run(self._options) is not None

    def _stored_setup(self, known: Backfill | None) -> Any:  # noqa: ARG002 - shards ask what is known of their run
        """Answer what the setup step stored, now or in an attempt before."""
        return self._ctx.step.run(SETUP_STEP, self._set_up)

    def _set_up(self) -> Any:
        with self._source.transaction():
            return set_up(self._source.connection, self._sweep.spec.rows, self._sweep.assignments).as_json()

    def _take_up(self, stored: Any) -> Setup:
        """Restore what the setup step stored."""
        return Setup.from_json(stored)

    @abstractmethod
    def _work_for(self, setup: Setup) -> PageWork:
        """Make what does a page."""

    def _closing(self) -> dict[str, Any]:
        """Answer what every closer of this pass is made with."""
        return {
            "ctx": self._ctx, "held": self._held, "totals": self._progress.totals, "restarts": lambda: self._restarts,
            "step": self._step,
        }  # fmt: skip

    def _first_size(self) -> BatchSize:
        """Answer how many rows the first page takes."""
        return BatchSize(self._batch_rows(), adapt=self._sweep.spec.adapt)

    def _sweep_pages(self, row: Backfill) -> None:
        stored = self._resumed()
        self._at, self._stored = self._read_back(stored), stored is not None
        if self._setup.is_over_nothing:
            self._at = self._at.finished()
        self._size = self._first_size()
        self._pacer = Pacer(self._rate(), SystemClock(), shares=self._setup.shards)
        self._govern()
        self._walk(row.wanted)

    def _resumed(self) -> Any:
        """Answer the checkpoint that is stored, None where there is none."""
        return self._ctx.step.checkpoint(self._step).get()

    def _walk(self, wanted: Wanted | None) -> None:
        """Do page after page until the end."""
        while not self._at.ended:
            if not self._closes_begun(wanted):
                self._pace()
            done, milliseconds = self._next_batch()
            swept = done.at.rows - self._at.rows
            if done.at.index > self._at.index:
                self._committed(done, swept, milliseconds)
            self._at, self._stored = done.at, True
            wanted = done.closed.wanted
            self._pacer.done(swept)
            self._tune(done.closed.options)

    def _next_batch(self) -> tuple[BatchDone, float]:
        """Do the next page; answer it with the milliseconds that it took for its size."""
        done, took = self._until_done(lambda rows: self._work.next(self._at, rows, stored=self._stored))
        milliseconds = took - done.aside_ms
        if done.at.plan is None and not done.by_parts:
            self._size.completed(is_full=done.is_full or self._planned_full, duration_ms=milliseconds)
        self._planned_full = done.at.plan is not None and done.is_full
        return done, milliseconds

    def _check_same(self) -> None:
        """Refuse to go on behind the last page where the cursor was another table's, or of another order."""
        with self._source.transaction(reads=True):
            check_same(self._source.connection, self._setup.table, self._setup.identity)

    def _behind_pages(self) -> None:
        """Do what is to be done between the last page and the end."""

    def _tables(self) -> frozenset[tuple[str, str]]:
        return frozenset({(self._setup.table.schema, self._setup.table.name)})

    def _backends(self) -> list[int]:
        pid = self._source.backend_pid
        return [] if pid is None else [pid]

    def _finish(self) -> dict[str, Any]:
        totals: dict[str, Any] = self._ctx.step.run(FINISH_STEP, self._finish_ledger)
        emit(
            "sweeps.finished",
            sweep=self._sweep.name,
            run_id=str(self._ctx.run_id),
            kind=self._sweep.kind,
            rows=self._at.rows,
            written=self._at.written,
            batches=self._at.batches,
            active_seconds=round(self._progress.active_seconds, 3),
        )
        return totals

    def _finish_ledger(self) -> dict[str, Any]:
        at = self._at
        remaining = self._remaining()
        self._end_ledger()
        return {
            "rows": at.rows, "written": at.written, "batches": at.batches, "rejected": self._rejected(),
            "remaining": remaining, **self._more_totals(),
        }  # fmt: skip

    def _end_ledger(self) -> None:
        """Write the run's exact figures; raises LeaseLost where it is another's to end."""
        totals = self._progress.totals(self._at, final=True)
        if not self._ledger().finish(self._ctx.claim, self._ctx.run_id, totals, late=self._told_late()):
            raise self._lost()

    def _told_late(self) -> dict[str, Any] | None:
        """Answer what views have to say of rows that were committed behind the pass, None for nothing."""
        return None

    def _more_totals(self) -> dict[str, Any]:
        """Answer what else the result has."""
        return {}

    def _rejected(self) -> int:
        """Answer how many rows of the run are set aside."""
        return 0

    def _lost(self) -> LeaseLost:
        return LeaseLost(
            f"The claim of {self._sweep.name!r} was lost before its end was recorded.",
            fix=f"rowsweep jobs show {self._ctx.job_id}",
        )

    def _remaining(self) -> int | None:
        """Count the rows that still match, where that is cheap: late commits, and rows a handler left as they were."""
        setup, spec = self._setup, self._sweep.spec
        if spec.rows.where is None or setup.estimate_source != "count" or setup.only is not None:
            return None
        if setup.is_over_nothing:
            return 0
        values = {**(setup.params or {}), **cursor_values("u", setup.upper)}
        with self._source.transaction():
            return count_rows(self._source.connection, setup.statements(spec.rows), values)

    def _blame(self, error: Exception) -> None:
        self._finder.blame(error, self._at)

    def _read_back(self, stored: Any) -> Position:
        return self._began_at if stored is None else self._position(stored, self._step)

    def _position(self, stored: Any, step: str) -> Position:
        """Read the checkpoint of one of the run's jobs back."""
        return as_checkpoint(stored, step)

    def _release(self) -> None:
        self._held.release()
        self._source.release()
