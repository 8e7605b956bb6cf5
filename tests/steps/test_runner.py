"""Durable steps inside runs, over both drivers."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rowsweep.errors import Aborted, Draining, DuplicateStep, Interrupted, InvalidStepOutput, LeaseLost, StepKindChanged
from rowsweep.jobs.ambient import new_id
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.jobs.request import NewJob
from rowsweep.queue.records import ClaimOptions, Job, claim_of
from rowsweep.signals import RunSignal
from rowsweep.steps.context import RunCtx
from rowsweep.steps.runner import StepRunner
from tests.worker.shop import Shop, until

NOW = Retry(attempts=4, base="0s", jitter=False)


@dataclasses.dataclass
class Order:
    """A typed output."""

    number: int
    placed: dt.date


def claimed(shop: Shop) -> Job:
    """Put one job on the queue and claim it."""
    new = NewJob(
        id=new_id(), run_id=new_id(), name="j", queue="default", input=None, idempotency_key="k", max_attempts=3
    )
    shop.driver.stores().jobs.enqueue([new])
    passed = shop.driver.stores().jobs.claim(ClaimOptions(queues=["default"], names=["j"], worker_id="w", limit=1))
    return passed.jobs[0]


def runner_for(shop: Shop, claimed_job: Job, signal: RunSignal | None = None) -> StepRunner:
    """Answer a runner of a claimed job."""
    return StepRunner(
        driver=shop.driver,
        claim=claim_of(claimed_job),
        run_id=claimed_job.run_id,
        signal=signal or RunSignal(),
    )


def test_a_finished_step_is_not_run_again_after_a_crash(shop: Shop) -> None:
    """S-148, S-149, S-164: its stored output is answered, and the report says what was replayed."""
    calls: list[str] = []

    def charge() -> dict[str, int]:
        calls.append("charge")
        return {"paid": 5}

    @job(tenant="none", retry=NOW)
    def pay(ctx: Ctx) -> Any:
        paid = ctx.step.run("charge", charge)
        if ctx.attempt < 3:
            raise ConnectionError("crash after the step")
        return [paid, ctx.step.run("mail", lambda: "sent")]

    job_id = shop.enqueue(pay)
    worker = shop.worker()
    executions = []
    while shop.job(job_id).state != "done":
        executions += worker.tick()
    assert calls == ["charge"]
    assert shop.job(job_id).result == [{"paid": 5}, "sent"]
    assert [(execution.steps, execution.replayed) for execution in executions] == [
        (("charge",), ()),
        ((), ("charge",)),
        (("mail",), ("charge",)),
    ]


def test_a_step_answers_its_json_form_on_the_first_run_too(shop: Shop) -> None:
    """N-044: so a replay cannot differ; `returns` restores the type both times."""
    claim = claimed(shop)
    for _ in range(2):
        runner = runner_for(shop, claim)
        assert runner.run("plain", lambda: (1, dt.date(2025, 1, 2), {3: "x"})) == [1, "2025-01-02", {"3": "x"}]
        restored = runner.run("typed", lambda: Order(7, dt.date(2025, 1, 2)), returns=Order)
        assert restored == Order(7, dt.date(2025, 1, 2))
        assert runner.run("listed", lambda: [Order(1, dt.date(2025, 1, 2))], returns=list[Order])[0].number == 1


def test_a_name_comes_once_in_a_run(shop: Shop) -> None:
    """S-150, S-153: never an overwrite."""
    runner = runner_for(shop, claimed(shop))
    assert runner.run("one", lambda: 1) == 1
    with pytest.raises(DuplicateStep):
        runner.run("one", lambda: 2)
    with pytest.raises(DuplicateStep):
        runner.checkpoint("one")
    stored = runner.read("one")
    assert stored is not None
    assert stored.output == 1


def test_a_step_of_another_kind_is_refused(shop: Shop) -> None:
    """D-28: terminal."""
    claim = claimed(shop)
    runner_for(shop, claim).checkpoint("moving").put(1)
    with pytest.raises(StepKindChanged) as caught:
        runner_for(shop, claim).run("moving", lambda: 1)
    assert caught.value.retry == "terminal"


def test_a_body_that_raises_leaves_a_failed_row_and_runs_again(shop: Shop) -> None:
    """D-29: attempts counted, the error kept and passed on."""
    claim = claimed(shop)

    def fail() -> None:
        raise ValueError("no\x00pe")

    for attempts in (1, 2):
        runner = runner_for(shop, claim)
        with pytest.raises(ValueError, match="no"):
            runner.run("fragile", fail)
        stored = runner.read("fragile")
        assert stored is not None
        assert (stored.status, stored.attempts) == ("failed", attempts)
        assert (stored.error or "").startswith("ValueError: no\\x00pe")
    assert runner_for(shop, claim).run("fragile", lambda: "mended") == "mended"


@pytest.mark.parametrize(
    ("output", "path"),
    [
        ({"a": [1, math.nan]}, "$.a[1]"),
        ("nul \x00", "$"),
        (["\ud800"], "$[0]"),
        ({"x": object()}, "$.x"),
    ],
)
def test_an_output_that_cannot_be_stored_is_refused_with_its_path(shop: Shop, output: object, path: str) -> None:
    """N-012: and nothing is stored."""
    runner = runner_for(shop, claimed(shop))
    with pytest.raises(InvalidStepOutput) as caught:
        runner.run("bad", lambda: output)
    assert caught.value.meta["path"] == path
    assert runner.read("bad") is None


def test_a_stored_output_that_no_longer_fits_its_type_is_refused(shop: Shop) -> None:
    """N-044."""
    claim = claimed(shop)
    runner_for(shop, claim).run("typed", lambda: "seven")
    with pytest.raises(InvalidStepOutput):
        runner_for(shop, claim).run("typed", lambda: 7, returns=int)


def test_a_body_with_a_parameter_gets_the_signal(memory: Shop) -> None:
    """S-154: a default is the body's own."""
    signal = RunSignal()
    runner = runner_for(memory, claimed(memory), signal)
    seen: list[Any] = []

    def note(signal: Any) -> None:
        seen.append(signal)

    runner.run("with", seen.append)
    runner.run("without", lambda: seen.append(None))
    runner.run("bound", lambda value=3: seen.append(value))
    runner.run("keyword only", lambda *, value=4: seen.append(value))
    runner.run("partial", functools.partial(lambda value, signal: seen.append((value, signal)), 5))
    runner.run("decorated", decorated(note))
    assert seen == [signal, None, 3, 4, (5, signal), signal]


def decorated(body: Callable[[Any], None]) -> Callable[..., None]:
    """Wrap a function as a decorator of an application's would."""

    @functools.wraps(body)
    def wrapper(*args: Any) -> None:
        body(*args)

    return wrapper


def test_steps_are_read_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-151."""
    claim = claimed(shop)
    store = type(shop.driver.stores().steps)
    asked: list[Any] = []
    recorded = store.recorded

    def counted(self: Any, run_id: Any) -> Any:
        asked.append(1)
        return recorded(self, run_id)

    monkeypatch.setattr(store, "recorded", counted)
    runner = runner_for(shop, claim)
    for number in range(5):
        runner.run(f"step {number}", lambda: None)
    runner.checkpoint("c").get()
    assert asked == [1]


def test_an_aborted_run_writes_nothing(shop: Shop) -> None:
    """S-157: also a step that was under way."""
    signal = RunSignal()
    runner = runner_for(shop, claimed(shop), signal)
    with pytest.raises(Interrupted) as caught:
        runner.run("under way", lambda: signal.abort(Aborted("stop", fix="none")))
    assert isinstance(caught.value.reason, Aborted)
    assert runner.read("under way") is None
    with pytest.raises(Interrupted):
        runner.run("next", lambda: None)


def test_a_step_that_finishes_under_a_drain_is_recorded_and_no_other_begins(shop: Shop) -> None:
    """S-158, S-147."""
    signal = RunSignal()
    runner = runner_for(shop, claimed(shop), signal)
    assert runner.run("under way", lambda: signal.abort(Draining("deploy", fix="none"))) is True
    stored = runner.read("under way")
    assert stored is not None
    assert stored.status == "done"
    with pytest.raises(Interrupted):
        runner.run("next", lambda: None)


def test_an_ended_execution_writes_nothing(shop: Shop) -> None:
    """S-147: whatever its threads still do."""
    runner = runner_for(shop, claimed(shop))
    checkpoint = runner.checkpoint("c")
    runner.end()
    with pytest.raises(Interrupted):
        checkpoint.put(1)
    with pytest.raises(Interrupted):
        runner.run("late", lambda: 1)


@pytest.mark.parametrize("asks", ["before it ends", "only afterwards"])
def test_steps_that_are_kept_past_the_body_write_nothing(shop: Shop, asks: str) -> None:
    """S-147, S-141: also where the body itself had asked for none."""
    contexts: list[Ctx] = []

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        contexts.append(ctx)
        if asks == "before it ends":
            assert ctx.step.checkpoint("c").get() is None

    job_id = shop.enqueue(work)
    (execution,) = shop.worker().tick()
    assert execution.outcome == "completed"
    with pytest.raises(Interrupted):
        contexts[0].step.run("late", lambda: 1)
    with pytest.raises(Interrupted):
        contexts[0].step.checkpoint("late").put(1)
    assert not shop.steps(job_id)


def test_a_superseded_run_cannot_store_a_step(shop: Shop) -> None:
    """S-159: LeaseLost, remembered whatever the body makes of it."""
    claim = claimed(shop)
    runner = runner_for(shop, claim)
    shop.steal(claim.id)
    with pytest.raises(LeaseLost):
        runner.run("late", lambda: 1)
    assert runner.lost is not None
    assert runner.read("late") is None


def test_a_body_that_swallows_everything_cannot_eat_its_suspension(shop: Shop) -> None:
    """N-020, S-155: suspended, uncounted, and asked again at the next step."""
    seen: list[str] = []

    @job(tenant="none")
    def wait(ctx: Ctx) -> str:
        assert isinstance(ctx, RunCtx)
        try:
            ctx.suspend("later", 3600.0)
        except Exception:  # noqa: BLE001 - what an application may do
            seen.append("eaten")
        except BaseException:  # noqa: BLE001 - and what it should not
            seen.append("swallowed")
        try:
            ctx.step.run("after", lambda: seen.append("ran"))
        except BaseException as error:  # noqa: BLE001 - likewise
            seen.append(type(error).__name__)
        return "as if nothing had happened"

    job_id = shop.enqueue(wait)
    (execution,) = shop.worker().tick()
    assert seen == ["swallowed", "Suspend"]
    assert execution.outcome == "suspended"
    row = shop.job(job_id)
    assert (row.state, row.attempt, row.claims, row.result) == ("suspended", 0, 1, None)
    assert (row.run_at - row.updated_at).total_seconds() == pytest.approx(3600, abs=5)


def test_a_checkpoint_is_one_row_that_moves(shop: Shop) -> None:
    """N-045: and the last value is what the next execution finds."""

    @job(tenant="none", retry=NOW)
    def sweep(ctx: Ctx) -> Any:
        moving = ctx.step.checkpoint("pages")
        begun = moving.get()
        for page in range(begun["page"] if begun else 0, 50):
            if page == 20 and ctx.attempt == 1:
                raise ConnectionError("crash")
            moving.put({"page": page + 1})
        assert ctx.step.checkpoint("pages") is moving
        return begun

    job_id = shop.enqueue(sweep)
    worker = shop.worker()
    while shop.job(job_id).state != "done":
        worker.tick()
    assert shop.job(job_id).result == {"page": 20}
    (row,) = shop.steps(job_id).values()
    assert (row.kind, row.output) == ("checkpoint", {"page": 50})


def test_a_checkpoint_cannot_be_changed_behind_its_back(memory: Shop) -> None:
    """N-045."""
    moving = runner_for(memory, claimed(memory)).checkpoint("c")
    assert moving.get() is None
    value = {"seen": [1]}
    moving.put(value)
    value["seen"].append(2)
    moving.get()["seen"].append(3)
    assert moving.get() == {"seen": [1]}


def test_the_trace_stops_at_its_limit_and_uniqueness_does_not(memory: Shop) -> None:
    """S-153."""
    runner = runner_for(memory, claimed(memory))
    for number in range(205):
        runner.run(f"step {number}", lambda: None)
    assert len(runner.trace.steps) == 200
    with pytest.raises(DuplicateStep):
        runner.run("step 204", lambda: None)


def test_steps_may_be_run_from_threads_of_the_body(memory: Shop) -> None:
    """S-149: each is stored once."""
    runner = runner_for(memory, claimed(memory))
    threads = [
        threading.Thread(target=lambda at=at: runner.run(f"part {at}", lambda: at), name="rowsweep-part", daemon=True)
        for at in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    until(lambda: len(runner.trace.steps) == 8)


def conforms(ctx: RunCtx) -> Ctx:
    """Only type-checks: what a body is handed is what it is promised."""
    return ctx
