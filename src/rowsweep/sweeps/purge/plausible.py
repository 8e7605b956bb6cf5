"""Whether what a purge is about to remove is plausible, beside its table and beside what it usually removes."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rowsweep.errors import ImplausiblePurge

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import LedgerStore
    from rowsweep.sweeps.purge.targets.setup import TargetSetup

PLAUSIBLE_SHARE: Final = 0.2
_TIMES_ITS_MEDIAN: Final = 10
_LEAST_PASSES: Final = 3
_LOOKED_AT: Final = 50


def refuse_implausible(
    sweep: str,
    setups: Mapping[str, TargetSetup],
    *,
    confirm: float | None,
    most_rows: int,
    ledger: LedgerStore | None,
) -> None:
    """Refuse a purge about to remove more of a table than 20 %, or than ten times its median pass.

    A `confirm` at or above the share lets it through either. The median is over the passes of the last 30 days that
    removed anything, from three on; `most_rows` is what a pass may remove at all. Raises ImplausiblePurge.
    """
    limit = max(confirm or 0.0, PLAUSIBLE_SHARE)
    over = {target: setup for target, setup in setups.items() if setup.share > limit}
    if over:
        raise _refused(sweep, over, f"more than {limit:.0%} of {'it' if len(over) == 1 else 'each'}")
    usual = _median(sweep, ledger)
    expected = min(sum(setup.expected or 0 for setup in setups.values()), most_rows)
    if usual is None or expected <= _TIMES_ITS_MEDIAN * usual:
        return
    target, setup = max(setups.items(), key=lambda item: item[1].expected or 0)
    if (confirm or 0.0) < setup.share:
        raise _refused(sweep, {target: setup}, f"and a pass of this purge usually removes {usual:,.0f} rows")


def _median(sweep: str, ledger: LedgerStore | None) -> float | None:
    done = [] if ledger is None else ledger.list(name=sweep, status="done", kind="purge", limit=_LOOKED_AT)
    rows = [row.rows for row in done if row.rows]
    return statistics.median(rows) if len(rows) >= _LEAST_PASSES else None


def _refused(sweep: str, over: Mapping[str, TargetSetup], why: str) -> ImplausiblePurge:
    """Name every target that is too much at once: who confirms one share would only be refused for the next."""
    target, setup = max(over.items(), key=lambda item: item[1].share)
    named = min(math.ceil(setup.share * 100) / 100, 1.0)
    command = f"rowsweep run {shlex.quote(sweep)} --confirm {named:g}"
    return ImplausiblePurge(
        f"{sweep!r} would remove {', '.join(map(_amount, over.values()))}, {why}; nothing was deleted.",
        fix=f"look with preview(); then launch(confirm={named:g}), or {command}",
        meta={
            "sweep": sweep,
            "target": target,
            "share": round(setup.share, 4),
            "shares": {name: round(one.share, 4) for name, one in over.items()},
            "rows": setup.expected,
            "total": setup.total,
            "confirm": named,
        },
    )


def _amount(setup: TargetSetup) -> str:
    about = "" if setup.expected_is == "count" and setup.total_is == "count" else "about "
    rows = f"{about}{setup.expected or 0:,} of the {setup.total or 0:,} rows"
    return f"{rows} of {setup.table.qualified} ({setup.share:.1%})"
