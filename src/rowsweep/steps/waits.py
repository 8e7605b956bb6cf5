"""Steps that wait: stored before the run parks, asked again on the database's clock when it is replayed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rowsweep.errors import InvalidOption, Suspend
from rowsweep.jobs import ambient
from rowsweep.options import duration
from rowsweep.queue.records import StepSleep

if TYPE_CHECKING:
    from rowsweep.queue.records import Step
    from rowsweep.steps.runner import StepRunner

LONGEST: Final = timedelta(days=36_525)


def sleep(runner: StepRunner, name: str, length: str | timedelta) -> None:
    """Go on where the sleep of this name is over; begin it, or park the run once more, where it is not."""
    seconds = wait_seconds(length, option="duration")
    runner.check_open()
    _refuse_in_transaction(name)
    runner.trace.enter(name, "sleep")
    stored = runner.stored(name, "sleep")
    if stored is None or stored.status != "done":
        asked = StepSleep(run_id=runner.run_id, name=name, seconds=seconds)
        step = runner.write(lambda steps: steps.sleep(asked, runner.claim))
        note(runner, name, stored)
        if step.status != "done":
            runner.suspend(Suspend(wake_at=step.wake_at))
    else:
        note(runner, name, stored)


def note(runner: StepRunner, name: str, stored: Step | None) -> None:
    """Keep the wait's name: begun here, or begun by an earlier execution and found again."""
    (runner.trace.note_ran if stored is None else runner.trace.note_replayed)(name)


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
