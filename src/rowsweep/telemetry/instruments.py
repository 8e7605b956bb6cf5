"""Metrics and spans out, through whichever back end is installed; whatever that does, no caller notices."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

from rowsweep.telemetry.events import emit

T = TypeVar("T")
_LIBRARY = "opentelemetry"
_OTEL = "rowsweep.telemetry.otel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """What waits in one queue, as it was sampled; `is_capped` says that counting stopped and there is more."""

    queue: str
    ready: int
    dead: int
    oldest_ready_seconds: float
    is_capped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run as its span shows it; `traceparent` is the row's, of whatever form."""

    job: str
    queue: str
    job_id: str
    run_id: str
    attempt: int
    traceparent: str | None


class Meter(Protocol):
    """Where figures go."""

    def record_job(self, queue: str, label: str, *, job: str, seconds: float | None) -> None:
        """Count a finished run, and its length where it ran."""

    def record_lease_lost(self, queue: str) -> None:
        """Count a lease lost under a run."""

    def record_batch(self, sweep: str, *, rows: int, seconds: float) -> None:
        """Count a batch's rows, and its length."""

    def record_rejected(self, sweep: str, *, rows: int) -> None:
        """Count rows that a sweep set aside."""

    def record_depths(self, depths: Sequence[Depth]) -> None:
        """Set the gauges of every queue; one that is no longer named is empty."""


class RunSpan(Protocol):
    """The span of a run, current on its thread until it is ended there."""

    def end(self, outcome: str, error: str | None) -> None:
        """End it with the run's outcome, and the failure's text where it failed."""


class Tracer(Protocol):
    """Where spans go."""

    def start_run(self, run: Run) -> RunSpan:
        """Begin a span `job.<name>`, a child of the run's traceparent, else a root."""

    def traceparent(self) -> str | None:
        """Answer the current span as a `traceparent` header has it, None where it has no valid id."""


@dataclass(slots=True)
class _Instruments:
    """The back ends of this process: not asked for yet, or found, or found missing."""

    is_asked: bool = False
    meter: Meter | None = None
    tracer: Tracer | None = None
    reported: set[str] = field(default_factory=set)


_here = _Instruments()


def use_instruments(meter: Meter | None, tracer: Tracer | None) -> None:
    """Send figures and spans to these, instead of OpenTelemetry where that is installed; None keeps none."""
    global _here
    _here = _Instruments(is_asked=True, meter=meter, tracer=tracer)


def reset_instruments() -> None:
    """Look for OpenTelemetry anew at the next use; for tests."""
    global _here
    _here = _Instruments()


def is_metered() -> bool:
    """Say whether figures go anywhere, so that sampling them is worth a statement."""
    return _found().meter is not None


def is_traced() -> bool:
    """Say whether spans go anywhere, so that a run is worth describing."""
    return _found().tracer is not None


def record_job(queue: str, label: str | None, *, job: str, seconds: float | None = None) -> None:
    """Count a finished run under its label; a suspension has none and is not recorded."""
    meter = _found().meter
    if meter is not None and label is not None:
        _guarded("record_job", lambda: meter.record_job(queue, label, job=job, seconds=seconds))


def record_lease_lost(queue: str) -> None:
    """Count that the queue redelivered a job this process was still running."""
    meter = _found().meter
    if meter is not None:
        _guarded("record_lease_lost", lambda: meter.record_lease_lost(queue))


def record_batch(sweep: str, *, rows: int, seconds: float) -> None:
    """Count a committed batch."""
    meter = _found().meter
    if meter is not None:
        _guarded("record_batch", lambda: meter.record_batch(sweep, rows=rows, seconds=seconds))


def record_rejected(sweep: str, *, rows: int) -> None:
    """Count rows that a sweep set aside."""
    meter = _found().meter
    if meter is not None:
        _guarded("record_rejected", lambda: meter.record_rejected(sweep, rows=rows))


def record_depths(depths: Sequence[Depth]) -> None:
    """Set the gauges of every queue as it was just sampled."""
    meter = _found().meter
    if meter is not None:
        _guarded("record_depths", lambda: meter.record_depths(depths))


def start_run(run: Run) -> RunSpan:
    """Begin a run's span and make it current on this thread, which must also end it."""
    tracer = _found().tracer
    span = None if tracer is None else _guarded("start_run", lambda: tracer.start_run(run))
    return _GuardedSpan(span)


def current_traceparent() -> str | None:
    """Answer what a job enqueued here is to be a child of: the current span, None where there is none.

    Where nobody has imported OpenTelemetry there is no span, and it is not imported for the question.
    """
    if not _here.is_asked and _LIBRARY not in sys.modules:
        return None
    tracer = _found().tracer
    return None if tracer is None else _guarded("traceparent", tracer.traceparent)


class _GuardedSpan:
    """A span whose back end may fail as it likes."""

    def __init__(self, span: RunSpan | None) -> None:
        self._span = span

    def end(self, outcome: str, error: str | None) -> None:
        """End it, if it began."""
        span = self._span
        if span is not None:
            _guarded("end", lambda: span.end(outcome, error))


def _found() -> _Instruments:
    if not _here.is_asked:
        _here.is_asked = True
        _here.meter = _loaded("metrics", "OtelMeter")
        _here.tracer = _loaded("spans", "OtelTracer")
    return _here


def _loaded(module: str, name: str) -> Any:
    """Answer the back end, None where OpenTelemetry is not installed or does not start."""
    try:
        return cast("Callable[[], Any]", getattr(import_module(f"{_OTEL}.{module}"), name))()
    except ImportError:
        return None
    except Exception as error:  # noqa: BLE001 - a broken installation must not keep jobs from running
        _report(module, error)
        return None


def _guarded(instrument: str, call: Callable[[], T]) -> T | None:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - an exporter's failure is reported once, and is nobody else's
        _report(instrument, error)
        return None


def _report(instrument: str, error: Exception) -> None:
    if instrument not in _here.reported:
        _here.reported.add(instrument)
        emit("telemetry.failed", instrument=instrument, error=error)


def run_attributes(run: Run) -> Mapping[str, str | int]:
    """Answer what a span says of its run: names and ids, no input."""
    return {
        "messaging.system": "rowsweep",
        "messaging.operation.type": "process",
        "messaging.destination.name": run.queue,
        "messaging.message.id": run.job_id,
        "rowsweep.job": run.job,
        "rowsweep.run_id": run.run_id,
        "rowsweep.attempt": run.attempt,
    }
