"""The public surface as code that only has to type-check."""

from __future__ import annotations

import datetime as dt
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, assert_type

import polars as pl
import pyarrow as pa
from pydantic import BaseModel

import rowsweep as rs
from rowsweep.webhook import (
    Endpoint,
    MemoryWebhookLedger,
    WebhookLedger,
    public_addresses,
    sign_webhook,
    verify_webhook_signature,
    webhook,
)


class Window(BaseModel):
    """A typed input."""

    since: dt.date


def connecting() -> None:
    """Connect, install, and look."""
    app = rs.connect("postgresql://localhost/shop", schema="sweeps", actor="me", work=False, pooler=True)
    assert_type(app, rs.App)
    assert_type(rs.current(), rs.App)
    assert_type(rs.ledger(), pl.DataFrame)
    assert_type(rs.jobs(state="dead", limit=5), pl.DataFrame)
    assert_type(rs.runs(name="totals", limit=5), list[rs.Snapshot])
    assert_type([bucket.completed for bucket in rs.counters(tier="hour", name="mail", since="90m")], list[int])
    assert_type(rs.attach("totals"), rs.Run)
    assert_type(app.place, str)
    app.install()
    rs.install()
    rs.work()
    rs.work(scheduler=True)
    with rs.transaction() as tx:
        tx.execute("select 1")
    app.close()


def operating(app: rs.App) -> None:
    """Read and steer the queue."""
    page = app.operate.list(state="dead", limit=5)
    assert_type([job.cursor for job in app.operate.list(after=page[-1].cursor)], list[str])
    assert_type(page[0].as_json(), dict[str, Any])
    assert_type(app.operate.requeue_many(name="mail").remaining, int)
    assert_type(app.operate.promote_many(state="delayed").affected, int)
    assert_type(app.operate.remove(page[0].id), bool)
    assert_type(app.operate.resume(queue="default"), bool)
    assert_type(app.jobs(name="mail"), pl.DataFrame)


def tasks(app: rs.App, letter: rs.JobHandle[str, None]) -> None:
    """Put jobs on a clock."""
    nightly = rs.task("nightly", cron="0 3 * * *", tz="Europe/London", enqueue=lambda at: [(letter, f"{at:%d}")])
    rs.task(cron="@hourly", tz="UTC", enqueue=lambda _at: [], catch_up="run-all", max_catch_up=3)
    assert_type(nightly, rs.TaskHandle)
    assert_type(nightly.describe(), dict[str, Any])
    scheduler = app.scheduler(leader=rs.LeaseLeader(app.driver, lease="30s", renew_every="10s"), gap="1s")
    assert_type(scheduler, rs.Scheduler)
    assert_type(scheduler.next_run_for(nightly), dt.datetime)
    scheduler.start()
    scheduler.stop()
    rs.Scheduler(driver=app.driver, leader=rs.SoleLeader())
    rs.Scheduler(driver=app.driver, leader=rs.AdvisoryLockLeader(app.driver))


def exports() -> None:
    """Declare an export each way, and read it back."""

    def to(window: Window) -> str:
        return f"s3://lake/orders/{window.since}"

    rows = rs.Rows("orders", columns=["price"], where="price > 0")
    archive = rs.export_rows("archive", rows, "out", format="csv", part_rows=100_000, overwrite=True, as_text=["price"])
    assert_type(archive, rs.Export[Any])
    assert_type(archive.preview(5), pl.DataFrame)
    assert_type(archive.launch(rate="5000/s", batch_rows=10_000), rs.Run)
    assert_type(archive.spec.overwrite, bool)
    rs.export_rows("daily", rs.Rows("orders"), to, input=Window, format=rs.Parquet(compression="snappy"))
    rs.export_rows("sheet", rs.Rows("orders"), Path("out"), format=rs.Csv(bom=True, guard_formulas=True))
    rs.export_rows(
        "lines", rs.Rows("orders"), "out", format=rs.Ndjson(), requires=("totals",), source="postgresql://r/shop"
    )
    rs.export_rows("ipc", rs.Rows("orders"), "out", format=rs.ArrowFile(), tenant=str, concurrency=2, shards="auto")
    assert_type(rs.read_export("out", verify=True), pl.LazyFrame)


def purges() -> None:
    """What has expired, target by target."""

    class Sessions:
        name = "sessions"

        def purge_expired(self, at: dt.datetime) -> int:
            return 0 if at.tzinfo else 1

    def targets() -> list[Any]:
        by_age = rs.older_than("events", "created_at", days=90, where="kind = 'seen'", tz="Europe/London")
        return [
            by_age,
            rs.older_than("logs", "at", age="36h"),
            rs.expired("codes", "until"),
            Sessions(),
            *rs.own_targets(),
        ]

    retention = rs.purge(
        "retention", targets=targets, confirm=0.3, rate="500/s", batch_rows=2_000, budget=rs.Budget(time="5m", rows=100)
    )
    assert_type(retention, rs.Purge)
    assert_type(retention.launch(confirm=0.5), rs.Run)
    assert_type(retention.preview(), pl.DataFrame)
    rs.task("hourly", cron=rs.RETENTION_CRON, tz="UTC", enqueue=lambda _: [(retention, None)])


def waiting() -> None:
    """Steps that wait, and the events that they wait for."""

    @rs.job("order", tenant="none", input=str, timeout="1h", step_timeout=dt.timedelta(minutes=5), event_poll="10s")
    def order(ctx: rs.Ctx, order_id: str) -> str:
        assert_type(ctx.step.run("charge", lambda: 7, returns=int), int)
        ctx.step.sleep("cool off", "10m")
        ctx.step.sleep("cool off again", dt.timedelta(minutes=10))
        since = rs.event_bus().now()
        event = ctx.step.wait_for_event("payment", "paid", order_id, timeout="24h", since=since)
        assert_type(event, rs.Event | None)
        ctx.step.wait_for_event("anything", "paid", timeout=None)
        return "late" if event is None else f"{event.payload} at {event.published_at:%c} for {event.key}"

    assert_type(order, rs.JobHandle[str, str])
    event = rs.publish_event("paid", {"total": 5}, key="order-7", ttl="1h")
    assert_type(event, rs.Event)
    with rs.transaction() as tx:
        rs.publish_event("paid", tx=tx)
    rs.use_event_bus(rs.MemoryEventBus(max_events=100, default_ttl="1h"))
    rs.use_event_bus(rs.PostgresEventBus(rs.PostgresDriver("postgresql://localhost/shop"), list_limit=10))
    assert_type(rs.event_bus().list(name="paid"), list[rs.Event])
    assert_type(rs.events_purge_target(rs.event_bus()).purge_expired(), int)
    rs.reset_event_bus()


def concurrency(app: rs.App) -> None:
    """Cap runs across the fleet, and in one process."""

    @rs.job("capped", tenant="none", input=str, concurrency=4)
    def capped(ctx: rs.Ctx, value: str) -> None: ...

    @rs.job("keyed", tenant="none", input=str, concurrency=(4, rs.Keyed(str, 1, "fail")))
    def keyed(ctx: rs.Ctx, value: str) -> None: ...

    rs.backfill("heard", rows=rs.Rows("orders"), set={"n": "1"}, on_settled=lambda settled: settled.result)
    rs.backfill("one-at-a-time", rows=rs.Rows("orders"), set={"n": "1"}, concurrency=1)
    limiter = rs.ConcurrencyLimiter(per_tenant=2, per_queue=8, total=16, rate_per_tenant=(100, "1m"))
    assert_type(app.worker(limiter=limiter, poll="2s", poll_with_wake="30s"), rs.Worker)


def rows() -> None:
    """Describe rows."""
    rs.Rows("orders")
    rs.Rows(("sales", "orders"), columns=["id", "price"], where="total is null", until="start")
    rs.Rows("orders", where="at > %(cutoff)s", params={"cutoff": "2025-01-01"}, key=["at", "id"])
    rs.Rows("orders", until="never")  # type: ignore[arg-type]


def health(app: rs.App) -> None:
    """What sweeps heed."""

    def closing() -> str | None:
        return None

    rs.connect("postgresql://localhost/shop", health=None)
    rs.connect(health=[*rs.default_signals(), rs.replica_lag_below("10s", ignore=["delayed"]), closing])
    rows, set_ = rs.Rows("orders"), {"total": "price * qty"}
    rs.backfill("a", rows=rows, set=set_, health=rs.lock_waits_below("1s", slow="100ms"))
    rs.backfill("b", rows=rows, set=set_, health=[rs.archive_backlog_below("4GB"), rs.vacuum_idle(hold=True), closing])
    rs.export_rows("c", rows, "out", health="on")
    rs.purge("d", targets=list, health=[rs.active_sessions_below("80%"), rs.oldest_snapshot_below("1h")])
    assert_type(rs.batch_times_below(8)(), str | None)
    assert_type(rs.attach("a").tune(health={"replica_lag": {"slow": "1s"}, "vacuum": "off"}), rs.Snapshot)
    rs.attach("a").tune(health="off")
    rs.waiting_sessions_below(3)
    rs.replica_lag_bytes_below("1GB")


def sweeps() -> None:
    """Declare a sweep in each of its forms."""
    totals = rs.backfill("totals", rows=rs.Rows("orders"), set={"total": "price * qty"})
    assert_type(totals, rs.Sweep[Any])
    rs.backfill("again", rows=rs.Rows("orders"), set={"n": "1"}, late="again", late_wait=None)
    rs.backfill("never", rows=rs.Rows("orders"), set={"n": "1"}, late="never")  # type: ignore[call-overload]
    assert_type(rs.attach("totals").verify(timeout="1h").is_complete, bool | None)
    assert_type(totals.verify(timeout="1h").due, int | None)

    @rs.backfill("bands", rows=rs.Rows("orders", columns=["id", "price"]), batch_rows=5_000, rate="2000/s")
    def bands(batch: rs.Batch) -> pl.DataFrame:
        assert_type(batch.frame, pl.DataFrame)
        assert_type(batch.rows, list[dict[str, Any]])
        assert_type(batch.index, int)
        assert_type(batch.key, str)
        arrow: pa.Table = batch.arrow
        assert arrow is not None
        return batch.frame.select("id", band=pl.lit("low"))

    assert_type(bands, rs.Sweep[Any])

    @rs.backfill("index", rows=rs.Rows("orders"), atomic=False, input=Window, environments=("production",))
    def index(batch: rs.Batch) -> None:
        batch.execute("select %(since)s", {"since": batch.input.since})
        with batch.connection.transaction():
            batch.connection.execute("select 1")
        if batch.signal is not None and batch.signal.aborted:
            return

    def handler(batch: rs.Batch) -> list[dict[str, Any]]:
        return batch.rows

    assert_type(rs.backfill("dicts", handler, rows=rs.Rows("orders"), retry=rs.Retry(attempts=3)), rs.Sweep[Any])
    far: ThreadPoolExecutor = ThreadPoolExecutor(2)
    assert_type(rs.backfill("far", handler, rows=rs.Rows("orders"), executor=far, ahead=4), rs.Sweep[Any])
    rs.backfill("made", handler, rows=rs.Rows("orders"), executor=lambda: far)
    rs.backfill("nowhere", rows=rs.Rows("orders"), set={"n": "1"}, executor=far)  # type: ignore[call-overload]
    aside = rs.backfill("aside", handler, rows=rs.Rows("orders"), on_error="set-aside", max_rejected=50).launch()
    assert_type(aside.rejected(), pl.DataFrame)
    assert_type(aside.retry_rejected(), rs.Run)
    totals.launch(on_error="set-aside", max_rejected=5)
    totals.launch(on_error="skip")  # type: ignore[arg-type]
    rs.backfill("skip", handler, rows=rs.Rows("orders"), on_error="skip")  # type: ignore[call-overload]
    rs.backfill("both", handler, rows=rs.Rows("orders"), set={"total": "1"})  # type: ignore[call-overload]
    rs.backfill("set", rows=rs.Rows("orders"), set={"total": "1"}, atomic=False)  # type: ignore[call-overload]
    rs.backfill("rowless", handler)  # type: ignore[call-overload]
    rs.backfill("shards", handler, rows=rs.Rows("orders"), shards=4)
    assert_type(rs.backfill("auto", rows=rs.Rows("orders"), set={"n": "1"}, shards="auto"), rs.Sweep[Any])
    index.launch(Window(since=dt.date(2025, 1, 1)), force=True, delay="5m")


def runs(totals: rs.Sweep[None]) -> None:
    """Preview, launch, watch and steer."""
    assert_type(totals.preview(10), pl.DataFrame)
    run = totals.launch(batch_rows=500, rate="100/s")
    assert_type(run, rs.Run)
    assert_type(run.wait(timeout="10m"), dict[str, Any])
    snapshot = run.snapshot()
    assert_type(snapshot, rs.Snapshot)
    assert_type(snapshot.rows, int)
    assert_type(snapshot.percent, float | None)
    assert_type(snapshot.finished_at, dt.datetime | None)
    assert_type(run.pause("on call"), rs.Snapshot)
    assert_type(run.resume(), rs.Snapshot)
    assert_type(run.cancel(reason="wrong table"), rs.Snapshot)
    assert_type(run.attached, bool)
    assert_type(run.note, str | None)
    assert_type(totals.checksum, str)


def jobs() -> None:
    """Declare and enqueue jobs: input and result are typed together."""

    @rs.job("mail", tenant=lambda _: "acme", input=Window, key=lambda window: str(window.since))
    def mail(ctx: rs.Ctx, window: Window) -> int:
        with ctx.transaction() as tx:
            tx.execute("select 1")
        return window.since.year

    assert_type(mail, rs.JobHandle[Window, int])
    assert_type(mail.enqueue(Window(since=dt.date(2025, 1, 1)), delay="5m", priority=5), rs.EnqueueResult)

    @rs.job(tenant="none", queue="slow", retry=rs.Retry(attempts=2, base="5s"))
    def nightly(ctx: rs.Ctx) -> None:
        assert_type(ctx.attempt, int)

    assert_type(nightly, rs.JobHandle[None, None])
    nightly.enqueue()

    def hear(settled: rs.Settled[Window, int]) -> None:
        assert_type(settled.result, int | None)
        assert_type(settled.input, Window | None)
        assert_type(settled.outcome, Literal["completed", "dead-lettered", "dropped", "refused"])
        assert_type((settled.error, settled.code), tuple[str | None, str | None])

    @rs.job("year", tenant="none", input=Window, on_settled=hear)
    def year(ctx: rs.Ctx, window: Window) -> int:
        ctx.progress(1, total=2.5, message="counting")
        return window.since.year

    assert_type(year, rs.JobHandle[Window, int])

    @rs.job("text", tenant="none", input=Window, on_settled=hear)  # type: ignore[arg-type]
    def text(ctx: rs.Ctx, window: Window) -> str:
        return "not what the hook is told of"

    @rs.job("inputless", tenant="none", on_settled=lambda settled: settled.result)
    def inputless(ctx: rs.Ctx) -> str:
        return "heard"

    def other(ctx: rs.Ctx, window: Window) -> str:
        return "called"

    rs.job("called", other, tenant="none", input=Window, on_settled=hear)  # type: ignore[call-overload]
    rs.job("deaf", tenant="none", input=str, on_settled=hear)  # type: ignore[call-overload]
    mail.enqueue("tomorrow")  # type: ignore[arg-type]
    rs.job("tenantless", input=int)  # type: ignore[call-overload]


def errors() -> None:
    """Match on the code; show cause and fix."""
    try:
        rs.attach("totals")
    except rs.RowsweepError as error:
        assert_type(error.code, str)
        assert_type(error.cause, str)
        assert_type(error.fix, str)


def outbox(app: rs.App, connection: Any) -> None:
    """Work that leaves with an application's transaction."""

    @rs.job("send", tenant="none", input=int)
    def send(ctx: rs.Ctx, number: int) -> None: ...

    with rs.transaction(connection) as tx:
        assert_type(send.enqueue(7, tx=tx, outbox=True), rs.EnqueueResult)
    relay = app.relay(batch=50, lease="10s", keep=dt.timedelta(days=1))
    assert_type(relay, rs.OutboxRelay)
    relay.start()
    assert_type(relay.tick().published, tuple[uuid.UUID, ...])
    relay.stop(deadline_at=1.0)
    rs.OutboxRelay(driver=app.driver)
    rs.connect("postgresql://localhost/jobs", outbox="postgresql://localhost/shop")
    assert_type(rs.install_outbox("postgresql://localhost/shop").is_installed, bool)
    rs.work(relay=True)


def webhooks(ledger: WebhookLedger) -> None:
    """Deliveries, and those who verify them."""
    paid = webhook(
        "paid",
        tenant="none",
        input=int,
        endpoint=lambda _: Endpoint("shop-7", "https://shop.example/", ["secret"]),
        event="order.paid",
        ledger=ledger,
        signature="both",
        disable_after=None,
        allow=public_addresses,
        connect_timeout="3s",
        timeout="15s",
        retry=rs.Retry(attempts=3),
    )
    assert_type(paid, rs.JobHandle[Any, int])
    signed = sign_webhook(b"{}", id="a", at=dt.datetime.now(dt.UTC), secrets=["secret"])
    assert_type(verify_webhook_signature(b"{}", signed, "secret", tolerance="1m"), dt.datetime)
    endpoint = Endpoint("a", "https://a/", "s")
    webhook("memory", tenant="none", endpoint=lambda _: endpoint, event=str, ledger=MemoryWebhookLedger())
