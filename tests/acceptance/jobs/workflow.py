"""The workflow under test: thirty steps with effects, sleeps and events; as a script, one worker that may die in it."""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from typing import Any

import rowsweep as rs

STEPS = 30
SLEEPS, WAITS = 3, 4
BOUNDARIES = [
    f"{when} {number}"
    for number in range(STEPS)
    for when in (("before", "after") if number % 5 in (SLEEPS, WAITS) else ("before", "within", "after"))
]
_given = argparse.Namespace(die_at=None, pause=0.0)


@rs.job("workflow", tenant="none", retry=rs.Retry(attempts=10_000, base="0s"), event_poll="1s")
def workflow(ctx: rs.Ctx) -> list[Any]:
    """Note each effect once: in the transaction that records its step."""
    heard = []
    for number in range(STEPS):
        boundary("before", number)
        if number % 5 == SLEEPS:
            ctx.step.sleep(f"step {number}", "20ms")
        elif number % 5 == WAITS:
            event = ctx.step.wait_for_event(f"step {number}", "go", str(number), timeout="1h")
            heard.append(None if event is None else event.payload)
        else:
            note(ctx, number)
        boundary("after", number)
    return heard


def note(ctx: rs.Ctx, number: int) -> None:
    """Insert the effect of a step and record the step, together or not at all."""
    with ctx.transaction() as tx:

        def effect() -> int:
            tx.execute("insert into effects (step) values (%s)", [number])
            boundary("within", number)
            return number

        assert ctx.step.run(f"step {number}", effect, tx=tx) == number


def boundary(when: str, number: int) -> None:
    """Die here if that was asked for, as a killed process does: nothing is flushed, closed or told."""
    if _given.pause:
        time.sleep(_given.pause)
    if _given.die_at == f"{when} {number}":
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Work the workflow until this process is killed."""
    from rowsweep.telemetry.console import configure_logging

    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--die-at")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.parse_args(namespace=_given)
    configure_logging(json=True, level="info")
    app = rs.connect(work=False, actor=_given.name)
    app.worker(id=_given.name, concurrency=1, poll="50ms", poll_floor="10ms").start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
