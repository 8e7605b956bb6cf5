"""The in-process limiter: what it counts, in which order it is asked, and what a worker does with it."""

from __future__ import annotations

import logging
import math
import threading
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidOption
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.testing.clock import FakeClock
from rowsweep.worker.admission.limiter import ConcurrencyLimiter, LimiterFull, LimiterLease
from tests.worker.shop import Shop, logged, until


def asked(limiter: ConcurrencyLimiter, queue: str = "default", tenant: str | None = None) -> LimiterLease | str:
    """Ask for one run; answer its lease, or the limit that is full."""
    got = limiter.acquire(queue=queue, tenant=tenant)
    return got.reason if isinstance(got, LimiterFull) else got


def leased(limiter: ConcurrencyLimiter, queue: str = "default", tenant: str | None = None) -> LimiterLease:
    """Ask for one run that must be let through."""
    got = asked(limiter, queue, tenant)
    assert isinstance(got, LimiterLease)
    return got


def test_it_is_public() -> None:
    """S-016."""
    assert rs.ConcurrencyLimiter is ConcurrencyLimiter


def test_without_a_limit_everything_is_let_through() -> None:
    """S-350: None is no limit."""
    limiter = ConcurrencyLimiter()
    assert all(isinstance(asked(limiter), LimiterLease) for _ in range(100))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"total": 2}, "total"),
        ({"per_queue": 2}, "per_queue"),
        ({"per_tenant": 2}, "per_tenant"),
        ({"rate_per_tenant": (2, "1m")}, "rate_per_tenant"),
    ],
)
def test_each_limit_is_full_at_its_number(given: dict[str, Any], reason: str) -> None:
    """S-350, D-34: the reason is the option's name."""
    limiter = ConcurrencyLimiter(**given)
    assert isinstance(asked(limiter), LimiterLease)
    assert isinstance(asked(limiter), LimiterLease)
    assert asked(limiter) == reason


@pytest.mark.parametrize("option", ["total", "per_queue", "per_tenant"])
def test_zero_is_a_hard_stop(option: str) -> None:
    """S-350: not "unlimited"."""
    assert asked(ConcurrencyLimiter(**{option: 0})) == option  # type: ignore[arg-type]
    assert asked(ConcurrencyLimiter(rate_per_tenant=(0, "1s"))) == "rate_per_tenant"


@pytest.mark.parametrize("bad", [-1, 1.5, math.nan, math.inf, "3", True])
def test_a_limit_that_is_no_count_is_refused(bad: Any) -> None:
    """S-350, S-353, D-35."""
    for option in ("total", "per_queue", "per_tenant"):
        with pytest.raises(InvalidOption):
            ConcurrencyLimiter(**{option: bad})
    with pytest.raises(InvalidOption):
        ConcurrencyLimiter(rate_per_tenant=(bad, "1s"))


@pytest.mark.parametrize("bad", [5, "5/s", (5,), (5, "0s"), (5, 60), (5, "soon"), [5, "1s"]])
def test_a_rate_that_is_no_limit_and_window_is_refused(bad: Any) -> None:
    """S-350, D-37."""
    with pytest.raises(InvalidOption):
        ConcurrencyLimiter(rate_per_tenant=bad)


def test_the_first_that_is_full_is_named_and_nothing_is_taken() -> None:
    """D-34: total, per_queue, per_tenant, rate_per_tenant."""
    limits: dict[str, Any] = {"total": 1, "per_queue": 1, "per_tenant": 1, "rate_per_tenant": (1, "1h")}
    order = list(limits)
    for start in range(len(order)):
        limiter = ConcurrencyLimiter(**{option: limits[option] for option in order[start:]})
        lease = leased(limiter, tenant="a")
        assert [asked(limiter, tenant="a") for _ in range(3)] == [order[start]] * 3
        lease.abandon()
        assert isinstance(asked(limiter, tenant="a"), LimiterLease)


def test_queues_and_tenants_are_counted_apart_and_rows_without_a_tenant_together() -> None:
    """S-351, D-34: the bucket is the row's `tenant_id`."""
    limiter = ConcurrencyLimiter(per_tenant=1, per_queue=2)
    leased(limiter, "a", "one")
    leased(limiter, "a", "two")
    assert asked(limiter, "a", "three") == "per_queue"
    assert asked(limiter, "b", "one") == "per_tenant"
    leased(limiter, "b", None)
    assert asked(limiter, "b", None) == "per_tenant"


def test_a_lease_is_given_back_once() -> None:
    """S-289."""
    limiter = ConcurrencyLimiter(total=1)
    lease = leased(limiter)
    lease.release()
    lease.release()
    lease.abandon()
    again = leased(limiter)
    assert asked(limiter) == "total"
    again.release()


def test_the_rate_is_a_sliding_window_of_starts() -> None:
    """D-34: a start counts until the window has passed, whether or not its run has ended."""
    clock = FakeClock()
    limiter = ConcurrencyLimiter(rate_per_tenant=(2, "10s"), clock=clock)
    leased(limiter, tenant="a").release()
    clock.advance("6s")
    leased(limiter, tenant="a").release()
    assert asked(limiter, tenant="a") == "rate_per_tenant"
    leased(limiter, tenant="b")
    clock.advance("4s")
    leased(limiter, tenant="a")
    assert asked(limiter, tenant="a") == "rate_per_tenant"


def test_a_run_that_never_began_takes_its_start_out_of_the_window() -> None:
    """S-289: one that began leaves it in."""
    limiter = ConcurrencyLimiter(rate_per_tenant=(1, "1h"))
    leased(limiter).abandon()
    leased(limiter).release()
    assert asked(limiter) == "rate_per_tenant"


def test_a_tenant_that_starts_nothing_more_is_forgotten() -> None:
    """S-350: what is kept for a rate does not grow with every tenant that there ever was; one in its window stays."""
    clock = FakeClock()
    limiter = ConcurrencyLimiter(rate_per_tenant=(1, "1m"), clock=clock)
    for number in range(500):
        leased(limiter, tenant=f"gone-{number}").release()
    clock.advance("59s")
    leased(limiter, tenant="kept").release()
    clock.advance("2s")
    for number in range(300):
        leased(limiter, tenant=f"new-{number}").release()
    assert not any(str(tenant).startswith("gone") for tenant in limiter._starts)
    assert asked(limiter, tenant="kept") == "rate_per_tenant"


def test_threads_that_ask_at_once_get_no_more_than_there_is() -> None:
    """S-350."""
    limiter = ConcurrencyLimiter(total=5)
    got: list[object] = []
    barrier = threading.Barrier(20)

    def ask() -> None:
        barrier.wait(10)
        got.append(asked(limiter))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len([one for one in got if isinstance(one, LimiterLease)]) == 5


def test_a_worker_sheds_what_its_limiter_does_not_let_through(memory: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-288, S-348, D-34: uncounted, with the limit's name as reason; it runs once there is room."""
    caplog.set_level(logging.INFO, "rowsweep")
    go = threading.Event()

    @job(tenant="none", input=int)
    def work(ctx: Ctx, value: int) -> None:
        assert go.wait(60)

    first, second = memory.enqueue(work, 1, tenant="a"), memory.enqueue(work, 2, tenant="a")
    other = memory.enqueue(work, 3, tenant="b")
    worker = memory.running(limiter=ConcurrencyLimiter(per_tenant=1))
    memory.until_state(first, "running")
    memory.until_state(other, "running")
    memory.until_state(second, "ready")
    fields = logged(caplog.records, "jobs.worker.shed")[0]
    assert (fields["job_id"], fields["reason"]) == (str(second), "per_tenant")
    assert memory.job(second).attempt == 0
    go.set()
    for job_id in (first, second, other):
        memory.until_state(job_id, "done")
    until(lambda: worker.stats.processed == 3)


@pytest.mark.slow
def test_workers_that_share_a_limiter_share_its_limits(memory: Shop) -> None:
    """S-352: it works within one process."""
    go, inside = threading.Event(), []

    @job("here", tenant="none", queue="here")
    def here(ctx: Ctx) -> None:
        inside.append("here")
        assert go.wait(60)

    @job("there", tenant="none", queue="there")
    def there(ctx: Ctx) -> None:
        inside.append("there")
        assert go.wait(60)

    ids = [memory.enqueue(here), memory.enqueue(there)]
    limiter = ConcurrencyLimiter(total=1)
    for queue in ("here", "there"):
        memory.running(queues=[queue], limiter=limiter)
    until(lambda: len(inside) == 1)
    until(lambda: sorted(memory.job(job_id).state for job_id in ids) == ["ready", "running"])
    go.set()
    for job_id in ids:
        memory.until_state(job_id, "done")


def test_a_worker_refuses_what_is_no_limiter(memory: Shop) -> None:
    """D-37."""
    with pytest.raises(InvalidOption):
        memory.worker(limiter=5)
