"""What is sent to Postgres, whichever way the package sends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from rowsweep.queue.postgres.statements.prepared import run_prepared


def note_statements(patch: pytest.MonkeyPatch, note: Callable[[str, Any], None]) -> None:
    """Tell `note` of each statement and its values, in the thread that sends it, just before it is sent."""
    execute = psycopg.Cursor.execute

    def executes(self: Any, query: Any, values: Any = None, **given: Any) -> Any:
        note(str(query), values)
        return execute(self, query, values, **given)

    def runs(connection: Any, text: Any, values: Any, **given: Any) -> Any:
        note(str(text), values)
        return run_prepared(connection, text, values, **given)

    patch.setattr(psycopg.Cursor, "execute", executes)
    patch.setattr("rowsweep.queue.postgres.statements.session.run_prepared", runs)
