"""Steps that wait: stored before the run parks, asked again on the database's clock when it is replayed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from rowsweep.errors import InvalidOption, Suspend
from rowsweep.jobs import ambient
from rowsweep.jobs.request import check_text
from rowsweep.options import duration
from rowsweep.queue.stores.events import Event, StepWait, check_instant
from rowsweep.queue.stores.steps import Recorded, Step, StepSleep

if TYPE_CHECKING:
    from rowsweep.queue.stores.steps import StepKind
    from rowsweep.steps.runner import StepRunner

LONGEST: Final = timedelta(days=36_525)
WAIT_TIMEOUT: Final = timedelta(hours=24)
Stored = Step | Recorded
_UNENDING_SECONDS: Final = timedelta(days=365).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """What a wait is for: an event's name and key, for how long (None: without end), counted since when."""

    event: str
    key: str | None = None
    timeout: str | timedelta | None = WAIT_TIMEOUT
    since: datetime | None = None

    def __post_init__(self) -> None:
        check_text(self.event, option="event")
        if self.key is not None:
            check_text(self.key, option="key")
        if self.timeout is not None:
            wait_seconds(self.timeout, option="timeout")
        if self.since is not None:
            check_instant(self.since, option="since")

    @property
    def timeout_seconds(self) -> float | None:
        """Answer the timeout in seconds."""
        return None if self.timeout is None else wait_seconds(self.timeout, option="timeout")


def sleep(runner: StepRunner, name: str, length: str | timedelta) -> None:
    """Go on where the sleep of this name is over; begin it, or park the run once more, where it is not."""
    seconds = wait_seconds(length, option="duration")
    step: Stored | None = _enter(runner, name, "sleep")
    if step is None or step.status == "waiting":
        asked = StepSleep(run_id=runner.run_id, name=name, seconds=seconds)
        step = runner.write(lambda steps: steps.sleep(asked, runner.claim))
    if isinstance(step, Step) and step.status == "waiting":
        runner.suspend(Suspend(wake_at=step.wake_at))


def wait_for_event(runner: StepRunner, name: str, awaited: Awaited) -> Event | None:
    """Answer the event of this wait, or None for its timeout; begin it, or park once more, where neither has come."""
    step: Stored | None = _enter(runner, name, "event")
    if step is None or step.status == "waiting":
        asked = StepWait(
            run_id=runner.run_id,
            name=name,
            event=awaited.event,
            key=awaited.key,
            timeout_seconds=awaited.timeout_seconds,
            since=awaited.since,
        )
        step = runner.write(lambda steps: steps.wait(asked, runner.claim))
    if isinstance(step, Step) and step.status == "waiting":
        runner.suspend(_until_event(runner, step, awaited))
    return None if step.status == "timed-out" else Event.of(step.output)


def _enter(runner: StepRunner, name: str, kind: StepKind) -> Recorded | None:
    """Take the wait's name, and answer what an earlier execution stored of it."""
    runner.check_open()
    _refuse_in_transaction(name)
    runner.trace.enter(name, kind)
    stored = runner.stored(name, kind)
    (runner.trace.note_ran if stored is None else runner.trace.note_replayed)(name)
    return stored


def _until_event(runner: StepRunner, step: Step, awaited: Awaited) -> Suspend:
    """Park until the timeout: a publication or a poll makes the run due before; with neither it looks by itself."""
    if runner.looks_for_itself:
        limit = awaited.timeout_seconds
        poll = runner.options.event_poll.total_seconds()
        return Suspend(delay_seconds=poll if limit is None else min(poll, limit))
    return Suspend(delay_seconds=_UNENDING_SECONDS) if step.wake_at is None else Suspend(wake_at=step.wake_at)


def wait_seconds(length: object, *, option: str) -> float:
    """Answer a wait's length in seconds, at most a century: an instant beyond what Postgres keeps is no instant."""
    chosen = duration(length, option=option)
    if chosen > LONGEST:
        raise InvalidOption(
            f"{option} must be at most {LONGEST.days:,} days; got {length!r:.80}.",
            fix=f'{option}="{LONGEST.days}d"',
            meta={"option": option},
        )
    return chosen.total_seconds()


def _refuse_in_transaction(name: str) -> None:
    """Refuse to park inside an open transaction: leaving would roll it back, and it may hold the job's own row."""
    if ambient.open_transaction() is not None:
        raise InvalidOption(
            f"The step {name!r} waits inside an open transaction, which could not outlast the wait.",
            fix="leave the `with …transaction():` block before ctx.step.sleep or ctx.step.wait_for_event",
            meta={"step": name},
        )
