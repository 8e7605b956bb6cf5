"""Show runs as OpenTelemetry spans, linked to what enqueued them."""

from __future__ import annotations

from contextvars import Token

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rowsweep.telemetry.instruments import Run, run_attributes

_HEADER = "traceparent"
_propagator = TraceContextTextMapPropagator()


class OtelTracer:
    """Begin spans; where they go is said by `provider`, else by the process's own."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("rowsweep", tracer_provider=provider)

    def start_run(self, run: Run) -> OtelRunSpan:
        """Begin a run's span, a root where the traceparent is malformed or missing, whatever is around the worker."""
        parent = _propagator.extract({_HEADER: run.traceparent or ""}, context=Context())
        span = self._tracer.start_span(
            f"job.{run.job}", context=parent, kind=SpanKind.CONSUMER, attributes=dict(run_attributes(run))
        )
        return OtelRunSpan(span, context.attach(trace.set_span_in_context(span, parent)))

    def traceparent(self) -> str | None:
        """Answer the current span's header; one without a valid id has none."""
        if not trace.get_current_span().get_span_context().is_valid:
            return None
        carrier: dict[str, str] = {}
        _propagator.inject(carrier)
        return carrier.get(_HEADER)


class OtelRunSpan:
    """One run's span, and what was current before it."""

    def __init__(self, span: Span, token: Token[Context]) -> None:
        self._span = span
        self._token = token

    def end(self, outcome: str, error: str | None) -> None:
        """End it; a failure's text is its status."""
        context.detach(self._token)
        self._span.set_attribute("rowsweep.outcome", outcome)
        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()
