"""`job()`: declare a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, TypedDict, TypeVar, Unpack, overload

from rowsweep.errors import InvalidDeclaration
from rowsweep.jobs import registry
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.attempts.settled import Hook, Settled, check_hook
from rowsweep.jobs.concurrency import Keyed, declared_concurrency
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.handle import JobHandle, JobOptions
from rowsweep.jobs.limits import EVENT_POLL, Length, check_length
from rowsweep.jobs.origin import origin_of
from rowsweep.jobs.request import check_key, check_queue
from rowsweep.jobs.tenancy import Tenant, check_tenant
from rowsweep.jobs.values.inputs import InputType
from rowsweep.options import count

In = TypeVar("In")
Out = TypeVar("Out")
Key = str | Callable[[Any], str]
_KNOWN: Final = (
    "tenant", "input", "queue", "priority", "key", "retry", "concurrency", "timeout", "step_timeout", "event_poll",
    "on_settled", "description",
)  # fmt: skip
Declared = int | Keyed | tuple[int, Keyed] | tuple[Keyed, int] | None


class Declaring(TypedDict, total=False):
    """The options of a job that say nothing of its types."""

    queue: str
    priority: int
    key: Key | None
    retry: Retry | None
    concurrency: Declared
    timeout: Length | None
    step_timeout: Length | None
    event_poll: Length
    description: str | None


@overload
def job(
    name: str | None = None, *, tenant: Tenant, input: type[In], **given: Unpack[Declaring]
) -> Callable[[Callable[[Ctx, In], Out]], JobHandle[In, Out]]: ...
@overload
def job(
    name: str | None = None,
    *,
    tenant: Tenant,
    input: type[In],
    on_settled: Callable[[Settled[In, Out]], object],
    **given: Unpack[Declaring],
) -> Callable[[Callable[[Ctx, In], Out]], JobHandle[In, Out]]: ...
@overload
def job(
    name: str | None = None, *, tenant: Tenant, **given: Unpack[Declaring]
) -> Callable[[Callable[[Ctx], Out]], JobHandle[None, Out]]: ...
@overload
def job(
    name: str | None = None,
    *,
    tenant: Tenant,
    on_settled: Callable[[Settled[None, Out]], object],
    **given: Unpack[Declaring],
) -> Callable[[Callable[[Ctx], Out]], JobHandle[None, Out]]: ...
@overload
def job(
    name: str | None,
    body: Callable[..., Out],
    *,
    tenant: Tenant,
    input: Any = None,
    on_settled: Callable[[Settled[Any, Out]], object] | None = None,
    **given: Unpack[Declaring],
) -> JobHandle[Any, Out]: ...
def job(
    name: str | None = None,
    body: Callable[..., Any] | None = None,
    *,
    tenant: Any = None,
    input: Any = None,
    **given: Any,
) -> Any:
    """Declare a job: a decorator, or a call with the body; answers its handle.

    The body is `body(ctx, input)`, or `body(ctx)` for a job without input. `tenant` is required: a function of the
    input, or `"none"`. `input` is any type a pydantic TypeAdapter takes; it is validated at enqueue and again at the
    run. A crash re-delivers the job once its lease lapses: its body must be idempotent, or keep its effects in
    `ctx.step.run` and `ctx.transaction()`. `concurrency` caps its runs across the fleet: a count, a `Keyed`, or a
    tuple of one each; a job over its cap waits, uncounted. `timeout` is the longest one execution may take, and
    `step_timeout` one step of it: past it the run's signal is aborted and the attempt fails; a body that goes on even
    then is left behind, unable to write. `event_poll` is how often parked waits are looked at that no publication
    woke. `on_settled` is called with a `Settled` once the job has ended for good (completed, dead-lettered, dropped,
    refused; never for a retry, a suspension or a cancel) and that is stored: tried up to three times, and lost where
    the process dies in between, so work that must not be lost is enqueued in the body. Declaring the name again from
    the same place replaces the declaration.

    Raises InvalidDeclaration, TenantRequired, DuplicateJob.
    """

    if callable(name):
        raise InvalidDeclaration(
            "job() takes the job's name first; it was given a function.",
            fix='@rs.job(tenant="none") above the function',
            meta={"field": "name"},
        )

    def declare(function: Callable[..., Any]) -> JobHandle[Any, Any]:
        if not callable(function):
            raise InvalidDeclaration(
                f"The body of {name or '(unnamed)'!r} must be callable; got {function!r:.80}.",
                fix="@rs.job(…) above a function, or job(name, function, …)",
                meta={"field": "body"},
            )
        check_body(name, function)
        return declare_job(name, function, tenant=tenant, input=input, **given)

    return declare if body is None else declare(body)


def check_body(name: str | None, body: Callable[..., Any]) -> None:
    """Refuse a generator function: calling it runs nothing of it."""
    for called in (body, getattr(body, "__call__", None)):  # noqa: B004 - callable() does not tell
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise InvalidDeclaration(
                f"The body of {name or '(unnamed)'!r} is a generator function: calling it would run nothing of it.",
                fix="return a value instead of yielding",
                meta={"field": "body"},
            )


def declare_job(
    name: str | None, body: Callable[..., Any], *, tenant: Any, input: Any, **given: Any
) -> JobHandle[Any, Any]:
    """Make a plain job's handle and register it under where its function stands."""
    chosen, named = _name_of(name, body)
    options = job_options(chosen, tenant=tenant, input=input, **given)
    handle: JobHandle[Any, Any] = JobHandle(chosen, body, options, origin=origin_of(body), named=named)
    registry.register(handle)
    return handle


def job_options(  # noqa: PLR0913 - one parameter an option of a declaration
    name: str | None,
    *,
    tenant: Any,
    input: Any = None,
    queue: str = "default",
    priority: int = 0,
    key: Key | None = None,
    retry: Retry | None = None,
    concurrency: Declared = None,
    timeout: Length | None = None,
    step_timeout: Length | None = None,
    event_poll: Length = EVENT_POLL,
    on_settled: Hook | None = None,
    description: str | None = None,
    kind: str = "job",
    beside: Sequence[str] = (),
    **unknown: Any,
) -> JobOptions:
    """Check what a declaration says; the one place where every factory's options are screened."""
    if unknown:
        from rowsweep.errors import nearest

        first = next(iter(unknown))
        known = [*beside, *_KNOWN]
        raise InvalidDeclaration(
            f"{kind} {name or '(unnamed)'!r} has no option {first!r}; nearest: "
            f"{', '.join(nearest(first, known)) or 'none'}.",
            fix=f"remove {first}=, or use one of {', '.join(known)}",
            meta={"field": first},
        )
    if name is not None:
        registry.check_name(name, kind=kind)
    if key is not None and not callable(key):
        check_key(key, option="key")
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidDeclaration(
            f"retry of {name or '(unnamed)'!r} must be a Retry; got {retry!r:.80}.",
            fix="retry=rs.Retry(attempts=5)",
            meta={"field": "retry"},
        )
    declared = InputType(input, job=name or "(unnamed)")
    declared.check()
    return JobOptions(
        tenant=check_tenant(tenant, job=name),
        input=declared,
        queue=check_queue(queue),
        priority=count(priority, option="priority", minimum=-1000, maximum=1000),
        key=key,
        retry=retry or Retry(),
        concurrency=declared_concurrency(concurrency),
        timeout=check_length(timeout, option="timeout"),
        step_timeout=check_length(step_timeout, option="step_timeout"),
        event_poll=check_length(event_poll, option="event_poll") or EVENT_POLL,
        on_settled=check_hook(on_settled, job=name),
        description=description,
        kind=kind,
    )


def _name_of(name: str | None, body: Callable[..., Any]) -> tuple[str, bool]:
    if name is not None:
        return name, True
    own = getattr(body, "__name__", "<lambda>")
    if own == "<lambda>":
        return registry.anonymous_name(), False
    return registry.check_name(own), False
