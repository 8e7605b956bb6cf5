"""How a pass of a purge ends: with a report in the ledger, and with the next pass where a backlog is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import LeaseLost
from rowsweep.jobs.request import EnqueueOptions

if TYPE_CHECKING:
    from datetime import datetime

    from rowsweep.queue.contract import Stores
    from rowsweep.queue.stores.ledger import NewBackfill, SweepTotals
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.purge.declare import Purge
    from rowsweep.sweeps.purge.targets.setup import TargetSetup

AGAIN_SECONDS: Final = 60.0


def report_of(
    outcome: Mapping[str, Mapping[str, Any]], setups: Mapping[str, TargetSetup], at: datetime
) -> dict[str, Any]:
    """Answer what a pass did, target by target; a backlog of None is one that nobody has counted."""
    return {
        "removed": {name: one["removed"] for name, one in outcome.items()},
        "blocked": {name: one["blocked"] for name, one in outcome.items() if one["blocked"]},
        "backlog": {name: one["backlog"] for name, one in outcome.items() if one["backlog"] != 0},
        "cascades": {name: dict(setup.cascades) for name, setup in setups.items() if setup.cascades},
        "total": sum(int(one["removed"]) for one in outcome.values()),
        "at": at.isoformat(),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """End a run in the transaction that `stores` are open on; `row` is what a ledger row of this sweep begins with."""

    sweep: Purge
    ctx: RunCtx
    stores: Stores
    totals: SweepTotals
    row: NewBackfill
    options: Mapping[str, Any]

    def record(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """End the ledger row with the report and, where a backlog is left, enqueue the next pass: both or neither."""
        assert self.stores.ledger is not None  # noqa: S101 - asked for when the pass began
        if not self.stores.ledger.finish(self.ctx.claim, self.ctx.run_id, self.totals):
            raise LeaseLost(
                f"The claim of {self.sweep.name!r} was lost before its end was recorded.",
                fix=f"rowsweep jobs show {self.ctx.job_id}",
            )
        if report["backlog"]:
            self._come_back()
        return dict(report)

    def _come_back(self) -> None:
        """Enqueue the next pass, unless one is waiting already; its key is never the one this job is live under."""
        first, second = self.sweep.backlog_keys(self.ctx.record.input)
        key = second if self.ctx.record.idempotency_key == first else first
        asked = EnqueueOptions(key=key, delay=f"{AGAIN_SECONDS:g}s", queue=self.ctx.record.queue)
        request = self.sweep.request(None, asked)
        (result,) = self.stores.jobs.enqueue([request])
        if not result.deduplicated and self.stores.ledger is not None:
            launched_by = request.enqueued_by
            options = {name: value for name, value in self.options.items() if name != "governor"}
            self.stores.ledger.start(replace(self.row, run_id=request.run_id, options=options, launched_by=launched_by))
