"""A declared job: what an application enqueues and a worker runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from rowsweep.errors import InvalidInput
from rowsweep.jobs import ambient
from rowsweep.jobs.concurrency import Concurrency
from rowsweep.jobs.limits import EVENT_POLL
from rowsweep.jobs.request import Bulk, EnqueueOptions, NewJob, check_key
from rowsweep.jobs.tenancy import tenant_of
from rowsweep.options import format_duration
from rowsweep.telemetry.instruments import current_traceparent

if TYPE_CHECKING:
    from datetime import datetime

    from rowsweep.jobs.ambient import FreshId
    from rowsweep.jobs.attempts.retry import Retry
    from rowsweep.jobs.attempts.settled import Hook
    from rowsweep.jobs.origin import Origin
    from rowsweep.jobs.request import EnqueueResult
    from rowsweep.jobs.tenancy import Tenant
    from rowsweep.jobs.values.inputs import InputType
    from rowsweep.jobs.values.json_form import Json

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What a declaration says besides its name and body."""

    tenant: Tenant
    input: InputType
    queue: str
    priority: int
    key: str | Callable[[Any], str] | None
    retry: Retry
    concurrency: Concurrency = field(default_factory=Concurrency)
    timeout: timedelta | None = None
    step_timeout: timedelta | None = None
    event_poll: timedelta = EVENT_POLL
    on_settled: Hook | None = None
    description: str | None = None
    kind: str = "job"


@dataclass(slots=True, kw_only=True)
class _Asked:
    """What the requests of one call have in common."""

    queue: str
    priority: int
    max_attempts: int
    run_at: datetime | None
    delay_seconds: float | None
    tenant: str | None
    traceparent: str | None
    enqueued_by: str


class _Own(NamedTuple):
    """What a job's declaration and its call make of one input; no key was given: None."""

    key: str | None
    concurrency_key: str | None
    tenant: str | None


class JobHandle(Generic[In, Out]):
    """A declared job. `enqueue` it, or look at it with `describe()`."""

    def __init__(
        self, name: str, body: Callable[..., Any], options: JobOptions, *, origin: Origin, named: bool
    ) -> None:
        self.name = name
        self.named = named
        self.origin = origin
        self.body = body
        self.options = options
        self.is_async = inspect.iscoroutinefunction(body)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r}>"

    @property
    def kind(self) -> str:
        """What made it: `job`, `backfill`, …"""
        return self.options.kind

    @property
    def retry(self) -> Retry:
        """The declared retry policy."""
        return self.options.retry

    @property
    def concurrency(self) -> Concurrency:
        """The caps declared for its runs across the fleet."""
        return self.options.concurrency

    @property
    def takes_input(self) -> bool:
        """Whether the body gets an input."""
        return self.options.input.declared is not None

    @property
    def has_ledger(self) -> bool:
        """Whether its runs have a row in the ledger of sweeps."""
        return self.options.kind != "job"

    @property
    def is_followed(self) -> bool:
        """Whether anything but its row follows the ends of its runs: a hook, or a row in the ledger."""
        return self.options.on_settled is not None or self.has_ledger

    @property
    def has_shards(self) -> bool:
        """Whether a run of it may be several jobs."""
        return False

    def stamp(self, name: str) -> None:
        """Give an unnamed job the name it is registered under."""
        self.name = name
        self.named = True
        self.options.input.job = name

    def tenant_for(self, value: In) -> str | None:
        """Answer the tenant that a run over this input acts as, None for nobody's."""
        return tenant_of(self.options.tenant, value, job=self.name)

    def enqueue(self, value: In | None = None, options: EnqueueOptions | None = None, /, **given: Any) -> EnqueueResult:
        """Validate the input and put one job on the queue; answer which job stands for it.

        Takes `EnqueueOptions`, its keywords, or both: keywords win. Raises InvalidInput (nothing was inserted),
        DriverUnavailable.
        """
        chosen = EnqueueOptions.of(options, given)
        request = self.request(cast("In", value), chosen)
        return ambient.enqueuer().enqueue([request], tx=chosen.tx, outbox=chosen.outbox)[0]

    def enqueue_many(
        self, values: Sequence[In], options: EnqueueOptions | None = None, /, **given: Any
    ) -> list[EnqueueResult]:
        """Validate all inputs first, then put all jobs on the queue or none; one answer an input, in order.

        An InvalidInput says in `meta["index"]` which one it is about.
        """
        chosen = EnqueueOptions.of(options, given)
        asked = self._asked(chosen)
        common = None if self._asks_inputs(chosen, asked) else self._own(None, chosen, asked)
        forms: list[Json] = []
        owns: list[_Own] = []
        for index, value in enumerate(values):
            try:
                parsed, form = self.options.input.dump(value)
                owns.append(common or self._own(parsed, chosen, asked))
            except InvalidInput as refused:
                refused.meta["index"] = index
                raise
            forms.append(form)
        requests = Bulk(len(forms), lambda at, job, run: self._request(forms[at], owns[at], asked, job, run))
        return ambient.enqueuer().enqueue(requests, tx=chosen.tx, outbox=chosen.outbox)

    def request(self, value: In, options: EnqueueOptions) -> NewJob:
        """Answer what an enqueue of this input asks of the driver."""
        asked = self._asked(options)
        parsed, form = self.options.input.dump(value)
        return self._request(form, self._own(parsed, options, asked), asked, ambient.fresh_id(), ambient.fresh_id())

    def _asked(self, options: EnqueueOptions) -> _Asked:
        return _Asked(
            queue=options.queue or self.options.queue,
            priority=self.options.priority if options.priority is None else options.priority,
            max_attempts=self.retry.attempts,
            run_at=options.run_at,
            delay_seconds=options.delay_seconds,
            tenant=options.tenant or ambient.enclosing_tenant(),
            traceparent=current_traceparent(),
            enqueued_by=ambient.attribution(),
        )

    def _asks_inputs(self, options: EnqueueOptions, asked: _Asked) -> bool:
        """Say whether anything but the input itself may differ between the jobs of one call."""
        key = options.key if options.key is not None else self.options.key
        has_tenants = not asked.tenant and self.options.tenant != "none"
        return callable(key) or has_tenants or self.options.concurrency.keyed is not None

    def _own(self, parsed: Any, options: EnqueueOptions, asked: _Asked) -> _Own:
        return _Own(
            self._key(parsed, options),
            self.options.concurrency.key_for(parsed, job=self.name),
            asked.tenant or self.tenant_for(parsed),
        )

    def _request(self, form: Json, own: _Own, asked: _Asked, job_id: FreshId, run_id: FreshId) -> NewJob:
        """Answer the request; without a key its own id is it, which no other has and whose entries lie side by side."""
        key, concurrency_key, tenant = own
        id_text = str(job_id)
        return NewJob(  # by position: to match fifteen names takes twice as long as all the rest of it
            ambient.standard_id(job_id),
            ambient.standard_id(run_id),
            self.name,
            asked.queue,
            form,
            id_text if key is None else key,
            asked.max_attempts,
            asked.priority,
            asked.run_at,
            asked.delay_seconds,
            tenant,
            concurrency_key,
            asked.traceparent,
            asked.enqueued_by,
            id_text,
        )

    def describe(self) -> dict[str, Any]:
        """Answer the declaration as plain JSON."""
        declared = self.options.input.declared
        return {
            "kind": self.kind,
            "name": self.name,
            "description": self.options.description,
            "queue": self.options.queue,
            "priority": self.options.priority,
            "tenant": "none" if self.options.tenant == "none" else "function",
            "input": None if declared is None else getattr(declared, "__name__", str(declared)),
            "attempts": self.retry.attempts,
            "dead_letter": self.retry.dead_letter,
            "concurrency": self.options.concurrency.describe(),
            "timeout": _shown(self.options.timeout),
            "step_timeout": _shown(self.options.step_timeout),
            "event_poll": _shown(self.options.event_poll),
            "on_settled": _named(self.options.on_settled),
        }

    def _key(self, parsed: Any, options: EnqueueOptions) -> str | None:
        key = options.key if options.key is not None else self.options.key
        return None if key is None else check_key(key(parsed) if callable(key) else key, option="key")


def _named(hook: Hook | None) -> str | None:
    return None if hook is None else getattr(hook, "__qualname__", type(hook).__name__)


def _shown(length: timedelta | None) -> str | None:
    return None if length is None else format_duration(length)
