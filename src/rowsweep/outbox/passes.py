"""One pass of a relay: claim staged rows, enqueue what they stand for, mark them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rowsweep.errors import DriverUnavailable, NotImplementedByDriver, SchemaMissing, SchemaOutdated, TimedOut
from rowsweep.jobs.attempts.failure import failure_for_row
from rowsweep.jobs.attempts.retry import Retry, backoff_seconds
from rowsweep.outbox.enqueue import no_outbox
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from uuid import UUID

    from rowsweep.outbox.options import RelayOptions
    from rowsweep.queue.contract import Driver, Stores
    from rowsweep.queue.stores.outbox import OutboxPlace, OutboxStore, StagedJob

# What says that a database is not to be had, and nothing about a row.
_NOT_THE_ROW: Final = (DriverUnavailable, SchemaMissing, SchemaOutdated, TimedOut, NotImplementedByDriver)
_CURVE: Final = Retry()


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """What one pass did, by ids: taken under the lease, published, put off after a failure, and given up on.

    `next_in_seconds` is when the next row is due, as far as the pass saw.
    """

    claimed: tuple[UUID, ...] = ()
    published: tuple[UUID, ...] = ()
    refused: tuple[UUID, ...] = ()
    dead: tuple[UUID, ...] = ()
    next_in_seconds: float | None = None


@dataclass(slots=True)
class _Done:
    published: list[UUID] = field(default_factory=list)
    refused: list[UUID] = field(default_factory=list)
    dead: list[UUID] = field(default_factory=list)
    due_in: list[float] = field(default_factory=list)


class RelayPass:
    """Publish what one relay claims. An id is inserted once, however often its row is published."""

    def __init__(self, driver: Driver, place: OutboxPlace | None, relay: str, options: RelayOptions) -> None:
        self._driver = driver
        self._place = place
        self._relay = relay
        self._options = options

    def run(self, proof: str | None = None) -> Relayed:
        """Claim a batch and publish it; what a lost connection leaves unpublished is given back, then raised."""
        taken = self._outbox().claim(
            self._relay, limit=self._options.batch, lease_seconds=self._options.seconds("lease"), proof=proof
        )
        done = _Done()
        try:
            self._publish(taken.rows, done)
        except BaseException:
            ended = {*done.published, *done.refused, *done.dead}
            with contextlib.suppress(Exception):  # what ended the pass is raised; the lease ends by itself
                self._outbox().release([row.job.id for row in taken.rows if row.job.id not in ended], self._relay)
            raise
        return Relayed(
            claimed=tuple(row.job.id for row in taken.rows),
            published=tuple(done.published),
            refused=tuple(done.refused),
            dead=tuple(done.dead),
            next_in_seconds=min([s for s in (taken.next_in_seconds, *done.due_in) if s is not None], default=None),
        )

    def _publish(self, rows: Sequence[StagedJob], done: _Done) -> None:
        """Publish rows together; where that fails for what is in them, each by itself, so that it blocks no other."""
        if not rows:
            return
        try:
            done.published += self._published(rows)
        except _NOT_THE_ROW:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a row brings about is that row's
            if len(rows) == 1:
                self._refuse(rows[0], error, done)
                return
            for row in rows:
                self._publish([row], done)

    def _published(self, rows: Sequence[StagedJob]) -> list[UUID]:
        ids = [row.job.id for row in rows]
        if self._place is not None:
            self._driver.control().jobs.enqueue([row.job for row in rows])
            return self._place.outbox.publish(ids, self._relay)
        with self._driver.transaction() as opened:
            mine = set(_outbox_of(opened.stores, self._driver).publish(ids, self._relay))
            opened.stores.jobs.enqueue([row.job for row in rows if row.job.id in mine])
            return [row for row in ids if row in mine]

    def _refuse(self, row: StagedJob, error: Exception, done: _Done) -> None:
        if self._is_there(row):
            done.published += self._outbox().publish([row.job.id], self._relay)
            return
        delay = backoff_seconds(_CURVE, row.attempts + 1, random.random())
        refused = self._outbox().refuse(
            row.job.id,
            self._relay,
            error=failure_for_row(error).text,
            delay_seconds=delay,
            attempts=self._options.attempts,
        )
        if refused is None:
            return
        if refused.status == "dead":
            done.dead.append(row.job.id)
            emit(
                "jobs.outbox.unpublishable",
                outbox_id=str(row.job.id),
                job=row.job.name,
                attempts=refused.attempts,
                error=error,
            )
        else:
            done.refused.append(row.job.id)
            done.due_in.append(delay)

    def _is_there(self, row: StagedJob) -> bool:
        """Say whether the job was inserted by a publication that was not marked: its relay died in between."""
        inspection = self._driver.control().inspection
        return inspection is not None and inspection.get(row.job.id) is not None

    def _outbox(self) -> OutboxStore:
        return _outbox_of(self._driver.control(), self._driver) if self._place is None else self._place.outbox


def _outbox_of(stores: Stores, driver: Driver) -> OutboxStore:
    if stores.outbox is None:
        raise no_outbox(driver)
    return stores.outbox
