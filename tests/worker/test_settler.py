"""Settling in groups: what is sent again, what is sent alone, and what is left out."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from rowsweep.clock import SystemClock
from rowsweep.errors import InvariantBroken
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.queue.contract import Driver
from rowsweep.queue.verdicts import Settlement
from rowsweep.worker.settler import GROUP
from tests.worker.shop import BrokenDriver, Shop, logged, until


class LosesAnswers(BrokenDriver):
    """A driver whose first settle lands and whose answer is lost."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.lost = 0

    def control(self) -> Any:
        stores = super().control()
        settle = stores.jobs.settle

        def lossy(settlements: Any, *, resent: bool = False) -> Any:
            answer = settle(settlements, resent=resent)
            if not self.lost:
                self.lost += 1
                raise self.error()
            return answer

        object.__setattr__(stores, "jobs", _Replaced(stores.jobs, lossy))
        return stores


class _Replaced:
    def __init__(self, jobs: Any, settle: Any) -> None:
        self._jobs = jobs
        self.settle = settle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)


def test_a_settle_whose_answer_was_lost_is_sent_again_and_has_landed(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """N-036: resent, answered True, counted once."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job(tenant="none")
    def work(ctx: Ctx) -> int:
        return 1

    driver = LosesAnswers(shop.driver)
    job_id = shop.enqueue(work)
    worker = shop.running(driver=driver)
    until(lambda: worker.stats.processed == 1)
    assert shop.job(job_id).state == "done"
    sent = [given["resent"] for name, _, given in driver.asked if name == "settle"]
    assert sent == [False, True]
    assert not logged(caplog.records, "jobs.settle.unowned")


def test_a_run_stays_in_flight_and_renewed_until_its_settle_is_answered(shop: Shop) -> None:
    """N-037, N-024: its thread takes the next job meanwhile."""

    @job(tenant="none", input=int)
    def work(ctx: Ctx, number: int) -> None: ...

    driver = BrokenDriver(shop.driver, "settle")
    ids = [shop.enqueue(work, number) for number in range(3)]
    worker = shop.running(driver=driver, concurrency=1, visibility="6s", renew_every="200ms")
    until(lambda: worker.stats.in_flight == 3)
    renewals = len(driver.calls("renew"))
    until(lambda: len(driver.calls("renew")) > renewals + 3)
    assert {shop.job(job_id).state for job_id in ids} == {"running"}
    assert {shop.job(job_id).claims for job_id in ids} == {1}
    driver.broken.clear()
    until(lambda: worker.stats.processed == 3)
    until(lambda: worker.stats.in_flight == 0)


def test_what_waits_goes_out_in_one_statement(shop: Shop) -> None:
    """N-034: as soon as the last one returned, however many there are."""

    @job(tenant="none", input=int)
    def work(ctx: Ctx, number: int) -> None: ...

    driver = BrokenDriver(shop.driver, "settle")
    work.enqueue_many(list(range(40)))
    worker = shop.running(driver=driver)
    until(lambda: worker.stats.in_flight == 40)
    tries = len(driver.calls("settle"))
    driver.broken.clear()
    until(lambda: worker.stats.processed == 40)
    assert len(driver.calls("settle")) - tries <= 4


def test_a_group_refused_for_its_data_is_sent_one_by_one(shop: Shop) -> None:
    """N-035: the one at fault settles without what the database would not take."""

    @job(tenant="none", input=int)
    def work(ctx: Ctx, number: int) -> str:
        return "poison" if number == 3 else "fine"

    class Picky(BrokenDriver):
        def control(self) -> Any:
            stores = super().control()
            settle = stores.jobs.settle

            def picky(settlements: list[Settlement], *, resent: bool = False) -> Any:
                if any(getattr(settlement.verdict, "result", None) == "poison" for settlement in settlements):
                    raise InvariantBroken("Postgres refused a value", fix="none", meta={"sqlstate": "22P05"})
                return settle(settlements, resent=resent)

            object.__setattr__(stores, "jobs", _Replaced(stores.jobs, picky))
            return stores

    ids = [shop.enqueue(work, number) for number in range(6)]
    worker = shop.running(driver=Picky(shop.driver))
    until(lambda: worker.stats.processed == 6)
    assert [shop.job(job_id).state for job_id in ids] == ["done"] * 6
    assert [shop.job(job_id).result for job_id in ids] == ["fine"] * 3 + [None] + ["fine"] * 2


def test_two_settlements_of_one_ledger_row_never_share_a_group(memory: Shop) -> None:
    """N-035."""
    from rowsweep.lifecycle import Lifecycle
    from rowsweep.queue.records import ClaimOptions
    from rowsweep.queue.verdicts import Done
    from rowsweep.signals import RunSignal
    from rowsweep.timers import RealTimers
    from rowsweep.worker.equipment import Equipment
    from rowsweep.worker.flights import Flight
    from rowsweep.worker.options import WorkerOptions
    from rowsweep.worker.settler import Answer, Settler

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    for _ in range(2):
        memory.enqueue(work)
    claimed = memory.driver.stores().jobs.claim(
        ClaimOptions(queues=["default"], names=["work"], worker_id="w", limit=2)
    )
    shared = claimed.jobs[0].run_id
    for row in claimed.jobs:
        memory.hands.edit(row.id, run_id=shared)
    from dataclasses import replace

    driver = BrokenDriver(memory.driver, "settle")
    answers: list[bool] = []
    answered = threading.Event()

    def answer(answered_together: Sequence[Answer]) -> None:
        answers.extend(landed for _, _, landed in answered_together)
        if len(answers) == 2:
            answered.set()

    settler = Settler(
        Equipment(
            worker_id="w",
            driver=cast("Driver", driver),
            context=lambda: None,
            options=WorkerOptions(),
            clock=SystemClock(),
            timers=RealTimers(),
            lifecycle=Lifecycle(),
        ),
        answer,
    )
    for row in claimed.jobs:
        flight = Flight(replace(row, run_id=shared), work, RunSignal(), claimed_at=0.0)
        settler.send(flight, Settlement(claim=flight.claim, verdict=Done(), sweep=True))
    until(lambda: len(driver.calls("settle")) >= 2)
    driver.broken.clear()
    assert answered.wait(60)
    settler.stop(5)
    assert answers == [True, True]
    assert {len(group) for (group,) in driver.calls("settle")} == {1}


def test_a_group_costs_the_same_however_many_wait_behind_it(memory: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-034: where runs end faster than the database takes their ends, what waits is not walked for each group."""
    walked, go, many = [0], threading.Event(), 4 * GROUP

    class Walked(deque[Any]):
        """Counts what is taken out of it."""

        def popleft(self) -> Any:
            walked[0] += 1
            return super().popleft()

        def __iter__(self) -> Iterator[Any]:
            walked[0] += len(self)
            return super().__iter__()

    class Slow(BrokenDriver):
        """A driver whose first settle is let go once most runs have ended."""

        def control(self) -> Any:
            stores = super().control()
            settle = stores.jobs.settle

            def slow(settlements: Any, *, resent: bool = False) -> Any:
                assert go.wait(30)
                return settle(settlements, resent=resent)

            object.__setattr__(stores, "jobs", _Replaced(stores.jobs, slow))
            return stores

    @job(tenant="none", input=int)
    def work(ctx: Ctx, number: int) -> None: ...

    monkeypatch.setattr("rowsweep.worker.settler.deque", Walked)
    work.enqueue_many(list(range(many)))
    driver = Slow(memory.driver)
    worker = memory.running(driver=driver, concurrency=100)
    assert worker._crew is not None
    settler = worker._crew._settler
    until(lambda: len(settler._waiting) >= many - GROUP)
    go.set()
    until(lambda: worker.stats.processed == many)
    assert walked == [many]
    assert max(len(group) for (group,) in driver.calls("settle")) == GROUP
