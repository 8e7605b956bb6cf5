"""The durable steps of one run: memoised by name, each stored under the run's claim before it is answered."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from rowsweep.errors import (
    Aborted,
    Draining,
    Interrupted,
    InvariantBroken,
    LeaseLost,
    StepKindChanged,
    Suspend,
    TimedOut,
)
from rowsweep.jobs.attempts.failure import failure_for_row
from rowsweep.queue.stores.steps import StepPut
from rowsweep.steps.checkpoint import MovingStep
from rowsweep.steps.options import StepOptions
from rowsweep.steps.output import output_form, restore
from rowsweep.steps.trace import StepTrace
from rowsweep.steps.waits import WAIT_TIMEOUT, Awaited, sleep, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterator
    from datetime import datetime, timedelta
    from uuid import UUID

    from rowsweep.errors import RowsweepError
    from rowsweep.queue.contract import Driver
    from rowsweep.queue.records import Claim
    from rowsweep.queue.stores.events import Event
    from rowsweep.queue.stores.steps import Recorded, Step, StepKind, StepStore
    from rowsweep.signals import RunSignal

Arm = Callable[[float, "RowsweepError"], Callable[[], None]]


_making = threading.Lock()


@dataclass(slots=True)
class _Memory:
    """What a run knows of its steps, made with the first of them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    trace: StepTrace = field(default_factory=StepTrace)
    stored: dict[str, Recorded] | None = None
    checkpoints: dict[str, MovingStep] = field(default_factory=dict)
    unawaited: dict[str, Coroutine[Any, Any, Any]] = field(default_factory=dict)


class StepRunner:
    """Run, store and replay the steps of one execution.

    It also remembers what decides how the execution ended, whatever its body made of it: a suspension that was asked
    for, a fence that did not hold, and progress for which the job counts its attempts anew.
    """

    # Of the class, and an instance's own once they are something else: one is made for every run.
    suspension: Suspend | None = None
    lost: LeaseLost | None = None
    has_restarted = False
    _ended = False
    _memory: _Memory | None = None

    def __init__(
        self,
        *,
        driver: Driver,
        claim: Claim,
        run_id: UUID,
        signal: RunSignal,
        options: StepOptions | None = None,
        arm: Arm | None = None,
    ) -> None:
        self.claim = claim
        self.options = options or StepOptions()
        self.run_id = run_id
        self._driver = driver
        self._signal = signal
        self._arm = arm

    @property
    def trace(self) -> StepTrace:
        """Answer which steps the run named."""
        return self._remembered.trace

    @property
    def has_steps(self) -> bool:
        """Say whether the run named any step, or asked for one that is stored."""
        return self._memory is not None

    @property
    def _remembered(self) -> _Memory:
        memory = self._memory
        if memory is None:
            with _making:
                memory = self._memory = self._memory or _Memory()
        return memory

    def run(self, name: str, body: Callable[..., Any], *, returns: Any = None, tx: Any = None) -> Any:
        """Run the body once in the life of the run; answer the JSON form of its output, through `returns` if given.

        A body with a parameter is handed the run's signal; a coroutine function makes the answer an awaitable. With
        `tx` the record commits with that transaction's work or not at all. What the body raises is kept on the step's
        row and goes on; a replay runs it again. Raises DuplicateStep, StepKindChanged, InvalidStepOutput, LeaseLost.
        """
        self.check_open()
        self.trace.enter(name, "run")
        stored = self.stored(name, "run")
        is_async = inspect.iscoroutinefunction(body)
        if stored is not None and stored.status == "done":
            self.trace.note_replayed(name)
            answer = restore(name, stored.output, returns)
            return _answered(answer) if is_async else answer
        if is_async:
            begun = self._remembered.unawaited[name] = self._run_async(name, body, returns, tx)
            return begun
        try:
            with self._deadline(name):
                output = self._call(body)
        except Exception as error:
            self._record_failure(name, error, tx)
            raise
        return self._keep(name, output, returns, tx)

    def checkpoint(self, name: str) -> MovingStep:
        """Answer the durable step of this name whose value moves in place; asked again, the same one."""
        self.check_open()
        checkpoints = self._remembered.checkpoints
        known = checkpoints.get(name)
        if known is None:
            self.trace.enter(name, "checkpoint")
            known = checkpoints[name] = MovingStep(self, name, self.stored(name, "checkpoint"))
        return known

    def sleep(self, name: str, duration: str | timedelta) -> None:
        """Leave until the duration has passed since this step was first reached, then go on; parked meanwhile."""
        sleep(self, name, duration)

    def wait_for_event(
        self,
        name: str,
        event: str,
        key: str | None = None,
        timeout: str | timedelta | None = WAIT_TIMEOUT,
        since: datetime | None = None,
    ) -> Event | None:
        """Leave until an event of this name and key is published, then answer it; None once the timeout has passed.

        Counted from when this step was first reached, or from `since`. Stored and replayed like any step.
        """
        return wait_for_event(self, name, Awaited(event=event, key=key, timeout=timeout, since=since))

    @property
    def looks_for_itself(self) -> bool:
        """Say whether no worker's look will make this run due when its event has come."""
        return self._driver.control().workers is None

    def suspend(self, request: Suspend) -> NoReturn:
        """Remember that the run asked to leave, then leave: a body that swallows it is asked again at its next step."""
        self.suspension = self.suspension or request
        raise self.suspension

    def never_awaited(self) -> InvariantBroken | None:
        """Refuse a run that asked for a step and never awaited it: nothing of that has run, and nobody would know."""
        unawaited = {} if self._memory is None else self._memory.unawaited
        for name, begun in unawaited.items():
            begun.close()
            return InvariantBroken(
                f"The step {name!r} of run {self.run_id} is a coroutine that was never awaited: nothing of it has run.",
                fix=f"await ctx.step.run({name!r}, …) in an async body",
                meta={"step": name},
            )
        return None

    def end(self) -> None:
        """Say that the execution is over: whatever its body still does, it writes nothing more."""
        self._ended = True

    def check_open(self) -> None:
        """Raise what stops a run from beginning anything: its suspension, its abort, its end."""
        if self.suspension is not None:
            raise self.suspension
        self._signal.raise_if_aborted()
        self._refuse_when_ended()

    def put(self, step: StepPut, *, tx: Any = None) -> None:
        """Write a step under the claim."""
        self.write(lambda steps: steps.put(step, self.claim), tx=tx)

    def write(self, send: Callable[[StepStore], Step], *, tx: Any = None) -> Step:
        """Send a fenced write of a step: the only way a run writes one.

        An aborted run writes nothing, except that one cut off by a drain may still record what it finished.
        """
        self._refuse_when_ended()
        if self._signal.aborted and not isinstance(self._signal.reason, Draining):
            raise Interrupted(self._signal.reason)
        try:
            return send(self._steps(tx))
        except LeaseLost as error:
            self.lost = error
            raise

    def read(self, name: str) -> Step | None:
        """Read one step as it is stored now."""
        return self._steps(None).get(self.run_id, name)

    def stored(self, name: str, kind: StepKind) -> Recorded | None:
        """Answer the step an earlier execution stored; all of them are read once, when the first is asked for."""
        memory = self._remembered
        with memory.lock:
            if memory.stored is None:
                memory.stored = self._steps(None).recorded(self.run_id)
            found = memory.stored.get(name)
        if found is not None and found.kind != kind:
            raise StepKindChanged(
                f"The step {name!r} of run {self.run_id} is stored as {found.kind!r}; the code asks for {kind!r}.",
                fix="give the step another name when its kind changes",
                meta={"step": name, "stored": found.kind, "asked": kind},
            )
        return found

    def _keep(self, name: str, output: object, returns: Any, tx: Any) -> Any:
        form = output_form(name, output)
        answer = restore(name, form, returns)
        self.put(StepPut(run_id=self.run_id, name=name, kind="run", status="done", output=form), tx=tx)
        self.trace.note_ran(name)
        return answer

    async def _run_async(self, name: str, body: Callable[..., Awaitable[Any]], returns: Any, tx: Any) -> Any:
        self._remembered.unawaited.pop(name, None)
        try:
            with self._deadline(name):
                output = await self._call(body)
        except Exception as error:
            self._record_failure(name, error, tx)
            raise
        return self._keep(name, output, returns, tx)

    @contextmanager
    def _deadline(self, name: str) -> Iterator[None]:
        """Abort the run where the block takes longer than a step may."""
        timeout = self.options.step_timeout
        if timeout is None or self._arm is None:
            yield
            return
        disarm = self._arm(timeout.total_seconds(), _step_is_late(name, self.run_id, timeout))
        try:
            yield
        finally:
            disarm()

    def _call(self, body: Callable[..., Any]) -> Any:
        return body(self._signal) if _takes_parameter(body) else body()

    def _record_failure(self, name: str, error: Exception, tx: Any) -> None:
        """Keep a failure on the step's row; the error itself matters more than a record that cannot be written.

        Inside a transaction nothing is kept: it is about to roll back, and may hold the job row this write needs.
        """
        self.trace.note_ran(name)
        if tx is not None or self.lost is not None:
            return
        text = failure_for_row(error).text
        try:
            self.put(StepPut(run_id=self.run_id, name=name, kind="run", status="failed", error=text))
        except (Exception, Interrupted) as unrecorded:  # noqa: BLE001 - the body's own error goes on
            error.add_note(f"The step {name!r} could not record this failure: {type(unrecorded).__name__}.")

    def _steps(self, tx: Any) -> StepStore:
        return (self._driver.stores() if tx is None else self._driver.join(tx)).steps

    def _refuse_when_ended(self) -> None:
        if self._ended:
            raise Interrupted(
                Aborted(
                    f"The execution of run {self.run_id} is over; it writes nothing more.",
                    fix="keep no thread of a body running after the body returned",
                )
            )


def _step_is_late(name: str, run_id: UUID, timeout: timedelta) -> TimedOut:
    seconds = timeout.total_seconds()
    return TimedOut(
        f"The step {name!r} of run {run_id} took longer than its job's step_timeout of {seconds:g} s.",
        fix=f'step_timeout="{max(round(2 * seconds), 1)}s" on the job where a step may take longer',
        meta={"step": name, "timeout_seconds": seconds},
    )


async def _answered(value: Any) -> Any:
    return value


def _takes_parameter(body: Callable[..., Any]) -> bool:
    """Say whether the body must be given a positional argument; one with a default is the body's own."""
    if isinstance(body, FunctionType) and not hasattr(body, "__wrapped__"):  # told at a tenth of a signature's cost
        return body.__code__.co_argcount > len(body.__defaults__ or ())
    try:
        parameters = inspect.signature(body).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
        for parameter in parameters
    )
