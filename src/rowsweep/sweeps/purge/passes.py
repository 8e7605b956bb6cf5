"""The pass of a purge: one instant for all targets, one step a target, batch by batch within a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rowsweep.clock import SystemClock, real_monotonic
from rowsweep.errors import NotImplementedByDriver
from rowsweep.sweeps.batch.closing import Closer
from rowsweep.sweeps.batch.connection import BatchConnection
from rowsweep.sweeps.batch.patience import database_error
from rowsweep.sweeps.batch.sizing import BatchSize
from rowsweep.sweeps.launches import gate
from rowsweep.sweeps.passes.heeding import HeedingPass
from rowsweep.sweeps.passes.pacing import Pacer
from rowsweep.sweeps.passes.position import FINISH_STEP, SETUP_STEP, Position
from rowsweep.sweeps.passes.progress import Progress
from rowsweep.sweeps.purge.ending import Ending, report_of
from rowsweep.sweeps.purge.plausible import refuse_implausible
from rowsweep.sweeps.purge.position import PurgePosition, as_position
from rowsweep.sweeps.purge.targets.setup import TargetSetup, check_unchanged, estimate_of, set_up_target
from rowsweep.sweeps.purge.targets.target import RowTarget, batches_of, checked
from rowsweep.sweeps.purge.work import DeleteWork, PurgeDone
from rowsweep.sweeps.run import host
from rowsweep.sweeps.setup import estimate_rows, settings_for
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from rowsweep.queue.contract import Stores
    from rowsweep.queue.stores.ledger import SweepTotals, Wanted
    from rowsweep.queue.stores.retention import RetentionStore
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.purge.declare import Purge
    from rowsweep.sweeps.purge.targets.target import Target

_FIRST_ROUND_SECONDS: Final = 0.25
_LONGEST_ROUND_SECONDS: Final = 4.0
_PLAUSIBLE_STEP: Final = "purge:plausible"
_HELD_BY_KEY: Final = ("23503", "23001")
_LOCKED: Final = ("55P03", "40P01")
# A batch walks an index and meets rows by their address: what a plan for many rows would read instead is the table.
_WALKING: Final = {"enable_seqscan": "off", "enable_bitmapscan": "off"}


class PurgePass(HeedingPass):
    """Carry one run of a purge on from wherever it stands; what an earlier attempt removed is not counted twice."""

    _sweep: Purge
    _at: PurgePosition

    def __init__(self, sweep: Purge, ctx: RunCtx) -> None:
        super().__init__(sweep, ctx, SETUP_STEP)
        settings = settings_for(sweep.spec, ctx.actor.tenant, cross_tenant=sweep.crosses_tenants)
        self._held = BatchConnection(ctx.driver, ctx.signal, {**settings, **_WALKING}, runs_handlers=False)
        self._at = PurgePosition()
        self._before = Position()
        self._work: DeleteWork | None = None
        self._setups: dict[str, TargetSetup] = {}
        self._steered_by: Wanted | None = None

    def run(self) -> dict[str, Any]:
        """Purge every target, or as much as the budget allows, and answer what went.

        Raises Suspend for a pause, Interrupted for a drain, a cancel or an abort, ImplausiblePurge and what the gate
        or a target refused.
        """
        try:
            targets = self._open()
            outcome = {}
            for target in targets:
                done = outcome[target.name] = self._ctx.step.run(f"purge:{target.name}", partial(self._purge, target))
                self._before, self._at = self._overall_of(done), PurgePosition()
            self._end_governing()
            return self._finish(outcome)
        except Exception as error:
            self._report_failure(error)
            raise
        finally:
            self._release()
            self._end_governing()

    def _open(self) -> list[Target | RowTarget]:
        """Ask the gate, read the clock, and check every target and how much would go before the first delete."""
        ctx, sweep = self._ctx, self._sweep
        ledger = self._ledger()
        known = ledger.get(ctx.run_id)
        gate.ask(sweep.asked(ctx.record.input, ctx.run_id), ledger)
        self._instant = datetime.fromisoformat(ctx.step.run(SETUP_STEP, self._read_clock)["at"])
        row = ledger.start(self._new_row(known))
        self._options = row.options or {}
        self._progress = Progress(row)
        self._pacer = Pacer(self._rate(), SystemClock())
        self._steered_by = row.wanted
        targets = checked(sweep.spec.targets())
        for target in targets:
            if isinstance(target, RowTarget):
                self._setups[target.name] = self._set_up(target)
        ctx.step.run(_PLAUSIBLE_STEP, self._check_plausible)
        self._describe()
        self._size = BatchSize(self._batch_rows(), adapt=sweep.spec.adapt)
        self._govern()
        emit("sweeps.started", sweep=sweep.name, run_id=str(ctx.run_id), kind=sweep.kind)
        return targets

    def _read_clock(self) -> dict[str, Any]:
        return {"at": _retention(self._ctx.driver.stores()).now().isoformat()}

    def _set_up(self, target: RowTarget) -> TargetSetup:
        def found() -> Any:
            held = self._sweep.held_on(host(), self._ctx.signal, self._ctx.actor.tenant)
            try:
                with held.transaction():
                    return set_up_target(held.connection, target, self._instant.isoformat()).as_json()
            finally:
                held.release()

        setup = TargetSetup.from_json(self._ctx.step.run(f"purge:{target.name}:setup", found))
        check_unchanged(self._sweep.name, target, setup)
        return setup

    def _check_plausible(self) -> None:
        confirm = self._options.get("confirm", self._sweep.spec.confirm)
        refuse_implausible(
            self._sweep.name,
            self._setups,
            confirm=confirm,
            most_rows=self._sweep.spec.budget.rows,
            ledger=self._ledger(),
        )

    def _describe(self) -> None:
        self._ledger().describe(
            self._ctx.claim, self._ctx.run_id, estimate=estimate_of(self._setups.values()), waiting_for=None
        )

    def _purge(self, target: Target | RowTarget) -> dict[str, Any]:
        """Purge one target; answer what its step keeps. A `backlog` of None is one that nobody has counted."""
        self._step = f"purge:{target.name}:rows"
        stored = self._ctx.step.checkpoint(self._step).get()
        self._at, self._stored = as_position(stored, self._step), stored is not None
        self._size = BatchSize(self._batch_rows(), adapt=self._sweep.spec.adapt)
        backlog = self._purge_rows(target) if isinstance(target, RowTarget) else self._purge_structural(target)
        return {
            "removed": self._at.rows,
            "batches": self._at.batches,
            "blocked": {by: dict(held) for by, held in self._at.blocked.items()},
            "backlog": backlog,
        }

    def _purge_rows(self, target: RowTarget) -> int:
        """Delete page by page to the end, or to the budget's; answer how many rows are left."""
        setup = self._setups[target.name]
        self._work = DeleteWork(self._held, self._closer(), setup, self._goes_on)
        while not self._at.ended:
            closes_begun = self._closes_begun(self._steered_by)
            if self._is_spent:
                return self._left(setup)
            if not closes_begun:
                self._pace()
            done = self._next_batch()
            self._moved(done)
        return self._at.skipped

    def _next_batch(self) -> PurgeDone:
        assert self._work is not None  # noqa: S101 - set with the target
        work = self._work
        done, milliseconds = self._until_done(lambda rows: work.next(self._at, rows, stored=self._stored))
        self._size.completed(is_full=done.is_full, duration_ms=milliseconds)
        if done.at.index > self._at.index:
            self._committed(done, done.at.rows - self._at.rows, milliseconds)
        return done

    def _moved(self, done: PurgeDone) -> None:
        removed = done.at.rows - self._at.rows
        self._at, self._stored, self._steered_by = done.at, True, done.closed.wanted
        self._pacer.done(removed)
        self._tune(done.closed.options)
        if done.awaits_locks:
            pause = _FIRST_ROUND_SECONDS * 2.0 ** (self._at.round - 2)
            self._wait(min(pause, _LONGEST_ROUND_SECONDS), "locked rows")

    def _recover(self, error: Exception) -> None:
        """Pass over what others lock, leave what a foreign key holds; recover from all else as any pass does."""
        behind, work = database_error(error), self._work
        state = None if behind is None else behind.sqlstate
        if behind is None or work is None or state not in (*_HELD_BY_KEY, *_LOCKED) or self._ctx.signal.aborted:
            super()._recover(error)
            return
        if state in _LOCKED:
            if not work.be_careful():
                super()._recover(error)
            return
        diag = behind.diag
        schema, table, name = diag.schema_name or "", diag.table_name or "", diag.constraint_name or ""
        if work.learn(schema, table, name):
            return
        if self._size.rows > 1:
            self._size.halve()
        else:
            work.step_over(f"{name} of {schema}.{table}")

    def _purge_structural(self, target: Target) -> int | None:
        """Let a target delete by itself; each of its batches is noted once it is done."""
        ledger, closer, batches = self._ledger(), self._closer(), batches_of(target, self._instant)
        while not self._at.ended:
            self._steer(self._steered_by)
            if self._is_spent:
                return None
            self._pace()
            started = real_monotonic()
            rows = next(batches, None)
            after = self._at.finished() if rows is None else self._at.removed(rows)
            closed = closer.checked(ledger, closer.made(self._at, after, stored=self._stored))
            done = PurgeDone(at=after, is_full=False, closed=closed)
            if after.index > self._at.index:
                self._committed(done, after.rows - self._at.rows, (real_monotonic() - started) * 1000)
            self._moved(done)
        return 0

    @property
    def _is_spent(self) -> bool:
        budget = self._sweep.spec.budget
        return self._before.rows + self._at.rows >= budget.rows or self._progress.active_seconds >= budget.seconds

    def _left(self, setup: TargetSetup) -> int:
        """Count or estimate what the budget leaves, without what is held."""
        held = self._sweep.held_on(host(), self._ctx.signal, self._ctx.actor.tenant)
        try:
            with held.transaction():
                rows, _ = estimate_rows(held.connection, setup.statements(), {"rs_cutoff": setup.cutoff})
        finally:
            held.release()
        return max((rows or 0) - self._at.blocked_rows, 0)

    def _closer(self) -> Closer:
        return Closer(
            ctx=self._ctx, held=self._held, totals=self._totals, restarts=lambda: self._restarts, step=self._step
        )

    def _totals(self, at: PurgePosition) -> SweepTotals:
        return self._progress.totals(self._overall(at))

    def _overall_of(self, done: Mapping[str, Any]) -> Position:
        before, rows = self._before, int(done["removed"])
        total = before.rows + rows
        return Position(index=before.index + int(done["batches"]), rows=total, written=total)

    def _overall(self, at: PurgePosition) -> Position:
        rows = self._before.rows + at.rows
        return Position(index=self._before.index + at.batches, cursor=at.cursor, rows=rows, written=rows)

    def _rows_done(self) -> int:
        return self._overall(self._at).rows

    def _finish(self, outcome: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        report = report_of(outcome, self._setups, self._instant)
        at = self._before
        self._release()
        with self._ctx.transaction() as tx:
            ending = Ending(
                sweep=self._sweep,
                ctx=self._ctx,
                stores=self._ctx.driver.join(tx),
                totals=replace(self._progress.totals(at, final=True), cursor=dict(report)),
                row=self._new_row(None),
                options=self._options,
            )
            self._ctx.step.run(FINISH_STEP, partial(ending.record, report), tx=tx)
        emit(
            "sweeps.finished",
            sweep=self._sweep.name,
            run_id=str(self._ctx.run_id),
            kind=self._sweep.kind,
            rows=at.rows,
            written=at.written,
            batches=at.batches,
            active_seconds=round(self._progress.active_seconds, 3),
        )
        return report

    def _release(self) -> None:
        self._held.release()

    def _tables(self) -> frozenset[tuple[str, str]]:
        return frozenset((setup.table.schema, setup.table.name) for setup in self._setups.values())

    def _blame(self, error: Exception) -> None:
        if self._work is not None:
            self._work.blame(error, self._at)

    def _read_back(self, stored: Any) -> PurgePosition:
        return as_position(stored, self._step)


def _retention(stores: Stores) -> RetentionStore:
    if stores.retention is None:
        raise NotImplementedByDriver(
            "The driver answers no clock for a purge to go by.",
            fix="rs.connect() with the Postgres driver",
            meta={"feature": "retention"},
        )
    return stores.retention
