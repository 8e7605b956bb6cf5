"""`webhook()`: declare the delivery of one event to one endpoint; a factory over `job()`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, cast

from rowsweep.clock import SystemClock
from rowsweep.errors import InvalidDeclaration
from rowsweep.jobs import registry
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.declare import job_options
from rowsweep.jobs.handle import JobHandle
from rowsweep.jobs.origin import origin_of
from rowsweep.jobs.request import check_text
from rowsweep.jobs.tenancy import Tenant
from rowsweep.options import count, duration, one_of
from rowsweep.spelling import spelled
from rowsweep.webhook.delivery import Deliverer, DeliverySpec
from rowsweep.webhook.signing import FORMATS, SignatureFormat

if TYPE_CHECKING:
    from rowsweep.clock import Clock
    from rowsweep.webhook.addresses import Allow
    from rowsweep.webhook.endpoint import Endpoint
    from rowsweep.webhook.ledger import WebhookLedger

RETRY: Final = Retry(attempts=10, max_delay="1h")
INSTALL: Final = 'pip install "rowsweep[webhook]"'
CONNECT_TIMEOUT: Final = "10s"
DISABLE_AFTER: Final = 20


@spelled
def webhook(  # noqa: PLR0913 - one parameter an option
    name: str,
    *,
    tenant: Tenant,
    endpoint: Callable[[Any], Endpoint],
    event: str | Callable[[Any], str],
    ledger: WebhookLedger,
    input: Any = None,
    data: Callable[[Any], Any] | None = None,
    signature: SignatureFormat = "rowsweep",
    disable_after: int | None = DISABLE_AFTER,
    connect_timeout: str | timedelta = CONNECT_TIMEOUT,
    allow: Allow | None = None,
    retry: Retry = RETRY,
    clock: Clock | None = None,
    **options: Any,
) -> JobHandle[Any, int]:
    """Declare a webhook: each job of it delivers one event to one endpoint, by a signed POST.

    `endpoint` is asked at each attempt, so that a changed URL or secret counts at once. The body is
    `{id, event, at, data}`, the same in every attempt: `data` is the input, or what `data=` makes of it, and `id` the
    job's id, by which the receiver tells a repeat. 2xx is success; 410 and `disable_after` failures in a row (None:
    never) switch the endpoint off in the `ledger`. `allow` says which addresses may be connected to: give
    `public_addresses` where customers name the URLs. There is no timeout unless `timeout=` is given, as it should be,
    below the drain budget. Takes the other options of `job()`.

    Raises InvalidDeclaration, TenantRequired, DuplicateJob.
    """
    if find_spec("httpx") is None:
        raise InvalidDeclaration("webhook() needs httpx, which is not installed.", fix=INSTALL)
    for option, value in (("endpoint", endpoint), ("data", data), ("allow", allow)):
        if not callable(value) and (option == "endpoint" or value is not None):
            raise _refused(name, option, "a function", value)
    if not callable(event):
        check_text(event, option="event")
    chosen = job_options(name, tenant=tenant, input=input, retry=retry, **options)
    spec = DeliverySpec(
        name=name,
        endpoint=endpoint,
        event=event,
        data=data or (lambda value: chosen.input.dump(value)[1]),
        ledger=ledger,
        signature=cast("SignatureFormat", one_of(signature, FORMATS, option="signature")),
        disable_after=None if disable_after is None else count(disable_after, option="disable_after", minimum=1),
        connect_seconds=_positive(connect_timeout),
        allow=allow,
        clock=clock or SystemClock(),
    )
    handle: JobHandle[Any, int] = JobHandle(name, Deliverer(spec), chosen, origin=origin_of(endpoint), named=True)
    registry.register(handle)
    return handle


def _positive(length: str | timedelta) -> float:
    seconds = duration(length, option="connect_timeout").total_seconds()
    if seconds <= 0:
        raise InvalidDeclaration(
            "connect_timeout must be longer than nothing.",
            fix='connect_timeout="10s"',
            meta={"field": "connect_timeout"},
        )
    return seconds


def _refused(name: str, option: str, expected: str, got: object) -> InvalidDeclaration:
    return InvalidDeclaration(
        f"{option} of the webhook {name!r} must be {expected}; got a {type(got).__name__}.",
        fix=f"{option}=lambda order: …",
        meta={"field": option},
    )
