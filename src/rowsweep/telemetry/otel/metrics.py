"""Record figures as OpenTelemetry metrics."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.metrics import MeterProvider, get_meter

from rowsweep.telemetry.instruments import Depth


class OtelMeter:
    """Hold the instruments; where they go is said by `provider`, else by the process's own."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        meter = get_meter("rowsweep", meter_provider=provider)
        self._finished = meter.create_counter("jobs_finished_total", description="Runs that ended, by label.")
        self._lost = meter.create_counter("jobs_lease_lost_total", description="Leases lost under a run.")
        self._duration = meter.create_histogram("job_duration_seconds", "s", "How long runs took.")
        self._rows = meter.create_counter("sweep_rows_total", description="Rows swept.")
        self._rejected = meter.create_counter("sweep_rejected_rows_total", description="Rows set aside.")
        self._batch = meter.create_histogram("sweep_batch_seconds", "s", "How long batches took.")
        self._ready = meter.create_gauge("queue_depth", description="Jobs ready to run.")
        self._oldest = meter.create_gauge("queue_oldest_ready_seconds", "s", "How long the oldest due job has waited.")
        self._dead = meter.create_gauge("queue_dead_jobs", description="Dead letters.")
        self._queues: set[str] = set()

    def record_job(self, queue: str, label: str, *, job: str, seconds: float | None) -> None:
        """Count a finished run, and its length where it ran."""
        self._finished.add(1, {"queue": queue, "job": job, "label": label})
        if seconds is not None:
            self._duration.record(seconds, {"queue": queue, "job": job})

    def record_lease_lost(self, queue: str) -> None:
        """Count a lease lost under a run."""
        self._lost.add(1, {"queue": queue})

    def record_batch(self, sweep: str, *, rows: int, seconds: float) -> None:
        """Count a batch's rows, and its length."""
        self._rows.add(rows, {"sweep": sweep})
        self._batch.record(seconds, {"sweep": sweep})

    def record_rejected(self, sweep: str, *, rows: int) -> None:
        """Count rows that a sweep set aside."""
        self._rejected.add(rows, {"sweep": sweep})

    def record_depths(self, depths: Sequence[Depth]) -> None:
        """Set the gauges; a queue that was seen before and is gone has nothing left."""
        empty = self._queues - {depth.queue for depth in depths}
        for depth in [*depths, *(Depth(queue=queue, ready=0, dead=0, oldest_ready_seconds=0.0) for queue in empty)]:
            self._queues.add(depth.queue)
            named = {"queue": depth.queue}
            self._ready.set(depth.ready, named)
            self._oldest.set(depth.oldest_ready_seconds, named)
            self._dead.set(depth.dead, named)
