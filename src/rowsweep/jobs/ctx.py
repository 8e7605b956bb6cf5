"""What a body is handed: the run's identity, its signal, its steps and its fenced transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from datetime import datetime, timedelta
    from uuid import UUID

    from rowsweep.jobs.values.json_form import Json
    from rowsweep.queue.stores.events import Event
    from rowsweep.signals import RunSignal

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Whom a run acts as: a tenant, or nobody's (`None`), and no other authority."""

    tenant: str | None = None


class Checkpoint(Protocol):
    """A durable step whose stored value moves in place: one row updated, however often."""

    def get(self) -> Json:
        """Answer the last stored value, None where there is none yet."""

    def put(self, value: object, *, tx: Any = None) -> None:
        """Store the value under the run's claim; with `tx` it commits with that transaction's work or not at all.

        Raises LeaseLost where another worker holds the job now, InvalidStepOutput for a value without a JSON form.
        """


class Steps(Protocol):
    """Durable steps of a run, memoised by name."""

    @overload
    def run(self, name: str, body: Callable[..., Any], *, tx: Any = None) -> Json: ...
    @overload
    def run(self, name: str, body: Callable[..., Any], *, returns: type[T], tx: Any = None) -> T: ...

    def checkpoint(self, name: str) -> Checkpoint:
        """Answer the checkpoint of this name."""

    def sleep(self, name: str, duration: str | timedelta) -> None:
        """Go on after the duration, measured on the database's clock from when this step was first reached.

        Until then the run is parked: it holds no thread, no connection and no attempt, and survives every restart.
        What the body did before is replayed from its steps, so keep effects in `run`.
        """

    def wait_for_event(
        self,
        name: str,
        event: str,
        key: str | None = None,
        timeout: str | timedelta | None = "24h",
        since: datetime | None = None,
    ) -> Event | None:
        """Answer the earliest event of this name and key that is published after this step was first reached.

        Parked until then; None once the timeout has passed; `timeout=None` waits without end. A publication whose
        transaction was open when the step was reached counts, and so do events since an aware instant given as
        `since`. `key=None` means events without a key. Events are not used up: every wait for one gets it. The answer
        is stored and replayed.
        """


class Ctx(Protocol):
    """The context of one execution; its calls are synchronous, one round trip each."""

    @property
    def job(self) -> str:
        """The job's name."""

    @property
    def job_id(self) -> UUID:
        """The job's id."""

    @property
    def run_id(self) -> UUID:
        """The run's id: steps are kept under it."""

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""

    @property
    def max_attempts(self) -> int:
        """How many there can be."""

    @property
    def actor(self) -> Actor:
        """Whom the run acts as, from the declaration's `tenant` alone."""

    @property
    def services(self) -> Any:
        """What `connect(context=…)` supplies."""

    @property
    def signal(self) -> RunSignal:
        """Aborted when the run must stop; read it in long loops."""

    @property
    def step(self) -> Steps:
        """The run's durable steps."""

    def progress(self, current: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the run is, for whoever looks at the job: numbers of at least 0, a message of 500 characters.

        The last value wins. It is stored in the background, at most once a second and with the run's end, under the
        run's claim; the next attempt finds it on the row. Call it as often as you like. Raises what stops the run
        (`Interrupted` once it is aborted), and InvalidOption for what is no number.
        """

    def transaction(self) -> AbstractContextManager[Any]:
        """Open a transaction of the queue's database that ends with the run's fence.

        Its writes commit only while this run holds its claim: exactly once, through crashes and double runs.
        Enqueues inside join it.
        """

    def guard(self, connection: Any) -> None:
        """Lock and check this run's claim inside an open transaction of the application's own on the queue's database.

        Raises LeaseLost where the claim is gone. Nobody can claim, renew, settle or cancel the job until that
        transaction ends: call it last. Unless it is bounded already, the server ends it where it idles from then on
        for 5 s longer than the lease lasts.
        """
