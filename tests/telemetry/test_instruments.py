"""Metrics and spans: to OpenTelemetry where it is installed, to nobody where it is not, and never in a job's way."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags

from rowsweep.telemetry import instruments
from rowsweep.telemetry.instruments import Depth, Run
from rowsweep.telemetry.otel.metrics import OtelMeter
from rowsweep.telemetry.otel.spans import OtelTracer

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture(autouse=True)
def _own_instruments() -> Iterator[None]:
    yield
    instruments.reset_instruments()


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    """Read what is recorded from here on."""
    made = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[made])
    instruments.use_instruments(OtelMeter(provider), None)
    yield made
    provider.shutdown()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """Read the spans that end from here on."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instruments.use_instruments(None, OtelTracer(provider))
    return exporter


def a_run(traceparent: str | None = None) -> Run:
    return Run(job="mail", queue="default", job_id="j1", run_id="r1", attempt=2, traceparent=traceparent)


def points(reader: InMemoryMetricReader) -> dict[str, dict[tuple[Any, ...], float]]:
    """Answer every figure by instrument and labels; of a histogram its sum."""
    data = reader.get_metrics_data()
    found: dict[str, dict[tuple[Any, ...], float]] = {}
    for metric in [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []:
        for point in metric.data.data_points:
            labels = tuple(sorted((point.attributes or {}).items()))
            found.setdefault(metric.name, {})[labels] = getattr(point, "value", getattr(point, "sum", 0.0))
    return found


def test_each_instrument_has_its_name_and_its_labels(reader: InMemoryMetricReader) -> None:
    """S-417, S-419, S-420, D-30."""
    instruments.record_job("q", "ok", job="mail", seconds=0.5)
    instruments.record_job("q", "ok", job="mail", seconds=0.25)
    instruments.record_job("q", "dead", job="mail")
    instruments.record_job("q", None, job="mail", seconds=9.0)
    instruments.record_lease_lost("q")
    instruments.record_batch("totals", rows=500, seconds=0.125)
    instruments.record_rejected("totals", rows=3)
    instruments.record_depths([Depth(queue="q", ready=7, dead=2, oldest_ready_seconds=3.5)])
    queue = ("queue", "q")
    assert points(reader) == {
        "jobs_finished_total": {
            (("job", "mail"), ("label", "ok"), queue): 2,
            (("job", "mail"), ("label", "dead"), queue): 1,
        },
        "jobs_lease_lost_total": {(queue,): 1},
        "job_duration_seconds": {(("job", "mail"), queue): 0.75},
        "sweep_rows_total": {(("sweep", "totals"),): 500},
        "sweep_rejected_rows_total": {(("sweep", "totals"),): 3},
        "sweep_batch_seconds": {(("sweep", "totals"),): 0.125},
        "queue_depth": {(queue,): 7},
        "queue_oldest_ready_seconds": {(queue,): 3.5},
        "queue_dead_jobs": {(queue,): 2},
    }


def test_a_queue_that_is_gone_reads_zero(reader: InMemoryMetricReader) -> None:
    """S-417: an alert on what is no longer there must end."""
    instruments.record_depths([Depth(queue="q", ready=7, dead=2, oldest_ready_seconds=3.5)])
    points(reader)
    instruments.record_depths([])
    assert points(reader)["queue_depth"] == {(("queue", "q"),): 0}


def test_a_run_s_span_is_a_child_of_the_traceparent(spans: InMemorySpanExporter) -> None:
    """S-421."""
    span = instruments.start_run(a_run(PARENT))
    inside = instruments.current_traceparent()
    span.end("completed", None)
    (ended,) = spans.get_finished_spans()
    assert ended.name == "job.mail"
    assert ended.parent is not None
    assert (f"{ended.parent.trace_id:032x}", f"{ended.parent.span_id:016x}") == (TRACE, SPAN)
    assert inside == f"00-{TRACE}-{ended.context.span_id:016x}-01"
    assert ended.attributes is not None
    assert (ended.attributes["rowsweep.outcome"], ended.attributes["rowsweep.attempt"]) == ("completed", 2)
    assert ended.status.status_code is StatusCode.UNSET
    assert instruments.current_traceparent() is None, "the thread is left as it was"


@pytest.mark.parametrize("traceparent", [None, "", "no", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{SPAN}", "é" * 300])
def test_a_malformed_or_missing_traceparent_opens_a_root(spans: InMemorySpanExporter, traceparent: str | None) -> None:
    """S-421: also where the worker itself is inside a span of something else."""
    around = NonRecordingSpan(SpanContext(int(TRACE, 16), int(SPAN, 16), is_remote=False, trace_flags=TraceFlags(1)))
    with trace.use_span(around):
        instruments.start_run(a_run(traceparent)).end("retried", "ValueError: no")
    (ended,) = spans.get_finished_spans()
    assert ended.parent is None
    assert (ended.status.status_code, ended.status.description) == (StatusCode.ERROR, "ValueError: no")


def test_a_span_without_a_valid_id_stamps_nothing(spans: InMemorySpanExporter) -> None:
    """S-052."""
    assert instruments.current_traceparent() is None
    half = NonRecordingSpan(SpanContext(int(TRACE, 16), 0, is_remote=False, trace_flags=TraceFlags(1)))
    with trace.use_span(half):
        assert instruments.current_traceparent() is None
    whole = NonRecordingSpan(SpanContext(int(TRACE, 16), int(SPAN, 16), is_remote=False, trace_flags=TraceFlags(1)))
    with trace.use_span(whole):
        assert instruments.current_traceparent() == PARENT


class Broken:
    """A back end every call of which raises."""

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any, **__: Any) -> Any:
            raise RuntimeError("the exporter at postgresql://a:secret@h/d is down")

        return call


def test_a_back_end_that_fails_is_reported_once_and_reaches_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """N-112."""
    instruments.use_instruments(Broken(), Broken())
    for _ in range(3):
        instruments.record_job("q", "ok", job="mail")
        instruments.record_lease_lost("q")
        instruments.record_batch("s", rows=1, seconds=1.0)
        instruments.record_depths([])
        assert instruments.current_traceparent() is None
        instruments.start_run(a_run()).end("completed", None)
    told = [record.__dict__["fields"] for record in caplog.records]
    assert [record.getMessage() for record in caplog.records] == ["telemetry.failed"] * 6
    assert {fields["instrument"] for fields in told} == {
        "record_job", "record_lease_lost", "record_batch", "record_depths", "traceparent", "start_run",
    }  # fmt: skip
    assert caplog.records[0].levelno == logging.WARNING
    assert "secret" not in str(told)


QUIET = """
import sys
{before}
import rowsweep as rs
from rowsweep.queue.memory.driver import MemoryDriver
app = rs.connect(driver=MemoryDriver(), work=False)
@rs.job("mail", tenant="none")
def mail(ctx): pass
mail.enqueue()
print([name for name in sys.modules if name.startswith("opentelemetry") and sys.modules[name]])
print([run.outcome for run in app.worker().tick()])
print([name for name in sys.modules if name.startswith("opentelemetry") and sys.modules[name]] != [])
"""


@pytest.mark.parametrize(("before", "is_used"), [("sys.modules['opentelemetry'] = None", False), ("", True)])
def test_without_opentelemetry_nothing_of_it_is_asked_for(before: str, is_used: bool) -> None:
    """N-112, S-052: neither import nor enqueue loads it; a run does, where it is installed, and works without it."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", QUIET.format(before=before)],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["[]", "['completed']", str(is_used)]
    assert done.stderr == ""
