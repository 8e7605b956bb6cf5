"""The sweeps that this process has declared."""

from __future__ import annotations

from typing import Any

from rowsweep.errors import UnknownJob, nearest
from rowsweep.jobs.registry import find_job, registered_jobs
from rowsweep.sweeps.handle import Sweep


def is_backfill(value: object) -> bool:
    """Say whether this is a handle that `backfill()` made."""
    return isinstance(value, Sweep) and value.sweep_kind == "backfill"


def registered_sweeps() -> list[Sweep[Any]]:
    """Answer every declared sweep by name."""
    return [handle for handle in registered_jobs() if isinstance(handle, Sweep)]


def registered_backfills() -> list[Sweep[Any]]:
    """Answer every declared backfill by name."""
    return [sweep for sweep in registered_sweeps() if is_backfill(sweep)]


def get_sweep(name: str) -> Sweep[Any]:
    """Answer the sweep of this name; UnknownJob with the nearest names otherwise."""
    handle = find_job(name)
    if isinstance(handle, Sweep):
        return handle
    near = nearest(name, [sweep.name for sweep in registered_sweeps()])
    shown = ", ".join(map(repr, near)) or "none is close"
    raise UnknownJob(
        f"No sweep {name!r} is declared in this process (nearest: {shown}).",
        fix="rowsweep sweeps ls lists them; import the module that declares it, or name it with --app",
        meta={"name": name, "nearest": near},
    )
