"""One attempt at a delivery: asked, signed, sent, recorded, and what its failure means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import (
    DeliveryFailed,
    DeliveryThrottled,
    Draining,
    EndpointDisabled,
    Interrupted,
    InvalidOption,
    WebhookError,
)
from rowsweep.jobs.request import check_text
from rowsweep.jobs.values.json_form import json_form, json_text
from rowsweep.webhook.endpoint import Delivery, Endpoint
from rowsweep.webhook.retry_after import retry_after_seconds
from rowsweep.webhook.signing import SignatureFormat, sign_webhook

if TYPE_CHECKING:
    from uuid import UUID

    from rowsweep.clock import Clock
    from rowsweep.jobs.ctx import Ctx
    from rowsweep.webhook.addresses import Allow
    from rowsweep.webhook.endpoint import Outcome
    from rowsweep.webhook.ledger import WebhookLedger

_GONE: Final = 410
_MAY_THROTTLE: Final = (429, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySpec:
    """What a webhook's declaration says."""

    name: str
    endpoint: Callable[[Any], Endpoint]
    event: str | Callable[[Any], str]
    data: Callable[[Any], Any]
    ledger: WebhookLedger
    signature: SignatureFormat
    disable_after: int | None
    connect_seconds: float
    allow: Allow | None
    clock: Clock


class Deliverer:
    """The body of a webhook's job."""

    def __init__(self, spec: DeliverySpec) -> None:
        self._spec = spec

    def __call__(self, ctx: Ctx, value: Any = None) -> int:
        """Deliver once; answer the status. Raises what the attempt came to, recorded before."""
        spec = self._spec
        endpoint = self._endpoint(value)
        event = check_text(spec.event(value), option="event") if callable(spec.event) else spec.event
        body = _body(ctx.job_id, event, spec.data(value))
        attempt = _Attempt(spec, endpoint, event, ctx, spec.clock.now(), spec.clock.monotonic())
        signed = sign_webhook(
            body, id=str(ctx.job_id), at=attempt.at, secrets=endpoint.secrets, signature=spec.signature
        )
        _stop_if_told(ctx)
        return attempt.judge(*_sent(spec, endpoint, body, signed, ctx))

    def _endpoint(self, value: Any) -> Endpoint:
        endpoint = self._spec.endpoint(value)
        if not isinstance(endpoint, Endpoint):
            raise InvalidOption(
                f"endpoint of the webhook {self._spec.name!r} must answer an Endpoint; "
                f"it answered a {type(endpoint).__name__}.",
                fix='endpoint=lambda order: Endpoint(id="shop-7", url="https://…", secrets=["whsec_…"])',
                meta={"option": "endpoint"},
            )
        if endpoint.disabled or self._spec.ledger.is_disabled(endpoint.id):
            raise _disabled(endpoint.id, "is switched off, so nothing was sent")
        return endpoint


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt, from when it began."""

    spec: DeliverySpec
    endpoint: Endpoint
    event: str
    ctx: Ctx
    at: datetime
    began: float

    def judge(self, status: int | None, headers: Mapping[str, str], why: str) -> int:
        """Record what came of it; answer the status of a success, raise what else it is."""
        if status is not None and 200 <= status < 300:
            self._record(status, "delivered", None)
            return status
        pause = retry_after_seconds(headers, self.spec.clock.now()) if status in _MAY_THROTTLE else None
        if pause is not None:
            self._record(status, "throttled", why)
            raise DeliveryThrottled(
                f"the endpoint {self.endpoint.id!r} asked for a pause: {why}.",
                fix="nothing: the delivery goes out again after that pause, at most retry.max_delay",
                meta={"endpoint_id": self.endpoint.id, "status": status},
                retry_after_seconds=pause,
            )
        self._record(status, "failed", why)
        raise self._failure(status, why)

    def _failure(self, status: int | None, why: str) -> WebhookError:
        """Switch the endpoint off where it is time to; answer what the attempt came to."""
        spec, endpoint = self.spec, self.endpoint.id
        if status == _GONE:
            spec.ledger.disable(endpoint, "it answered 410: gone for good")
            return _disabled(endpoint, "answered 410: it is gone for good, and is switched off")
        failures = spec.ledger.consecutive_failures(endpoint) if spec.disable_after is not None else 0
        if spec.disable_after is not None and failures >= spec.disable_after:
            spec.ledger.disable(endpoint, f"{failures} failures in a row; the last: {why}")
        return DeliveryFailed(
            f"the endpoint {endpoint!r} did not take the delivery: {why}.",
            fix=f"look at what the endpoint {endpoint!r} says of {status or 'its connections'}; "
            "rowsweep jobs show <id> has the next attempt",
            meta={"endpoint_id": endpoint, "status": status},
        )

    def _record(self, status: int | None, outcome: Outcome, error: str | None) -> None:
        self.spec.ledger.record(
            Delivery(
                endpoint_id=self.endpoint.id,
                job_id=self.ctx.job_id,
                event=self.event,
                attempt=self.ctx.attempt,
                at=self.at,
                duration_ms=round((self.spec.clock.monotonic() - self.began) * 1000),
                status=status,
                outcome=outcome,
                error=error,
            )
        )


def _sent(
    spec: DeliverySpec, endpoint: Endpoint, body: bytes, signed: dict[str, str], ctx: Ctx
) -> tuple[int | None, dict[str, str], str]:
    """Send the request; answer status, headers and what there is to say of it. What an abort cut raises its reason."""
    from rowsweep.webhook.sending import NoAnswer, post

    headers = {"content-type": "application/json", "user-agent": f"rowsweep/{version('rowsweep')}", **signed}

    @contextmanager
    def opened(line: Any) -> Iterator[None]:
        def cut() -> None:
            if not _is_drain(ctx):
                line.cut()

        remove = ctx.signal.on_abort(cut)
        try:
            yield
        finally:
            remove()

    try:
        answer = post(
            endpoint.url, body, headers, connect_seconds=spec.connect_seconds, allow=spec.allow, opened=opened
        )
    except NoAnswer as none:
        if ctx.signal.aborted and not _is_drain(ctx):
            ctx.signal.raise_if_aborted()
        return None, {}, str(none)
    return answer.status, dict(answer.headers), f"it answered {answer.status}"


def _stop_if_told(ctx: Ctx) -> None:
    """Open no socket any more for a run that was aborted, or a process that drains."""
    ctx.signal.raise_if_aborted()
    if ctx.signal.draining:
        raise Interrupted(
            Draining("the process drains; the delivery was not begun.", fix='rs.configure_lifecycle(deadline="25s")')
        )


def _is_drain(ctx: Ctx) -> bool:
    return isinstance(ctx.signal.reason, Draining)


def _body(job_id: UUID, event: str, data: Any) -> bytes:
    """Answer the compact JSON; its instant is the one in the job's UUIDv7 (RFC 9562), the same in every attempt."""
    at = datetime.fromtimestamp((job_id.int >> 80) / 1000, UTC)
    document = {
        "id": str(job_id),
        "event": event,
        "at": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z",
        "data": json_form(data),
    }
    return json_text(document).encode()


def _disabled(endpoint: str, what: str) -> EndpointDisabled:
    return EndpointDisabled(
        f"the endpoint {endpoint!r} {what}.",
        fix=f"switch {endpoint!r} on again in the webhook ledger, then rowsweep jobs requeue <id>",
        meta={"endpoint_id": endpoint},
    )
