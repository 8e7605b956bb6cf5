"""What a worker counts and shows of its runs, over both drivers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from rowsweep.errors import RateLimited
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.telemetry import instruments
from rowsweep.telemetry.instruments import Depth
from rowsweep.telemetry.otel.spans import OtelTracer
from tests.worker.shop import BrokenDriver, Shop, until

NOW = Retry(attempts=2, base="0s", jitter=False)


class Figures:
    """Keep what is recorded."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, str, str, bool]] = []
        self.lost: list[str] = []
        self.depths: list[Sequence[Depth]] = []

    def record_job(self, queue: str, label: str, *, job: str, seconds: float | None) -> None:
        self.jobs.append((queue, job, label, seconds is not None))

    def record_lease_lost(self, queue: str) -> None:
        self.lost.append(queue)

    def record_batch(self, sweep: str, *, rows: int, seconds: float) -> None:
        raise AssertionError("no sweep runs here")

    def record_rejected(self, sweep: str, *, rows: int) -> None:
        raise AssertionError("no sweep runs here")

    def record_depths(self, depths: Sequence[Depth]) -> None:
        self.depths.append(depths)


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture(autouse=True)
def figures(spans: InMemorySpanExporter) -> Iterator[Figures]:
    """Record into these for the test."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    made = Figures()
    instruments.use_instruments(made, OtelTracer(provider))
    yield made
    instruments.reset_instruments()


def test_every_outcome_is_counted_under_its_label(shop: Shop, figures: Figures) -> None:
    """S-419, D-30: a suspension and a rate-limit deferral have none."""
    calls: dict[str, int] = {}

    def again(name: str) -> int:
        calls[name] = calls.get(name, 0) + 1
        return calls[name]

    @job("good", tenant="none")
    def good(ctx: Ctx) -> None:
        pass

    @job("bad", tenant="none", retry=NOW)
    def bad(ctx: Ctx) -> None:
        raise ValueError("no")

    @job("dropped", tenant="none", retry=Retry(attempts=1, dead_letter=False))
    def dropped(ctx: Ctx) -> None:
        raise ValueError("no")

    @job("limited", tenant="none")
    def limited(ctx: Ctx) -> None:
        if again("limited") == 1:
            raise RateLimited("slow down", fix="wait", retry_after_seconds=0.01)

    @job("sleeper", tenant="none")
    def sleeper(ctx: Ctx) -> None:
        ctx.step.sleep("nap", "1s")

    ids = [shop.enqueue(handle) for handle in (good, bad, dropped, limited, sleeper)]
    shop.running()
    for job_id, state in zip(ids, ("done", "dead", "failed", "done", "done"), strict=True):
        shop.until_state(job_id, state)
    until(lambda: len(figures.jobs) >= 6)
    assert sorted(figures.jobs) == [
        ("default", "bad", "dead", True),
        ("default", "bad", "failed", True),
        ("default", "dropped", "dropped", True),
        ("default", "good", "ok", True),
        ("default", "limited", "ok", True),
        ("default", "sleeper", "ok", True),
    ]


def test_a_row_that_is_buried_unrun_is_counted_without_a_length(shop: Shop, figures: Figures) -> None:
    """S-419, S-093."""

    @job("mail", tenant="none", retry=Retry(attempts=1))
    def mail(ctx: Ctx) -> None:
        raise AssertionError("never run")

    job_id = shop.enqueue(mail)
    from rowsweep.queue.records import ClaimOptions

    shop.driver.stores().jobs.claim(ClaimOptions(queues=["default"], names=["mail"], worker_id="gone", limit=1))
    shop.lapse(job_id)
    shop.running()
    shop.until_state(job_id, "dead")
    until(lambda: figures.jobs == [("default", "mail", "dead", False)])


def test_a_lost_lease_is_counted(shop: Shop, figures: Figures) -> None:
    """S-323, S-420."""

    @job("long", tenant="none")
    def long(ctx: Ctx) -> None:
        shop.steal(ctx.job_id)
        assert ctx.signal.wait(60)

    shop.enqueue(long)
    shop.running(visibility="3s", renew_every="100ms")
    until(lambda: figures.lost == ["default"])
    until(lambda: figures.jobs == [("default", "long", "interrupted", True)])


def test_a_run_is_a_child_of_what_enqueued_it(shop: Shop, spans: InMemorySpanExporter) -> None:
    """S-052, S-421: through a job that enqueues another one."""

    @job("inner", tenant="none", retry=Retry(attempts=1))
    def inner(ctx: Ctx) -> None:
        raise ValueError("no")

    @job("outer", tenant="none")
    async def outer(ctx: Ctx) -> str:
        return str(inner.enqueue().id)

    outer_id = shop.enqueue(outer)
    shop.running()
    shop.until_state(outer_id, "done")
    until(lambda: len(spans.get_finished_spans()) == 2)
    found = {span.name: span for span in spans.get_finished_spans()}
    parent, child = found["job.outer"], found["job.inner"]
    assert shop.job(outer_id).traceparent is None
    assert parent.parent is None
    assert child.parent is not None
    assert (child.parent.span_id, child.context.trace_id) == (parent.context.span_id, parent.context.trace_id)
    assert child.attributes is not None
    assert (child.attributes["rowsweep.outcome"], child.status.status_code) == ("dead-lettered", StatusCode.ERROR)
    assert parent.status.status_code is StatusCode.UNSET


def test_one_of_two_workers_samples_the_depths(shop: Shop, figures: Figures) -> None:
    """N-125, S-417, N-043: on its look, and no other statement is sent for it."""

    @job("unworked", tenant="none", queue="elsewhere")
    def unworked(ctx: Ctx) -> None:
        raise AssertionError("nobody claims from its queue")

    shop.enqueue(unworked)
    workers = [shop.running(), shop.running()]
    workers_seen = shop.driver.stores().workers
    assert workers_seen is not None
    until(lambda: {info.id for info, _ in workers_seen.live()} == {worker.id for worker in workers})
    until(lambda: len(figures.depths) == 1)
    assert [(depth.queue, depth.ready) for depth in figures.depths[0]] == [("default", 0), ("elsewhere", 1)]


class Down:
    """A back end every call of which raises."""

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any, **__: Any) -> Any:
            raise RuntimeError("the exporter is down")

        return call


def test_a_failing_exporter_never_reaches_a_job(shop: Shop) -> None:
    """N-112."""
    instruments.use_instruments(Down(), Down())

    @job("mail", tenant="none")
    def mail(ctx: Ctx) -> str:
        return "sent"

    job_id = shop.enqueue(mail)
    worker = shop.running()
    done = shop.until_state(job_id, "done")
    assert (done.result, done.claims) == ("sent", 1)
    until(lambda: worker.stats.processed == 1)


def test_a_sample_that_fails_is_not_tried_again_soon(memory: Shop, figures: Figures) -> None:
    """N-125: a look that carries one must not fail with it each time."""

    @job("mail", tenant="none")
    def mail(ctx: Ctx) -> None:
        raise AssertionError("never enqueued")

    driver = BrokenDriver(memory.driver)
    asked: list[bool] = []
    stores = memory.driver.control()
    assert stores.workers is not None
    look = stores.workers.look

    def failing(*, sample: bool = False, **given: Any) -> Any:
        asked.append(sample)
        if sample:
            raise TimeoutError
        return look(sample=sample, **given)

    stores.workers.look = failing  # type: ignore[method-assign]
    memory.running(driver=driver)
    until(lambda: len(asked) > 3)
    assert asked[0] is True
    assert not any(asked[1:])
    assert figures.depths == []


def test_a_deep_queue_is_counted_apart_from_the_claims(
    memory: Shop, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-125, N-043: the look counts so many rows, another thread all of them; one that fails is only logged."""
    stores = memory.driver.stores()
    assert stores.workers is not None
    assert stores.health is not None
    look, asked = stores.workers.look, threading.Event()

    def capped(**given: Any) -> Any:
        seen = look(**given)
        few = [Depth(queue="default", ready=10_000, dead=0, oldest_ready_seconds=1.0, is_capped=True)]
        return seen if seen.depths is None else replace(seen, depths=few)

    def counted() -> list[Depth]:
        assert threading.current_thread().name == "rowsweep-depths"
        asked.set()
        return [Depth(queue="default", ready=123_456, dead=0, oldest_ready_seconds=2.0)]

    monkeypatch.setattr(stores.workers, "look", capped)
    monkeypatch.setattr(stores.health, "depths", counted)
    memory.running()
    assert asked.wait(60)
    until(lambda: [[depth.ready for depth in depths] for depths in figures.depths] == [[123_456]])
