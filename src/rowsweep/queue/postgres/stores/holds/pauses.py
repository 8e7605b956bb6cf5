"""Pauses on Postgres: rows that every claim reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.stores.holds import Pause, check_pair

if TYPE_CHECKING:
    import builtins

    from rowsweep.queue.postgres.statements.session import Session

_SQL = load(__name__)


class PostgresPauses:
    """Keep pauses in `x_job_pauses`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def pause(
        self, *, queue: str | None = None, name: str | None = None, reason: str | None = None, by: str | None = None
    ) -> Pause:
        """Hold a queue, a name, or a name on one queue from the next claim on."""
        check_pair(queue, name)
        values = {"queue": queue, "name": name, "reason": reason, "by": by}
        return _pause(self._session.rows(_SQL["pause"], values)[0])

    def resume(self, *, queue: str | None = None, name: str | None = None) -> bool:
        """Take away the pause of exactly this pair; its rows are due as they were."""
        check_pair(queue, name)
        return bool(self._session.rows(_SQL["resume"], {"queue": queue, "name": name})[0][0])

    def list(self) -> builtins.list[Pause]:
        """Answer the pauses, the oldest first."""
        return [_pause(row) for row in self._session.rows(_SQL["list"], {})]


def _pause(row: tuple[Any, ...]) -> Pause:
    queue, name, paused_at, paused_by, reason = row
    return Pause(queue=queue, name=name, paused_at=paused_at, paused_by=paused_by, reason=reason)
