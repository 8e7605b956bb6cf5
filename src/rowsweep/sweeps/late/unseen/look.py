"""The second look of a sweep that nothing else tells which rows it has done: by a snapshot of its end."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from rowsweep.clock import real_monotonic
from rowsweep.sweeps.late.judging import written_by
from rowsweep.sweeps.late.unseen.scan import Key, Scan
from rowsweep.sweeps.late.unseen.snapshot import EndSnapshot
from rowsweep.sweeps.late.waiting import WriterWait
from rowsweep.sweeps.passes.position import Position, as_checkpoint
from rowsweep.sweeps.run import host
from rowsweep.sweeps.setup import settings_for

if TYPE_CHECKING:
    from psycopg.sql import Composed

    from rowsweep.jobs.values.json_form import Json
    from rowsweep.queue.stores.ledger import Wanted
    from rowsweep.sweeps.batch.work import PageWork
    from rowsweep.sweeps.setup import Setup

UNSEEN_STEP: Final = "sweep:unseen"
MOST_KEYS: Final = 10_000
_SHOWN_SECONDS: Final = 1.0
_STEERED_SECONDS: Final = 0.25
_LOOKING: Final = "a look for rows that came behind the sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Some of the rows that are surely due, by their keys, and where the pass stood when they were found.

    `doubtful` are rows of the same writers that were there before, as far as the table is looked over: None where they
    are not counted. `is_all` says that it is to its end.
    """

    number: int
    keys: tuple[Key, ...]
    began: Position
    doubtful: int | None
    is_all: bool

    @property
    def step(self) -> str:
        """The moving step under which they are swept."""
        return f"{UNSEEN_STEP}:{self.number}"

    def as_json(self) -> Json:
        """Answer the step's stored value."""
        keys: list[Json] = [list(key) for key in self.keys]
        began = self.began.as_json()
        return {
            "number": self.number, "keys": keys, "began": began, "doubtful": self.doubtful, "is_all": self.is_all
        }  # fmt: skip

    @classmethod
    def from_json(cls, stored: Any) -> Unseen:
        """Restore what the step stored."""
        return cls(
            number=stored["number"],
            keys=tuple(map(tuple, stored["keys"])),
            began=replace(as_checkpoint(stored["began"], UNSEEN_STEP), ended=False),
            doubtful=stored["doubtful"],
            is_all=stored["is_all"],
        )


class UnseenLook(WriterWait):
    """Take a snapshot behind the last page, wait, and sweep the rows that came since, some thousands at a time.

    Their keys are a durable step before the first of them is swept, so that a crash among them costs one batch. One
    before that loses the snapshot: that of the next attempt tells only what came behind it.
    """

    _work: PageWork
    _began_at: Any
    _listed: tuple[Key, ...] | None = None
    _snapshot: EndSnapshot | None = None

    @abstractmethod
    def _work_for(self, setup: Setup) -> PageWork:
        """Make what does a page of the look that is under way."""

    @abstractmethod
    def _walk(self, wanted: Wanted | None) -> None:
        """Do page after page until the end."""

    @abstractmethod
    def _count(self, also: Composed | None = None) -> int | None:
        """Count the matching rows for which a condition holds."""

    @abstractmethod
    def _not_set_aside(self) -> Composed | None:
        """Ask of a row whether it failed by itself before; None where none did."""

    def _look_by_snapshot(self) -> tuple[int, int | None] | None:
        """Wait, then sweep what came since the end; answer how many writers are open still, and the rows in doubt.

        None, and nothing is done, where no snapshot can be had.
        """
        if (stored := self._ctx.step.checkpoint(self._named(UNSEEN_STEP)).get()) is not None:
            return self._go_on(Unseen.from_json(stored))
        with closing(EndSnapshot(self._setup.table, self._ctx.signal)) as snapshot:
            settings = settings_for(
                self._sweep.spec, self._ctx.actor.tenant, cross_tenant=self._sweep.crosses_tenants, idle_ms=0
            )
            if not snapshot.take(self._sweep.place_on(host()), settings):
                return None
            self._snapshot = snapshot
            return self._look_behind(snapshot)

    def _go_on(self, unseen: Unseen) -> tuple[int, int | None]:
        """Do what is left of the rows that an attempt before found; whether there are more was known to it alone."""
        self._sweep_listed(unseen)
        known = self._known_writers()
        left = 0 if known is None else len(self._ask_writers(known)[0])
        return left, unseen.doubtful if unseen.is_all else None

    def _look_behind(self, snapshot: EndSnapshot) -> tuple[int, int | None]:
        known = self._known_writers()
        writers = known or self._kept(snapshot.writers)
        doubtful = 0 if known is None else self._count(written_by(known))
        is_any = not set(writers.open).isdisjoint(snapshot.writers.open)
        left = self._wait_for(writers)
        if is_any and (self._sweep.spec.rows.where is None or self._count() != 0):
            doubtful = self._sweep_unseen(snapshot, doubtful)
        return left, doubtful

    def _sweep_unseen(self, snapshot: EndSnapshot, doubtful: int | None) -> int | None:
        """Sweep what the snapshot does not have; answer how many rows are in doubt, `doubtful` of them beforehand."""
        statements = self._setup.statements(self._sweep.spec.rows)
        statements = replace(statements, also=self._not_set_aside())
        scan = Scan(self._source, statements, self._setup.params or {}, self._setup.upper, snapshot)
        note, number, in_all = self._ctx.step.checkpoint(self._named(UNSEEN_STEP)), 0, doubtful
        while not scan.ended:
            keys = self._scanned(scan)
            in_all = None if doubtful is None or snapshot.is_lost else doubtful + scan.doubtful
            if keys:
                number += 1
                began, is_all = replace(self._at, ended=False), scan.ended
                unseen = Unseen(number=number, keys=tuple(keys), began=began, doubtful=in_all, is_all=is_all)
                note.put(unseen.as_json())
                self._sweep_listed(unseen)
        return None if snapshot.is_lost else in_all

    def _scanned(self, scan: Scan) -> list[Key]:
        """Look over the table until enough rows are found to be worth a step; steered between pages."""
        keys: list[Key] = []
        began = heeded = real_monotonic()
        while not scan.ended and len(keys) < MOST_KEYS:
            keys += scan.next()
            now = real_monotonic()
            if now - heeded >= _STEERED_SECONDS:
                self._heed_latest()
                heeded = now
            if now - began >= _SHOWN_SECONDS and self._waiting_for != _LOOKING:
                self._show_waiting(_LOOKING)
        return keys

    def _sweep_listed(self, unseen: Unseen) -> None:
        self._step, self._began_at = self._named(unseen.step), unseen.began
        stored = self._ctx.step.checkpoint(self._step).get()
        self._at, self._stored = self._read_back(stored), stored is not None
        if not self._at.ended:
            self._listed = unseen.keys
            self._work = self._work_for(self._setup)
            self._walk(None)
