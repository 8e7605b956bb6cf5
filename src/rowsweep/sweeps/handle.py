"""A declared sweep: its handle previews and launches it, whatever its kind."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack, cast

from rowsweep.errors import InvalidDeclaration
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.concurrency import Keyed
from rowsweep.jobs.declare import job_options
from rowsweep.jobs.handle import JobHandle, JobOptions
from rowsweep.jobs.origin import Origin
from rowsweep.jobs.values.json_form import json_text
from rowsweep.options import rate as parse_rate
from rowsweep.sweeps.health.choice import INHERIT, checks_of, name_of
from rowsweep.sweeps.launches import gate
from rowsweep.sweeps.spec import PassSpec, Rejecting, TableSpec

if TYPE_CHECKING:
    from uuid import UUID

    import polars as pl

    from rowsweep.queue.stores.ledger import SweepKind
    from rowsweep.signals import RunSignal
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.batch.source import Lender
    from rowsweep.sweeps.health.signals import HealthCheck
    from rowsweep.sweeps.late.receipts.receipt import Receipt
    from rowsweep.sweeps.run import Host, Run

In = TypeVar("In")

DEFAULT_RETRY: Final = Retry(attempts=20)


class Sweep(JobHandle[In, dict[str, Any]], Generic[In]):
    """A declared sweep: `preview(n)` it, then `launch()` it."""

    def __init__(self, name: str, spec: PassSpec, options: JobOptions, origin: Origin) -> None:
        super().__init__(name, self._run_pass, options, origin=origin, named=True)
        self.spec: PassSpec = spec

    @cached_property
    def checksum(self) -> str:
        """The SHA-256 over what decides its effect; the ledger keeps that of the code that finished a run."""
        return self._checksum()

    @property
    def sweep_kind(self) -> SweepKind:
        """Its kind as the ledger has it."""
        return cast("SweepKind", self.kind)

    @property
    def crosses_tenants(self) -> bool:
        """Whether its transactions ask to see all tenants' rows: only where it declares nobody's tenant."""
        return self.options.tenant == "none" and self.kind != "export"

    @property
    def most_jobs(self) -> int:
        """How many jobs of one run a process of its own would work side by side."""
        return 1

    def launch(
        self,
        value: In | None = None,
        *,
        force: bool = False,
        delay: str | timedelta | None = None,
        rate: str | None = None,
        batch_rows: int | None = None,
        **rejecting: Unpack[Rejecting],
    ) -> Run:
        """Check the declaration against the database, ask the gate, and put one run on the queue; answer its `Run`.

        While a run of it with that input is live, answers that one. In a kernel or script a worker thread works it,
        unless `connect(work=False)`. `force` runs one that was applied already; `rate`, `batch_rows`, and a
        backfill's `on_error` and `max_rejected` are this run's; all else is declared, `shards` among it. Raises
        UnknownSource, InvalidKey, InvalidSweepSql, InvalidInput, InvalidOption, and the gate's refusals.
        """
        from rowsweep.sweeps.launches.launch import launch, launch_options

        given = {"force": force, "delay": delay, "rate": rate, "batch_rows": batch_rows, **rejecting}
        return launch(self, value, launch_options(self, given))

    @abstractmethod
    def preview(self, n: int = 10, value: In | None = None, *, allow_effects: bool = False) -> pl.DataFrame:
        """Show what a run would do, and do nothing."""

    def verify(self, value: In | None = None, *, timeout: str | timedelta = "5m") -> Receipt:
        """Answer the receipt of the last run with this input that is done, as `Run.verify`; SweepNotFound for none."""
        from rowsweep.sweeps.launches.launch import last_done

        return last_done(self, value).verify(timeout)

    @abstractmethod
    def check_here(self, app: Host, tenant: str | None) -> None:
        """Check the declaration against the database that is swept, writing nothing."""

    def check_place(self, value: In | None, run_id: UUID, *, is_worked_here: bool) -> None:
        """Refuse a launch that would write where something else lies; nothing but an export writes anywhere."""

    def noted(self, options: Any) -> Any:
        """Answer a run's options with the rate declared now, for who looks at the run without its declaration."""
        own = {name: value for name, value in (options or {}).items() if name != "declared_rate"}
        if self.spec.rate is not None:
            own["declared_rate"] = str(parse_rate(self.spec.rate, option="rate"))
        return own if own or options is not None else None

    def status_here(self) -> dict[str, Any]:
        """Answer how this sweep stands in the connected database: applied, changed, pending or live."""
        from rowsweep.sweeps.launches.launch import status_here

        return status_here(self)

    def held_on(self, app: Host, signal: RunSignal | None, tenant: str | None) -> BatchConnection:
        """Answer what holds a connection to the database that is swept: the queue's."""
        from rowsweep.sweeps.batch.connection import BatchConnection
        from rowsweep.sweeps.setup import settings_for

        settings = settings_for(self.spec, tenant, cross_tenant=self.crosses_tenants)
        return BatchConnection(app.driver, signal, settings, runs_handlers=False)

    def place_on(self, app: Host) -> Lender:
        """Answer what lends connections to the database that is swept: the queue's."""
        return cast("Lender", app.driver)

    def heeded_on(self, app: Host) -> tuple[HealthCheck, ...]:
        """Answer the signals and functions its passes heed, as declared: its own, else the connection's."""
        return app.sweep_health if self.spec.health is INHERIT else checks_of(self.spec.health)

    def asked(self, form: Any, run_id: UUID | None = None) -> gate.Asked:
        """Answer what the gate is asked for."""
        return gate.Asked(
            name=self.name,
            checksum=self.checksum,
            environments=self.spec.environments,
            requires=self.spec.requires,
            input=form,
            run_id=run_id,
            repeats=self.kind != "backfill",
        )

    def launch_key(self, form: Any) -> str:
        """Answer the idempotency key of a run over this input: one is live at a time."""
        return f"sweep:{self.name}:{digest(form)}"

    def describe(self) -> dict[str, Any]:
        """Answer the declaration as plain JSON."""
        spec = self.spec
        return {
            **super().describe(),
            "batch_rows": spec.batch_rows,
            "rate": None if spec.rate is None else str(spec.rate),
            "health": None if spec.health is INHERIT else [name_of(check) for check in checks_of(spec.health)],
            "environments": list(spec.environments),
            "requires": list(spec.requires),
            "checksum": self.checksum,
        }

    @abstractmethod
    def _checksum(self) -> str: ...

    @abstractmethod
    def _run_pass(self, ctx: RunCtx, value: Any = None) -> dict[str, Any]: ...


class TableSweep(Sweep[In], Generic[In]):
    """A declared sweep over the rows of one table, in the queue's database or in another `source`."""

    spec: TableSpec

    def check_here(self, app: Host, tenant: str | None) -> None:
        """Check table, key and SQL against the database that is swept, writing nothing."""
        from rowsweep.sweeps.setup import check_rows

        held = self.held_on(app, None, tenant)
        try:
            with held.transaction(reads=self.kind == "export"):  # its source may be a standby
                check_rows(held.connection, self.spec.rows, self.assignments)
        finally:
            held.release()

    def held_on(self, app: Host, signal: RunSignal | None, tenant: str | None) -> BatchConnection:
        """Answer what holds a connection to the database that is swept, the queue's unless `source` names another."""
        from rowsweep.sweeps.batch.connection import BatchConnection
        from rowsweep.sweeps.batch.source import IDLE_MS
        from rowsweep.sweeps.setup import settings_for

        crosses = self.crosses_tenants
        if self.spec.source is None:
            settings = settings_for(self.spec, tenant, cross_tenant=crosses)
            return BatchConnection(app.driver, signal, settings, runs_handlers=self._runs_handlers())
        settings = settings_for(self.spec, tenant, cross_tenant=crosses, idle_ms=IDLE_MS)
        return BatchConnection(self.place_on(app), signal, settings, runs_handlers=True)

    def place_on(self, app: Host) -> Lender:
        """Answer what lends connections to the database that is swept, the queue's unless `source` names another."""
        from rowsweep.sweeps.batch.source import PooledSource

        source = self.spec.source
        if source is None:
            return super().place_on(app)
        return app.source(source) if isinstance(source, str) else PooledSource(source)

    def describe(self) -> dict[str, Any]:
        """Answer the declaration as plain JSON."""
        rows = self.spec.rows
        return {
            **super().describe(),
            "table": ".".join(rows.parts),
            "key": None if rows.key_columns is None else list(rows.key_columns),
            "where": rows.where,
            "until": rows.until,
            "shards": self.spec.shards,
        }

    @property
    def has_shards(self) -> bool:
        """Whether a run of it may be several jobs."""
        return self.spec.shards != 1

    @property
    def most_jobs(self) -> int:
        """How many jobs of one run a process of its own would work side by side: as many as are declared."""
        return 1 if self.spec.shards == "auto" else self.spec.shards

    @property
    def assignments(self) -> Mapping[str, str] | None:
        """What is set in the database, where that is what the sweep does."""
        return None

    def _runs_handlers(self) -> bool:
        return False


def sweep_options(name: str, *, kind: str, own: Sequence[str], **given: Any) -> JobOptions:
    """Check a sweep's options as a job: patient, and over one input one run at a time; `own` are its kind's others."""
    given.setdefault("retry", DEFAULT_RETRY)
    options = job_options(name, kind=kind, beside=own, **given)
    if options.concurrency.keyed is not None:
        raise InvalidDeclaration(
            f"concurrency of {name!r} can only be a count: two runs of it over one input exclude each other as it is.",
            fix="concurrency=2, or none",
            meta={"field": "concurrency"},
        )
    one_at_a_time = Keyed(lambda value: digest(options.input.dump(value)[1]))
    return replace(options, concurrency=replace(options.concurrency, keyed=one_at_a_time))


def digest(form: Any) -> str:
    """Answer the short hash of an input's JSON form, by which runs over it are told from others."""
    return hashlib.sha256(json_text(form).encode()).hexdigest()[:16]
