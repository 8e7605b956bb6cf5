"""`backfill()`: declare a sweep; its handle previews and launches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

from rowsweep.errors import InvalidDeclaration
from rowsweep.jobs import registry
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.handle import JobOptions
from rowsweep.jobs.origin import origin_of
from rowsweep.jobs.tenancy import Tenant
from rowsweep.options import Rate
from rowsweep.spelling import spelled
from rowsweep.sweeps.executors.declared import shown_executor
from rowsweep.sweeps.executors.orders import sendable
from rowsweep.sweeps.handle import Sweep, TableSweep, sweep_options
from rowsweep.sweeps.health.signals import Health
from rowsweep.sweeps.keyset.rows import Rows
from rowsweep.sweeps.late.options import Late
from rowsweep.sweeps.spec import OnError, SweepSpec, checksum

if TYPE_CHECKING:
    import polars as pl

    from rowsweep.jobs.attempts.settled import Settled
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.batch.batch import Batch
    from rowsweep.sweeps.keyset.catalog import Column, Table
    from rowsweep.sweeps.run import Host

In = TypeVar("In")
Handler = Callable[["Batch"], Any]
SweepHook = Callable[["Settled[Any, dict[str, Any]]"], object]


class RowSweep(TableSweep[In]):
    """A sweep over the rows of one table."""

    spec: SweepSpec

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuse to be used as a decorator, or called like the function it was made of."""
        raise InvalidDeclaration(
            f"{self.name!r} is declared already: set= and a handler exclude each other, and a sweep is not called.",
            fix=f"remove set=, or the function under it; {self.name}.launch() runs it",
            meta={"field": "set"},
        )

    def preview(self, n: int = 10, value: In | None = None, *, allow_effects: bool = False) -> pl.DataFrame:
        """Run the first n matching rows through the real path and roll back; answer them before and after.

        The frame has the key, the swept columns as they were, and `<column>_after` for each that changed. It writes no
        job, step or ledger row. Raises UnsafePreview with `atomic=False`, whose handler may act elsewhere, unless
        `allow_effects=True`. What a handler raises comes as it is, with its own lines of the traceback.
        """
        from rowsweep.sweeps.preview import preview

        return preview(self, n, value, allow_effects=allow_effects)

    def read_columns(self, table: Table) -> list[Column]:
        """Answer the columns a handler sees: the key first, then those declared (all, where none are)."""
        wanted = self.spec.rows.columns or [column.name for column in table.columns]
        names = dict.fromkeys([*table.key, *wanted])
        return [table.column(name) for name in names]

    def check_here(self, app: Host, tenant: str | None) -> None:
        """Check also that the handler can go to its executor."""
        super().check_here(app, tenant)
        if self.spec.executor is not None and self.spec.handler is not None:
            sendable(self.name, self.spec.handler)

    def describe(self) -> dict[str, Any]:
        """Answer the declaration as plain JSON."""
        spec = self.spec
        return {
            **super().describe(),
            "set": None if spec.assignments is None else dict(spec.assignments),
            "handler": None if spec.handler is None else getattr(spec.handler, "__qualname__", repr(spec.handler)),
            "atomic": spec.atomic,
            "on_error": spec.on_error,
            "max_rejected": spec.most_rejected,
            "executor": shown_executor(spec.executor),
        }

    def _checksum(self) -> str:
        return checksum(self.kind, self.spec)

    @property
    def assignments(self) -> Mapping[str, str] | None:
        """What is set in the database, where that is what the sweep does."""
        return self.spec.assignments

    def _runs_handlers(self) -> bool:
        return self.spec.handler is not None

    def _run_pass(self, ctx: RunCtx, value: Any = None) -> dict[str, Any]:
        from rowsweep.sweeps.passes.backfill import BackfillPass
        from rowsweep.sweeps.shards.amount import is_sharded
        from rowsweep.sweeps.shards.passes import ShardPass

        return (ShardPass if is_sharded(self, ctx) else BackfillPass)(self, ctx, value).run()


class HandlerWanted:
    """What `backfill()` answers while it still lacks its handler: the decorator."""

    def __init__(self, name: str, declare: Callable[[Handler], Sweep[Any]]) -> None:
        self._name = name
        self._declare = declare

    def __call__(self, handler: Handler) -> Sweep[Any]:
        """Declare the sweep with this handler."""
        if not callable(handler):
            raise InvalidDeclaration(
                f"The handler of {self._name!r} must be a function of a batch; got {handler!r:.80}.",
                fix=f'@rs.backfill("{self._name}", rows=…) above a function',
                meta={"field": "handler"},
            )
        return self._declare(handler)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        raise InvalidDeclaration(
            f"backfill({self._name!r}) has neither a handler nor set=: there is nothing to {attribute} yet.",
            fix="give set={column: expression}, or use it as a decorator above a function",
            meta={"field": "set"},
        )


class BackfillOptions(TypedDict, total=False):
    """What may be said of any backfill beside its rows and its work."""

    batch_rows: int
    adapt: bool
    rate: str | Rate | None
    health: Health
    environments: Sequence[str]
    requires: Sequence[str]
    lock_timeout: str | timedelta
    statement_timeout: str | timedelta
    source: Any
    on_error: OnError
    max_rejected: int
    late: Late
    late_wait: str | timedelta | None
    shards: int | Literal["auto"]
    tenant: Tenant
    input: Any
    queue: str
    priority: int
    retry: Retry | None
    concurrency: int | None
    timeout: str | timedelta | None
    on_settled: SweepHook | None
    description: str | None


class HandlerOptions(BackfillOptions, total=False):
    """What may be said of a backfill with a handler besides."""

    atomic: bool
    executor: Executor | Callable[[], Executor] | None
    ahead: int | None


@overload
def backfill(
    name: str, handler: None = None, *, rows: Rows, set: Mapping[str, str], **given: Unpack[BackfillOptions]
) -> Sweep[Any]: ...
@overload
def backfill(
    name: str, handler: None = None, *, rows: Rows, set: None = None, **given: Unpack[HandlerOptions]
) -> Callable[[Handler], Sweep[Any]]: ...
@overload
def backfill(
    name: str, handler: Handler, *, rows: Rows, set: None = None, **given: Unpack[HandlerOptions]
) -> Sweep[Any]: ...
@spelled
def backfill(
    name: str, handler: Handler | None = None, *, rows: Any = None, set: Any = None, tenant: Any = "none", **given: Any
) -> Any:
    """Declare a backfill over the rows of a table; answers its handle, or a decorator for its handler.

    With `set` each page is updated in the database by the given SQL expressions. A handler gets a `Batch`; a frame it
    returns (the key and changed columns) is written back in bulk. Atomic (the default): page, writes and checkpoint
    are one transaction, so a batch's effect on this database happens exactly once through crashes and double runs.
    `atomic=False`: the handler runs outside any transaction, then its checkpoint is stored: a batch may be repeated,
    never skipped, and `batch.key` is its idempotency key.

    `executor` is a `concurrent.futures.Executor` where the handler runs, or a function that makes one for each pass
    (and one that makes it is ended with the pass): `ahead` pages (twice its workers) are read and computed before
    their turn, written back in key order, and computed again where a row changed meanwhile. The handler goes out by its
    module and name, or by value with cloudpickle; `batch.connection` and `batch.ctx` stay behind.

    `batch_rows` is the starting size, adapted towards 250 ms a batch between 100 and 10,000 rows (`adapt=False`:
    fixed); `rate` is in rows, such as "2000/s". `health` is one or more functions that answer None or the reason to
    wait, signals such as `rs.replica_lag_below("10s")` among them; without it those of the connection are heeded.
    `environments` and `requires` are asked before a run; see `launch`. `lock_timeout` and `statement_timeout` hold
    inside a batch.

    `on_error="stop"` fails the run at the first batch that cannot be done. `"set-aside"` tries such a batch three
    times, then does it by halves until the rows that fail by themselves are found: they are listed (`run.rejected()`,
    at most `max_rejected`), the others are done, and the sweep goes on. Each try of a part calls the handler again:
    what an atomic one wrote in a failed try is rolled back, what one with `atomic=False` did elsewhere is not.

    `shards` splits the key range into so many jobs (at most 64; "auto": one a live worker, and one for each 250,000
    rows at most), each a run of its own to `concurrency`, together one run to everybody else. One that is done takes
    over half of what another has left. Two runs over one input never work at the same time; `concurrency` caps those
    over different ones. The other options are a job's.

    Behind its last page a pass waits up to `late_wait` (None: for as long as it takes) for the transactions that have
    written to the table, then sweeps the rows they left behind it which are surely due. `late="again"` says that doing
    a row twice does no harm, so that rows which cannot be told from done ones are done; `late="report"` only counts.
    A row is its key: one that is given another key behind the sweep is another row, and due again unless the sweep uses
    its `where` up.

    Raises InvalidDeclaration, InvalidOption, DuplicateJob.
    """

    def declare(function: Handler | None) -> Sweep[Any]:
        return _declare(name, function, rows=rows, set=set, tenant=tenant, **given)

    if handler is None and set is None:
        _screen(name, None, rows=rows, set={"-": "-"}, tenant=tenant, **given)
        return HandlerWanted(name, declare)
    return declare(handler)


def _declare(name: str, handler: Handler | None, **given: Any) -> Sweep[Any]:
    spec, options = _screen(name, handler, **given)
    sweep: RowSweep[Any] = RowSweep(name, spec, options, origin_of(handler))
    registry.register(sweep)
    return sweep


def _screen(name: Any, handler: Handler | None, **given: Any) -> tuple[SweepSpec, JobOptions]:
    """Check a declaration: what the sweep's own options do not name is left to the job's."""
    registry.check_name(name, kind="backfill")
    own = {option: given.pop(option) for option in _SPEC_OPTIONS if option in given}
    rows, assignments = given.pop("rows"), given.pop("set")
    if handler is None and assignments == {"-": "-"}:
        for option in ("atomic", "executor", "ahead"):
            own.pop(option, None)
    spec = SweepSpec(rows=rows, assignments=assignments, handler=handler, **own)
    return spec, sweep_options(name, kind="backfill", own=("rows", "set", *_SPEC_OPTIONS), **given)


_SPEC_OPTIONS: Final = (
    "atomic", "batch_rows", "adapt", "rate", "health", "environments", "requires", "lock_timeout", "statement_timeout",
    "source", "on_error", "max_rejected", "executor", "ahead", "late", "late_wait", "shards",
)  # fmt: skip
