"""The pass of a backfill: what does its pages, what fails in them by itself, and what comes behind the last one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rowsweep.sweeps.batch.closing import Closer
from rowsweep.sweeps.batch.in_place import SetWork
from rowsweep.sweeps.batch.source import SourceWork
from rowsweep.sweeps.batch.work import AtomicWork, HandlerCall, OutsideWork, PageWork
from rowsweep.sweeps.executors.calls import calling
from rowsweep.sweeps.executors.work import ExecutorWork
from rowsweep.sweeps.late.look import SecondLook
from rowsweep.sweeps.late.spent_set import SpentSetWork
from rowsweep.sweeps.launches import gate
from rowsweep.sweeps.passes.recovering import declare_terminal
from rowsweep.sweeps.passes.table import Pass
from rowsweep.sweeps.poison.closing import Listing, ListingCloser, rejected_of
from rowsweep.sweeps.poison.limits import MOST_SHARE, Limits
from rowsweep.sweeps.poison.listed import ListedFinder
from rowsweep.sweeps.poison.retry import over_listed
from rowsweep.sweeps.poison.work import SettingAside, setting_aside
from rowsweep.sweeps.setup import Setup
from rowsweep.sweeps.spec import MOST_REJECTED

if TYPE_CHECKING:
    from rowsweep.sweeps.batch.pages import PageFinder
    from rowsweep.sweeps.declare import RowSweep
    from rowsweep.sweeps.executors.calls import Calls


class BackfillPass(Pass, SecondLook):
    """The pass of a backfill: each page is updated in the database, or handed to the application's function."""

    _sweep: RowSweep[Any]
    _aside: SettingAside | None = None
    _calls: Calls | None = None

    def _set_up(self) -> Any:
        made = super()._set_up()
        retried = gate.retried_run(self._options)
        if retried is None:
            return made
        rows = rejected_of(self._ctx.driver.stores()).list(retried)
        return over_listed(Setup.from_json(made), rows, sweep=self._sweep.name).as_json()

    def run(self) -> dict[str, Any]:
        """Sweep to the end and answer the totals; what an executor still computes by then is given up."""
        with ExitStack() as self._ending:
            return super().run()

    def _behind_pages(self) -> None:
        self._look_again()

    def _backends(self) -> list[int]:
        held = None if self._snapshot is None else self._snapshot.backend_pid
        return super()._backends() if held is None else [*super()._backends(), held]

    def _told_late(self) -> dict[str, Any] | None:
        late = self._late
        return late.as_json() if late.writers or late.unsure != 0 else None

    def _more_totals(self) -> dict[str, Any]:
        return {"late": self._late.as_json()}

    def _work_for(self, setup: Setup) -> PageWork:
        limits = self._limits()
        finder = self._finder = self._finder_over(setup)
        shared = self._closing()
        if limits is None:
            return self._work_over(finder, Closer(**shared))
        retried = finder if isinstance(finder, ListedFinder) else None
        listing = Listing(table=setup.table, limits=limits, retried=retried)
        self._aside = setting_aside(finder, ListingCloser(**shared, listing=listing), self._work_over)
        return self._aside

    def _work_over(self, finder: PageFinder, closer: Closer) -> PageWork:
        """Make what does the pages that a finder finds."""
        spec, ctx = self._sweep.spec, self._ctx
        if spec.assignments is not None:
            if (spending := self._spending(finder)) is not None:
                return SpentSetWork(finder=finder, closer=closer, assignments=spec.assignments, spending=spending)
            in_place = SetWork(finder=finder, closer=closer, assignments=spec.assignments, goes_on=self._goes_on)
            return in_place if spec.source is None else SourceWork(finder=finder, closer=closer, work=in_place.alone)
        assert spec.handler is not None  # noqa: S101 - the declaration has one or the other
        call = HandlerCall(
            finder=finder,
            handler=self._guarded(spec.handler),
            columns=self._sweep.read_columns(self._setup.table),
            run_id=self._batch_prefix,
            ctx=ctx,
            input=self._input,
            spending=self._spending(finder),
        )
        if spec.executor is not None:
            self._calls = self._calls or self._ending.enter_context(
                calling(self._sweep, self._setup.table, self._input, ctx.signal)
            )
            return ExecutorWork(call=call, closer=closer, calls=self._calls, ahead=spec.ahead)
        by_handler = (AtomicWork if spec.atomic else OutsideWork)(call=call, closer=closer)
        return by_handler if spec.source is None else SourceWork(finder=finder, closer=closer, work=by_handler.alone)

    def _limits(self) -> Limits | None:
        """Answer how many rows may be set aside; None where the first batch that fails is to stop the run."""
        spec, row, options = self._sweep.spec, self._row, self._options
        retries = gate.retried_run(options) is not None
        if (options.get("on_error") or spec.on_error) == "stop" and not retries:
            return None
        return Limits(
            sweep=self._sweep.name,
            run_id=self._ctx.run_id,
            most=MOST_REJECTED if retries else options.get("max_rejected") or spec.most_rejected,
            seen=max(row.rows, self._at.rows) + row.rejected_rows,
            rejected=row.rejected_rows,
            most_share=None if retries else MOST_SHARE,
        )

    def _recover(self, error: Exception) -> None:
        aside = self._aside
        if aside is None or self._ctx.signal.aborted or not aside.takes(error):
            super()._recover(error)
        else:
            self._wait(aside.pause_seconds(error), "another try of a batch that fails")

    def _rejected(self) -> int:
        row = None if self._aside is None else self._ledger().get(self._ctx.run_id)
        return 0 if row is None else row.rejected_rows

    def _guarded(self, handler: Any) -> Any:
        def call(batch: Any) -> Any:
            try:
                return handler(batch)
            except Exception as error:
                declare_terminal(error)
                raise

        return call
