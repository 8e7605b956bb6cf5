"""What is said on the wake, and how soon what it says starts."""

from __future__ import annotations

import time

from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from tests.worker.shop import Shop, until
from tests.worker.waking.ears import SLEEPY, SOON_SECONDS, awake, overheard


def test_a_statement_says_each_queue_once_however_many_rows_there_are(postgres: Shop, queue_dsn: str) -> None:
    """D-25: an enqueue due before an idle worker would look again; once a statement, never per row."""

    @job("work", tenant="none", input=int)
    def work(ctx: Ctx, value: int) -> None: ...

    with overheard(queue_dsn) as heard:
        work.enqueue_many(list(range(2_500)))
        with postgres.driver.transaction() as tx:
            work.enqueue_many(list(range(50)), queue="b", tx=tx.connection)
            work.enqueue_many(list(range(50)), queue="a", tx=tx.connection)
        work.enqueue(1, delay="10s", queue="soon")
        work.enqueue(1, delay="40s", queue="later")
        work.enqueue(1, key="one", queue="c")
        work.enqueue(1, key="one", queue="c")
    assert heard == ["default", "b", "a", "soon", "c"]


def test_settles_and_verbs_say_what_they_make_due(postgres: Shop, queue_dsn: str) -> None:
    """D-25: a settle that leaves a row due soon, requeue, promote, resume; not a completion, not a shed."""
    from rowsweep.jobs.attempts.failure import Failure
    from rowsweep.queue.records import ClaimOptions, claim_of
    from rowsweep.queue.selection import JobSet
    from rowsweep.queue.verdicts import Bury, Done, GiveBack, Settlement, Shed, Verdict
    from rowsweep.queue.verdicts import Retry as Again

    @job("work", tenant="none", input=int)
    def work(ctx: Ctx, value: int) -> None: ...

    error = Failure(text="no")
    stores = postgres.driver.stores()
    assert stores.steering is not None
    assert stores.pauses is not None
    verdicts: list[Verdict] = [
        Done(),
        GiveBack(),
        Again(delay_seconds=5, error=error),
        Again(delay_seconds=90, error=error),
        Shed(delay_seconds=1, reason="full"),
        Bury(error=error),
    ]
    ids = [work.enqueue(value, queue=f"q{value}").id for value in range(len(verdicts))]
    claimed = [
        stores.jobs.claim(ClaimOptions(queues=[f"q{value}"], names=["work"], worker_id="w", limit=1)).jobs[0]
        for value in range(len(verdicts))
    ]
    with overheard(queue_dsn) as heard:
        stores.jobs.settle(
            [Settlement(claim=claim_of(one), verdict=verdict) for one, verdict in zip(claimed, verdicts, strict=True)]
        )
        heard.append("|")
        stores.steering.requeue(ids[5])
        stores.pauses.pause(queue="q9")
        assert stores.pauses.resume(queue="q9")
        assert not stores.pauses.resume(queue="q9")
        stores.steering.promote(ids[3])
        stores.steering.cancel(ids[5])
        assert stores.steering.requeue_many(JobSet(queue="q5")).affected == 1
        work.enqueue_many([1, 2], queue="q6", delay="90s")
        assert stores.steering.promote_many(JobSet(queue="q6")).affected == 2
        assert stores.steering.remove_many(JobSet(queue="q6")).affected == 2
    assert sorted(heard[1:3]) == ["q1", "q2"]
    assert heard[3:] == ["q5", "q9", "q3", "q5", "q6"]


def test_the_resume_of_a_name_wakes_the_queues_that_its_workers_claim_from(postgres: Shop, queue_dsn: str) -> None:
    """D-19: resume notifies."""

    @job("work", tenant="none")
    def work(ctx: Ctx) -> None: ...

    worker = awake(postgres, queues=["x", "y"])
    stores = postgres.driver.stores()
    assert stores.pauses is not None
    assert stores.workers is not None
    workers = stores.workers
    until(lambda: [info.id for info, _ in workers.live()] == [worker.id])
    with overheard(queue_dsn) as heard:
        stores.pauses.pause(name="work")
        stores.pauses.resume(name="work")
    assert sorted(heard) == ["x", "y"]


def test_a_resumed_queue_starts_at_once(shop: Shop) -> None:
    """D-19, S-384."""

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    pauses = shop.driver.stores().pauses
    assert pauses is not None
    pauses.pause(queue="default")
    job_id = shop.enqueue(work)
    awake(shop, **SLEEPY)
    assert shop.job(job_id).state == "ready"
    pauses.resume(queue="default")
    shop.until_state(job_id, "done")


def test_a_retry_and_a_delayed_job_start_at_their_time_whoever_looks_seldom(shop: Shop) -> None:
    """N-032, D-25: within a second of it, though the worker would not look for a minute."""
    failed_at: list[float] = []

    @job("flaky", tenant="none", retry=Retry(base="700ms", jitter=False))
    def flaky(ctx: Ctx) -> None:
        failed_at.append(time.monotonic())
        if len(failed_at) == 1:
            raise ValueError("once")

    @job("late", tenant="none")
    def late(ctx: Ctx) -> None: ...

    awake(shop, **SLEEPY)
    shop.until_state(shop.enqueue(flaky), "done")
    assert 0.7 <= failed_at[1] - failed_at[0] < SOON_SECONDS
    began = time.monotonic()
    shop.until_state(shop.enqueue(late, delay="1500ms"), "done")
    assert 1.4 < time.monotonic() - began < SOON_SECONDS


def test_a_lease_that_lapses_elsewhere_is_found_when_it_does(shop: Shop) -> None:
    """S-092, N-043: the look answers when that may be, so a seldom look is no later."""
    from rowsweep.queue.records import ClaimOptions

    @job("work", tenant="none")
    def work(ctx: Ctx) -> None: ...

    job_id = shop.enqueue(work)
    options = ClaimOptions(queues=["default"], names=["work"], worker_id="gone", limit=1, visibility_seconds=2.0)
    assert len(shop.driver.stores().jobs.claim(options).jobs) == 1
    began = time.monotonic()
    awake(shop, **SLEEPY)
    assert shop.until_state(job_id, "done").claims == 2
    assert time.monotonic() - began < SOON_SECONDS
