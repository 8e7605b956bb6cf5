"""Launch a sweep, or attach to the run of it that is live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from rowsweep.errors import InvalidOption, SweepNotFound, SweepNotLive, nearest
from rowsweep.jobs.request import EnqueueOptions
from rowsweep.options import count, finite, rate
from rowsweep.queue.stores.ledger import NewBackfill
from rowsweep.sweeps.launches import gate
from rowsweep.sweeps.registry import get_sweep
from rowsweep.sweeps.run import Host, Run, host, ledger_of
from rowsweep.sweeps.spec import MOST_BATCH_ROWS, OnError, check_rejecting

if TYPE_CHECKING:
    from rowsweep.jobs.request import EnqueueResult, NewJob
    from rowsweep.queue.records import Job
    from rowsweep.queue.stores.ledger import Backfill, LedgerStore
    from rowsweep.sweeps.handle import Sweep


_ALWAYS: Final = ("force", "delay", "rate", "batch_rows")
_REJECTING: Final = ("on_error", "max_rejected")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What a launch says besides the input; all but `force` and `delay` is the run's own, and travels with it."""

    force: bool = False
    delay: str | timedelta | None = None
    rate: str | None = None
    batch_rows: int | None = None
    confirm: float | None = None
    on_error: OnError | None = None
    max_rejected: int | None = None
    retry_of: UUID | None = None

    def __post_init__(self) -> None:
        check_rejecting(self.on_error or "stop", self.max_rejected)
        if self.rate is not None:
            rate(self.rate, option="rate")
        if self.confirm is not None:
            finite(self.confirm, option="confirm", minimum=0.0, maximum=1.0)
        if self.batch_rows is not None:
            count(self.batch_rows, option="batch_rows", minimum=1, maximum=MOST_BATCH_ROWS)

    def as_json(self) -> dict[str, Any]:
        """Answer what the ledger row keeps of them."""
        given = {
            "force": self.force or None,
            "rate": self.rate,
            "batch_rows": self.batch_rows,
            "confirm": self.confirm,
            "on_error": self.on_error,
            "max_rejected": self.max_rejected,
            "retry_of": None if self.retry_of is None else str(self.retry_of),
        }
        return {name: value for name, value in given.items() if value is not None}


def launch_options(sweep: Sweep[Any], given: Mapping[str, Any]) -> LaunchOptions:
    """Screen what a launch was given; refuses by name what no launch of this kind of sweep has."""
    own = {"backfill": _REJECTING, "purge": ("confirm",)}
    known = [*_ALWAYS, *own.get(sweep.sweep_kind, ())]
    unknown = next((option for option in given if option not in (*known, *_REJECTING)), None)
    if unknown is None:
        return LaunchOptions(**given)
    near = nearest(unknown, known)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    if is_declared := unknown in {field.name for field in fields(sweep.spec)}:
        hint = ": it is declared, and the same for every run"
    raise InvalidOption(
        f"A launch of {sweep.name!r} has no option {unknown!r}{hint}.",
        fix=f"{'declare it with' if is_declared else 'remove'} {unknown}=, or use one of {', '.join(known)}",
        meta={"option": unknown, "nearest": near},
    )


def launch(sweep: Sweep[Any], value: Any, options: LaunchOptions) -> Run:
    """Put one run on the queue with its ledger row, in one transaction, or attach to the live one."""
    app = host()
    driver = app.driver
    ledger = ledger_of(driver)
    _check_rejects(sweep, options)
    request = sweep.request(value, EnqueueOptions(delay=options.delay))
    live = find_live(ledger, sweep, request.input)
    if live is not None:
        return _attached(app, sweep, live)
    gate.ask(sweep.asked(request.input), ledger, force=options.force)
    sweep.check_here(app, request.tenant_id)
    parsed = sweep.options.input.parse(request.input)
    sweep.check_place(parsed, request.run_id, is_worked_here=app.works_launched)
    run = _enqueue(app, sweep, request, options)
    app.work_here()
    return run


def _check_rejects(sweep: Sweep[Any], options: LaunchOptions) -> None:
    """Refuse to let an export leave rows out, or a purge, which reports those that it could not remove anyway.

    A limit to what is set aside is refused where nothing would be.
    """
    given = {"on_error": options.on_error, "max_rejected": options.max_rejected}
    wrong = next((option for option, value in given.items() if value is not None), None)
    if wrong is not None and sweep.sweep_kind != "backfill":
        raise InvalidOption(
            f"{wrong} is an option of backfills; {sweep.name!r} is of the kind {sweep.sweep_kind!r}.",
            fix=f"launch it without {wrong}=",
            meta={"option": wrong},
        )
    on_error = options.on_error or getattr(sweep.spec, "on_error", None)
    if options.max_rejected is not None and on_error == "stop":
        raise InvalidOption(
            f"max_rejected counts rows that are set aside, and this run of {sweep.name!r} stops at the first one.",
            fix='on_error="set-aside" (--on-error set-aside), or launch it without max_rejected',
            meta={"option": "max_rejected"},
        )


def retry_rejected(row: Backfill) -> Run:
    """Launch a run over the rows that a run set aside, or attach to the one that is live.

    Raises SweepNotLive where none is set aside, UnknownJob where the sweep is not declared here.
    """
    app, sweep = host(), get_sweep(row.name)
    if not row.rejected_rows:
        raise SweepNotLive(
            f"Run {row.run_id} of {row.name!r} has no rejected rows: there is nothing to try again.",
            fix=f"rowsweep sweeps rejected {gate.retried_run(row.options) or row.run_id}",
            meta={"run_id": str(row.run_id)},
        )
    request = sweep.request(sweep.options.input.parse(row.input), EnqueueOptions())
    ledger = ledger_of(app.driver)
    if live := find_live(ledger, sweep, request.input, retries=True):
        return _attached(app, sweep, live)
    gate.ask(sweep.asked(request.input), ledger, force=True)
    sweep.check_here(app, request.tenant_id)
    run = _enqueue(app, sweep, request, LaunchOptions(retry_of=row.run_id))
    app.work_here()
    return run


def find_live(ledger: LedgerStore, sweep: Sweep[Any], form: Any, *, retries: bool = False) -> Backfill | None:
    """Answer the ledger row of the live run of this sweep with this input: over its table, or over rejected rows."""
    live = (row for row in gate.open_rows(ledger, sweep.name) if row.input == form)
    return next((row for row in live if (gate.retried_run(row.options) is not None) is retries), None)


def last_done(sweep: Sweep[Any], value: Any) -> Run:
    """Answer the newest run of this sweep with this input that is done; SweepNotFound where none is."""
    app = host()
    form = sweep.request(value, EnqueueOptions()).input
    row = gate.applied_row(ledger_of(app.driver), sweep.asked(form))
    if row is None:
        raise SweepNotFound(
            f"No run of {sweep.name!r} with this input is done here: there is nothing to verify.",
            fix=f"rowsweep ledger --name {sweep.name}; a run that is not done has verify() too: rs.attach(…).verify()",
            meta={"sweep": sweep.name},
        )
    return Run(app, row.run_id, sweep.name)


def status_here(sweep: Sweep[Any]) -> dict[str, Any]:
    """Answer how a sweep without input stands in the connected database."""
    ledger = ledger_of(host().driver)
    live = find_live(ledger, sweep, None)
    applied = gate.applied_row(ledger, sweep.asked(None))
    row = live or applied
    if live is not None:
        state = "live"
    elif applied is None:
        state = "pending"
    else:
        state = "applied" if applied.checksum == sweep.checksum else "changed"
    return {
        "state": state,
        "run_id": None if row is None else str(row.run_id),
        "checksum": sweep.checksum,
        "applied_checksum": None if applied is None else applied.checksum,
    }


def _enqueue(app: Host, sweep: Sweep[Any], request: NewJob, options: LaunchOptions) -> Run:
    key = sweep.launch_key(request.input)
    keyed = replace(request, idempotency_key=key if options.retry_of is None else f"{key}:retry")
    with app.driver.transaction() as opened:
        result: EnqueueResult = opened.stores.jobs.enqueue([keyed])[0]
        ledger = opened.stores.ledger
        if not result.deduplicated and ledger is not None:
            ledger.start(new_row(sweep, keyed, options.as_json()))
    if result.deduplicated:
        return Run(app, result.run_id, sweep.name, attached=True, note=f"{sweep.name!r} was launched a moment ago.")
    return Run(app, result.run_id, sweep.name)


def new_row(sweep: Sweep[Any], job: NewJob | Job, options: Any) -> NewBackfill:
    """Answer what a run's ledger row begins with, whoever starts it: its launch, or its pass."""
    return NewBackfill(
        run_id=job.run_id,
        name=sweep.name,
        kind=sweep.sweep_kind,
        checksum=sweep.checksum,
        environment=gate.environment(),
        app_version=host().app_version,
        input=job.input,
        options=sweep.noted(options),
        launched_by=job.enqueued_by,
    )


def _attached(app: Host, sweep: Sweep[Any], row: Backfill) -> Run:
    note = f"{sweep.name!r} is live already ({row.status}, {row.rows:,} rows): attached to run {row.run_id}."
    if row.checksum != sweep.checksum:
        note += " It was launched from another version of the declaration."
    if row.status == "paused":
        note += " It is paused: run.resume() goes on."
    run = Run(app, row.run_id, sweep.name, attached=True, note=note)
    if row.status == "running":
        app.work_here()
    return run
