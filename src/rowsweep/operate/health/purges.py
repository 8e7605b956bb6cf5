"""Looking at purges: which were refused for what they would remove, and have not passed since."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from rowsweep.errors import ImplausiblePurge
from rowsweep.operate.health.finding import Finding, some, warn, well

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowsweep.sweeps.snapshot import Snapshot

_CONFIRM: Final = re.compile(r"--confirm (\d+(?:\.\d+)?)")


def look_at_purges(newest_first: Sequence[Snapshot]) -> Finding:
    """Say which purges are refused, with what lets them through: a schedule leaves a dead letter each time."""
    refused = _refused(newest_first)
    if not refused:
        return well("purges", "none is refused")
    last = next(iter(refused.values()))[0]
    name = shlex.quote(last.name)
    share = _CONFIRM.search(last.last_error or "")
    return warn(
        "purges",
        f"refused as implausible: {some([_told(runs) for runs in refused.values()])}; nothing is deleted until then.",
        f"rowsweep sweeps preview {name}, then rowsweep sweeps launch {name} --confirm {share[1] if share else '1'}; "
        f"where it is to remove as much each time, confirm= in its declaration; "
        f"its dead letters: rowsweep jobs rm --state dead --name {name}",
    )


def _refused(newest_first: Sequence[Snapshot]) -> dict[str, list[Snapshot]]:
    """Answer, by name, the runs that were refused since one of the name ended otherwise."""
    ended: dict[str, list[Snapshot]] = {}
    for run in newest_first:
        if run.status in ("done", "failed"):
            ended.setdefault(run.name, []).append(run)
    found = {
        name: list(takewhile(lambda run: run.last_error_code == ImplausiblePurge.code, runs))
        for name, runs in ended.items()
    }
    return {name: runs for name, runs in found.items() if runs}


def _told(runs: Sequence[Snapshot]) -> str:
    times = f"{len(runs):,} times, last" if len(runs) > 1 else "once,"
    return f"{runs[0].name} ({times} at {runs[0].updated_at:%Y-%m-%d %H:%M} UTC)"
