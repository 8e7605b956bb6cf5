"""Looking at the database: reach, room, clock, wake, and tables that outgrew their rows."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from rowsweep.clock import real_monotonic
from rowsweep.operate.health.finding import Finding, ago, fail, some, warn, well
from rowsweep.queue.wake import PROOF

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rowsweep.queue.contract import Driver
    from rowsweep.queue.stores.health import ServerFacts, TableFacts
    from rowsweep.queue.stores.workers import WorkerInfo
    from rowsweep.queue.wake import WakeSource

SKEW_SECONDS: Final = 5.0
PROOF_WITHIN_SECONDS: Final = 2.0
LEAST_CONNECTIONS: Final = 4
_CROWDED: Final = 0.9
_LONG_TRANSACTION_SECONDS: Final = 600.0
_DEAD_ROWS: Final = 10_000


def look_at_server(facts: ServerFacts, place: str) -> Finding:
    """Say which server answers, and whether it takes writes."""
    if facts.is_standby:
        return fail(
            "connection",
            f"the server at {place} is a standby: it takes no writes.",
            "point the DSN at the primary, such as host=a,b target_session_attrs=read-write",
        )
    return well("connection", f"PostgreSQL {facts.version} at {place}" if facts.version else place)


def look_at_room(facts: ServerFacts) -> Finding:
    """Say whether there are connections left, for the server and for the role."""
    limit, most = facts.role_limit, facts.max_connections
    if limit is not None and limit < LEAST_CONNECTIONS:
        return fail(
            "connections",
            f"the role {facts.role} may hold {limit}; a worker needs {LEAST_CONNECTIONS} of its own.",
            f'alter role "{facts.role}" connection limit 20',
        )
    if most is not None and facts.connections >= _CROWDED * most:
        return warn(
            "connections",
            f"{facts.connections} of {most} are in use.",
            "raise max_connections, or put a pooler in between: rs.connect(dsn, pooler=True)",
        )
    return well("connections", "no limit" if most is None else f"{facts.connections} of {most} in use")


def look_at_clock(facts: ServerFacts, local: datetime) -> Finding:
    """Compare this machine's clock with the database's, which decides everything."""
    skew = (local - facts.now).total_seconds()
    if abs(skew) > SKEW_SECONDS:
        which = "ahead of" if skew > 0 else "behind"
        return warn(
            "clock",
            f"this machine's clock is {abs(skew):.1f} s {which} the database's.",
            "set it by NTP: run_at, tasks and the instants in log lines are this machine's",
        )
    return well("clock", f"{round(skew, 1) + 0.0:+.1f} s beside the database's")


def look_at_wake(driver: Driver, workers: Sequence[WorkerInfo]) -> Finding:
    """Send a word to ourselves, as a worker proves its wake."""
    listen = getattr(driver, "listen", None)
    source: WakeSource | None = None if listen is None else listen()
    if source is None:
        return well("wake", "not used through a pooler: workers poll")
    try:
        is_heard = _is_heard(source)
    finally:
        source.close()
    if not is_heard:
        return warn(
            "wake",
            f"a word sent on the wake was not heard within {PROOF_WITHIN_SECONDS:g} s: workers poll every 2 s.",
            "a direct connection instead of a transaction pooler, or rs.connect(…, pooler=True)",
        )
    deaf = [f"{info.host}:{info.pid}" for info in workers if not info.wake]
    if deaf:
        return warn(
            "wake",
            f"{len(deaf)} of {len(workers)} live workers do not hear the wake and poll: {some(deaf)}.",
            "see jobs.wake.lost in their logs; with --pooler they always poll",
        )
    return well("wake", "heard: jobs start on commit")


def look_at_tables(tables: Sequence[TableFacts], facts: ServerFacts) -> Finding:
    """Say whether dead rows pile up, and what keeps them."""
    bloated = [table for table in tables if table.dead_rows > max(_DEAD_ROWS, table.live_rows)]
    holder = ""
    if facts.oldest_transaction_seconds > _LONG_TRANSACTION_SECONDS:
        age = ago(facts.oldest_transaction_seconds)
        holder = (
            f"pid {facts.oldest_transaction_pid} has had a transaction open for {age}, and nothing since is removed"
        )
    if bloated:
        shown = some(
            [f"{table.table} has {table.dead_rows:,} dead rows beside {table.live_rows:,}" for table in bloated]
        )
        fix = f"vacuum {', '.join(table.table for table in bloated)}"
        if holder:
            fix = f"select pg_terminate_backend({facts.oldest_transaction_pid}), then {fix}"
        return warn("tables", "; ".join(filter(None, [shown, holder])) + ".", fix)
    if holder:
        return warn("tables", f"{holder}.", f"select pg_terminate_backend({facts.oldest_transaction_pid})")
    return well("tables", "no dead rows pile up")


def _is_heard(source: WakeSource) -> bool:
    word = f"{PROOF}doctor:{uuid.uuid4().hex[:12]}"
    source.say(word)
    give_up_at = real_monotonic() + PROOF_WITHIN_SECONDS
    while (left := give_up_at - real_monotonic()) > 0:
        if word in source.hear(left):
            return True
    return False
