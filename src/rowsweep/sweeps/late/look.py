"""The second look: behind its last page a pass waits for open transactions, then sweeps what they left behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import psycopg

from rowsweep.sweeps.keyset.expressions import cursor_values
from rowsweep.sweeps.late.aside import not_set_aside
from rowsweep.sweeps.late.attached import find_attached
from rowsweep.sweeps.late.judging import Look, Proof, is_proved, judge, needs_snapshot, written_by
from rowsweep.sweeps.late.seeking import seeking
from rowsweep.sweeps.late.spending import Spending
from rowsweep.sweeps.late.unseen.look import UnseenLook
from rowsweep.sweeps.poison.retry import finder_over
from rowsweep.sweeps.setup import count_rows
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from psycopg.sql import Composed

    from rowsweep.queue.stores.rejected import RejectedRow
    from rowsweep.sweeps.batch.pages import PageFinder
    from rowsweep.sweeps.late.writers import Writers
    from rowsweep.sweeps.setup import Matching, Setup

LATE_STEP: Final = "sweep:late"
LEFT_STEP: Final = "sweep:left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """What came of late commits: rows swept by the second look, transactions that outlived the wait, rows in doubt.

    `unsure` are rows that may have been done, or not: open transactions wrote them, or they came with a partition that
    was attached under way; None where they were not counted.
    `proved` says that the rows themselves tell what is due, so that nothing is missed that was committed by then. Else
    only the transactions that were open at the last page were looked for: what others left behind it is not known.
    """

    rows: int = 0
    writers: int = 0
    unsure: int | None = 0
    proved: bool = False

    def as_json(self) -> dict[str, int | bool | None]:
        """Answer it as a part of the run's result."""
        return {"rows": self.rows, "writers": self.writers, "unsure": self.unsure, "proved": self.proved}


class SecondLook(UnseenLook):
    """What the pass of a backfill does between its last page and its end.

    Who had written to the table and was open at the last page is a durable step, the rows found are swept through the
    same batches under a moving step of their own: a crash in any of it costs at most the batch in flight.
    """

    _look: Look | None = None
    _seeks: bool = False
    _late: Late = Late()

    def _finder_over(self, setup: Setup) -> PageFinder:
        """Answer what finds the pages of the look that is under way."""
        statements = setup.statements(self._sweep.spec.rows)
        if self._look is None:
            return finder_over(
                self._source, setup if self._listed is None else replace(setup, only=self._listed), statements
            )
        statements = replace(statements, also=self._look.also)
        if not self._seeks:
            return finder_over(self._source, setup, statements)
        return seeking(self._source, statements, setup.params or {}, setup.upper)

    @property
    def _batch_prefix(self) -> str:
        """What the keys of its batches begin with: a second look has others, whatever bounds its pages have."""
        return f"{self._ctx.run_id}:late" if self._looks else str(self._ctx.run_id)

    @property
    def _looks(self) -> bool:
        """Whether a second look is under way."""
        return self._look is not None or self._listed is not None

    def _spending(self, finder: PageFinder) -> Spending | None:
        """Answer what looks behind the batches of the pages, where it matters whether they use the condition up."""
        spec = self._sweep.spec
        if spec.rows.where is None or self._looks:
            return None
        if spec.assignments is not None and (spec.source is not None or self._converges()):
            return None
        left = self._ctx.step.checkpoint(self._named(LEFT_STEP))
        if spec.late == "report":
            if left.get() is None:
                left.put(True)  # nothing is proved of what is not looked behind
            return None

        def note(connection: Any) -> None:
            left.put(True, tx=connection if spec.source is None else None)

        return Spending(finder=finder, note=note, is_noted=left.get() is not None)

    def _look_again(self) -> None:
        """Wait for the writers that were open at the last page, then sweep what is due; a resumed look goes on."""
        if self._setup.is_over_nothing or self._setup.only is not None:
            self._late = Late(proved=True)
            return
        if not self._setup.looks_again:
            return
        swept = self._at.rows
        writers, unsure = self._looked()
        proved = is_proved(self._sweep.spec, self._proof())
        if not proved:
            unsure = _added(unsure, self._count_attached())
        self._late = Late(rows=self._at.rows - swept, writers=writers, unsure=unsure, proved=proved)
        self._tell()

    def _looked(self) -> tuple[int, int | None]:
        """Look again; answer how many writers are open still, and how many rows cannot be told."""
        stored = self._ctx.step.checkpoint(self._named(LATE_STEP)).get()
        if stored is None and needs_snapshot(self._sweep.spec, self._proof()):
            looked = self._look_by_snapshot()
            if looked is not None:
                return looked
        writers = self._open_writers()
        left = self._wait_for(writers) if stored is None else len(self._ask_writers(writers)[0])
        unsure = self._sort_out(writers) if stored is None else 0
        if stored is not None:
            self._look_for(look := self._judge(writers), 0 if look is None else self._count(look.also))
        if stored is not None or self._look is not None:
            self._sweep_again(stored)
        return left, unsure

    def _sort_out(self, writers: Writers) -> int | None:
        """Choose what is looked for, if there may be any; answer how many rows there are that cannot be told."""
        has_where = self._sweep.spec.rows.where is not None
        matching = self._count() if has_where else None
        if matching == 0:
            return 0
        look = self._judge(writers)
        if look is None:
            return self._count(written_by(writers)) if writers.open else 0
        is_slow = has_where and matching is None
        self._look_for(look, None if is_slow else self._count(look.also))
        return 0

    def _look_for(self, look: Look | None, found: int | None) -> None:
        """Look for these rows, if there are any; each is sought where all of them are counted in a moment."""
        self._look = look if found != 0 else None
        self._seeks = found is not None

    def _sweep_again(self, stored: Any) -> None:
        self._step = self._named(LATE_STEP)
        self._began_at = replace(self._at, ended=False)
        self._at, self._stored = self._read_back(stored), stored is not None
        if self._look is not None and not self._at.ended:
            self._work = self._work_for(self._setup)
            self._walk(None)

    def _count(self, also: Composed | None = None) -> int | None:
        """Count the matching rows for which a condition holds.

        None where that takes longer than 2 s, or where an expression of ours fails for a row: its batch is to say so.
        """
        return self._count_of(replace(self._setup.statements(self._sweep.spec.rows), also=also))

    def _count_of(self, rows: Matching) -> int | None:
        values = {**(self._setup.params or {}), **cursor_values("u", self._setup.upper)}
        with self._source.transaction():
            return count_rows(self._source.connection, rows, values)

    def _count_attached(self) -> int | None:
        """Count the rows that came with partitions attached since the sweep began, and of which nothing tells.

        None also where they cannot be counted by themselves: `where` names the whole table, or the role may not.
        """
        setup = self._setup
        if setup.xid is None:
            return 0
        statements = setup.statements(self._sweep.spec.rows)
        with self._source.transaction():
            attached = list(find_attached(self._source.connection, statements, began=setup.xid))
        counted: int | None = 0
        try:
            for rows in attached:
                counted = _added(counted, self._count_of(rows))
        except psycopg.ProgrammingError:
            return None
        return counted

    def _judge(self, writers: Writers) -> Look | None:
        look, others = judge(self._sweep.spec, self._setup, writers, self._proof()), self._not_set_aside()
        return look if look is None or others is None else look.without(others)

    def _proof(self) -> Proof:
        return Proof(uses_up=self._uses_up(), converges=self._converges())

    def _not_set_aside(self) -> Composed | None:
        aside = self._set_aside()
        return not_set_aside(self._setup.table, aside) if aside else None

    def _set_aside(self) -> list[RejectedRow]:
        """Answer the rows that failed by themselves: they would again."""
        store = self._ctx.driver.stores().rejected
        return [] if store is None else store.list(self._ctx.run_id)

    def _converges(self) -> bool:
        return self._setup.converges and self._is_unchanged()

    def _uses_up(self) -> bool:
        """Say whether every batch proved that it left no row which matches still."""
        spec = self._sweep.spec
        is_looked_behind = spec.handler is not None or spec.source is None
        noted = self._ctx.step.checkpoint(self._named(LEFT_STEP)).get()
        return is_looked_behind and self._is_unchanged() and noted is None

    def _is_unchanged(self) -> bool:
        """Whether what it sets, if anything, is what its run began with."""
        assignments = self._sweep.spec.assignments
        return self._setup.assigned == (None if assignments is None else dict(assignments))

    def _tell(self) -> None:
        late, named = self._late, {"sweep": self._sweep.name, "run_id": str(self._ctx.run_id)}
        if late.rows:
            emit("sweeps.late", **named, rows=late.rows)
        if late.writers or late.unsure != 0:
            fix = f"rowsweep sweeps verify {self._sweep.name}"
            emit("sweeps.late.unseen", **named, writers=late.writers, rows=late.unsure, fix=fix)


def _added(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
