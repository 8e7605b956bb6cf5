"""`purge()`: declare what is deleted once it has expired; its handle previews and launches it."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack

from rowsweep.errors import InvalidDeclaration
from rowsweep.jobs import registry
from rowsweep.jobs.origin import origin_of
from rowsweep.jobs.tenancy import Tenant
from rowsweep.options import count, duration, finite, format_duration
from rowsweep.spelling import spelled
from rowsweep.sweeps.handle import Sweep, digest, sweep_options
from rowsweep.sweeps.refusals import refused
from rowsweep.sweeps.spec import PassSpec, Rejecting, code_of

if TYPE_CHECKING:
    import polars as pl

    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.run import Host, Run

_MOST_ROWS: Final = 10**12
_SPEC_OPTIONS: Final = (
    "budget", "confirm", "batch_rows", "adapt", "rate", "health", "environments", "requires", "lock_timeout",
    "statement_timeout",
)  # fmt: skip


@spelled
@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much one pass may do: `time` at work and `rows` removed, whichever is reached first."""

    time: str | timedelta = "10m"
    rows: int = 5_000_000

    def __post_init__(self) -> None:
        if duration(self.time, option="time") <= timedelta(0):
            raise refused("budget", "some time", self.time, 'budget=rs.Budget(time="10m")')
        count(self.rows, option="rows", minimum=1, maximum=_MOST_ROWS)

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return duration(self.time, option="time").total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeSpec(PassSpec):
    """What is purged and how; `confirm` is the largest share of a table that one purge may be about to remove."""

    targets: Callable[[], Sequence[Any]]
    budget: Budget = field(default_factory=Budget)
    confirm: float | None = None

    def __post_init__(self) -> None:
        targets: object = self.targets
        if not callable(targets) or inspect.iscoroutinefunction(targets):
            raise refused(
                "targets",
                "a function that answers the targets, called when the purge runs",
                self.targets,
                'targets=lambda: [rs.older_than("events", "created_at", days=90)]',
            )
        if not isinstance(self.budget, Budget):
            raise refused("budget", "a Budget", self.budget, 'budget=rs.Budget(time="10m", rows=5_000_000)')
        if self.confirm is not None:
            finite(self.confirm, option="confirm", minimum=0.0, maximum=1.0)
        PassSpec.__post_init__(self)


class Purge(Sweep[None]):
    """A declared purge: `preview()` what would go, then `launch()` it, or let a task enqueue it."""

    spec: PurgeSpec

    def launch(
        self,
        value: None = None,
        *,
        force: bool = False,
        delay: str | timedelta | None = None,
        rate: str | None = None,
        batch_rows: int | None = None,
        confirm: float | None = None,
        **rejecting: Unpack[Rejecting],
    ) -> Run:
        """Ask the gate and put one run on the queue; answer its `Run`.

        While a run of it is live, or the next one after a backlog waits, answers that one. `confirm`, `rate` and
        `batch_rows` are this run's, and those of the passes that follow it while a backlog is left.
        """
        from rowsweep.sweeps.launches.launch import launch, launch_options

        given = {
            "force": force, "delay": delay, "rate": rate, "batch_rows": batch_rows, "confirm": confirm, **rejecting,
        }  # fmt: skip
        return launch(self, value, launch_options(self, given))

    def preview(self, n: int = 10, value: None = None, *, allow_effects: bool = False) -> pl.DataFrame:  # noqa: ARG002 - as any sweep's
        """Answer, target by target, how many rows would go now and how old they are; deletes nothing.

        Beside the counts: the share of its table, the instants of the oldest and newest, the cutoff, what the rows are
        walked by, and the rows of other tables that ON DELETE CASCADE would take along. Null where a target cannot
        say. Counts are exact where the database is quick to count, as `rows_are` says.
        """
        from rowsweep.sweeps.purge.preview import preview

        return preview(self)

    def check_here(self, app: Host, tenant: str | None) -> None:
        """Check nothing yet: the targets are asked for, and checked, when the purge runs."""

    def backlog_keys(self, form: Any) -> tuple[str, str]:
        """Answer the two idempotency keys that passes after a backlog take turns with."""
        stem = f"purge:{self.name}:{digest(form)}"
        return f"{stem}:1", f"{stem}:2"

    def describe(self) -> dict[str, Any]:
        """Answer the declaration as plain JSON."""
        spec = self.spec
        return {
            **super().describe(),
            "table": "",
            "targets": getattr(spec.targets, "__qualname__", repr(spec.targets)),
            "budget": {"time": format_duration(timedelta(seconds=spec.budget.seconds)), "rows": spec.budget.rows},
            "confirm": spec.confirm,
        }

    def _checksum(self) -> str:
        parts = {"kind": self.kind, "targets": code_of(self.spec.targets)}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _run_pass(self, ctx: RunCtx, value: Any = None) -> dict[str, Any]:  # noqa: ARG002 - a purge has no input
        from rowsweep.sweeps.purge.passes import PurgePass

        return PurgePass(self, ctx).run()


@spelled
def purge(name: str, targets: Callable[[], Sequence[Any]], *, tenant: Tenant = "none", **given: Any) -> Purge:
    """Declare a purge over what `targets()` answers each time it runs: `older_than(…)`, `expired(…)`, or your own.

    A target of your own has a `name` and `purge_expired(at)` answering how many rows it removed, or is a function of
    the instant that does. All targets of a pass go by one reading of the database's clock. Rows are deleted in small
    batches, each its own transaction with its checkpoint; rows that others have locked are taken up again at the end of
    the pass, rows that a foreign key holds are reported and left.

    A pass ends when its `budget` (`Budget(time="10m", rows=5_000_000)`) is spent; while a backlog is left the next
    follows 60 s later. A purge about to remove more than 20 % of a table, or ten times what its median pass removes,
    is refused before its first delete unless `confirm` names a share at least that large. `batch_rows`, `adapt`,
    `rate`, `health`, `environments`, `requires` and the timeouts are those of a backfill, all other options a job's.

    Raises InvalidDeclaration, InvalidOption, DuplicateJob.
    """
    registry.check_name(name, kind="purge")
    own = {option: given.pop(option) for option in _SPEC_OPTIONS if option in given}
    if given.get("input") is not None:
        raise InvalidDeclaration(
            f"The purge {name!r} takes no input: what it deletes is for targets() to say.",
            fix="remove input=",
            meta={"field": "input"},
        )
    spec = PurgeSpec(targets=targets, **own)
    handle = Purge(
        name,
        spec,
        sweep_options(name, kind="purge", own=("targets", *_SPEC_OPTIONS), tenant=tenant, **given),
        origin_of(targets),
    )
    registry.register(handle)
    return handle
