"""Counting for a receipt: what of a run's rows still matches, in one snapshot of its database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import psycopg

from rowsweep.errors import InvalidOption, InvalidSweepSql, SweepNotFound, TimedOut
from rowsweep.sweeps.handle import TableSweep
from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.keyset.expressions import cursor_values
from rowsweep.sweeps.late.aside import not_set_aside
from rowsweep.sweeps.late.convergence import would_change
from rowsweep.sweeps.late.judging import only_of
from rowsweep.sweeps.late.look import LEFT_STEP
from rowsweep.sweeps.late.receipts.receipt import KeyRange, Receipt
from rowsweep.sweeps.late.writers import Writers, find_writers
from rowsweep.sweeps.launches.gate import retried_run
from rowsweep.sweeps.passes.position import PAGES_STEP, SETUP_STEP, as_checkpoint
from rowsweep.sweeps.poison.closing import rejected_of
from rowsweep.sweeps.registry import get_sweep
from rowsweep.sweeps.run import ledger_of
from rowsweep.sweeps.setup import Setup, check_rows, check_source
from rowsweep.sweeps.shards.totals import ranges_of, without_end
from rowsweep.sweeps.spec import SweepSpec

if TYPE_CHECKING:
    from psycopg.sql import Composed

    from rowsweep.queue.stores.ledger import Backfill
    from rowsweep.queue.stores.rejected import RejectedRow
    from rowsweep.queue.stores.steps import Step
    from rowsweep.sweeps.passes.position import Position
    from rowsweep.sweeps.run import Host

_TAKEN: Final = "select pg_catalog.pg_current_snapshot()::pg_catalog.text, pg_catalog.now()"


def verify(app: Host, row: Backfill, *, timeout_seconds: float) -> Receipt:
    """Count what still matches of a run's table, in one snapshot; of a run over rejected rows, the one that left them.

    Raises UnknownJob where the sweep is not declared here, SweepNotFound before its pass has begun, InvalidOption
    for a purge, ChangedSinceApplied where it is over other rows now, UnknownSource where the table is gone,
    InvalidSweepSql where the condition fails, TimedOut.
    """
    row = _over_the_table(app, row)
    sweep = get_sweep(row.name)
    if not isinstance(sweep, TableSweep):
        raise InvalidOption(
            f"{row.name!r} is a purge: it has no rows of one table to verify.",
            fix=f"rowsweep sweeps preview {row.name}",
            meta={"option": "run", "kind": row.kind},
        )
    steps = {step.name: step for step in app.driver.stores().steps.list(row.run_id)}
    setup = _setup_of(row, steps)
    check_source(sweep.name, setup, sweep.spec.rows)
    aside = rejected_of(app.driver.stores()).list(row.run_id) if row.rejected_rows else []
    held = sweep.held_on(app, None, sweep.tenant_for(sweep.options.input.parse(row.input)))
    try:
        # Before the snapshot: a writer that ends in between is then in one of the two.
        with held.transaction(reads=True):
            check_rows(held.connection, sweep.spec.rows)
            writers = find_writers(held.connection, setup.table)
        with held.transaction(reads=True):
            held.connection.execute(f"set local statement_timeout = {round(timeout_seconds * 1000)}")
            asked = _Asked(
                connection=held.connection, sweep=sweep, row=row, setup=setup, steps=steps, writers=writers, aside=aside
            )
            return asked.receipt()
    except psycopg.errors.QueryCanceled as error:
        raise TimedOut(
            f"Counting the rows of {setup.table.qualified} took longer than {timeout_seconds:g} s.",
            fix='run.verify(timeout="1h"), or an index that the condition can use',
            meta={"run_id": str(row.run_id)},
        ) from error
    except psycopg.DataError as error:
        raise InvalidSweepSql(
            f"where fails for a row of {setup.table.qualified}. Postgres says: {error.diag.message_primary}",
            fix="mend the row, or write a condition that fails for none",
            meta={"field": "where", "run_id": str(row.run_id), "sqlstate": error.sqlstate},
        ) from error
    finally:
        held.release()


def _over_the_table(app: Host, row: Backfill) -> Backfill:
    """Answer the run whose rows a run tries again, as it stands with what that did; any other run itself."""
    while (retried := retried_run(row.options)) is not None:
        found = ledger_of(app.driver).get(retried)
        if found is None:
            raise SweepNotFound(
                f"Run {row.run_id} tries rows of run {retried} again, which the ledger does not have any more.",
                fix=f"rowsweep ledger --name {row.name}",
                meta={"run_id": str(row.run_id), "retry_of": str(retried)},
            )
        row = found
    return row


def _setup_of(row: Backfill, steps: dict[str, Step]) -> Setup:
    stored = steps.get(SETUP_STEP)
    if stored is None or stored.status != "done":
        raise SweepNotFound(
            f"The pass of run {row.run_id} has not begun: there is nothing to verify yet.",
            fix=f"rowsweep watch {row.run_id}",
            meta={"run_id": str(row.run_id)},
        )
    return Setup.from_json(stored.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """Whose rows are counted, and how."""

    connection: Any
    sweep: TableSweep[Any]
    row: Backfill
    setup: Setup
    steps: dict[str, Step]
    writers: Writers
    aside: Sequence[RejectedRow]

    def receipt(self) -> Receipt:
        """Count, and say when and in which snapshot."""
        taken = run(self.connection, _TAKEN).fetchone()
        assert taken is not None  # noqa: S101 - one row
        row, setup = self.row, self.setup
        matching = self._count()
        return Receipt(
            run_id=str(row.run_id),
            name=row.name,
            status=row.status,
            table=setup.table.qualified,
            where=self.sweep.spec.rows.where,
            rows=row.rows,
            matching=matching,
            due=self._due(matching),
            rejected=row.rejected_rows,
            covered=self._covered(),
            writers=len(self.writers.open),
            snapshot=taken[0],
            at=taken[1],
        )

    def _count(self, also: Composed | None = None) -> int:
        setup = self.setup
        if setup.is_over_nothing:
            return 0
        selected = replace(setup.statements(self.sweep.spec.rows), also=also).matching()
        values = {**(setup.params or {}), **cursor_values("u", setup.upper)}
        whole = psycopg.sql.SQL("select pg_catalog.count(*) from ({}) rs_matching").format(selected)
        found = run(self.connection, whole, values).fetchone()
        assert found is not None  # noqa: S101 - an aggregate
        return int(found[0])

    def _due(self, matching: int) -> int | None:
        sweep, setup = self.sweep, self.setup
        assignments, where = sweep.assignments, sweep.spec.rows.where
        is_unchanged = setup.assigned == (None if assignments is None else dict(assignments))
        if not matching:
            return 0
        if not isinstance(sweep.spec, SweepSpec) or not is_unchanged:
            return None
        if assignments is not None and setup.converges:
            return self._changing(would_change(setup.statements(sweep.spec.rows), assignments))
        uses_up = where is not None and setup.looks_again
        is_looked_behind = assignments is None or sweep.spec.source is None
        return matching if uses_up and is_looked_behind and not _with(self.steps, LEFT_STEP) else None

    def _changing(self, changes: Composed) -> int | None:
        """Count the rows that the expressions would change, with those set aside; None where they fail for another."""
        table, aside = self.setup.table, self.aside
        due = only_of(not_set_aside(table, aside), changes, otherwise=True) if aside else changes
        try:
            with self.connection.transaction():
                return self._count(due)
        except psycopg.DataError:
            return None

    def _covered(self) -> tuple[KeyRange, ...]:
        """Answer the ranges that each job of the run has gone over."""
        places = [as_checkpoint(step.output, step.name) for step in _with(self.steps, PAGES_STEP)]
        if self.setup.upper is None and all(at.range is not None and at.ended for at in places):
            return tuple((each.after, each.to) for each in without_end(ranges_of(places)))
        return tuple(covered for at in places for covered in _behind(at, self.setup.upper))


def _behind(at: Position, upper: tuple[str, ...] | None) -> list[KeyRange]:
    """Answer the ranges behind a position: those that it has passed, and the one that it is in."""
    after, end = (None, upper) if at.range is None else (at.range.after, at.range.to)
    to = end if at.ended else at.cursor
    is_begun = at.ended or to != after
    return [*((each.after, each.to) for each in at.behind), *([(after, to)] if is_begun else [])]


def _with(steps: dict[str, Step], name: str) -> list[Step]:
    """Answer the steps of that name, of each of a run's jobs."""
    return [step for key, step in steps.items() if key == name or key.startswith(f"{name}:")]
