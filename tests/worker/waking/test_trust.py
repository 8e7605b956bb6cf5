"""The wake: proven before it is trusted, proven again, degrading to polls."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from rowsweep.clock import SystemClock
from rowsweep.errors import DriverUnavailable
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.queue.wake import CHANNEL, PROOF
from tests.worker.shop import Shop, WatchedTimers, logged, until
from tests.worker.waking.ears import SLEEPY, SOON_SECONDS, Ear, EarDriver, awake, is_awake, quick


def test_a_job_starts_on_commit_though_the_worker_would_not_look_for_a_minute(shop: Shop) -> None:
    """S-384, S-380, S-381, D-25: also one that another process enqueued."""

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    timers = WatchedTimers()
    awake(shop, timers=timers, **SLEEPY)
    timers.until_asleep(10)
    began = time.monotonic()
    shop.until_state(shop.enqueue(work), "done")
    assert time.monotonic() - began < SOON_SECONDS


def test_a_job_starts_when_its_transaction_commits(postgres: Shop) -> None:
    """N-014, S-384: not before, and never after a rollback."""

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    worker = awake(postgres, **SLEEPY)
    with pytest.raises(KeyboardInterrupt), postgres.driver.transaction() as tx:  # noqa: PT012 - a transaction that the raise ends
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
    until(lambda: logged(caplog.records, "jobs.wake.proven") == [{"channel": CHANNEL}])


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
    until(lambda: len(logged(caplog.records, "jobs.wake.proven")) == 2)


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
            assert self.may_arrive.wait(60)
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
    assert driver.is_on_its_way.wait(60)
    until(lambda: is_awake(worker))
    driver.may_arrive.set()
    until(lambda: [info.wake for info, _ in workers.live()] == [True], "the announcement of the proven wake")
