"""The wake: proven before it is trusted, proven again, degrading to polls, and what is said on it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from rowsweep.clock import SystemClock
from rowsweep.errors import DriverUnavailable
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.jobs.retry import Retry
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.wake import CHANNEL, PROOF
from rowsweep.queue.waking import wake as module
from rowsweep.worker.claiming.pace import Pace
from rowsweep.worker.options import WorkerOptions
from rowsweep.worker.worker import Worker
from tests.statements import note_statements
from tests.worker.shop import BrokenDriver, DeafDriver, PostgresHands, Shop, WatchedTimers, logged, until
from tests.worker.test_claims import FastForward

SLEEPY: dict[str, Any] = {"poll": "60s", "poll_with_wake": "60s", "poll_floor": "30s", "announce_every": "60s"}


class Ear:
    """A wake source that the test speaks into; unless it is deaf, it hears what it says itself."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._words: list[str] = []
        self._rung = False
        self.is_deaf = False
        self.broken: Exception | None = None
        self.is_closed = False
        self.said: list[str] = []

    def hear(self, seconds: float | None) -> list[str]:
        with self._condition:
            self._condition.wait_for(lambda: self._words or self._rung or self.broken, seconds)
            self._rung = False
            if self.broken is not None:
                raise self.broken
            words, self._words = self._words, []
            return words

    def say(self, word: str) -> None:
        self.said.append(word)
        if not self.is_deaf:
            self.put(word)

    def put(self, word: str) -> None:
        with self._condition:
            self._words.append(word)
            self._condition.notify_all()

    def break_with(self, error: Exception) -> None:
        with self._condition:
            self.broken = error
            self._condition.notify_all()

    def interrupt(self) -> None:
        with self._condition:
            self._rung = True
            self._condition.notify_all()

    def close(self) -> None:
        self.is_closed = True


class EarDriver(BrokenDriver):
    """A driver whose sessions are the test's; `refuses` makes opening one fail."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.ears: list[Ear] = []
        self.refuses = False
        self.opened_at: list[float] = []

    def listen(self) -> Ear:
        self.opened_at.append(time.monotonic())
        if self.refuses:
            raise DriverUnavailable("no session to be had", fix="wait")
        self.ears.append(Ear())
        return self.ears[-1]


def is_awake(worker: Worker) -> bool:
    """Say whether a worker trusts its wake."""
    assert worker._crew is not None
    return worker._crew.claims.is_awake


def awake(shop: Shop, **given: Any) -> Worker:
    """Start a worker and wait for its wake to be proven."""
    worker = shop.running(**given)
    until(lambda: is_awake(worker))
    return worker


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the wake's times be short."""
    for name, seconds in {
        "PROOF_WITHIN_SECONDS": 0.2,
        "_RIDES_AFTER_SECONDS": 0.3,
        "_OWN_AFTER_SECONDS": 0.6,
        "_FIRST_PAUSE": 0.05,
        "_LONGEST_PAUSE": 0.4,
    }.items():
        monkeypatch.setattr(module, name, seconds)


@contextmanager
def overheard(dsn: str) -> Iterator[list[str]]:
    """Collect what is said on the channel meanwhile, proofs left out."""
    heard: list[str] = []
    with psycopg.connect(dsn, autocommit=True) as ear:
        ear.execute(f"listen {CHANNEL}")
        yield heard
        ear.execute("select pg_notify(%s, '*end')", [CHANNEL])
        for note in ear.notifies(timeout=10):
            if note.payload == "*end":
                break
            if not note.payload.startswith(PROOF):
                heard.append(note.payload)


# -- trust ------------------------------------------------------------------------------------------------------------


def test_a_job_starts_on_commit_though_the_worker_would_not_look_for_a_minute(shop: Shop) -> None:
    """S-384, S-380, S-381, D-25: also one that another process enqueued."""

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    timers = WatchedTimers()
    awake(shop, timers=timers, **SLEEPY)
    timers.until_asleep(10)
    began = time.monotonic()
    shop.until_state(shop.enqueue(work), "done")
    assert time.monotonic() - began < 5


def test_a_job_starts_when_its_transaction_commits(postgres: Shop) -> None:
    """N-014, S-384: not before, and never after a rollback."""

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    worker = awake(postgres, **SLEEPY)
    with pytest.raises(KeyboardInterrupt), postgres.driver.transaction() as tx:  # noqa: PT012
        work.enqueue(tx=tx.connection)
        raise KeyboardInterrupt
    with postgres.driver.transaction() as tx:
        job_id = work.enqueue(tx=tx.connection).id
        assert worker.stats.in_flight == 0
    postgres.until_state(job_id, "done")
    until(lambda: worker.stats.processed == 1)


def test_the_wake_is_trusted_only_once_it_heard_itself(memory: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-381, D-25: a session that hears nothing is lost after 2 s, and made anew."""
    caplog.set_level(logging.INFO, "rowsweep")
    driver = EarDriver(memory.driver)
    worker = memory.worker(driver=driver, **SLEEPY)
    deaf = Ear()
    deaf.is_deaf = True
    driver.ears.append(deaf)
    first = iter([deaf])
    make = driver.listen
    driver.listen = lambda: next(first, None) or make()  # type: ignore[method-assign]
    worker.start()
    until(lambda: bool(logged(caplog.records, "jobs.wake.lost")))
    assert not is_awake(worker)
    assert deaf.said[0].startswith(PROOF)
    until(lambda: is_awake(worker))
    assert deaf.is_closed
    (fields,) = logged(caplog.records, "jobs.wake.lost")
    assert (fields["channel"], fields["code"]) == (CHANNEL, "X_TIMEOUT")
    assert logged(caplog.records, "jobs.wake.proven") == [{"channel": CHANNEL}]


def test_a_proven_wake_is_asked_again_on_a_look_and_lost_when_it_no_longer_hears(
    memory: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D-25, N-043: every minute, the word rides on the look; a half-open session is found out by it."""
    caplog.set_level(logging.INFO, "rowsweep")
    quick(monkeypatch)

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    class Says(EarDriver):
        """Hand a look's word on to the ears, as the database would."""

        def control(self) -> Any:
            stores = super().control()
            assert stores.workers is not None
            return replace(stores, workers=_Looks(stores.workers, self))

    driver = Says(memory.driver)
    worker = awake(memory, driver=driver)
    (ear,) = driver.ears
    until(lambda: len(_Looks.words) >= 3)
    assert is_awake(worker)
    assert len(ear.said) == 1
    ear.is_deaf = True
    _Looks.words.clear()
    until(lambda: bool(logged(caplog.records, "jobs.wake.lost")))
    assert _Looks.words
    until(lambda: len(driver.ears) == 2 and is_awake(worker))
    assert ear.is_closed


class _Looks:
    words: list[str] = []  # noqa: RUF012 - what all looks of one test said

    def __init__(self, workers: Any, driver: EarDriver) -> None:
        self._workers = workers
        self._driver = driver

    def look(self, *, proof: str | None = None, **given: Any) -> Any:
        if proof is not None:
            self.words.append(proof)
            if not self._driver.ears[-1].is_deaf:
                self._driver.ears[-1].put(proof)
        return self._workers.look(proof=None, **given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workers, name)


def test_where_no_look_carries_the_proof_the_session_says_it_itself(
    memory: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-25: a driver without a registry of workers has no looks."""
    quick(monkeypatch)

    class Bare(EarDriver):
        def control(self) -> Any:
            return replace(super().control(), workers=None)

    driver = Bare(memory.driver)
    worker = awake(memory, driver=driver)
    until(lambda: len(driver.ears[0].said) >= 3)
    assert is_awake(worker)
    assert len(driver.ears) == 1


def test_a_lost_session_degrades_to_polling_and_recovers(
    memory: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D-25, S-382: reported once, tried again with growing pauses; proven again, each queue is looked at once."""
    caplog.set_level(logging.INFO, "rowsweep")
    quick(monkeypatch)

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    driver = EarDriver(memory.driver)
    worker = awake(memory, driver=driver, poll="50ms", poll_floor="10ms", poll_with_wake="60s", announce_every="60s")
    driver.refuses = True
    driver.ears[0].break_with(DriverUnavailable("the session is gone", fix="wait"))
    until(lambda: not is_awake(worker))
    for _ in range(3):
        memory.until_state(memory.enqueue(work), "done")
    until(lambda: len(driver.opened_at) >= 6)
    assert len(logged(caplog.records, "jobs.wake.lost")) == 1
    gaps = [after - before for before, after in zip(driver.opened_at[1:], driver.opened_at[2:], strict=False)]
    assert gaps[0] < gaps[2]
    driver.refuses = False
    until(lambda: is_awake(worker))
    assert len(logged(caplog.records, "jobs.wake.proven")) == 2


def test_what_was_committed_while_the_session_was_lost_is_found_once_it_is_proven(
    memory: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-25: it looks once at each queue when proven again."""
    quick(monkeypatch)

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    driver = EarDriver(memory.driver)
    driver.refuses = True
    worker = memory.running(driver=driver, **SLEEPY)
    until(lambda: len(driver.opened_at) >= 3)
    job_id = memory.enqueue(work)
    driver.refuses = False
    memory.until_state(job_id, "done")
    assert is_awake(worker)


def test_workers_of_one_process_share_one_session_and_the_last_ends_it(memory: Shop) -> None:
    """S-380: each is woken for its own queues."""

    @job("here", tenant="none", queue="here")
    def here(ctx: Ctx) -> None: ...

    driver = EarDriver(memory.driver)
    first = awake(memory, driver=driver, queues=["here"], **SLEEPY)
    second = awake(memory, driver=driver, queues=["there"], **SLEEPY)
    assert len(driver.ears) == 1
    second.stop()
    assert not driver.ears[0].is_closed
    job_id = memory.enqueue(here)
    driver.ears[0].put("here")
    memory.until_state(job_id, "done")
    first.stop()
    until(lambda: driver.ears[0].is_closed)
    awake(memory, driver=driver, queues=["here"], **SLEEPY)
    assert len(driver.ears) == 2


def test_words_that_are_no_queue_wake_nobody(memory: Shop) -> None:
    """D-25: proofs of others, the outbox's word, and queues this worker does not claim from."""

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    driver = EarDriver(memory.driver)
    awake(memory, driver=driver, **SLEEPY)
    before = len(driver.calls("claim"))
    for word in ("*proof:other:1", "*outbox", "elsewhere", "*"):
        driver.ears[0].put(word)
    driver.ears[0].put("default")
    until(lambda: len(driver.calls("claim")) > before)
    assert len(driver.calls("claim")) == before + 1


def test_a_forked_child_has_a_wake_of_its_own() -> None:
    """N-002: it never touches its parent's session."""
    from rowsweep.queue.memory.driver import MemoryDriver
    from rowsweep.queue.waking.shared import Subscription

    class Silent:
        def wake(self, queue: str) -> None: ...

        def trust(self, *, is_proven: bool) -> None: ...

    driver = EarDriver(MemoryDriver(SystemClock()))
    subscription = Subscription(driver, Silent())
    subscription.start()
    until(lambda: subscription.is_proven)
    pid = os.fork()
    if pid == 0:
        theirs = Subscription(driver, Silent())
        theirs.start()
        until(lambda: theirs.is_proven)
        os._exit(0 if len(driver.ears) == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert subscription.is_proven
    subscription.stop()


# -- the session ------------------------------------------------------------------------------------------------------


def test_a_dropped_session_is_replaced(postgres: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """D-25: ended by the server under the worker."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    worker = awake(postgres, **{**SLEEPY, "poll": "2s", "poll_floor": "500ms"})
    assert isinstance(postgres.hands, PostgresHands)
    ended = postgres.hands.connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where query = 'select pg_notify($1, $2)'"
    ).fetchall()
    assert ended
    until(lambda: bool(logged(caplog.records, "jobs.wake.lost")))
    postgres.until_state(postgres.enqueue(work), "done")
    until(lambda: is_awake(worker))
    postgres.until_state(postgres.enqueue(work), "done")


def test_behind_a_pooler_there_is_no_session(queue_dsn: str) -> None:
    """N-023."""
    driver = PostgresDriver(queue_dsn, pooler=True)
    assert driver.listen() is None


def test_a_session_hears_and_says_and_is_interrupted(postgres: Shop) -> None:
    """D-25: without a statement of its own while it waits."""
    source = postgres.driver.listen()
    assert source is not None
    other = postgres.driver.listen()
    assert other is not None
    source.say("default")
    assert source.hear(5) == other.hear(5) == ["default"]
    began = time.monotonic()
    threading.Timer(0.1, source.interrupt).start()
    assert source.hear(20) == []
    assert time.monotonic() - began < 10
    assert source.hear(0.05) == []
    source.close()
    other.close()


# -- what is said -----------------------------------------------------------------------------------------------------


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
    from rowsweep.jobs.failure import Failure
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
    assert failed_at[1] - failed_at[0] < 1.7 + 0.3
    began = time.monotonic()
    shop.until_state(shop.enqueue(late, delay="1500ms"), "done")
    assert 1.4 < time.monotonic() - began < 2.8


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
    assert time.monotonic() - began < 4


class SlowlyAnnouncing(EarDriver):
    """A driver over which the first announcement is on its way until the test lets it arrive."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.is_on_its_way = threading.Event()
        self.may_arrive = threading.Event()

    def control(self) -> Any:
        stores = super().control()
        workers: Any = stores.workers
        looking: Any = _Looking(workers, lambda **given: self._arrive(workers.look, **given))
        return replace(stores, workers=looking)

    def _arrive(self, look: Any, **given: Any) -> Any:
        if not self.is_on_its_way.is_set():
            self.is_on_its_way.set()
            assert self.may_arrive.wait(10)
        return look(**given)


class _Looking:
    def __init__(self, workers: Any, look: Any) -> None:
        self._workers = workers
        self.look = look

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workers, name)


def test_a_wake_that_is_proven_while_an_announcement_is_on_its_way_is_announced_at_once(memory: Shop) -> None:
    """S-416, S-381: nobody reads for another 15 s that a worker polls which does not."""

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    workers = memory.driver.stores().workers
    assert workers is not None
    driver = SlowlyAnnouncing(memory.driver)
    worker = memory.running(driver=driver, **{**SLEEPY, "poll_floor": "1s"})
    assert driver.is_on_its_way.wait(10)
    until(lambda: is_awake(worker))
    driver.may_arrive.set()
    until(lambda: [info.wake for info, _ in workers.live()] == [True], "the announcement of the proven wake")


# -- what it costs ----------------------------------------------------------------------------------------------------


def test_an_idle_worker_with_a_wake_sends_at_most_six_statements_a_minute(
    postgres: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-385, N-043: the announcement, the poll for events and the proof all ride on the look."""
    from rowsweep.testing.clock import FakeClock

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    clock = FakeClock()
    # The session keeps real time; here its minute passes as the loop's does.
    monkeypatch.setattr(module, "real_monotonic", clock.monotonic)
    counted: list[tuple[float, str]] = []

    def count(query: str, _values: Any) -> None:
        if threading.current_thread().name.startswith("rowsweep-"):
            counted.append((clock.monotonic(), query))

    note_statements(monkeypatch, count)
    timers = FastForward(clock, 660.0)
    driver = BrokenDriver(postgres.driver)
    worker = postgres.worker(
        driver=driver, clock=clock, timers=timers, queues=["default", "mail"], poll="2s", poll_floor="500ms",
        poll_with_wake="30s",
    )  # fmt: skip
    wait = timers.wait

    def asleep_until_proven(condition: threading.Condition, seconds: float | None) -> None:
        """Pass no time while a proof is under way: the session answers in real time."""
        if threading.current_thread().name == "rowsweep-claims":
            assert worker._crew is not None
            session = worker._crew.claims._wake._wake
            until(lambda: session is None or (session.is_proven and session._awaited is None))
        wait(condition, seconds)

    monkeypatch.setattr(timers, "wait", asleep_until_proven)
    worker.start()
    assert timers.over.wait(60)
    assert is_awake(worker)
    assert not driver.asked
    idle = [query for at, query in counted if 60 <= at < 660]
    assert 30 <= len(idle) <= 60
    assert all("x_job_workers" in query for query in idle)


def test_the_wait_doubles_to_a_ceiling_that_a_proven_wake_raises() -> None:
    """N-043, D-15: 0.5 s to 2 s, and to 30 s with a proven wake."""
    awake_now = False
    pace = Pace(WorkerOptions(), SystemClock(), lambda: awake_now)
    assert [pace.next_in(found=False) for _ in range(5)] == [0.5, 1.0, 2.0, 2.0, 2.0]
    awake_now = True
    assert [pace.next_in(found=False) for _ in range(6)] == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert pace.next_in(12.0, None, found=False) == 12.0
    awake_now = False
    assert pace.next_in(found=False) == 2.0
    assert pace.next_in(found=True) == 0.5
    assert pace.next_in(None, found=False) == 0.5
    pace.look_within(0.2)
    assert pace.next_in(found=False) <= 0.2


def test_without_a_wake_polling_is_what_it_would_be(memory: Shop) -> None:
    """S-382."""

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    worker = memory.running(driver=DeafDriver(memory.driver), poll_with_wake="60s")
    memory.until_state(memory.enqueue(work), "done")
    assert not is_awake(worker)
