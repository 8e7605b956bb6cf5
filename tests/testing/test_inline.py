"""Running jobs in the test's own process, and asserting what is queued."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidInput, InvariantBroken, TimedOut
from rowsweep.testing import FakeClock, assert_enqueued, drain, run_inline


@pytest.fixture(params=["memory", "postgres"])
def app(request: pytest.FixtureRequest) -> rs.App:
    """A connected app over either driver."""
    app: rs.App = request.getfixturevalue(f"rowsweep_{request.param}")
    return app


def test_a_job_is_run_inline_and_answers_what_it_returned(app: rs.App) -> None:
    """N-115: by way of the queue: validated, with its steps, its input restored."""

    @rs.job("double", input=int, tenant="none")
    def double(ctx: rs.Ctx, value: int) -> dict[str, int]:
        return {"twice": ctx.step.run("calculate", lambda: value * 2)}

    assert run_inline(double, 21) == {"twice": 42}
    (job,) = assert_enqueued(double, 21, state="done")
    assert app.operate.get(job.id) is not None
    with pytest.raises(InvalidInput):
        run_inline(double, "no number")


def test_a_hook_was_told_by_then(app: rs.App) -> None:
    """N-115, N-037: a run is over once its `on_settled` was told, and what it said of its progress is stored."""
    told: list[rs.Settled[Any, Any]] = []

    @rs.job("double", input=int, tenant="none", on_settled=told.append)
    def double(ctx: rs.Ctx, value: int) -> int:
        ctx.progress(1, 1, "doubled")
        return value * 2

    assert run_inline(double, 21) == 42
    assert [(settled.outcome, settled.input, settled.result) for settled in told] == [("completed", 21, 42)]
    (job,) = assert_enqueued(double, 21, state="done")
    assert job.progress == {"current": 1, "total": 1, "message": "doubled"}


def test_what_a_body_raises_comes_out(app: rs.App) -> None:
    """N-115: at the first failed attempt, the very exception."""

    @rs.job("broken", tenant="none")
    def broken(ctx: rs.Ctx) -> None:
        raise LookupError("no such luck")

    with pytest.raises(LookupError, match="no such luck"):
        run_inline(broken)


def test_a_run_that_waits_says_so(app: rs.App) -> None:
    """N-115: nothing moves the clock but the test."""

    @rs.job("patient", tenant="none")
    def patient(ctx: rs.Ctx) -> str:
        ctx.step.sleep("an hour", "1h")
        return "awake"

    with pytest.raises(TimedOut, match="suspended"):
        run_inline(patient)


def test_a_moved_clock_makes_it_due() -> None:
    """N-115: the memory driver goes by the clock it is given."""

    @rs.job("patient", tenant="none")
    def patient(ctx: rs.Ctx) -> str:
        ctx.step.sleep("an hour", "1h")
        return "awake"

    clock = FakeClock()
    app = rs.connect(driver=rs.MemoryDriver(clock=clock), work=False)
    try:
        patient.enqueue()
        assert [execution.outcome for execution in drain()] == ["suspended"]
        assert drain() == []
        clock.advance(timedelta(hours=1))
        assert [execution.outcome for execution in drain()] == ["completed"]
    finally:
        app.close()


def test_all_that_is_due_is_drained_with_what_it_enqueues(app: rs.App) -> None:
    """N-115: until nothing is due; what is due later stays."""
    seen: list[int] = []

    @rs.job("count-down", input=int, tenant="none", queue="numbers")
    def count_down(ctx: rs.Ctx, value: int) -> None:
        seen.append(value)
        if value:
            count_down.enqueue(value - 1)

    count_down.enqueue(3)
    count_down.enqueue(9, delay="1h")
    assert len(drain()) == 4
    assert seen == [3, 2, 1, 0]
    assert_enqueued(count_down, 9, state="delayed", count=1)


def test_a_drain_that_never_ends_is_refused(app: rs.App) -> None:
    @rs.job("again", tenant="none")
    def again(ctx: rs.Ctx) -> None:
        again.enqueue()

    again.enqueue()
    with pytest.raises(InvariantBroken, match="enqueue itself"):
        drain(most=5)


def test_what_is_asserted_must_be_there(app: rs.App) -> None:
    """N-115: and the failure says what is there instead."""

    @rs.job("mail", input=str, tenant="none")
    def mail(ctx: rs.Ctx, to: str) -> None: ...

    with pytest.raises(AssertionError, match="none"):
        assert_enqueued(mail)
    mail.enqueue("ann@example.com", priority=3)
    mail.enqueue("bob@example.com")
    assert len(assert_enqueued(mail)) == 2
    assert_enqueued("mail", "ann@example.com", priority=3, count=1)
    assert_enqueued(mail, "eve@example.com", count=0)
    for wrong in ({"input": "eve@example.com"}, {"count": 1}, {"state": "dead"}):
        given: dict[str, Any] = dict(wrong)
        with pytest.raises(AssertionError, match=r"bob@example\.com"):
            assert_enqueued(mail, **given)
    with pytest.raises(TypeError, match="colour"):
        assert_enqueued(mail, colour="red")
