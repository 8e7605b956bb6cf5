"""One worker whose process stops itself, once, at a named point: behind its claim, or with the job's row locked."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Final

import rowsweep as rs
from rowsweep.queue.postgres.stores.holds.slots import PostgresSlots
from rowsweep.queue.postgres.stores.jobs import PostgresJobs
from rowsweep.queue.postgres.stores.steps import PostgresSteps

POINTS: Final[dict[str, tuple[type, str, Callable[[Any], bool]]]] = {
    "claimed": (PostgresJobs, "claim", lambda passed: bool(passed.jobs)),
    "granted": (PostgresSlots, "acquire", lambda slot: slot is not None),
    "fenced": (PostgresSteps, "guard", bool),
}
"""Where it stops: behind which call of the driver, by its answer."""


@rs.job("act", tenant="none", concurrency=1)
def act(ctx: rs.Ctx) -> None:
    """Note who did it, under the run's fence."""
    with ctx.transaction() as tx:
        tx.execute("insert into acts (pid) values (%s)", [os.getpid()])


def stop_at(point: str) -> None:
    """Stop this process the first time that it gets there."""
    store, name, is_there = POINTS[point]
    real: Callable[..., Any] = getattr(store, name)
    stopped = threading.Event()

    def stopping(*arguments: Any, **given: Any) -> Any:
        answer = real(*arguments, **given)
        if is_there(answer) and not stopped.is_set():
            stopped.set()
            # Sent to this very thread, which does not come back from the call; another one might stop a moment later.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return answer

    setattr(store, name, stopping)


def main() -> None:
    """Work until the process is killed."""
    from rowsweep.telemetry.console import configure_logging

    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--stop-at", choices=POINTS)
    parser.add_argument("--visibility", default="30s")
    given = parser.parse_args()
    configure_logging(json=True, level="debug")
    app = rs.connect(work=False, actor=given.name)
    if given.stop_at is not None:
        stop_at(given.stop_at)
    app.worker(id=given.name, visibility=given.visibility, poll="100ms", poll_floor="50ms", announce_every="1s").start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
