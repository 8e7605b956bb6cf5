"""The relay: what it publishes, in which order, what it does with what cannot be, and how it ends."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

import rowsweep as rs
from rowsweep.clock import SystemClock, real_monotonic
from rowsweep.errors import DriverUnavailable, InvalidOption
from rowsweep.lifecycle import Lifecycle
from rowsweep.outbox.passes import RelayPass
from rowsweep.outbox.relay import OutboxRelay
from rowsweep.queue.postgres.outbox.places import PostgresOutboxPlace
from rowsweep.queue.records import JobFilter
from rowsweep.queue.stores.outbox import OutboxStore
from tests.outbox.conftest import queued, staged
from tests.worker.test_fork import in_child

OFTEN: dict[str, Any] = {"poll": "20ms", "poll_with_wake": "20ms", "poll_floor": "5ms"}


def outbox_of(app: rs.App) -> OutboxStore:
    found = app.stores().outbox
    assert found is not None
    return found


def until(ask: Any, *, seconds: float = 45.0) -> None:
    """Ask again and again until the answer is true."""
    give_up_at = real_monotonic() + seconds
    while not ask():
        assert real_monotonic() < give_up_at
        threading.Event().wait(0.005)


@contextmanager
def started(relay: OutboxRelay) -> Iterator[OutboxRelay]:
    relay.start()
    try:
        yield relay
    finally:
        relay.stop(deadline_at=real_monotonic() + 10)


@pytest.fixture
def place(shop_dsn: str) -> Iterator[PostgresOutboxPlace]:
    """The application's database, as a relay reaches it."""
    made = PostgresOutboxPlace(shop_dsn)
    yield made
    made.close()


def test_a_pass_publishes_what_is_staged_in_its_order(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """D-22, S-434: as the jobs they were staged as; the pass says exactly what it did."""
    with rs.transaction():
        answers = [job.enqueue(number, outbox=True, priority=number % 2) for number in range(5)]
    relay = app.relay(batch=3)
    first = relay.tick()
    assert first.claimed == first.published == tuple(answer.id for answer in answers[:3])
    assert (first.refused, first.dead) == ((), ())
    assert relay.tick().published == tuple(answer.id for answer in answers[3:])
    assert relay.tick().claimed == ()
    inspection = app.stores().inspection
    assert inspection is not None
    for number, answer in enumerate(answers):
        row = inspection.get(answer.id)
        assert row is not None
        assert (row.run_id, row.input, row.priority, row.state) == (answer.run_id, number, number % 2, "ready")
    assert len(inspection.list(JobFilter())) == 5


def test_what_is_staged_elsewhere_is_published_into_the_queue(
    queue_app: rs.App,
    job: rs.JobHandle[Any, Any],
    shop: psycopg.Connection[Any],
    place: PostgresOutboxPlace,
    shop_dsn: str,
) -> None:
    """S-356, D-22: over two databases; the row stays there as published."""
    with shop.transaction():
        answers = job.enqueue_many([1, 2, 3], tx=shop)
    relay = OutboxRelay(driver=queue_app.driver, place=place)
    assert relay.tick().published == tuple(answer.id for answer in answers)
    assert (queued(queue_app), staged(shop_dsn)) == ([1, 2, 3], [])
    kept = shop.execute("select published_at is not null, claimed_by from x_outbox").fetchall()
    assert kept == [(True, None)] * 3


def test_a_relay_works_behind_a_transaction_pooler(
    dsn: str, queue_app: rs.App, job: rs.JobHandle[Any, Any], shop: psycopg.Connection[Any], shop_dsn: str
) -> None:
    """N-023: nothing is prepared, set or listened to; it polls."""
    driver, place = rs.PostgresDriver(dsn, pooler=True), PostgresOutboxPlace(shop_dsn, pooler=True)
    assert place.listen() is None
    with started(OutboxRelay(driver=driver, place=place, **OFTEN)):
        with shop.transaction():
            job.enqueue(1, tx=shop)
        until(lambda: queued(queue_app) == [1])
    place.close()
    driver.close()


def test_a_row_whose_publication_was_not_marked_is_inserted_once(
    queue_app: rs.App, job: rs.JobHandle[Any, Any], shop: psycopg.Connection[Any], place: PostgresOutboxPlace
) -> None:
    """D-22, S-361: the id is the job's; also where that job has finished meanwhile, and beside others."""
    with shop.transaction():
        answers = job.enqueue_many([1, 2, 3], tx=shop)
    relay = OutboxRelay(driver=queue_app.driver, place=place)
    relay.tick()
    steering = queue_app.stores().steering
    assert steering is not None
    steering.cancel(answers[0].id)
    shop.execute("update x_outbox set published_at = null")
    shop.commit()
    assert sorted(relay.tick().published) == sorted(answer.id for answer in answers)
    assert queued(queue_app) == [1, 2, 3]
    assert relay.tick().claimed == ()


def test_a_staged_duplicate_of_a_live_key_is_published_as_that_job(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """D-22: two staged ones likewise."""
    job.enqueue(1, key="k")
    with rs.transaction():
        job.enqueue(2, key="k", outbox=True)
        job.enqueue(3, key="other", outbox=True)
        job.enqueue(4, key="other", outbox=True)
    assert len(app.relay().tick().published) == 3
    assert queued(app) == [1, 3]


def test_a_row_that_cannot_be_enqueued_blocks_no_other(
    queue_app: rs.App, job: rs.JobHandle[Any, Any], connection: psycopg.Connection[Any]
) -> None:
    """D-22: attempts, the error on the row, tried again on the curve."""
    refuse_the_input(connection, 2)
    with rs.transaction():
        answers = [job.enqueue(number, outbox=True) for number in range(5)]
    done = queue_app.relay().tick()
    assert done.published == tuple(answer.id for answer in answers if answer is not answers[2])
    assert done.refused == (answers[2].id,)
    assert queued(queue_app) == [0, 1, 3, 4]
    (row,) = outbox_of(queue_app).list(status="pending")
    assert (row.job.id, row.attempts, row.claimed_by) == (answers[2].id, 1, None)
    assert row.last_error is not None
    assert "no such number" in row.last_error


def test_after_its_last_attempt_a_row_is_dead_and_said_to_be(
    queue_app: rs.App,
    job: rs.JobHandle[Any, Any],
    connection: psycopg.Connection[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """D-22, D-31: after 20 attempts, `jobs.outbox.unpublishable`; retried, it is published once it can be."""
    refuse_the_input(connection, 2)
    with rs.transaction():
        answer = job.enqueue(2, outbox=True)
    relay = queue_app.relay()
    with caplog.at_level(logging.ERROR, logger="rowsweep"):
        for attempt in range(1, 21):
            assert caplog.records == []
            done = relay.tick()
            assert done.refused == (() if attempt == 20 else (answer.id,))
            connection.execute("update x_outbox set lease_until = null")
    assert done.dead == (answer.id,)
    (said,) = caplog.records
    fields: Any = said.__dict__["fields"]
    assert said.message == "jobs.outbox.unpublishable"
    assert (fields["outbox_id"], fields["job"], fields["attempts"]) == (str(answer.id), "send", 20)
    assert relay.tick().claimed == ()
    connection.execute("drop trigger refused on x_jobs")
    outbox_of(queue_app).retry([answer.id])
    assert relay.tick().published == (answer.id,)
    assert queued(queue_app) == [2]


def refuse_the_input(connection: psycopg.Connection[Any], number: int) -> None:
    """Let the database refuse jobs with this input, as a constraint of somebody's would."""
    connection.execute(
        f"""create function refused() returns trigger language plpgsql as $$
            begin if new.input = '{number}' then raise exception 'no such number'; end if; return new; end $$;
            create trigger refused before insert on x_jobs for each row execute function refused()"""
    )


def test_a_queue_that_is_away_costs_no_row_an_attempt(
    job: rs.JobHandle[Any, Any], dsn: str, queue_app: rs.App, shop: psycopg.Connection[Any], place: PostgresOutboxPlace
) -> None:
    """S-363, S-365: the pass raises, and what it had claimed is given back at once."""
    with shop.transaction():
        job.enqueue_many([1, 2], tx=shop)

    class Away:
        name = "away"

        def control(self) -> Any:
            raise DriverUnavailable("the database is away.", fix="wait")

    away: Any = Away()
    with pytest.raises(DriverUnavailable):
        OutboxRelay(driver=away, place=place).tick()
    rows = place.outbox.list()
    assert [(row.attempts, row.claimed_by, row.lease_until) for row in rows] == [(0, None, None)] * 2
    assert len(OutboxRelay(driver=queue_app.driver, place=place).tick().published) == 2


def test_a_pass_that_raises_is_said_and_the_next_one_comes(
    app: rs.App, job: rs.JobHandle[Any, Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-363: `jobs.outbox.tick-failed`, and the loop re-arms."""
    relay = app.relay(**OFTEN)
    run, failures = relay._pass.run, iter([DriverUnavailable("away.", fix="wait"), ValueError("odd")])

    def fail_twice(*given: Any) -> Any:
        for error in failures:
            raise error
        return run(*given)

    monkeypatch.setattr(relay._pass, "run", fail_twice)
    with rs.transaction():
        job.enqueue(1, outbox=True)
    with caplog.at_level(logging.ERROR, logger="rowsweep"), started(relay):
        until(lambda: queued(app) == [1])
    assert [record.message for record in caplog.records] == ["jobs.outbox.tick-failed"] * 2


def test_staging_wakes_the_relay(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """D-25: it would not have looked for a minute."""
    with started(app.relay(poll="1m", poll_with_wake="1m", poll_floor="1m")) as relay:
        until(lambda: relay._wake.is_proven)
        with rs.transaction():
            job.enqueue(1, outbox=True)
        until(lambda: queued(app) == [1])


def test_staging_in_another_database_wakes_its_relay(
    queue_app: rs.App, job: rs.JobHandle[Any, Any], shop: psycopg.Connection[Any], place: PostgresOutboxPlace
) -> None:
    """D-25: it listens where the rows are staged."""
    relay = OutboxRelay(driver=queue_app.driver, place=place, poll="1m", poll_with_wake="1m", poll_floor="1m")
    with started(relay):
        until(lambda: relay._wake.is_proven)
        with shop.transaction():
            job.enqueue(1, tx=shop)
        until(lambda: queued(queue_app) == [1])


def test_a_relay_looks_again_when_a_failed_row_is_due(
    queue_app: rs.App, job: rs.JobHandle[Any, Any], connection: psycopg.Connection[Any]
) -> None:
    """D-22: and not only when it would poll: a row waits a second at the most after its first failure."""
    refuse_the_input(connection, 1)
    with rs.transaction():
        job.enqueue(1, outbox=True)
    with started(queue_app.relay(poll="1m", poll_with_wake="1m", poll_floor="1m")):
        until(lambda: outbox_of(queue_app).list()[0].attempts >= 3)


@pytest.mark.parametrize("off", [timedelta(hours=1), timedelta(hours=-1)], ids=["ahead", "behind"])
def test_a_relay_whose_own_clock_is_off_looks_when_a_failed_row_is_due_and_no_earlier(
    queue_app: rs.App,
    job: rs.JobHandle[Any, Any],
    connection: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    off: timedelta,
) -> None:
    """D-22, S-385: how long a row waits is the database's to say."""

    class Off(SystemClock):
        def now(self) -> datetime:
            return super().now() + off

    looks: list[Any] = []
    run = RelayPass.run

    def noted(self: RelayPass, proof: str | None = None) -> Any:
        looks.append(proof)
        return run(self, proof)

    monkeypatch.setattr(RelayPass, "run", noted)
    monkeypatch.setattr("rowsweep.outbox.passes.random.random", lambda: 0.99)
    refuse_the_input(connection, 1)
    with rs.transaction():
        job.enqueue(1, outbox=True)
    relay = OutboxRelay(driver=queue_app.driver, clock=Off(), poll="1m", poll_with_wake="1m", poll_floor="1m")
    with started(relay):
        until(lambda: outbox_of(queue_app).list()[0].attempts >= 2)
    assert len(looks) <= 6


def test_published_rows_of_another_database_are_removed_by_its_relay(
    queue_app: rs.App, job: rs.JobHandle[Any, Any], shop: psycopg.Connection[Any], place: PostgresOutboxPlace
) -> None:
    """§8: seven days, as the purge keeps those of the queue's own database, which does not reach these."""
    with shop.transaction():
        job.enqueue_many(list(range(2_500)), tx=shop)
    shop.execute("update x_outbox set published_at = now() - interval '8 days' where (input)::int <> 7")
    shop.execute("update x_outbox set published_at = now() - interval '6 days' where (input)::int = 7")
    shop.commit()
    with started(OutboxRelay(driver=queue_app.driver, place=place, **OFTEN)):
        until(lambda: shop.execute("select input from x_outbox").fetchall() == [(7,)])


class Held:
    """A driver whose transactions wait until they are let go."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self.entered, self.let_go = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    @contextmanager
    def transaction(self, **given: Any) -> Iterator[Any]:
        self.entered.set()
        assert self.let_go.wait(60)
        with self._driver.transaction(**given) as opened:
            yield opened


def of_any(driver: Any) -> Any:
    """Let a stand-in pass for a driver."""
    return driver


@pytest.fixture
def held(app: rs.App, job: rs.JobHandle[Any, Any]) -> Iterator[Held]:
    """A driver to hold a pass up; one that a test left under way ends before its tables are dropped."""
    with rs.transaction():
        job.enqueue(1, outbox=True)
    made = Held(app.driver)
    yield made
    made.let_go.set()
    for thread in [one for one in threading.enumerate() if one.name == "rowsweep-relay"]:
        thread.join(20)
        assert not thread.is_alive()


def test_a_shutdown_polls_no_more_and_waits_for_the_pass_under_way(app: rs.App, held: Held) -> None:
    """S-364, S-318: the accept hook only stops polling, the close hook waits; both are handed back."""
    phases, driver = Lifecycle("20s"), held
    relay = OutboxRelay(driver=of_any(driver), lifecycle=phases, **OFTEN)
    relay.start()
    assert driver.entered.wait(60)
    assert "jobs.outbox.accept" in phases.names("accept")
    assert "jobs.outbox" in phases.names("close")
    ended = threading.Thread(target=phases.shutdown, args=("SIGTERM",), daemon=True)
    ended.start()
    until(lambda: relay.state == "draining")
    assert relay.tick().claimed == ()
    assert ended.is_alive()
    driver.let_go.set()
    ended.join(20)
    assert (relay.state, queued(app)) == ("stopped", [1])
    assert phases.names("accept") == phases.names("close") == []


def test_a_pass_that_outlasts_the_deadline_is_abandoned_and_said_to_be(
    held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    """S-364, S-316: the relay reaches `stopped`; what it had claimed is another's when the lease is over."""
    relay = OutboxRelay(driver=of_any(held), **OFTEN)
    relay.start()
    assert held.entered.wait(60)
    with caplog.at_level(logging.ERROR, logger="rowsweep"):
        relay.stop(deadline_at=real_monotonic() + 0.05)
    assert relay.state == "stopped"
    assert [record.message for record in caplog.records] == ["jobs.outbox.tick-failed"]


def test_a_relay_starts_again_with_one_pair_of_hooks(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """S-364: `drain_on_shutdown=False` opts out; stopping twice, or what never started, is nothing."""
    phases = Lifecycle()
    relay = OutboxRelay(driver=app.driver, lifecycle=phases, **OFTEN)
    relay.stop()
    for _ in range(2):
        relay.start()
        relay.start()
        assert phases.names("close") == ["jobs.outbox"]
        relay.stop()
        relay.stop()
        assert phases.names("close") == []
    relay.start()
    with rs.transaction():
        job.enqueue(1, outbox=True)
    until(lambda: queued(app) == [1])
    relay.stop()
    apart = OutboxRelay(driver=app.driver, lifecycle=phases, drain_on_shutdown=False)
    apart.start()
    assert phases.names("accept") == phases.names("close") == []
    apart.stop()


def test_passes_asked_for_at_once_are_one(app: rs.App, held: Held) -> None:
    """S-434: a tick during a pass joins it and gets its answer."""
    relay = OutboxRelay(driver=of_any(held))
    answers: list[Any] = []

    def tick() -> None:
        answers.append(relay.tick())

    both = [threading.Thread(target=tick, daemon=True) for _ in range(2)]
    both[0].start()
    assert held.entered.wait(60)
    both[1].start()
    until(lambda: sys._current_frames()[both[1].ident or 0].f_code.co_name == "wait")
    held.let_go.set()
    for one in both:
        one.join(20)
    assert [len(answer.published) for answer in answers] == [1, 1]
    assert queued(app) == [1]


@pytest.mark.parametrize(
    ("option", "value"),
    [("batch", 0), ("batch", True), ("batch", 1.5), ("attempts", 0), ("lease", "0s"), ("lease", 30), ("poll", "0s"),
     ("keep", "x"), ("poll_floor", float("nan"))],
)  # fmt: skip
def test_an_option_that_cannot_work_is_refused_early(app: rs.App, option: str, value: Any) -> None:
    """S-354, D-35, D-37."""
    with pytest.raises(InvalidOption, match=option):
        app.relay(**{option: value})


def test_a_forked_child_s_relay_is_idle_and_can_be_started(queue_app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """N-002: under an id of its own; the parent's goes on."""
    with started(queue_app.relay(poll="1m", poll_with_wake="1m", poll_floor="1m")) as relay:
        with rs.transaction():
            job.enqueue(0, outbox=True)
        until(lambda: relay._wake.is_proven and queued(queue_app) == [0])

        def begun() -> str:
            before, first = relay.state, relay.id
            relay.start()
            with rs.transaction():
                job.enqueue(1, outbox=True)
            until(lambda: queued(queue_app) == [0, 1])
            relay.stop()
            return f"{before} {relay.state} {str(os.getpid()) in first}"

        assert in_child(begun) == "idle stopped True"
        assert relay.state == "running"
        with rs.transaction():
            job.enqueue(2, outbox=True)
        until(lambda: queued(queue_app) == [0, 1, 2])
