"""The context that a body is handed: who runs, under which claim, and its fenced transactions."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from rowsweep.errors import Interrupted, InvalidOption, LeaseLost, Suspend
from rowsweep.jobs import ambient
from rowsweep.jobs.ctx import Actor
from rowsweep.steps.cancel import cancel_on_abort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from rowsweep.queue.contract import Driver
    from rowsweep.queue.records import Claim, Job
    from rowsweep.queue.stores.ledger import Asked
    from rowsweep.queue.stores.steps import StepStore
    from rowsweep.signals import RunSignal
    from rowsweep.steps.progress import Progress
    from rowsweep.steps.runner import StepRunner


class Running(Protocol):
    """What a context asks of the run it belongs to."""

    job: Job
    claim: Claim
    signal: RunSignal
    services: Any
    asked: Asked | None

    def steps(self, new_runner: Callable[[Any], StepRunner]) -> StepRunner:
        """Answer what runs its steps, made so when it is first asked for."""

    def reporter(self) -> Progress | None:
        """Answer what its progress is reported to."""


@dataclass(slots=True, kw_only=True)
class RunCtx:
    """One execution's context; built afresh for each, so not frozen, which would take three times as long."""

    driver: Driver
    actor: Actor
    run: Running
    new_runner: Callable[[Any], StepRunner]

    @property
    def record(self) -> Job:
        """The job's row, as it was claimed."""
        return self.run.job

    @property
    def runner(self) -> StepRunner:
        """What runs the run's steps, made when it is first asked for."""
        return self.run.steps(self.new_runner)

    @property
    def signal(self) -> RunSignal:
        """Aborted when the run must stop."""
        return self.run.signal

    @property
    def services(self) -> Any:
        """What `connect(context=…)` supplies."""
        return self.run.services

    @property
    def claim(self) -> Claim:
        """The claim this execution is fenced by."""
        return self.run.claim

    @property
    def job(self) -> str:
        """The job's name."""
        return self.record.name

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self.record.id

    @property
    def run_id(self) -> UUID:
        """The run's id."""
        return self.record.run_id

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.record.attempt

    @property
    def max_attempts(self) -> int:
        """How many there can be."""
        return self.record.max_attempts

    @property
    def step(self) -> StepRunner:
        """The run's durable steps."""
        return self.runner

    def asked(self) -> Asked | None:
        """Answer what the ledger last said is asked of this run; None before that, and without a ledger."""
        return self.run.asked

    def progress(self, current: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the run is; the last value wins, and is stored at most once a second and at the end."""
        self.runner.check_open()
        reporter = self.run.reporter()
        if reporter is not None:
            reporter.report(current, total, message)

    def suspend(self, reason: str, delay_seconds: float) -> NoReturn:
        """Leave the body, uncounted, to be replayed after the delay; the reason `pause` also pauses the ledger row."""
        self.runner.suspend(Suspend(delay_seconds=delay_seconds, reason=reason))

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Open a transaction that carries the tenant and ends with the run's fence.

        Raises LeaseLost where the claim is gone and Interrupted where the run was aborted; nothing is committed then.
        """
        self.runner.check_open()
        settings = {"rowsweep.tenant": self.actor.tenant or ""}
        with self.driver.transaction(settings=settings) as opened:
            connection = opened if opened.connection is None else opened.connection
            with cancel_on_abort(self.signal, connection) as cancel:
                with ambient.inside_transaction(connection):
                    yield connection
                self._fence(opened.stores.steps)
            if cancel.fired:
                raise Interrupted(self.signal.reason)

    def guard(self, connection: Any) -> None:
        """Lock and check the claim inside the transaction open on this connection; LeaseLost where it is gone.

        A connection of another database is InvalidOption: what commits there waits for no claim here.
        """
        is_home = getattr(self.driver, "is_home", None)
        if is_home is not None and not is_home(connection):
            raise InvalidOption(
                f"the connection leads to another database than the queue's ({self.driver.place}).",
                fix="with ctx.transaction() as tx:, or a connection of the queue's database",
                meta={"option": "connection"},
            )
        self._fence(self.driver.join(connection).steps)

    def _fence(self, steps: StepStore) -> None:
        if not steps.guard(self.claim):
            self.runner.lost = LeaseLost(
                f"The claim of job {self.job_id} ({self.job}) is no longer this worker's; its transaction rolls back.",
                fix=f"rowsweep jobs show {self.job_id}",
                meta={"job_id": str(self.job_id), "claim": self.claim.claim},
            )
            raise self.runner.lost
