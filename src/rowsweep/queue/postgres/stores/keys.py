"""Whether a finished job may come to life again: its key must not be a live job's."""

from __future__ import annotations

from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING

from rowsweep.errors import DuplicateJob, InvariantBroken
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.translate import is_live_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from rowsweep.queue.postgres.statements.session import Session

_SQL = load("rowsweep.queue.postgres.stores.jobs")


def refuse_taken_key(session: Session, job_id: UUID, key: tuple[str, str | None, str]) -> None:
    """Raise DuplicateJob where a live job holds the `(name, tenant, key)` of a finished one."""
    name, tenant_id, idempotency_key = key
    values = {"name": [name], "tenant_id": [tenant_id], "idempotency_key": [idempotency_key]}
    for _, holder, _, _ in session.rows(_SQL["find_live_by_key"], values):
        raise DuplicateJob(
            f"the live job {holder} of {name!r} has the key {idempotency_key!r} already.",
            fix=f"rowsweep jobs show {holder}",
            meta={"job_id": str(job_id), "holder": str(holder)},
        )


@contextmanager
def refusing_a_key_taken_meanwhile(name: str) -> Iterator[None]:
    """Raise DuplicateJob where another session's job came to live between the check of its key and the statement."""
    try:
        yield
    except InvariantBroken as error:
        if not is_live_key(error.__cause__):
            raise
        raise DuplicateJob(
            f"another live job of {name!r} took the same key at this moment.",
            fix=f"rowsweep jobs ls --name {quote(name)} --json",
            meta={"name": name},
        ) from error
