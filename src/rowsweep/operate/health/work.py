"""Looking at the work: who does it, what waits for it, and what has been given up."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Final

from rowsweep.operate.health.finding import Finding, ago, fail, some, warn, well

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowsweep.queue.stores.holds import Pause
    from rowsweep.queue.stores.workers import WorkerInfo
    from rowsweep.sweeps.snapshot import Snapshot
    from rowsweep.telemetry.instruments import Depth

LATE_SECONDS: Final = 60.0


def look_at_workers(workers: Sequence[WorkerInfo], depths: Sequence[Depth]) -> Finding:
    """Say whether anybody works."""
    ready = sum(depth.ready for depth in depths)
    if not workers:
        said = "no worker is alive: nothing is run"
        if ready:
            return fail("workers", f"{said}, and {ready:,} jobs are ready.", "rowsweep worker, or rowsweep up")
        return warn("workers", f"{said}.", "rowsweep worker, or rowsweep up")
    in_flight = sum(info.in_flight for info in workers)
    return well("workers", f"{len(workers)} alive, {in_flight:,} run{'s' * (in_flight != 1)} in flight")


def look_at_undeclared(undeclared: Sequence[tuple[str, str, int]], workers: Sequence[WorkerInfo]) -> Finding:
    """Say which waiting rows no live worker has code for."""
    if undeclared and workers:
        names = [f"{name} ({rows:,} on {queue})" for queue, name, rows in undeclared]
        return warn(
            "undeclared",
            f"waiting, and declared by no live worker: {some(names)}.",
            "work what declares it: rowsweep worker --app MODULE; rowsweep jobs ls --state ready",
        )
    return well("undeclared", "every waiting job is declared by a live worker" if workers else "no live worker to ask")


def look_at_ready(depths: Sequence[Depth]) -> Finding:
    """Say how long the oldest due job has waited."""
    ready = sum(depth.ready for depth in depths)
    worst = max(depths, key=lambda depth: depth.oldest_ready_seconds, default=None)
    if worst is not None and worst.oldest_ready_seconds > LATE_SECONDS:
        named = quote(worst.queue)
        at_least = "at least " if worst.is_capped else ""
        return warn(
            "ready",
            f"the oldest due job of the queue {worst.queue!r} has waited for {ago(worst.oldest_ready_seconds)}; "
            f"{at_least}{worst.ready:,} are ready there.",
            f"rowsweep worker --queue {named}, or a higher --concurrency; rowsweep jobs ls --queue {named}",
        )
    return well("ready", f"{ready:,} ready, none has waited for {LATE_SECONDS:g} s")


def look_at_pauses(pauses: Sequence[Pause]) -> Finding:
    """Say what is held on purpose, and by whom."""
    if pauses:
        return warn(
            "pauses",
            f"held: {some([_pause(pause) for pause in pauses])}.",
            f"rowsweep jobs resume{_flags(pauses[0])}; rowsweep jobs pauses",
        )
    return well("pauses", "nothing is held")


def look_at_dead(depths: Sequence[Depth]) -> Finding:
    """Say how many dead letters wait for somebody."""
    dead = [depth for depth in depths if depth.dead]
    if dead:
        shown = some([f"{depth.dead:,} on {depth.queue}" for depth in dead])
        return warn(
            "dead",
            f"dead letters: {shown}.",
            "rowsweep jobs dead, then rowsweep jobs requeue ID, or rowsweep jobs rm ID",
        )
    return well("dead", "no dead letter")


def look_at_sweeps(running: Sequence[Snapshot]) -> Finding:
    """Say which runs are `running` with nobody at work on them, and nobody to take them up."""
    stalled = [snapshot for snapshot in running if snapshot.words == "stalled"]
    if stalled:
        return fail(
            "sweeps",
            f"stalled, held by no live worker: {some([f'{run.name} ({run.run_id})' for run in stalled])}.",
            f"rowsweep worker, which takes it up again; rowsweep sweeps show {stalled[0].run_id}",
        )
    held = [f"{run.name} for {run.waiting_for}" for run in running if run.waiting_for not in (None, "rate")]
    waits = f"; waiting: {some(held)}" if held else ""
    return well("sweeps", f"{len(running)} at work, none stalled{waits}" if running else "none at work")


def _flags(pause: Pause) -> str:
    return "".join(
        f" --{flag} {quote(value)}" for flag, value in (("queue", pause.queue), ("name", pause.name)) if value
    )


def _pause(pause: Pause) -> str:
    what = " of ".join(
        filter(None, [pause.name and f"the job {pause.name!r}", pause.queue and f"the queue {pause.queue!r}"])
    )
    by = f" by {pause.paused_by}" if pause.paused_by else ""
    return f"{what} since {pause.paused_at:%Y-%m-%d %H:%M} UTC{by}" + (f" ({pause.reason})" if pause.reason else "")
